"""The paper's training experiment: nine methods, two sizes, four fleets, and the truth known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.errors import NumericalError
from fleetgp.gp.hyperparameters import names
from fleetgp.training import training_method
from reproduction.cells import REFUSED, Cell
from reproduction.paper import FLEETS, SIZES, TRAINERS, trained

#: The paper's constants: penalty, stiffness of the linearized step (L_i and kappa_i), rounds, tolerance.
RHO, STIFFNESS, ROUNDS, TOL = 500.0, 5000.0, 100, 1e-3
#: Steps of gradient descent in a round of c-gp and dec-c-gp. The paper does not say; its times suggest about five.
NESTED = 3
#: Up to this many points of an (augmented) agent the paper's constants are stable; beyond, they are scaled up with it.
STABLE = 4000
#: The size of an agent for which the constants are what they are: a fourth of 8,100.
REFERENCE = 2025
#: The rounds after which a method with a stopping rule is given up.
MOST = 200
#: Methods without constants: the same in both blocks.
PLAIN = ("full-gp", "fact-gp", "g-fact-gp")
NESTING = ("c-gp", "dec-c-gp")
TRUTH = fg.PAPER_THETA
PARAMETERS = names(2)
#: The methods that the paper proposes; the others are known before it.
PROPOSED = ("gapx-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp")
#: Not the paper's: exact, by sums along the spanning tree of the path. Each with the server method that it equals.
OURS, TREE = {"dec-full-gp": "full-gp", "dec-fact-gp": "fact-gp", "dec-g-fact-gp": "g-fact-gp"}, "tree"
BLOCKS = {"paper": "The paper's settings", "default": "Our defaults"}


def constants() -> dict[str, float]:
    """What the cells depend on, beside their own settings."""
    return {
        "rho": RHO,
        "L and kappa": STIFFNESS,
        "rounds of dec-": ROUNDS,
        "tolerance of the others": TOL,
        "most rounds of the others": MOST,
        "nested gradient steps a round": NESTED,
        "step of nested gradient descent": 1e-5,
        "constants scaled from N_i": STABLE,
        "constants scaled by N_i over": REFERENCE,
    }


@dataclass(frozen=True)
class TrainingPlan:
    """What is run: the paper's settings in full, our defaults, which run to convergence, in the replications they can
    have within the time: `default_replications` for fleets up to `small`, one for larger ones (of the first size only).
    Our own methods have `default_replications` everywhere.
    """

    sizes: tuple[int, ...] = SIZES
    fleets: tuple[int, ...] = FLEETS
    replications: int = 10
    default_replications: int = 2
    small: int = 10
    seed: int = 0

    @classmethod
    def quick(cls) -> TrainingPlan:
        return cls((2_000,), (4, 10), 2, 1)

    def by_default(self, method: str, size: int, agents: int) -> int:
        """How many replications of our defaults a method gets."""
        if method in PLAIN or (method in NESTING and (agents > 4 or size != self.sizes[0])):
            return 0
        if agents > self.small:
            return int(size == self.sizes[0])
        return self.default_replications

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cells(plan: TrainingPlan) -> list[Cell]:
    """Every piece of the experiment, with a guess of its effort."""
    return [_cell(*parts) for parts in _parts(plan)]


def _parts(plan: TrainingPlan) -> Iterator[tuple[str, int, int, str, int]]:
    for size in plan.sizes:
        for replication in range(plan.replications):
            yield "paper", size, 1, "full-gp", replication + plan.seed
            for agents in plan.fleets:
                for method in TRAINERS[1:]:
                    row = trained(method, size, agents)
                    if row.seconds is not None or row.why == "another size" or method in PLAIN:
                        yield "paper", size, agents, method, replication + plan.seed
                    if replication < plan.by_default(method, size, agents):
                        yield "default", size, agents, method, replication + plan.seed
                if replication < plan.default_replications:
                    for method in OURS:
                        yield TREE, size, agents, method, replication + plan.seed


def _cell(block: str, size: int, agents: int, method: str, seed: int) -> Cell:
    by_default = 4.0 * agents**1.5 if method.startswith("dec-") else 60.0
    rounds = {"paper": 100.0, "default": by_default, TREE: 20.0}[block]
    evaluations = NESTED if method in NESTING and block == "paper" else 15 if method in NESTING else 1
    augmented = training_method(method).augmented
    effort = rounds * evaluations * agents * (2.5 if augmented else 1.0)
    task = {"block": block, "size": size, "agents": agents, "method": method, "seed": seed}
    return Cell(f"{block}-{size}-{agents}-{method}-{seed}", task, effort)


@lru_cache(maxsize=4)
def _field(size: int, seed: int) -> fg.Field:
    return fg.synthetic_field(size, seed=seed)


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train one fleet once. One of our methods that refuses says why."""
    size, agents, method = task["size"], task["agents"], task["method"]
    field = _field(size, task["seed"])
    shards = fg.partition(field.inputs, field.observations, agents=agents)
    fleet = fg.Fleet(shards, "path", seed=task["seed"], kernel="se", normalize=False)
    options = faithful(method, size, agents) if task["block"] == "paper" else {}
    began = time.process_time()
    try:
        fit = fleet.train(method, theta0=fg.PAPER_THETA0, **options)
    except NumericalError as refusal:
        if task["block"] != TREE:
            raise
        return {**task, "status": REFUSED, "why": str(refusal)}
    seconds = time.process_time() - began
    return {
        **task,
        "theta": fit.theta.tolist(),
        "disagreement": fit.disagreement,
        "rounds": fit.rounds,
        "ledger_rounds": fit.ledger.rounds,
        "status": fit.status,
        "seconds": seconds,
        "scaled": scaling(method, size, agents) if task["block"] == "paper" else 1.0,
        "engine": sorted(set(fit.engine)),
        "nll": fit.nll,
        "jitter": float(fit.jitter.max()),
        "scalars": {kind: traffic.scalars for kind, traffic in fit.ledger.by_kind().items()},
        "bytes": fit.ledger.bytes,
    }


def scaling(method: str, size: int, agents: int) -> float:
    """By how much the paper's constants are scaled up; 1 where they are stable as they are.

    A linearized step of stiffness L + rho diverges where the curvature is above 2 (L + rho). In log sigma_eps the
    curvature is 2 N_i: N_i = 8,100 cannot be run with L = 5,000.

    >>> scaling("apx-gp", 8_100, 4), scaling("apx-gp", 32_400, 4), round(scaling("gapx-gp", 32_400, 10), 2)
    (1.0, 4.0, 3.04)
    """
    own = size / agents
    points = own + (agents - 1) * own / agents if training_method(method).augmented else own
    linearized = training_method(method).step == "linearized"
    return points / REFERENCE if linearized and points > STABLE else 1.0


def faithful(method: str, size: int, agents: int) -> dict[str, Any]:
    """The paper's settings: its constants, 100 rounds for the dec- methods, its stopping rule for the others."""
    if method in PLAIN:
        return {"noise_floor": 0.0}
    scale = scaling(method, size, agents)
    row = training_method(method)
    constants = {
        "rho": scale * RHO,
        "kappa": scale * STIFFNESS,
        "lipschitz": scale * STIFFNESS,
        "nested": "gradient-descent",
        "nested_iterations": NESTED,
    }
    return {
        **{name: value for name, value in constants.items() if name in row.options},
        "rounds": ROUNDS if row.decentralized or method == "c-gp" else MOST,
        "tol": 0.0 if row.decentralized else TOL,
        "noise_floor": 0.0,
    }


@dataclass(frozen=True)
class Group:
    """The replications of one method in one setting."""

    block: str
    size: int
    agents: int
    method: str
    rows: Sequence[dict[str, Any]]

    @property
    def thetas(self) -> Any:
        """(replications, P)."""
        return np.array([row["theta"] for row in self.rows])

    @property
    def seconds_per_agent(self) -> float:
        return float(np.mean([row["seconds"] / self.agents for row in self.rows]))

    @property
    def rounds(self) -> float:
        return float(np.mean([row["rounds"] for row in self.rows]))

    @property
    def converged(self) -> int:
        return sum(row["status"] == "converged" for row in self.rows)

    @property
    def scaled(self) -> float:
        return float(self.rows[0]["scaled"])

    def off(self, parameter: int) -> float:
        """The median distance from the truth of a hyperparameter, relative."""
        return float(np.median(np.abs(self.thetas[:, parameter] / fg.PAPER_THETA[parameter] - 1.0)))


def groups(results: Sequence[dict[str, Any]], block: str) -> dict[tuple[int, int, str], Group]:
    """(size, agents, method) -> replications. Methods without constants belong to both blocks."""
    found: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for row in results:
        if row["block"] == block or row["method"] in PLAIN:
            found.setdefault((row["size"], row["agents"], row["method"]), []).append(row)
    return {key: Group(block, *key, rows) for key, rows in found.items()}


Groups = Mapping[tuple[int, int, str], Group]


def each(plan: TrainingPlan, found: Groups, method: str, size: int) -> list[tuple[int, Group]]:
    """A method's groups by fleet size."""
    return [(m, found[size, m, method]) for m in plan.fleets if (size, m, method) in found]
