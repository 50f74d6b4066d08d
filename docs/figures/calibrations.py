"""Calibration: what intervals promise, and what they cover, among the data and in gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from panels import FIRST, SECOND, Panel, Row, empty_figure, map_rows
from scenes import BOX, Drawn, Size, anywhere, map_points, rounded, scene

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray
from fleetgp.metrics import coverage
from fleetgp.prediction import Prediction

KERNEL, THETA = "matern12", (0.8, 0.8, 1.0, 0.1)
METHOD, AGENTS = "dec-rbcm", 16
#: Cells of the box along each axis, and how many of them there are for one that nobody observes.
CELLS, EVERY = 8, 9
LEVELS = np.linspace(0.05, 0.99, 48)


def holes(places: Array) -> BoolArray:
    """Whether places lie in cells that nobody observes."""
    cells = np.clip((places / BOX[1] * CELLS).astype(int), 0, CELLS - 1)
    return np.asarray((5 * cells[:, 0] + 7 * cells[:, 1]) % EVERY == 2)


def new_places(size: Size) -> Array:
    """As many in gaps as there are, and some among the data."""
    anyone = anywhere(size.of(5000), 61)
    return np.concatenate([anyone[holes(anyone)], anyone[~holes(anyone)][: size.of(600)]])


def calibration(size: Size) -> Drawn:
    """Observations at new places, among the data and in gaps, before and after. The agents are all over the area."""
    asked, grid = new_places(size), map_points(size.side)
    seen = scene(KERNEL, THETA, asked, anywhere(size.of(1600), 6), seed=6)
    seen = seen.kept(~holes(seen.places))
    new = seen.truth + THETA[-1] * np.random.default_rng([6, 3]).standard_normal(len(asked))
    shards = fg.partition(seen.places, seen.observations, agents=AGENTS, by="random")
    fleet = fg.Fleet(shards, "cycle", kernel=KERNEL, normalize=False)
    fleet.train()
    found = {"before": (fleet.predict(asked, METHOD, noisy=True), fleet.predict(grid, METHOD))}
    how = fleet.calibrate(METHOD)
    found["after"] = fleet.predict(asked, METHOD, noisy=True), fleet.predict(grid, METHOD)
    figure = empty_figure(2.5)
    left, right = figure.subfigures(1, 2, width_ratios=[1.15, 1.0], squeeze=False).ravel()
    panels = [Panel(title, np.sqrt(on_map.variance)) for title, (_, on_map) in found.items()]
    map_rows(left, [Row(panels, "standard deviation", "cividis", 0.0)], (*BOX, *BOX))
    facts: dict[str, Any] = {knot.hold: {"factor": rounded(knot.factor)} for knot in how.knots}
    facts["observations"] = len(seen.places)
    axes = right.subplots(1, 2, sharex=True, sharey=True)
    for ax, title, where in zip(axes, ("among the data", "in gaps"), (~holes(asked), holes(asked)), strict=True):
        told = {name: one for name, (one, _) in found.items()}
        facts[title] = _reliability(ax, title, told, new, where)
    axes[0].set_ylabel("covered")
    axes[0].legend(frameon=False, loc="upper left")
    return Drawn(figure, facts)


def _reliability(
    ax: Axes, title: str, found: dict[str, Prediction], truth: Array, where: BoolArray
) -> dict[str, float]:
    """The share that is covered, against the nominal one; what it is for 95 %."""
    facts: dict[str, float] = {"places": int(where.sum())}
    for (name, one), (colour, style) in zip(found.items(), ((FIRST, "--"), (SECOND, "-")), strict=True):
        seen = one.mean[where], one.variance[where], truth[where]
        shares = [coverage(*seen, level) for level in LEVELS]
        ax.plot(LEVELS, shares, color=colour, linestyle=style, linewidth=1.5, label=name)
        facts[name] = rounded(coverage(*seen))
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
    ax.set(
        title=title, xlabel="nominal", xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1)
    )
    return facts
