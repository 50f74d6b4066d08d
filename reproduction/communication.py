"""What each method sends, measured by the ledger, against the paper's complexity formulas, on several graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.graph import as_topology
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method
from reproduction.cells import Cell
from reproduction.paper import PREDICTORS, TRAINERS

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
        *((m, "training", not training_method(m).decentralized) for m in TRAINERS),
        *((m, "prediction", not prediction_method(m).decentralized) for m in PREDICTORS),
    ]:
        for graph in GRAPHS[:1] if central else GRAPHS:
            task = {**asdict(plan), "method": method, "kind": kind, "graph": graph, "central": central}
            found.append(Cell(f"{kind}-{method}-{graph}", task, 5.0 if "npae" in method else 1.0))
    return found


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
        counted = _counted(ledger, "hyperparameters") if formula else 0
    else:
        queries = np.random.default_rng([task["seed"], 7]).uniform(0.0, 2.0, (task["queries"], 2))
        rounds = ITERATIONS if "npae" in method else 20_000
        options = prediction_method(method).those_of(consensus="average", eta=ETA, rounds=rounds, beta="paper")
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
        xi = own**2 + DIMENSION * own
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
