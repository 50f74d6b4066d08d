"""The prediction experiment's figures. Each function draws one and returns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

import fleetgp as fg
from reproduction import prediction
from reproduction.prediction import FAMILIES, FIVE, Found, PredictionPlan, mean_of, sea
from reproduction.report import COLOURS


def family_figure(plan: PredictionPlan, found: Found) -> Figure:
    """RMSE above, NLPD below; a column for each family."""
    figure = Figure(figsize=(7.2, 5.8), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey="row")
    for column, (family, members) in enumerate(FAMILIES.items()):
        for row, (what, label) in enumerate((("rmse", "RMSE (K)"), ("nlpd", "NLPD"))):
            panel = axes[row, column]
            reference = [mean_of(found["full-gp", "server", m], what) for m in plan.fleets]
            panel.plot(plan.fleets, reference, color="#999999", linewidth=2.5, label="full-gp")
            for number, (method, graph) in enumerate(members):
                group = number // 3 if len(members) > 5 else number
                style = ("-", "--", ":")[number % 3] if len(members) > 5 else "-"
                panel.plot(
                    plan.fleets,
                    [mean_of(found[method, graph, m], what) for m in plan.fleets],
                    color=COLOURS[group],
                    linestyle=style,
                    marker="osD^vX"[number % 6],
                    markerfacecolor="none" if number % 3 else COLOURS[group],
                    label=method if len(members) > 5 or graph == "server" else f"{method}, {graph}",
                )
            panel.set_xscale("log")
            panel.set_xticks(plan.fleets, [str(m) for m in plan.fleets])
            panel.minorticks_off()
            if row == 0:
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
    _say_product(figure, plan)
    return figure


def five_figure(plan: PredictionPlan, found: Found) -> Figure:
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
            for place, agents in enumerate(plan.fleets):
                values = [value(row) for row in found[method, "path", agents]]
                drawn = panel.boxplot(
                    [values],
                    positions=[place + 0.16 * (number - 2)],
                    widths=0.13,
                    whis=(0, 100),
                    patch_artist=True,
                    manage_ticks=False,
                    boxprops={"facecolor": COLOURS[number], "edgecolor": COLOURS[number], "alpha": 0.6},
                    medianprops={"color": "black"},
                    whiskerprops={"color": COLOURS[number]},
                    capprops={"color": COLOURS[number]},
                )
                if place == 0 and panel is panels[0]:
                    drawn["boxes"][0].set_label(method)
        panel.set_xticks(range(len(plan.fleets)), [str(m) for m in plan.fleets])
        panel.set(xlabel="agents M", ylabel=label, yscale=scale)
        panel.grid(axis="x", visible=False)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    _say_product(figure, plan)
    return figure


def data_figure(plan: PredictionPlan) -> Figure:
    """The field, and who observed what."""
    field = sea(plan.sst)
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    image = left.scatter(
        *field.places.T, c=field.values, s=0.6, marker="s", linewidths=0, cmap="viridis", rasterized=True
    )
    figure.colorbar(image, ax=left, label="temperature (K)" if plan.sst else "value (K)", shrink=0.9)
    inputs, observations, *_ = prediction.drawn({**plan.as_dict(), "sst": plan.sst}, 0)
    shards = fg.partition(inputs, observations, agents=10)
    for agent, (x, _) in enumerate(shards):
        right.scatter(*x.T, s=1.2, color=COLOURS[agent % 6], linewidths=0, rasterized=True)
    for panel, title in ((left, "Field"), (right, "Observations of ten agents")):
        panel.set(
            title=title, xlabel="longitude, scaled" if plan.sst else "$x_1$", xlim=(0, 1), ylim=(0, 1), aspect="equal"
        )
        panel.grid(visible=False)
    left.set_ylabel("latitude, scaled" if plan.sst else "$x_2$")
    _say_product(figure, plan)
    return figure


def _say_product(figure: Figure, plan: PredictionPlan) -> None:
    figure.supxlabel(f"Data: {sea(plan.sst).product}", fontsize=6, color="#555555")
