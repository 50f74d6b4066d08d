"""What was sent over what the paper's formulas say, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reproduction.communication import DIMENSION, SUMMANDS
from reproduction.findings import Check, Finding, above, below

#: A ratio this close to 1 is the formula.
TOLERANCE = 0.01
#: With a server: what it answers counted too, and the likelihood that goes with each agent's D + 2 numbers.
BOTH_WAYS = 2.0 + 1.0 / (DIMENSION + 2)
Row = Mapping[str, Any]


def communication_findings(rows: Sequence[Row]) -> list[Finding]:
    """One per formula, in the order of the page."""
    return [over_edges(rows), with_server(rows), averages(rows), nested(rows)]


def ratios(rows: Sequence[Row], chosen: Callable[[Row], bool]) -> list[float]:
    """Measured over formula, where the paper has one."""
    return [row["counted"] / row["formula"] for row in rows if row["formula"] and chosen(row)]


def _averaging(row: Row) -> bool:
    return row["method"] in [f"dec-{rule}" for rule in SUMMANDS]


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def _is_formula(values: Sequence[float]) -> Check:
    return below("largest distance of a ratio from 1", max(abs(value - 1.0) for value in values), TOLERANCE)


def over_edges(rows: Sequence[Row]) -> Finding:
    found = ratios(rows, lambda row: row["kind"] == "training" and row["graph"] != "server")
    return Finding(
        "Decentralized training sends s (D + 2) numbers per agent (and, we add, per neighbour).",
        f"Measured over formula: {_span(found)}, on every graph.",
        [_is_formula(found)],
    )


def with_server(rows: Sequence[Row]) -> Finding:
    found = ratios(rows, lambda row: row["kind"] == "training" and row["graph"] == "server")
    explained = [
        above("smallest ratio", min(found), 1.0 - TOLERANCE),
        below("largest ratio", max(found), BOTH_WAYS + TOLERANCE),
    ]
    finding = Finding(
        "Training with a server sends s M (D + 2).",
        f"Measured over formula: {_span(found)}",
        core=explained,
        checks=[_is_formula(found)],
    )
    why = ": the server answers with as many, and each agent adds its likelihood"
    return replace(finding, seen=f"{finding.seen}{why if finding.verdict == 'in part' else ''}.")


def averages(rows: Sequence[Row]) -> Finding:
    found = ratios(rows, lambda row: _averaging(row) and row["graph"] != "server")
    stopping = [row["scalars"].get("stopping", 0) / row["counted"] for row in rows if _averaging(row)]
    return Finding(
        "dec-poe, dec-gpoe and dec-bcm send 2 chi numbers per point, dec-rbcm and dec-grbcm 3 chi.",
        f"Measured over formula: {_span(found)}. To know when to stop costs {_span(stopping)} times as much again, "
        "which the paper does not count.",
        [_is_formula(found)],
    )


def nested(rows: Sequence[Row]) -> Finding:
    found = ratios(rows, lambda row: row["method"] in ("dec-npae", "dec-npae-star"))
    same = _is_formula(found)
    why = ": an agent sends one vector per point in a basis that all share, not its inputs and its inverse covariance"
    return Finding(
        "dec-npae sends 2 M s + 2 chi + M xi, with xi = N^2/M^2 + D N/M for the inputs and inverses.",
        f"Measured over formula: {_span(found)}{'' if same.holds else why}.",
        [same],
    )
