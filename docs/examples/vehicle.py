"""A vehicle that chooses its way: it fills the gaps that others have left, and is compared with a lawn mower."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray

import fleetgp as fg

rcParams["font.size"] = 8
THETA = (0.9, 0.9, 1.0, 0.1)  # of the field, known from an earlier survey; inputs in km
VEHICLE, LENGTH, STEP = 3, 18.0, 0.15  # its number in the fleet; km that its battery lasts; km between measurements
Way = NDArray[np.float64]


def along(corners: Way) -> Way:
    """Places every STEP km on the way over these corners, until the battery is empty."""
    gone = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1)))
    at = np.arange(0.0, min(gone[-1], LENGTH), STEP)
    return np.column_stack([np.interp(at, gone, corners[:, d]) for d in (0, 1)])


def lawn_mower(lines: int = 4) -> Way:
    """To and fro over the whole area (5 km x 4 km), as far as the battery lasts."""
    ys = np.linspace(0.3, 3.7, lines)
    return along(np.array([(x, y) for k, y in enumerate(ys) for x in ((0.3, 4.1) if k % 2 == 0 else (4.1, 0.3))]))


def measured(at: Way, seed: int) -> tuple[Way, NDArray[np.float64]]:
    field = fg.synthetic_field(1, THETA, seed=seed, box=(0.0, 5.0), inputs=at)
    noise = np.random.default_rng([seed, round(1e6 * float(at.sum()))]).standard_normal(len(at))
    return at, field.truth + THETA[-1] * noise


def survey(seed: int) -> fg.Fleet:
    """Three gliders have been about in the west and the south; the vehicle has one measurement, where it was put out."""
    rng, shards = np.random.default_rng(seed), []
    for x, y in ((0.8, 0.8), (1.2, 2.9), (3.6, 0.7)):
        shards.append(measured(np.array([x, y]) + rng.uniform(-0.8, 0.8, (40, 2)), seed))
    return fg.Fleet([*shards, measured(np.array([[0.3, 0.3]]), seed)], "path", theta=THETA, inputs=["x", "y"])


def chosen_way(fleet: fg.Fleet, seed: int, places: Way) -> Way:
    """Five places at a time, where a measurement tells most of the rest; the nearest of them first."""
    corners, here = [np.array([0.3, 0.3])], np.array([0.3, 0.3])
    while len(way := along(np.array(corners))) * STEP < LENGTH - STEP:
        ahead = fleet.suggest(VEHICLE, places, n=5, by="mutual-information").places
        for _ in range(5):
            nearest = int(np.argmin(np.linalg.norm(ahead - here, axis=1)))
            here, ahead = ahead[nearest], np.delete(ahead, nearest, axis=0)
            corners.append(here)
        new = along(np.array(corners))[len(way) :]
        fleet.observe(VEHICLE, *measured(new, seed))  # theta stays; only the vehicle's posterior grows
    return along(np.array(corners))


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    grid = [np.linspace(0.1, end, 14 if quick else 22) for end in (4.9, 3.9)]
    cells = np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, 2)
    places = np.stack(np.meshgrid(np.linspace(0.3, 4.7, 12), np.linspace(0.3, 3.7, 9)), axis=-1).reshape(-1, 2)
    errors: Any = []
    for seed in range(3 if quick else 12):
        mower, chooser = survey(seed), survey(seed)
        mower.observe(VEHICLE, *measured(lawn_mower(), seed))
        way = chosen_way(chooser, seed, places)
        truth = fg.synthetic_field(1, THETA, seed=seed, box=(0.0, 5.0), inputs=cells).truth
        answers = [fleet.predict(cells, "dec-nn-grbcm") for fleet in (mower, chooser)]
        errors.append([fg.score(out, truth, observed=False).rmse for out in answers])
    found = np.array(errors)

    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    *maps, last = figure.subplots(1, 3, width_ratios=[1.25, 1.25, 1.0])
    for ax, name, fleet, path in zip(maps, ("Lawn mower", "Its own way"), (mower, chooser), (lawn_mower(), way), strict=True):
        std = fleet.predict(cells).std.reshape(len(grid[1]), -1)
        image = ax.pcolormesh(*grid, std, cmap="magma", vmin=0.0, vmax=1.0, rasterized=True)
        for own, _ in fleet.seen[:VEHICLE]:
            ax.plot(*own.T, ".", color="white", markersize=2)
        ax.plot(*path.T, color="#56B4E9", linewidth=1.3)
        ax.set(title=f"{name}, {LENGTH:.0f} km", xlabel="x (km)", ylabel="y (km)", aspect="equal")
    figure.colorbar(image, ax=maps, label="standard deviation (°C)", shrink=0.9)
    last.plot([0, 1], found.T, "o-", color="0.6", markersize=3, linewidth=0.8)
    last.plot([0, 1], found.mean(axis=0), "D-", color="#D55E00", label="mean")
    last.set(xticks=[0, 1], xticklabels=["lawn mower", "own way"], ylabel="error of the map (°C)", xlim=(-0.3, 1.3))
    last.set_title(f"{len(found)} draws of the field")
    last.legend(frameon=False)
    return figure, {
        "error, lawn mower, °C": float(found[:, 0].mean()),
        "error, own way, °C": float(found[:, 1].mean()),
        "draws of the field": float(len(found)),
        "of these, own way was better in": float((found[:, 1] < found[:, 0]).sum()),
    }


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("vehicle.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
