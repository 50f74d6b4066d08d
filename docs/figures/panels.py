"""Small multiples: rows of maps, each row with one colour scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.prediction import Prediction

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
#: Inches: the width of a page of text.
WIDTH = 8.6
#: Colours and marks that stay apart for everybody: for curves, and for agents.
TRUTH, FIRST, SECOND = "black", "#d55e00", "#0072b2"
AGENTS = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#56b4e9", "v"))
Extent = tuple[float, float, float, float]
Aspect = float | Literal["equal"]


@dataclass(frozen=True)
class Panel:
    """values: (T,) on the points of a map, rows after rows."""

    title: str
    values: Array


@dataclass(frozen=True)
class Row:
    """A row of maps. label: of their colour scale.  low, high: its ends; those of the values where there are none.

    shards: whose observations are shown in a panel of their own, before the others.
    """

    panels: Sequence[Panel]
    label: str
    cmap: str = "viridis"
    low: float | None = None
    high: float | None = None
    shards: Sequence[Shard] = ()


def mean_and_std_rows(
    truth: Array, answers: dict[str, Prediction], shards: Sequence[Shard], first: str = "truth"
) -> list[Row]:
    """Two rows: the truth and the means, on its scale; the agents, and the standard deviations."""
    means = [Panel(first, truth), *(Panel(title, one.mean) for title, one in answers.items())]
    deviations = [Panel("", np.sqrt(one.variance)) for one in answers.values()]
    return [mean_row(means, truth), Row(deviations, "standard deviation", "cividis", 0.0, shards=shards)]


def mean_row(panels: Sequence[Panel], truth: Array) -> Row:
    """On the scale of the truth."""
    return Row(panels, "mean", "viridis", float(truth.min()), float(truth.max()))


def map_rows(
    figure: FigureBase,
    rows: Sequence[Row],
    extent: Extent,
    dots: Array | None = None,
    *,
    labels: tuple[str, str] = ("$x_1$", "$x_2$"),
    aspect: Aspect = "equal",
    **style: Any,
) -> list[list[Axes]]:
    """Draw them. dots: (N, 2) observations, on all maps; not where the agents are shown.  style: of the dots."""
    columns = max(len(row.panels) + bool(row.shards) for row in rows)
    axes = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
    for line, row in zip(axes, rows, strict=True):
        places = list(line)
        if row.shards:
            show_agents(places.pop(0), row.shards, extent, aspect)
        _maps(figure, places, row, extent, aspect)
        if dots is not None:
            for ax in places:
                dot(ax, dots, **style)
        line[0].set_ylabel(labels[1])
    for ax in axes[-1]:
        ax.set_xlabel(labels[0])
    return [list(line) for line in axes]


def _maps(figure: FigureBase, axes: Sequence[Axes], row: Row, extent: Extent, aspect: Aspect) -> None:
    seen = np.concatenate([panel.values for panel in row.panels])
    ends: dict[str, Any] = {
        "vmin": float(seen.min()) if row.low is None else row.low,
        "vmax": float(seen.max()) if row.high is None else row.high,
    }
    for ax, panel in zip(axes, row.panels, strict=True):
        side = round(len(panel.values) ** 0.5)
        image = ax.imshow(
            panel.values.reshape(side, side), origin="lower", extent=extent, aspect=aspect, cmap=row.cmap, **ends
        )
        ax.set_title(panel.title)
    figure.colorbar(image, cax=axes[-1].inset_axes((1.06, 0.0, 0.06, 1.0)), label=row.label)


def show_agents(ax: Axes, shards: Sequence[Shard], extent: Extent, aspect: Aspect) -> None:
    """Whose observations are where."""
    for (places, _), (colour, mark) in zip(shards, AGENTS, strict=False):
        ax.scatter(
            places[:, 0],
            places[:, 1],
            s=min(24.0, max(6.0, 400.0 / len(shards[0][1]))),
            color=colour,
            marker=mark,
            linewidths=0,
        )
    ax.set(title="the agents", xlim=extent[:2], ylim=extent[2:], aspect=aspect)


def dot(ax: Axes, places: Array, **style: Any) -> None:
    """Observations, which are seen on light and dark."""
    usual: dict[str, Any] = {"s": 4.0, "color": "white", "edgecolors": "black", "linewidths": 0.35}
    ax.scatter(places[:, 0], places[:, 1], **usual | style)


def empty_figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH, height), layout="constrained")
