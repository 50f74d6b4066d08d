"""Terrain with ten robots: heights, slopes, and where it is safe to drive."""

import numpy as np
from matplotlib import rcParams
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

import fleetgp as fg

rcParams["font.size"] = 8
STEEPEST, AREA = 12.0, 400.0  # degrees that a robot may climb; m that the area is wide
COLOURS = {"safe": "#009E73", "not known": "#F0E442", "too steep": "#D55E00"}


def height(at: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) m above the camp at places (N, 2): fifteen hills and hollows on a gentle slope."""
    rng = np.random.default_rng(7)
    tops, widths, sizes = rng.uniform(0, AREA, (15, 2)), rng.uniform(30, 70, 15), rng.uniform(-12, 24, 15)
    apart = ((at[:, None] - tops) ** 2).sum(axis=2)
    return np.asarray(0.02 * at[:, 0] + np.exp(-apart / (2 * widths**2)) @ sizes)


def drive(robots: int, rows: int) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(X, y) of each robot, which wanders about its own part of the area; its altimeter is good to 0.3 m."""
    rng, shards = np.random.default_rng(1), []
    for number in range(robots):
        middle = np.array([(number % 5 + 0.5) * AREA / 5, (number // 5 + 0.5) * AREA / 2])
        turns, half = np.cumsum(rng.normal(0.0, 0.5, rows)), np.array([0.12, 0.3]) * AREA
        steps = np.cumsum(6.0 * np.column_stack([np.cos(turns), np.sin(turns)]), axis=0)
        X = np.clip(
            middle + half * np.arcsin(np.sin(1.57 * steps / half)) / 1.57, 0, AREA
        )  # it turns back at its borders
        shards.append((X, height(X) + 0.3 * rng.standard_normal(rows)))
    return shards


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    fleet = fg.Fleet(
        drive(10, rows=25 if quick else 90), "places", kernel="matern52", mean="constant", inputs=["x", "y"]
    )
    fleet.units, fleet.target = {"x": "m", "y": "m", "height": "m"}, "height"
    fit = fleet.train()
    ground = fleet.map((12, 12) if quick else (48, 48), box=(0, 0, AREA, AREA), method="dec-nearest", within=np.inf)
    x, y = np.meshgrid(ground["x"], ground["y"])
    cells = np.column_stack([x.ravel(), y.ravel()])
    # The gradient of the mean and how well it is known: as one robot with all rows would say.
    found = fleet.gradient(cells, "dec-nearest")
    slope, unsure = (np.linalg.norm(np.asarray(each), axis=1) for each in (found.gradient, found.std))
    safe = np.degrees(np.arctan(slope + 2.0 * unsure)) < STEEPEST
    steep = np.degrees(np.arctan(slope - 2.0 * unsure)) > STEEPEST
    truth = np.column_stack([50.0 * (height(cells + e) - height(cells - e)) for e in 0.01 * np.eye(2)])
    true_slope = np.degrees(np.arctan(np.linalg.norm(truth, axis=1)))

    figure = Figure(figsize=(9.0, 2.7), layout="constrained")
    first, second, third = figure.subplots(1, 3, sharey=True)
    fg.plot.field(fleet, ax=first, names=False).set_title("Ten robots and their links")
    image = second.contourf(x, y, ground["height"], levels=16, cmap="cividis")
    figure.colorbar(image, ax=second, label="height (m)", shrink=0.8)
    verdict = np.where(safe, 0, np.where(steep, 2, 1)).reshape(x.shape)
    third.pcolormesh(x, y, verdict, cmap=ListedColormap(list(COLOURS.values())), vmin=0, vmax=2)
    third.contour(x, y, true_slope.reshape(x.shape), levels=[STEEPEST], colors="black", linewidths=1.0)
    figure.legend(
        handles=[Patch(color=c, label=name) for name, c in COLOURS.items()], loc="outside right center", frameon=False
    )
    for ax, title in ((second, "Height"), (third, f"Steeper than {STEEPEST:.0f}°? (line: truth)")):
        ax.set(title=title, xlabel="x (m)", aspect="equal")
    return figure, {
        "error of the heights, m": fg.metrics.rmse(ground["height"].values.ravel(), height(cells)),
        "noise of an altimeter, m (0.3 in truth)": float(fit.theta[-1]),
        "share of the area called safe": float(safe.mean()),
        "of these, share that is not": float((true_slope[safe] > STEEPEST).mean()),
    }


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("terrain.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
