"""Figures. Each function draws one picture and returns it; saving is the caller's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from fleetgp.arrays import Array
from fleetgp.data import Field, Shard, synthetic_field
from fleetgp.gp.hyperparameters import names
from fleetgp.plot.fields import draw_dots, draw_graph
from fleetgp.plot.style import agent_colours, symbol
from fleetgp.plot.trainings import draw_history
from fleetgp.prediction import Prediction
from fleetgp.training import Fit

TRUTH = {"color": "black", "linestyle": "--", "linewidth": 1.2}
FULL = {"color": "tab:red", "linestyle": ":", "linewidth": 1.6}


def training_figure(field: Field, shards: list[Shard], fit: Fit, full: Fit, seed: int) -> Figure:
    """The field, the agents' stripes, and how every agent's hyperparameters come together."""
    figure = Figure(figsize=(13, 7.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1.3, 1.0], squeeze=False).ravel()
    left, middle, right = above.subplots(1, 3)
    _draw_field(above, left, field, seed)
    _draw_stripes(middle, shards)
    _draw_spread(right, fit)
    labels = names(field.inputs.shape[1])
    panels = np.atleast_1d(below.subplots(1, len(labels)))
    for j, (name, ax) in enumerate(zip(labels, panels, strict=True)):
        draw_history(ax, fit.history[:, :, j])
        ax.axhline(field.theta[j], label="truth", **TRUTH)
        ax.axhline(full.theta[j], label="full-gp (all data pooled)", **FULL)
        ax.set_title(f"{symbol(name)} of every agent")
        ax.set_xscale("symlog", linthresh=10)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
        ax.tick_params(axis="y", which="minor", labelsize=7)
    panels[0].legend(fontsize=8, frameon=False)
    figure.suptitle(
        f"{len(shards)} agents on a path agree by {fit.method}, and no agent hands over all its data", fontsize=13
    )
    return figure


def map_figure(
    truth: Array, full: Prediction, prediction: Prediction, shards: list[Shard], extent: tuple[float, float]
) -> Figure:
    """The predicted mean and standard deviation on a square grid, beside the truth, and who took part."""
    side = round(len(truth) ** 0.5)
    figure = Figure(figsize=(13, 7.4), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    low, high = float(truth.min()), float(truth.max())
    deviation = np.sqrt(prediction.variance)
    top = float(max(deviation.max(), np.sqrt(full.variance).max()))
    images: list[tuple[str, Array, dict[str, Any]]] = [
        ("The truth", truth, {"cmap": "viridis", "vmin": low, "vmax": high}),
        (f"Mean, {prediction.method}", prediction.mean, {"cmap": "viridis", "vmin": low, "vmax": high}),
        ("Mean, full-gp (all data pooled)", full.mean, {"cmap": "viridis", "vmin": low, "vmax": high}),
        (
            "Agents that took part",
            prediction.participants.sum(axis=0).astype(float),
            {"cmap": "Greys", "vmin": 0, "vmax": len(shards)},
        ),
        (f"Standard deviation, {prediction.method}", deviation, {"cmap": "magma", "vmin": 0.0, "vmax": top}),
        ("Standard deviation, full-gp", np.sqrt(full.variance), {"cmap": "magma", "vmin": 0.0, "vmax": top}),
    ]
    for ax, (title, values, style) in zip(panels, images, strict=True):
        image = ax.imshow(
            values.reshape(side, side).T, origin="lower", extent=(*extent, *extent), aspect="equal", **style
        )
        figure.colorbar(image, ax=ax, shrink=0.85)
        ax.set(title=title, xlabel="$x_1$", ylabel="$x_2$")
        for left, right in pairwise(shards):
            border = 0.5 * (left[0][:, 0].max() + right[0][:, 0].min())
            ax.axvline(border, color="white" if style["cmap"] != "Greys" else "tab:red", linewidth=0.5, alpha=0.6)
    figure.suptitle(
        f"What every one of the {len(shards)} agents answers (thin lines: the agents' stripes)", fontsize=13
    )
    return figure


def _draw_field(figure: FigureBase, ax: Axes, field: Field, seed: int) -> None:
    side = 140
    low, high = 0.0, 2.0
    grid = synthetic_field(side * side, tuple(field.theta), seed=seed, box=(low, high), inputs="grid")
    image = ax.imshow(
        grid.truth.reshape(side, side).T, origin="lower", extent=(low, high, low, high), cmap="viridis", aspect="equal"
    )
    figure.colorbar(image, ax=ax, shrink=0.85, label="f(x)")
    ax.set(title="The field", xlabel="$x_1$", ylabel="$x_2$")


def _draw_stripes(ax: Axes, shards: list[Shard]) -> None:
    colours, centres = agent_colours(len(shards)), np.array([x.mean(axis=0) for x, _ in shards])
    draw_dots(ax, [x for x, _ in shards], colours)
    path = np.array(list(pairwise(range(len(shards)))))
    draw_graph(ax, centres, path, colours, [str(agent) for agent in range(len(shards))])
    ax.set(title="Each agent's observations, and the graph", xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    ax.margins(0.02)


def _draw_spread(ax: Axes, fit: Fit) -> None:
    spread = np.ptp(np.log(fit.history), axis=1)
    rounds = np.arange(len(spread))
    for j, name in enumerate(names(spread.shape[1] - 2)):
        positive = spread[:, j] > 0.0
        ax.semilogy(rounds[positive], spread[positive, j], label=symbol(name), linewidth=1.4)
    ax.set(title="Disagreement in $\\log\\theta$", xlabel="round", xlim=(0, rounds[-1]))
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, ncols=4, fontsize=9)
