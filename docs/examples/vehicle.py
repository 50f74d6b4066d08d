"""A vehicle that chooses its way: it fills the gaps that others have left, and is compared with a lawn mower."""

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray

import fleetgp as fg

rcParams["font.size"] = 8
THETA = (0.9, 0.9, 1.0, 0.1)  # of the field, known from an earlier survey: km, km, °C, °C
VEHICLE, LENGTH, STEP = 3, 18.0, 0.15  # its number in the fleet; km that its battery lasts; km between measurements
MOWN = ((0.5, 0.2), (1.8, 3.7), (3.1, 0.2), (4.4, 3.7))  # columns of the lawn mower, and where it comes into each
START = np.array([0.3, 0.3])
Way = NDArray[np.float64]


def along(corners: Way) -> Way:
    """Places every STEP km on the way over these corners, until the battery is empty."""
    gone = np.cumsum(np.linalg.norm(np.diff(corners, axis=0, prepend=corners[:1]), axis=1))
    at = np.arange(STEP, min(gone[-1], LENGTH), STEP)
    return np.column_stack([np.interp(at, gone, corners[:, d]) for d in (0, 1)])


def water(at: Way, seed: int, who: int | None = None) -> Way:
    """The temperature at these places, in the draw of the field with this seed; as this agent measures it, if any."""
    noise = 0.0 if who is None else THETA[-1] * np.random.default_rng([seed, who]).standard_normal(len(at))
    return np.asarray(fg.synthetic_field(1, THETA, seed=seed, box=(-1.0, 6.0), inputs=at).truth + noise)


def survey(seed: int) -> fg.Fleet:
    """Three gliders have been about in the west and the south; the vehicle has measured where it was put out."""
    rng, centres = np.random.default_rng(seed), ((0.8, 0.8), (1.2, 2.9), (3.6, 0.7))
    seen = [*(centre + rng.uniform(-0.8, 0.8, (40, 2)) for centre in centres), START[None]]
    return fg.Fleet([(x, water(x, seed, k)) for k, x in enumerate(seen)], theta=THETA, kernel="se", normalize=False)


def own_way(fleet: fg.Fleet, places: Way, seed: int) -> Way:
    """Five places at a time, where a measurement tells most of all others; the nearest of them first."""
    corners, way = [START], np.zeros((0, 2))
    while len(way) * STEP < LENGTH - 2 * STEP:
        ahead = fleet.suggest(VEHICLE, places, n=5, criterion="mutual-information").places
        while len(ahead):
            nearest = np.argmin(np.linalg.norm(ahead - corners[-1], axis=1))
            corners, ahead = [*corners, ahead[nearest]], np.delete(ahead, nearest, axis=0)
        before, way = len(way), along(np.array(corners))
        fleet.observe(VEHICLE, way[before:], water(way, seed, VEHICLE)[before:])  # theta stays
    return way


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    x, y = np.linspace(0.1, 4.9, 40), np.linspace(0.1, 3.9, 31)
    cells, places = (np.stack(np.meshgrid(x[::k], y[::k]), axis=-1).reshape(-1, 2) for k in (1, 3))
    mown, errors = along(np.array([(column, end) for column, first in MOWN for end in (first, 3.9 - first)])), []
    for seed in range(6 if quick else 12):
        mower, chooser = survey(seed), survey(seed)
        mower.observe(VEHICLE, mown, water(mown, seed, VEHICLE))
        ways = mown, own_way(chooser, places, seed)
        answers = [fleet.predict(cells) for fleet in (mower, chooser)]
        errors.append([fg.metrics.rmse(out.mean, water(cells, seed)) for out in answers])

    figure, found = Figure(figsize=(9.0, 2.6), layout="constrained"), np.array(errors)
    *maps, last = figure.subplots(1, 3, width_ratios=[1.25, 1.25, 0.9])
    for ax, name, out, way in zip(maps, ("Lawn mower, 18 km", "Its own way, 18 km"), answers, ways, strict=True):
        image = ax.pcolormesh(x, y, out.std.reshape(len(y), -1), cmap="magma", vmin=0.0, vmax=1.0, rasterized=True)
        ax.plot(*np.concatenate([own for own, _ in mower.shards[:VEHICLE]]).T, ".", color="white", markersize=2)
        ax.plot(*way.T, color="#56B4E9", linewidth=1.5)
        ax.set(title=name, xlabel="x (km)", ylabel="y (km)", aspect="equal", xlim=(0, 5), ylim=(0, 4))
    figure.colorbar(image, ax=maps, label="standard deviation (°C)", shrink=0.9)
    last.plot([0, 1], found.T, "o-", color="0.6", markersize=3, linewidth=0.8)
    last.plot([0, 1], found.mean(axis=0), "D-", color="#D55E00")
    last.set(xticks=[0, 1], xticklabels=["lawn mower", "own way"], ylabel="error (°C)", title=f"{len(found)} draws")
    numbers = dict(zip(("error, lawn mower, °C", "error, own way, °C"), found.mean(axis=0).tolist(), strict=True))
    return figure, numbers | {"share of draws where its own way wins": float((found[:, 1] < found[:, 0]).mean())}


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("vehicle.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
