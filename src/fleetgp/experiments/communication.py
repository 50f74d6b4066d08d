"""What each method sends, measured by the ledger, against the paper's complexity formulas, on several graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import fleetgp as fg
from fleetgp.experiments.cells import Cell
from fleetgp.experiments.paper import COMMUNICATION, SOURCES
from fleetgp.experiments.report import COLOURS, STYLE, Finding, Report
from fleetgp.graph import as_topology
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method
from fleetgp.units import readable_bytes

GRAPHS = ("path", "cycle", "star", "grid", "complete")
#: Numbers per point that a rule sums up.
SUMMANDS = {"poe": 2, "gpoe": 2, "bcm": 2, "rbcm": 3, "grbcm": 3}
#: The paper's count for a server, where it differs from that.
AT_SERVER = {**SUMMANDS, "grbcm": 5}
#: Rounds of every ADMM; iterations that JOR and DALE get at most.
ROUNDS, ITERATIONS = 50, 300


@dataclass(frozen=True)
class CommunicationPlan:
    observations: int = 4_000
    agents: int = 20
    queries: int = 20
    seed: int = 0

    @classmethod
    def quick(cls) -> CommunicationPlan:
        return cls(1_000, 10, 10)

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "graphs": GRAPHS,
            "rounds of training": ROUNDS,
            "iterations of JOR and DALE": ITERATIONS,
        }


def cells(plan: CommunicationPlan) -> list[Cell]:
    """One per method and graph; with a server the graph does not matter."""
    found = []
    for method, kind, central in [
        *((m, "training", not training_method(m).decentralized) for m in fg.TRAINING_METHODS),
        *((m, "prediction", not prediction_method(m).decentralized) for m in fg.PREDICTION_METHODS),
    ]:
        for graph in GRAPHS[:1] if central else GRAPHS:
            task = {**asdict(plan), "method": method, "kind": kind, "graph": graph, "central": central}
            found.append(Cell(f"{kind}-{method}-{graph}", task, 5.0 if "npae" in method else 1.0))
    return found


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run a method once and read its ledger."""
    field = fg.synthetic_field(task["observations"], seed=task["seed"])
    shards = fg.partition(field.inputs, field.observations, agents=task["agents"])
    fleet = fg.Fleet(shards, task["graph"])
    method, agents = task["method"], task["agents"]
    degrees = int(as_topology(task["graph"], agents).union.degrees.sum())
    if task["kind"] == "training":
        plain = method in ("full-gp", "fact-gp", "g-fact-gp")
        tol = 1e-5 if plain else 0.0
        fit = fleet.train(method, theta0=fg.PAPER_THETA0, rounds=ROUNDS, tol=tol, noise_floor=0.0)  # as the paper
        ledger, rounds, solving = fit.ledger, fit.rounds, 0
        formula = float(rounds * 4 * (agents if task["central"] else degrees))
        if method == "full-gp":
            formula = 0.0
        counted = _counted(ledger, "hyperparameters") if formula else 0
    else:
        queries = np.random.default_rng([task["seed"], 7]).uniform(0.0, 2.0, (task["queries"], 2))
        rounds = ITERATIONS if "npae" in method else 20_000
        options = prediction_method(method).those_of(eta=0.3, rounds=rounds)
        out = fleet.predict(queries, method, theta=fg.PAPER_THETA, **options)
        ledger, rounds, solving = out.ledger, int(out.query_rounds.sum()), int(out.solver_rounds.sum())
        formula, counted = _prediction_formula(task, out, degrees)
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


def _counted(ledger: fg.Ledger, kind: str, *phases: str) -> int:
    if not phases:
        return ledger.total(kind=kind).scalars
    return sum(ledger.total(kind=kind, phase=phase).scalars for phase in phases)


def _prediction_formula(task: Mapping[str, Any], out: fg.Prediction, degrees: int) -> tuple[float, int]:
    """The paper's count over the fleet for all queries, with the rounds as measured, and our count of the same."""
    row, agents, queries = prediction_method(task["method"]), task["agents"], task["queries"]
    own = task["observations"] / agents
    chi = float(out.query_rounds.sum()) * degrees
    if row.rule == "full-gp":
        return 0.0, 0
    if row.rule == "npae":
        if row.solver == "direct":
            return float(agents**2 * queries), _counted(out.ledger, "predictions")
        xi = own**2 + 2.0 * own
        if row.solver == "dale":  # the paper has no formula for it
            return 0.0, _counted(out.ledger, "predictions")
        iterations, extra = float(out.solver_rounds.sum()), 0.0
        if row.solver == "jor-star":  # each iteration of the power method is a flood, for all points that still need it
            floods = out.ledger.rounds_by_phase["relaxation"] / as_topology(task["graph"], agents).diameter
            iterations, extra = iterations + queries * floods, float(agents**2 * queries)
        return (
            agents * (2.0 * agents * iterations + agents * xi + extra) + 2.0 * chi,
            _counted(out.ledger, "predictions", "solve", "rows", "average", "relaxation"),
        )
    if not row.decentralized:
        return float(AT_SERVER[row.rule] * agents * queries), _counted(out.ledger, "predictions")
    if row.nearest:  # only edges between the selected agents carry anything: the rounds are theirs
        return 0.0, _counted(out.ledger, "predictions", "average")
    return SUMMANDS[row.rule] * chi, _counted(out.ledger, "predictions", "average")


# ---- the page ------------------------------------------------------------------------------------------


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
    report.findings(findings(rows))
    with mpl.rc_context(STYLE):
        report.figure(
            "communication",
            _figure(plan, rows),
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


def findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Ratios of what was sent to what the formulas say."""

    def ratios(test: Any) -> list[float]:
        return [row["counted"] / row["formula"] for row in rows if row["formula"] and test(row)]

    training = ratios(lambda row: row["kind"] == "training" and row["graph"] != "server")
    server = ratios(lambda row: row["kind"] == "training" and row["graph"] == "server")
    averages = ratios(lambda row: row["method"] in [f"dec-{rule}" for rule in SUMMANDS] and row["graph"] != "server")
    nested = ratios(lambda row: row["method"] in ("dec-npae", "dec-npae-star"))
    extra = [
        row["scalars"].get("stopping", 0) / row["counted"]
        for row in rows
        if row["method"] in [f"dec-{rule}" for rule in SUMMANDS]
    ]

    def span(values: Sequence[float]) -> str:
        low, high = min(values), max(values)
        return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"

    return [
        Finding(
            "Decentralized training sends s (D + 2) numbers per agent (and, we add, per neighbour).",
            bool(max(abs(r - 1.0) for r in training) < 0.01),
            f"Measured over formula: {span(training)}, on every graph.",
        ),
        Finding(
            "Training with a server sends s M (D + 2).",
            None,
            f"Measured over formula: {span(server)}: the server answers with as many, and each agent adds its "
            "likelihood.",
        ),
        Finding(
            "dec-poe, dec-gpoe and dec-bcm send 2 chi numbers per point, dec-rbcm and dec-grbcm 3 chi.",
            bool(max(abs(r - 1.0) for r in averages) < 0.01),
            f"Measured over formula: {span(averages)}. To know when to stop costs {span(extra)} times as much "
            "again, which the paper does not count.",
        ),
        Finding(
            "dec-npae sends 2 M s + 2 chi + M xi, with xi = N^2/M^2 + D N/M for the inputs and inverses.",
            False,
            f"Measured over formula: {span(nested)}: an agent sends one vector per point in a basis that all share, "
            "not its inputs and its inverse covariance.",
        ),
    ]


def _figure(plan: CommunicationPlan, rows: Sequence[Mapping[str, Any]]) -> Figure:
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
