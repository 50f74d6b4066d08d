"""What each method sends, measured by the ledger, against the paper's complexity formulas, on several graphs.

What is run, in cells; what the paper's formulas say, against our numbers; the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.graph import as_topology
from fleetgp.prediction import prediction_method
from fleetgp.progress import Listener
from fleetgp.training import training_method
from fleetgp.units import readable_bytes
from reproduction.cells import Cell, Place, kept_in, run_cells
from reproduction.paper import COMMUNICATION, PREDICTORS, SOURCES, TRAINERS
from reproduction.report import Check, Finding, Report, above, below

#: Inputs of the synthetic field; D + 2 hyperparameters.
DIMENSION = 2
GRAPHS = ("path", "cycle", "star", "grid", "complete")
#: Numbers per point that a rule sums up.
SUMMANDS = {"poe": 2, "gpoe": 2, "bcm": 2, "rbcm": 3, "grbcm": 3}
#: The paper's count for a server, where it differs from that.
AT_SERVER = {**SUMMANDS, "grbcm": 5}
#: With dec-nn-, the share of the variance that an agent must explain to take part.
ETA = 0.3
#: Rounds of every ADMM; iterations that JOR and DALE get at most.
ROUNDS, ITERATIONS = 50, 300
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    observations: int = 4_000
    agents: int = 20
    queries: int = 20
    seed: int = 0

    @classmethod
    def quick(cls) -> Plan:
        return cls(1_000, 10, 10)

    def as_dict(self) -> dict[str, Any]:
        limits = {"rounds of training": ROUNDS, "iterations of JOR and DALE": ITERATIONS}
        return {**asdict(self), "graphs": GRAPHS, **limits}


def cells(plan: Plan) -> list[Cell]:
    """One per method and graph; with a server the graph does not matter."""
    methods = [(method, "training", not training_method(method).decentralized) for method in TRAINERS]
    methods += [(method, "prediction", not prediction_method(method).decentralized) for method in PREDICTORS]
    return [
        Cell(
            f"{kind}-{method}-{graph}",
            {**asdict(plan), "method": method, "kind": kind, "graph": graph, "central": central},
            5.0 if "npae" in method else 1.0,
        )
        for method, kind, central in methods
        for graph in (GRAPHS[:1] if central else GRAPHS)
    ]


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run a method once and read its ledger."""
    field = fg.synthetic_field(task["observations"], seed=task["seed"])
    shards = fg.partition(field.inputs, field.observations, agents=task["agents"])
    fleet = fg.Fleet(shards, task["graph"], kernel="se", normalize=False)
    method, agents = task["method"], task["agents"]
    degrees = int(as_topology(task["graph"], agents).union.degrees.sum())
    if task["kind"] == "training":
        plain = method in ("full-gp", "fact-gp", "g-fact-gp")
        tol = 1e-5 if plain else 0.0
        fit = fleet.train(method, theta0=fg.PAPER_THETA0, rounds=ROUNDS, tol=tol, noise_floor=0.0)  # as the paper
        ledger, rounds, solving = fit.ledger, fit.rounds, 0
        formula = float(rounds * (DIMENSION + 2) * (agents if task["central"] else degrees))
        if method == "full-gp":
            formula = 0.0
        counted = ledger.total(kind="hyperparameters").scalars if formula else 0
    else:
        queries = np.random.default_rng([task["seed"], 7]).uniform(0.0, 2.0, (task["queries"], 2))
        rounds = ITERATIONS if "npae" in method else 20_000
        options = prediction_method(method).those_of(consensus="average", eta=ETA, rounds=rounds, beta="paper")
        answer = fleet.predict(queries, method, theta=fg.PAPER_THETA, **options)
        ledger, rounds, solving = answer.ledger, int(answer.query_rounds.sum()), int(answer.solver_rounds.sum())
        formula, counted = _prediction_formula(task, answer, degrees)
    return {
        **{key: task[key] for key in ("kind", "method", "agents", "observations")},
        "graph": "server" if task["central"] else task["graph"],
        "rounds": rounds,
        "solver_rounds": solving,
        "ledger_rounds": ledger.rounds,
        "formula": formula,
        "counted": counted,
        "scalars": {kind: traffic.scalars for kind, traffic in ledger.by_kind().items() if kind != "framing"},
        "total": ledger.scalars,
        "bytes": ledger.bytes,
    }


def _prediction_formula(task: Row, answer: fg.Prediction, degrees: int) -> tuple[float, int]:
    """The paper's count over the fleet for all queries, with the rounds as measured, and our count of the same."""
    row, agents, queries = prediction_method(task["method"]), task["agents"], task["queries"]
    own = task["observations"] / agents
    chi = float(answer.query_rounds.sum()) * degrees

    def counted(*phases: str) -> int:
        ledger = answer.ledger
        return sum(ledger.total(kind="predictions", phase=phase).scalars for phase in phases)

    if row.rule == "full-gp":
        return 0.0, 0
    if not row.decentralized:
        formula = float((agents if row.rule == "npae" else AT_SERVER[row.rule]) * agents * queries)
        return formula, answer.ledger.total(kind="predictions").scalars
    if row.rule == "npae":
        if row.nearest:  # the paper has no formula for it
            return 0.0, answer.ledger.total(kind="predictions").scalars
        xi = own**2 + DIMENSION * own
        iterations, extra = float(answer.solver_rounds.sum()), 0.0
        if (
            row.name == "dec-npae-star"
        ):  # each iteration of the power method is a flood, for all points that still need it
            floods = answer.ledger.rounds_by_phase["relaxation"] / as_topology(task["graph"], agents).diameter
            iterations, extra = iterations + queries * floods, float(agents**2 * queries)
        formula = agents * (2.0 * agents * iterations + agents * xi + extra) + 2.0 * chi
        return formula, counted("solve", "rows", "average", "relaxation")
    # With dec-nn-, only edges between the selected agents carry anything: the rounds are theirs, and no formula fits.
    return 0.0 if row.nearest else SUMMANDS[row.rule] * chi, counted("average")


def reproduce(plan: Plan, folder: Path, listener: Listener | None = None, place: Place | None = None) -> Report:
    """Run what is not kept yet, and write the page."""
    kept = kept_in(folder, "communication", plan.as_dict())
    results = run_cells(cells(plan), run, kept, listener=listener, label="communication", place=place)
    return write_page(plan, list(results.values()), folder)


# ---- findings ----------------------------------------------------------------------------------------------

#: A ratio this close to 1 is the formula.
TOLERANCE = 0.01
#: With a server: what it answers counted too, and the likelihood that goes with each agent's D + 2 numbers.
BOTH_WAYS = 2.0 + 1.0 / (DIMENSION + 2)


def findings(rows: Sequence[Row]) -> list[Finding]:
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
    measured = ratios(rows, lambda row: row["kind"] == "training" and row["graph"] != "server")
    return Finding(
        "Decentralized training sends s (D + 2) numbers per agent (and, we add, per neighbour).",
        f"Measured over formula: {_span(measured)}, on every graph.",
        [_is_formula(measured)],
    )


def with_server(rows: Sequence[Row]) -> Finding:
    measured = ratios(rows, lambda row: row["kind"] == "training" and row["graph"] == "server")
    explained = [
        above("smallest ratio", min(measured), 1.0 - TOLERANCE),
        below("largest ratio", max(measured), BOTH_WAYS + TOLERANCE),
    ]
    finding = Finding(
        "Training with a server sends s M (D + 2).",
        f"Measured over formula: {_span(measured)}",
        core=explained,
        checks=[_is_formula(measured)],
    )
    why = ": the server answers with as many, and each agent adds its likelihood"
    return replace(finding, seen=f"{finding.seen}{why if finding.verdict == 'in part' else ''}.")


def averages(rows: Sequence[Row]) -> Finding:
    measured = ratios(rows, lambda row: _averaging(row) and row["graph"] != "server")
    stopping = [row["scalars"].get("stopping", 0) / row["counted"] for row in rows if _averaging(row)]
    return Finding(
        "dec-poe, dec-gpoe and dec-bcm send 2 chi numbers per point, dec-rbcm and dec-grbcm 3 chi.",
        f"Measured over formula: {_span(measured)}. To know when to stop costs {_span(stopping)} times as much again, "
        "which the paper does not count.",
        [_is_formula(measured)],
    )


def nested(rows: Sequence[Row]) -> Finding:
    measured = ratios(rows, lambda row: row["method"] in ("dec-npae", "dec-npae-star"))
    same = _is_formula(measured)
    why = ": an agent sends one vector per point in a basis that all share, not its inputs and its inverse covariance"
    return Finding(
        "dec-npae sends 2 M s + 2 chi + M xi, with xi = N^2/M^2 + D N/M for the inputs and inverses.",
        f"Measured over formula: {_span(measured)}{'' if same.holds else why}.",
        [same],
    )


# ---- the page ----------------------------------------------------------------------------------------------


def write_page(plan: Plan, results: Sequence[Row], folder: Path) -> Report:
    """Write the whole page, and results.csv and results.json beside it."""
    from reproduction import figures  # workers of a cluster need no Matplotlib

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
    report.findings(findings(results))
    with figures.style():
        report.figure(
            "communication",
            figures.communication_figure(("server", *GRAPHS), results),
            "Scalars sent by the whole fleet, by method and graph (logarithmic), in all. Left: training, "
            f"{ROUNDS} rounds. Right: prediction of {plan.queries} points.",
        )
    sources = {
        "training": SOURCES["training communication"],
        "prediction": f"{SOURCES['prediction communication']}; {SOURCES['central communication']}",
    }
    for kind, source in sources.items():
        report.heading(kind.capitalize())
        report.table(
            f"Paper: {source}.",
            ("method", "graph", "paper's expression", "rounds", "formula", "of its kind", "ratio", "in all", "bytes"),
            [_line(row) for row in results if row["kind"] == kind],
            left=3,
        )
    report.write(results, plan.as_dict())
    return report


def _line(row: Row) -> list[str]:
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
