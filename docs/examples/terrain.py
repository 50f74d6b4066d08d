"""Terrain with ten robots: heights, slopes, and where it is safe to drive."""

from __future__ import annotations

import numpy as np
from matplotlib import rcParams
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

import fleetgp as fg

rcParams["font.size"] = 8
STEEPEST = 12.0  # degrees that a robot may climb
AREA = 400.0  # m
COLOURS = {"safe": "#009E73", "not known": "#F0E442", "too steep": "#D55E00"}


def height(at: NDArray[np.float64], seed: int = 7) -> NDArray[np.float64]:
    """(N,) m above the camp at places (N, 2): fifteen hills and hollows on a gentle slope."""
    rng = np.random.default_rng(seed)
    tops, widths, sizes = rng.uniform(0, AREA, (15, 2)), rng.uniform(30, 70, 15), rng.uniform(-12, 24, 15)
    hills = [s * np.exp(-((at - top) ** 2).sum(axis=1) / (2 * w**2)) for top, w, s in zip(tops, widths, sizes, strict=True)]
    return np.asarray(0.02 * at[:, 0] + np.sum(hills, axis=0))


def drive(robots: int, rows: int, seed: int = 1) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(X, y) of each robot, which wanders about its own part of the area; its altimeter is good to 0.3 m."""
    rng, shards = np.random.default_rng(seed), []
    for number in range(robots):
        middle = np.array([(number % 5 + 0.5) * AREA / 5, (number // 5 + 0.5) * AREA / 2])
        turns = np.cumsum(rng.normal(0.0, 0.5, rows))
        steps = np.cumsum(6.0 * np.column_stack([np.cos(turns), np.sin(turns)]), axis=0)
        half = np.array([0.6 * AREA / 5, 0.6 * AREA / 2])
        X = middle + half * (2.0 / np.pi) * np.arcsin(np.sin(steps / half * (np.pi / 2.0)))  # turns back at its borders
        X = np.clip(X, 0.0, AREA)
        shards.append((X, height(X) + 0.3 * rng.standard_normal(rows)))
    return shards


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    shards = drive(10, rows=25 if quick else 90)
    fleet = fg.Fleet(shards, "places", kernel="matern52", mean="constant", inputs=["x", "y"])
    fleet.units, fleet.target = {"x": "m", "y": "m", "height": "m"}, "height"
    fit = fleet.train()
    side = 12 if quick else 48
    ground = fleet.map((side, side), box=(0, 0, AREA, AREA), method="dec-nearest", within=np.inf)
    x, y = np.meshgrid(ground["x"], ground["y"])
    cells = np.column_stack([x.ravel(), y.ravel()])

    # The gradient of the mean and how well it is known: as one robot with all rows would say.
    found = fleet.gradient(cells, "dec-nearest")
    assert found.std is not None  # exact methods have it
    slope = np.linalg.norm(found.gradient, axis=1)
    unsure = np.linalg.norm(found.std, axis=1)
    safe = np.degrees(np.arctan(slope + 2.0 * unsure)) < STEEPEST
    steep = np.degrees(np.arctan(slope - 2.0 * unsure)) > STEEPEST

    step = 0.01  # m
    truth = np.column_stack([(height(cells + e) - height(cells - e)) / (2 * step) for e in step * np.eye(2)])
    true_slope = np.degrees(np.arctan(np.linalg.norm(truth, axis=1)))

    figure = Figure(figsize=(9.0, 2.7), layout="constrained")
    first, second, third = figure.subplots(1, 3, sharey=True)
    fg.plot.field(fleet, ax=first, names=False).set_title("Ten robots and their links")
    image = second.contourf(x, y, ground["height"], levels=16, cmap="cividis")
    figure.colorbar(image, ax=second, label="height (m)", shrink=0.8)
    verdict = np.where(safe, 0, np.where(steep, 2, 1)).reshape(x.shape)
    third.pcolormesh(x, y, verdict, cmap=ListedColormap(list(COLOURS.values())), vmin=0, vmax=2)
    third.contour(x, y, true_slope.reshape(x.shape), levels=[STEEPEST], colors="black", linewidths=1.0)
    marks = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=marks, loc="outside right center", frameon=False)
    second.set(title="Height", xlabel="x (m)", aspect="equal")
    third.set(title=f"Steeper than {STEEPEST:.0f}°? (line: truth)", xlabel="x (m)", aspect="equal")
    off = np.sqrt(np.mean((ground["height"].values.ravel() - height(cells)) ** 2))
    return figure, {
        "error of the heights, m": float(off),
        "noise of an altimeter, m (0.3 in truth)": float(fit.theta[-1]),
        "share of the area called safe": float(safe.mean()),
        "of these, share that is not": float((true_slope[safe] > STEEPEST).mean()),
        "kB sent to train": fit.ledger.bytes / 1e3,
    }


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("terrain.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
