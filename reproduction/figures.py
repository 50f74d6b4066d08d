"""The figures of the pages. Each function draws one from plain values and returns it; saving is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.model.hyperparameters import names
from fleetgp.plot.style import COLOURS as OKABE_ITO
from fleetgp.plot.style import symbol
from reproduction.paper import FIVE, PROPOSED, TRAINERS
from reproduction.report import Rows, mean_of

#: The colours of plots, and grey.
COLOURS = (*OKABE_ITO, "#999999")
MARKERS = "osD^vX"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
}
#: The methods of a column of `family_figure`, each with its graph.
FAMILIES = {
    "PoE family, path": (("poe", "server"), ("dec-poe", "path"), ("dec-nn-poe", "path"),
                         ("gpoe", "server"), ("dec-gpoe", "path"), ("dec-nn-gpoe", "path")),
    "BCM family, path": tuple((f"{kind}{rule}", "path" if kind else "server")
                              for rule in ("bcm", "rbcm", "grbcm") for kind in ("", "dec-", "dec-nn-")),
    "NPAE family": (("npae", "server"), ("dec-npae", "complete"), ("dec-npae-star", "complete"),
                    ("dec-npae-star", "path"), ("dec-nn-npae", "path")),
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """In which figures are drawn and saved."""
    return mpl.rc_context(STYLE)


def _boxes(panel: Axes, values: Any, place: float, width: float, colour: str, alpha: float) -> Any:
    """One box: quartiles, and whiskers over the whole range."""
    return panel.boxplot(
        [values],
        positions=[place],
        widths=width,
        whis=(0, 100),
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "alpha": alpha, "edgecolor": colour},
        medianprops={"color": "black"},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )


# ---- training ----------------------------------------------------------------------------------------------


def hyperparameter_figure(fleets: Sequence[int], thetas: Mapping[tuple[int, str], Array]) -> Figure:
    """Rows: hyperparameters; columns: fleets; one box per method.

    thetas: (agents, method) -> (replications, P); full-gp is of one agent.
    """
    parameters = names(2)
    figure = Figure(figsize=(7.2, 7.6), layout="constrained")
    axes = figure.subplots(len(parameters), len(fleets), sharey="row", sharex="col", squeeze=False)
    for column, agents in enumerate(fleets):
        keys = [(1 if method == "full-gp" else agents, method) for method in TRAINERS]
        shown = [key for key in keys if key in thetas]
        for row, parameter in enumerate(parameters):
            panel = axes[row, column]
            for place, key in enumerate(shown):
                values = thetas[key][:, row]
                colour = COLOURS[1] if key[1] in PROPOSED else COLOURS[0]
                if len(values) < 4:
                    panel.plot([place] * len(values), values, "o", color=colour, markersize=3)
                else:
                    _boxes(panel, values, place, 0.6, colour, 0.5)
            panel.axhline(fg.PAPER_THETA[row], color="black", linestyle="--", linewidth=1.0)
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("{x:g}")
            panel.tick_params(axis="y", which="minor", labelsize=6)
            panel.set_xticks(range(len(shown)), [method for _, method in shown], rotation=90)
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


def length_scale_figure(
    fleets: Sequence[int], estimates: Mapping[str, Mapping[str, Sequence[tuple[int, Array]]]]
) -> Figure:
    """l_1 against M; a panel per title. estimates: title -> method -> (M, l_1 of each replication)."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (title, methods) in zip(panels, estimates.items(), strict=True):
        for number, (method, values) in enumerate(methods.items()):
            middle = [float(np.median(lengths)) for _, lengths in values]
            low = [float(np.percentile(lengths, 25)) for _, lengths in values]
            high = [float(np.percentile(lengths, 75)) for _, lengths in values]
            panel.errorbar(
                [agents * (1.0 + 0.02 * (number - 2.5)) for agents, _ in values],
                middle,
                yerr=[np.subtract(middle, low), np.subtract(high, middle)],
                color=COLOURS[number],
                marker="osD^vx"[number],
                capsize=2,
                linestyle="-" if number < 4 else ":",
                label=method,
            )
        panel.axhline(fg.PAPER_THETA[0], color="black", linestyle="--", linewidth=1.0, label="truth")
        panel.set(xscale="log", xlabel="agents M", title=title)
        _tick_fleets(panel, fleets)
    panels[0].set_ylabel(f"{symbol('l_1')} (units of the box [0, 2])")
    panels[1].legend(ncols=2, frameon=False)
    return figure


def field_figure(seed: int) -> Figure:
    """Five fields, from this seed on."""
    figure = Figure(figsize=(7.2, 1.9), layout="constrained")
    side = 90
    panels = figure.subplots(1, 5, sharey=True)
    draws = [fg.synthetic_field(side * side, seed=seed + n, inputs="grid").truth for n in range(5)]
    top = max(float(np.abs(draw).max()) for draw in draws)
    for number, (panel, draw) in enumerate(zip(panels, draws, strict=True)):
        image = panel.imshow(
            draw.reshape(side, side).T, origin="lower", extent=(0, 2, 0, 2), cmap="viridis", vmin=-top, vmax=top
        )
        panel.set(title=f"seed {seed + number}", xlabel="$x_1$", xticks=[0, 1, 2], yticks=[0, 1, 2])
        panel.grid(visible=False)
    panels[0].set_ylabel("$x_2$")
    figure.colorbar(image, ax=panels, label="f(x)", shrink=0.8)
    return figure


def _tick_fleets(panel: Axes, fleets: Sequence[int]) -> None:
    panel.set_xticks(fleets, [str(agents) for agents in fleets])
    panel.minorticks_off()


# ---- prediction --------------------------------------------------------------------------------------------


def family_figure(fleets: Sequence[int], rows: Rows, product: str) -> Figure:
    """RMSE above, NLPD below; a column for each family."""
    figure = Figure(figsize=(7.2, 5.8), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey="row")
    for column, (family, members) in enumerate(FAMILIES.items()):
        many = len(members) > 5  # three kinds of each rule, which share its colour
        for line, (what, label) in enumerate((("rmse", "RMSE (K)"), ("nlpd", "NLPD"))):
            panel = axes[line, column]
            exact = [mean_of(rows["full-gp", "server", m], what) for m in fleets]
            panel.plot(fleets, exact, color="#999999", linewidth=2.5, label="full-gp")
            for number, (method, graph) in enumerate(members):
                colour = COLOURS[number // 3 if many else number]
                panel.plot(
                    fleets,
                    [mean_of(rows[method, graph, m], what) for m in fleets],
                    color=colour,
                    linestyle=("-", "--", ":")[number % 3] if many else "-",
                    marker=MARKERS[number % 6],
                    markerfacecolor="none" if number % 3 else colour,
                    label=method if many or graph == "server" else f"{method}, {graph}",
                )
            panel.set_xscale("log")
            _tick_fleets(panel, fleets)
            if line == 0:
                panel.set_title(family)
            else:
                panel.set_xlabel("agents M")
                panel.set_yscale("symlog", linthresh=1.0)
            if column == 0:
                panel.set_ylabel(label)
        axes[1, column].legend(frameon=False, fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axes[0, 0].set_yscale("log")
    for panel in axes[0]:
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
    _name_data(figure, product)
    return figure


def five_figure(fleets: Sequence[int], rows: Rows, product: str) -> Figure:
    """Boxes by fleet and method."""
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    quantities: tuple[tuple[str, Callable[[Mapping[str, Any]], float], str], ...] = (
        ("RMSE (K)", lambda row: row["rmse"], "linear"),
        ("NLPD", lambda row: row["nlpd"], "symlog"),
        ("rounds $s^{end}$", lambda row: row["rounds"] + row["solver_rounds"], "log"),
        ("time per agent (s)", lambda row: row["seconds"] / row["agents"], "log"),
    )
    panels = figure.subplots(2, 2).ravel()
    for panel, (label, value, scale) in zip(panels, quantities, strict=True):
        for number, method in enumerate(FIVE):
            for place, agents in enumerate(fleets):
                values = [value(row) for row in rows[method, "path", agents]]
                drawn = _boxes(panel, values, place + 0.16 * (number - 2), 0.13, COLOURS[number], 0.6)
                if place == 0 and panel is panels[0]:
                    drawn["boxes"][0].set_label(method)
        panel.set_xticks(range(len(fleets)), [str(m) for m in fleets])
        panel.set(xlabel="agents M", ylabel=label, yscale=scale)
        panel.grid(axis="x", visible=False)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    _name_data(figure, product)
    return figure


def data_figure(places: Array, values: Array, shards: Sequence[Shard], product: str, *, of_the_sea: bool) -> Figure:
    """The field at all places, and who observed what."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    image = left.scatter(*places.T, c=values, s=0.6, marker="s", linewidths=0, cmap="viridis", rasterized=True)
    figure.colorbar(image, ax=left, label="temperature (K)" if of_the_sea else "value (K)", shrink=0.9)
    for agent, (x, _) in enumerate(shards):
        right.scatter(*x.T, s=1.2, color=COLOURS[agent % 6], linewidths=0, rasterized=True)
    across, up = ("longitude, scaled", "latitude, scaled") if of_the_sea else ("$x_1$", "$x_2$")
    for panel, title in ((left, "Field"), (right, "Observations of ten agents")):
        panel.set(title=title, xlabel=across, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        panel.grid(visible=False)
    left.set_ylabel(up)
    _name_data(figure, product)
    return figure


def _name_data(figure: Figure, product: str) -> None:
    figure.supxlabel(f"Data: {product}", fontsize=6, color="#555555")


# ---- communication -----------------------------------------------------------------------------------------


def communication_figure(graphs: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Scalars sent in all, by method and graph; graphs: in the order of their colours, a server first."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=[1, 1.6])
    for panel, kind in zip(panels, ("training", "prediction"), strict=True):
        of_kind = [row for row in rows if row["kind"] == kind]
        methods = list(dict.fromkeys(row["method"] for row in of_kind))
        for number, graph in enumerate(graphs):
            chosen = [row for row in of_kind if row["graph"] == graph]
            panel.plot(
                [row["total"] for row in chosen],
                [methods.index(row["method"]) + (0.1 * (number - 3) if number else 0.0) for row in chosen],
                MARKERS[number],
                color=("#000000", *COLOURS)[number],
                label=graph,
            )
        panel.set(xscale="log", xlabel="scalars sent", title=kind)
        panel.set_yticks(range(len(methods)), methods)
        panel.invert_yaxis()
    panels[1].legend(title="graph", frameon=True, loc="upper right")
    return figure
