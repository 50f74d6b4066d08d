"""The training experiment's figures. Each function draws one and returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import fleetgp as fg
from fleetgp.plot.style import symbol
from reproduction.paper import TRAINERS
from reproduction.report import COLOURS
from reproduction.training import BLOCKS, PARAMETERS, PROPOSED, TRUTH, Groups, TrainingPlan, each


def hyperparameter_figure(plan: TrainingPlan, found: Groups, size: int) -> Figure:
    """Rows: hyperparameters; columns: fleets; one box a method."""
    fleets = plan.fleets
    figure = Figure(figsize=(7.2, 7.6), layout="constrained")
    axes = figure.subplots(len(PARAMETERS), len(fleets), sharey="row", sharex="col", squeeze=False)
    for column, agents in enumerate(fleets):
        methods = [m for m in TRAINERS if (size, 1 if m == "full-gp" else agents, m) in found]
        for row, parameter in enumerate(PARAMETERS):
            panel = axes[row, column]
            for place, method in enumerate(methods):
                values = found[size, 1 if method == "full-gp" else agents, method].thetas[:, row]
                _box(panel, place, values, COLOURS[1] if method in PROPOSED else COLOURS[0])
            panel.axhline(TRUTH[row], color="black", linestyle="--", linewidth=1.0)
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("{x:g}")
            panel.tick_params(axis="y", which="minor", labelsize=6)
            panel.set_xticks(range(len(methods)), methods, rotation=90)
            panel.grid(axis="x", visible=False)
            if row == 0:
                panel.set_title(f"M = {agents}")
            if column == 0:
                panel.set_ylabel(symbol(parameter))
    kinds = ((COLOURS[0], "known before the paper"), (COLOURS[1], "proposed by the paper"))
    handles: list[Any] = [Patch(facecolor=colour, alpha=0.6, label=label) for colour, label in kinds]
    handles.append(Line2D([], [], color="black", linestyle="--", linewidth=1.0, label="truth"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def _box(panel: Any, place: int, values: Any, colour: str) -> None:
    if len(values) < 4:
        panel.plot([place] * len(values), values, "o", color=colour, markersize=3)
        return
    panel.boxplot(
        [values],
        positions=[place],
        widths=0.6,
        whis=(0, 100),
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "alpha": 0.5, "edgecolor": colour},
        medianprops={"color": "black"},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )


def length_scale_figure(plan: TrainingPlan, blocks: Mapping[str, Groups]) -> Figure:
    """l_1 against M, by method, for both blocks."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    size = plan.sizes[0]
    panels = figure.subplots(1, 2, sharey=True)
    methods = ("apx-gp", "gapx-gp", "dec-apx-gp", "dec-gapx-gp", "fact-gp", "g-fact-gp")
    for panel, (block, title) in zip(panels, BLOCKS.items(), strict=True):
        for number, method in enumerate(methods):
            found = each(plan, blocks[block], method, size)
            middle = [float(np.median(g.thetas[:, 0])) for _, g in found]
            low = [float(np.percentile(g.thetas[:, 0], 25)) for _, g in found]
            high = [float(np.percentile(g.thetas[:, 0], 75)) for _, g in found]
            places = [a * (1.0 + 0.02 * (number - 2.5)) for a, _ in found]
            panel.errorbar(
                places,
                middle,
                yerr=[np.subtract(middle, low), np.subtract(high, middle)],
                color=COLOURS[number],
                marker="osD^vx"[number],
                capsize=2,
                linestyle="-" if number < 4 else ":",
                label=method,
            )
        panel.axhline(TRUTH[0], color="black", linestyle="--", linewidth=1.0, label="truth")
        panel.set(xscale="log", xlabel="agents M", title=f"{title}, N = {size:,}")
        panel.set_xticks(plan.fleets, [str(m) for m in plan.fleets])
        panel.minorticks_off()
    panels[0].set_ylabel(f"{symbol('l_1')} (units of the box [0, 2])")
    panels[1].legend(ncols=2, frameon=False)
    return figure


def field_figure(plan: TrainingPlan) -> Figure:
    """Five fields."""
    figure = Figure(figsize=(7.2, 1.9), layout="constrained")
    side = 90
    panels = figure.subplots(1, 5, sharey=True)
    draws = [fg.synthetic_field(side * side, seed=plan.seed + n, inputs="grid").truth for n in range(5)]
    top = max(float(np.abs(draw).max()) for draw in draws)
    for number, (panel, draw) in enumerate(zip(panels, draws, strict=True)):
        image = panel.imshow(
            draw.reshape(side, side).T, origin="lower", extent=(0, 2, 0, 2), cmap="viridis", vmin=-top, vmax=top
        )
        panel.set(title=f"seed {plan.seed + number}", xlabel="$x_1$", xticks=[0, 1, 2], yticks=[0, 1, 2])
        panel.grid(visible=False)
    panels[0].set_ylabel("$x_2$")
    figure.colorbar(image, ax=panels, label="f(x)", shrink=0.8)
    return figure
