"""The paper's prediction experiment: every method on a sea-surface temperature field, or on a synthetic one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import InputError, NumericalError
from fleetgp.io import load_sst
from fleetgp.metrics import coverage, nlpd, rmse
from fleetgp.prediction import prediction_method
from reproduction.cells import REFUSED, Cell
from reproduction.paper import FLEETS, PREDICTORS, QUALITY

#: West, south, east, north of the paper's piece of the Atlantic, and its noise (a variance of 0.25).
BOX, NOISE = (-73.0, 36.4, -69.4, 40.0), 0.5
#: Where training starts, on the unit square, in kelvin.
START = (0.2, 0.2, 4.0, 1.0)
#: The paper trains for 100 rounds. One fleet's hyperparameters serve all, so that fleets differ in predicting only.
TRAINING_ROUNDS, TRAINING_FLEET = 100, 10
#: NPAE's iterations end here; `status` says so. On a path its last average alone needs more: `npae_rounds`.
NPAE_ROUNDS = 1000
#: Methods that the paper does not, or not only, run on a path.
GRAPHS = {"dec-npae": ("complete",), "dec-npae-star": ("path", "complete")}
#: Not the paper's: exact, by sums along the spanning tree of the path instead of its averages. Their graph is `TREE`.
OURS, TREE = ("dec-full-gp", "dec-nn-grbcm"), "tree"
#: (method, graph) of every row, in the order of the tables.
WAYS = (
    *((method, graph) for method in PREDICTORS for graph in GRAPHS.get(method, ("path",))),
    *((method, TREE) for method in OURS),
)
#: The synthetic stand-in has a spread and length-scales like the sea's.
STAND_IN = (0.15, 0.08, 4.0, NOISE)

#: The five methods that the paper compares at the end.
FIVE = tuple(QUALITY)
FAMILIES = {
    "PoE family, path": (("poe", "server"), ("dec-poe", "path"), ("dec-nn-poe", "path"),
                         ("gpoe", "server"), ("dec-gpoe", "path"), ("dec-nn-gpoe", "path")),
    "BCM family, path": tuple((f"{kind}{rule}", "path" if kind else "server")
                              for rule in ("bcm", "rbcm", "grbcm") for kind in ("", "dec-", "dec-nn-")),
    "NPAE family": (("npae", "server"), ("dec-npae", "complete"), ("dec-npae-star", "complete"),
                    ("dec-npae-star", "path"), ("dec-nn-npae", "path")),
}  # fmt: skip
#: (method, graph, agents) -> the replications.
Found = Mapping[tuple[str, str, int], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class PredictionPlan:
    """sst: a NetCDF file of the field, or empty for a synthetic one."""

    sst: str = ""
    observations: int = 20_000
    fleets: tuple[int, ...] = FLEETS
    replications: int = 15
    queries: int = 100
    seed: int = 0

    @classmethod
    def quick(cls, sst: str = "") -> PredictionPlan:
        return cls(sst, 2_000, (4, 10), 2, 100)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sst": Path(self.sst).name}


@dataclass(frozen=True)
class Sea:
    """Places on the unit square (N, 2), temperatures (N,), and what they are."""

    places: Array
    values: Array
    product: str


@lru_cache(maxsize=2)
def sea(sst: str) -> Sea:
    """The field on the unit square."""
    if not sst:
        field = fg.synthetic_field(129_600, STAND_IN, seed=5, box=(0.0, 1.0), inputs="grid")
        return Sea(
            field.inputs, 290.0 + field.truth, "a synthetic field (no file was given), not sea-surface temperature"
        )
    found = load_sst(sst, box=BOX)
    places, celsius = found.points()
    if len(places) < 30_000:
        raise InputError(f"{sst}: the paper's box has {len(places)} known temperatures, too few for the experiment")
    corner, width = np.array(BOX[:2]), np.array([BOX[2] - BOX[0], BOX[3] - BOX[1]])
    day = f", {found.date}" if found.date else ""
    return Sea((places - corner) / width, celsius + 273.15, f"{found.product}{day}")


def drawn(plan: dict[str, Any], replication: int) -> tuple[Array, Array, Array, Array, Array]:
    """Inputs and noisy observations; queries, their noise-free values, and noisy ones."""
    field = sea(plan["sst"])
    rng = np.random.default_rng([plan["seed"], replication])
    chosen = rng.permutation(len(field.values))[: plan["observations"] + plan["queries"]]
    noisy = field.values[chosen] + NOISE * rng.standard_normal(len(chosen))
    seen, asked = slice(None, plan["observations"]), slice(plan["observations"], None)
    places = field.places[chosen]
    return places[seen], noisy[seen], places[asked], field.values[chosen[asked]], noisy[asked]


def training_cell(plan: PredictionPlan) -> Cell:
    """One training by dec-gapx-gp, on the first replication."""
    return Cell(f"theta-{TRAINING_FLEET}", {**asdict(plan), "fleets": None, "agents": TRAINING_FLEET})


def train(task: dict[str, Any]) -> dict[str, Any]:
    inputs, observations, *_ = drawn(task, 0)
    fleet = fg.Fleet(fg.partition(inputs, observations, agents=task["agents"]), "path", normalize=True, kernel="se")
    began = time.process_time()
    fit = fleet.train("dec-gapx-gp", theta0=START, rounds=TRAINING_ROUNDS)
    return {
        "agents": task["agents"],
        "theta": fit.theta.tolist(),
        "status": fit.status,
        "rounds": fit.rounds,
        "disagreement": fit.disagreement,
        "seconds": time.process_time() - began,
    }


def cells(plan: PredictionPlan, theta: list[float]) -> list[Cell]:
    """All methods for one fleet and one replication."""
    task = {**asdict(plan), "fleets": None}
    return [
        Cell(
            f"predict-{agents}-{replication}",
            {**task, "agents": agents, "replication": replication, "theta": theta},
            float(agents) ** 1.5,
        )
        for agents in plan.fleets
        for replication in range(plan.replications)
    ]


def npae_rounds(method: str, graph: str, agents: int) -> int:
    """How long NPAE may take: averaging over a path of M agents takes some 5 M^2 rounds."""
    return max(NPAE_ROUNDS, 5 * agents**2) if (method, graph) == ("dec-npae-star", "path") else NPAE_ROUNDS


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Every method once. One of ours that refuses says why in its row, and the others go on."""
    inputs, observations, queries, truth, noisy = drawn(task, task["replication"])
    shards = fg.partition(inputs, observations, agents=task["agents"])
    fleets = {
        graph: fg.Fleet(shards, graph, theta=task["theta"], normalize=True, kernel="se")
        for graph in ("path", "complete")
    }
    fleets[TREE] = fleets["path"]
    rows: list[dict[str, Any]] = []
    central: dict[str, fg.Prediction] = {}
    noise = task["theta"][-1] ** 2
    for method, graph in WAYS:
        row = prediction_method(method)
        rows.append(
            {
                "method": method,
                "graph": graph if row.decentralized else "server",
                "agents": task["agents"],
                "replication": task["replication"],
            }
        )
        began = time.process_time()
        try:
            # Conditioned afresh, each method computes and sends all that it needs.
            found = fleets[graph].condition().predict(queries, method, **options(method, graph, task["agents"]))
        except NumericalError as refusal:
            if graph != TREE:
                raise
            rows[-1] |= {"status": REFUSED, "why": str(refusal)}
            continue
        seconds = time.process_time() - began
        if not row.decentralized:
            central[row.rule] = found
        rows[-1] |= {
            "rmse": rmse(found.mean, truth),
            "nlpd": nlpd(found.mean, found.variance, truth),
            "nlpd_noisy": nlpd(found.mean, found.variance + noise, noisy),
            "coverage": coverage(found.mean, found.variance, truth),
            "off_central": rmse(found.mean, central[row.rule].mean),
            "participants": float(found.participants.sum(axis=0).mean()),
            "rounds": float(found.query_rounds.mean()),
            "solver_rounds": float(found.solver_rounds.mean()),
            "ledger_rounds": found.ledger.rounds,
            "status": found.status,
            "jitter": found.jitter,
            "seconds": seconds,
            "scalars": found.ledger.scalars,
            "bytes": found.ledger.bytes,
        }
    return {"rows": rows}


def options(method: str, graph: str, agents: int) -> dict[str, Any]:
    """The paper's averages, with as many rounds as they may take, or exact sums along the tree; grBCM's first agent has
    beta = 1, as in the paper.
    """
    row = prediction_method(method)
    if graph == TREE:
        return row.those_of(beta="paper")
    rounds = npae_rounds(method, graph, agents) if row.rule == "npae" else 20_000
    return row.those_of(consensus="average", rounds=rounds, beta="paper")


def answered(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The replications that were not refused."""
    return [row for row in rows if row["status"] != REFUSED]


def mean_of(rows: Sequence[Mapping[str, Any]], what: str) -> float:
    """The average of one quantity over replications."""
    return float(np.mean([row[what] for row in rows]))


def found_in(rows: Sequence[Mapping[str, Any]]) -> Found:
    """The replications by method, graph and number of agents."""
    found: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["method"], row["graph"], row["agents"]), []).append(row)
    return found
