"""What the methods send, as a table, a figure and findings, beside the paper's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from fleetgp.units import readable_bytes
from reproduction.communication import GRAPHS, ROUNDS, CommunicationPlan
from reproduction.communication_findings import communication_findings
from reproduction.paper import COMMUNICATION, SOURCES
from reproduction.report import COLOURS, STYLE, Report


def write(plan: CommunicationPlan, results: Sequence[Mapping[str, Any]], folder: Path) -> Report:
    rows = [dict(row) for row in results]
    report = Report("What the methods send, against the paper's formulas", folder)
    report.text(
        f"{plan.agents} agents, {plan.observations:,} observations, {plan.queries} points to predict. All numbers "
        "are of scalars sent by the whole fleet, from the ledger inside the network. `formula` is the paper's "
        "expression with the rounds that were measured; `of its kind` is what we sent of the same content; `in "
        "all` has also what the paper does not count: stopping by consensus, samples of the data, who takes "
        "part, the common box.",
        "D = 2; s: rounds; chi = s card(N_i); xi = N^2/M^2 + D N/M. Formulas per agent are summed over agents, and "
        "over neighbours where a message goes to each.",
    )
    report.heading("Where we agree with the paper, and where not")
    report.findings(communication_findings(rows))
    with mpl.rc_context(STYLE):
        report.figure(
            "communication",
            communication_figure(rows),
            "Scalars sent by the whole fleet, by method and graph (logarithmic), in all. Left: training, "
            f"{ROUNDS} rounds. Right: prediction of {plan.queries} points.",
        )
    sources = {"training": "training communication", "prediction": "prediction communication"}
    for kind, source in sources.items():
        report.heading(kind.capitalize())
        more = f"; {SOURCES['central communication']}" if kind == "prediction" else ""
        report.table(
            f"Paper: {SOURCES[source]}{more}.",
            ("method", "graph", "paper's expression", "rounds", "formula", "of its kind", "ratio", "in all", "bytes"),
            [_row(row) for row in rows if row["kind"] == kind],
            left=3,
        )
    report.write(rows, plan.as_dict())
    return report


def _row(row: Mapping[str, Any]) -> list[str]:
    solving = f" + {row['solver_rounds']:,}" if row["solver_rounds"] else ""
    return [
        row["method"],
        row["graph"],
        COMMUNICATION.get(row["method"], "–"),
        f"{row['rounds']:,}{solving}",
        f"{row['formula']:,.0f}" if row["formula"] else "–",
        f"{row['counted']:,}" if row["counted"] else "–",
        f"{row['counted'] / row['formula']:.2f}" if row["formula"] else "–",
        f"{row['total']:,}",
        readable_bytes(row["bytes"]),
    ]


def communication_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=[1, 1.6])
    for panel, kind in zip(panels, ("training", "prediction"), strict=True):
        of_kind = [row for row in rows if row["kind"] == kind]
        methods = list(dict.fromkeys(row["method"] for row in of_kind))
        for number, graph in enumerate(("server", *GRAPHS)):
            chosen = [row for row in of_kind if row["graph"] == graph]
            panel.plot(
                [row["total"] for row in chosen],
                [methods.index(row["method"]) + (0.1 * (number - 3) if number else 0.0) for row in chosen],
                "osD^vX"[number],
                color=("#000000", *COLOURS)[number],
                label=graph,
            )
        panel.set(xscale="log", xlabel="scalars sent", title=kind)
        panel.set_yticks(range(len(methods)), methods)
        panel.invert_yaxis()
    panels[1].legend(title="graph", frameon=True, loc="upper right")
    return figure
