"""Mean functions: what a map becomes where nobody has been."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.figure import FigureBase
from panels import SECOND, TRUTH, Panel, dot, empty_figure, map_rows, mean_row
from scenes import Drawn, Size, map_points, rounded, scene, scores

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.prediction import Prediction

#: The map reaches beyond the data, which end here.
LONG, WIDE, END = 4.0, 2.0, 2.0
SLOPE, LEVEL = 1.2, 5.0
THETA = (0.6, 0.6, 0.5, 0.1)
MEANS: tuple[Literal["zero", "constant", "linear"], ...] = ("zero", "constant", "linear")


def means(size: Size) -> Drawn:
    """A field with a trend, observed in its left half."""
    places = np.random.default_rng([8, 0]).uniform((0.0, 0.0), (END, WIDE), (size.of(240), 2))
    grid = map_points(size.side, (0.0, 0.0), (LONG, WIDE))
    plain = scene("matern32", THETA, grid, places, seed=8)
    truth = plain.truth + LEVEL + SLOPE * grid[:, 0]
    observations = plain.observations + LEVEL + SLOPE * places[:, 0]
    shards = fg.partition(places, observations, agents=4, by="kmeans")
    found: dict[str, Prediction] = {}
    facts: dict[str, Any] = {}
    for mean in MEANS:
        fleet = fg.Fleet(shards, "complete", kernel="matern32", mean=mean, normalize=False)
        fit = fleet.train()
        found[mean] = fleet.predict(grid, "dec-grbcm")
        facts[mean] = {"beyond the data": scores(found[mean], truth, grid[:, 0] > END), "l_1": rounded(fit.theta[0])}
        if fit.mean is not None:
            named = zip(fit.mean.named(None).items(), fit.mean.errors, strict=True)
            facts[mean] |= {name: [rounded(value), rounded(error)] for (name, value), error in named}
    figure = empty_figure(4.0)
    above, below = figure.subfigures(2, 1, height_ratios=[1.0, 1.35], squeeze=False).ravel()
    panels = [Panel("truth", truth), *(Panel(f'mean="{name}"', one.mean) for name, one in found.items())]
    for ax in map_rows(above, [mean_row(panels, truth)], (0.0, LONG, 0.0, WIDE))[0]:
        dot(ax, places, s=2.0, linewidths=0.25)
    _sections(below, grid, truth, found, size.side)
    return Drawn(figure, facts)


def _sections(figure: FigureBase, grid: Array, truth: Array, found: dict[str, Prediction], side: int) -> None:
    """Along the middle of the map: the truth, the mean and its 95 % interval."""
    row = slice(side // 2 * side, (side // 2 + 1) * side)
    x = grid[row, 0]
    axes = figure.subplots(1, len(found), sharex=True, sharey=True)
    for ax, (name, one) in zip(axes, found.items(), strict=True):
        centre, reach = one.mean[row], 1.96 * np.sqrt(one.variance[row])
        ax.axvspan(0.0, END, color="0.93", linewidth=0)
        ax.fill_between(x, centre - reach, centre + reach, color=SECOND, alpha=0.25, linewidth=0, label="95 %")
        ax.plot(x, truth[row], color=TRUTH, linewidth=1.0, linestyle="--", label="truth")
        ax.plot(x, centre, color=SECOND, linewidth=1.4, label="mean")
        ax.set(title=f'mean="{name}"', xlabel="$x_1$, where $x_2$ = 1", xlim=(0.0, LONG))
    axes[0].legend(frameon=False, loc="lower left")
