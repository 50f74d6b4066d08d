"""Fleets on the paper's field, and where each method must end on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus import Outcome, drive
from fleetgp.consensus.agreements import augmented, sample
from fleetgp.data import Shard
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.training import training_method
from fleetgp.training.constraints import Bounds
from fleetgp.training.solver import StepwiseSolver
from tests.conftest import paper_shards
from tests.shared import observed

THETA0 = fg.PAPER_THETA0


CONVERGED_TO = {m: ("g-fact-gp" if training_method(m).augmented else "fact-gp") for m in fg.TRAINING_METHODS}
CONVERGED_TO["full-gp"] = CONVERGED_TO["dec-full-gp"] = "full-gp"


X0 = np.log(fg.PAPER_THETA0)


RHO, STIFF = 40.0, 300.0


def fleet(n: int = 300, agents: int = 6, graph: object = "path", **options: object) -> fg.Fleet:
    return fg.Fleet(paper_shards(n, agents), graph, **{"kernel": "se", "normalize": False, **options})  # type: ignore[arg-type]


def experts(agents: int, n: int = 90) -> list[DenseEngine]:
    return [DenseEngine(Observations(x, y), KERNELS["se"], i) for i, (x, y) in enumerate(paper_shards(n, agents))]


def paper_options(method: str) -> dict[str, Any]:
    """The paper's constants that a method has."""
    constants = {"rho": 500.0, "kappa": 5000.0, "lipschitz": 5000.0}
    return {name: constants[name] for name in training_method(method).options if name in constants}


def parts_of(shards: Sequence[Shard], method: str) -> list[Shard]:
    """The data whose likelihoods full-gp, fact-gp and g-fact-gp add up."""
    parts = list(shards)
    if method == "full-gp":
        return [(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]))]
    if method == "g-fact-gp":
        samples = [sample(shard, len(parts), seed=0) for shard in observed(parts)]
        return [augmented(shard, i, samples).as_given for i, shard in enumerate(observed(parts))]
    return parts


def optimum(shards: Sequence[Shard], method: str, theta0: Sequence[float]) -> Array:
    """Where full-gp, fact-gp and g-fact-gp must end: by SciPy on densities written out, with none of our gradients."""
    parts = parts_of(shards, method)

    def nll(log_theta: Array) -> float:
        *scales, signal, noise = np.exp(log_theta)
        found = 0.0
        for x, y in parts:
            distance = (((x[:, None] - x) / scales) ** 2).sum(axis=2)
            lower = np.linalg.cholesky(signal**2 * np.exp(-distance) + noise**2 * np.eye(len(y)))
            found += 0.5 * float((np.linalg.solve(lower, y) ** 2).sum()) + float(np.log(np.diagonal(lower)).sum())
        return found

    options = {"ftol": 1e-14, "gtol": 1e-6}
    found = minimize(nll, np.log(theta0), method="L-BFGS-B", jac="3-point", options=options)
    return np.asarray(np.exp(found.x))


def destination(f: fg.Fleet, method: str, theta0: Sequence[float] = THETA0) -> Array:
    """Where a method must end: the ADMM ones where the server's minimizer does, and that one where SciPy does."""
    if method == CONVERGED_TO[method]:
        return optimum(f.shards, CONVERGED_TO[method], theta0)
    return f.train(CONVERGED_TO[method], theta0=theta0, tol=1e-6).theta


def follow(
    solver: StepwiseSolver[Any], start: Array, *, rounds: int, tol: float, history: list[Array] | None = None
) -> Outcome[Any]:
    """The rounds of a solver from one start, log theta (A, P). history: where the agents came to."""
    seen = [] if history is None else history
    recursion = solver.rounds(tol)
    running = recursion.start(solver.begin(start))
    end = drive(recursion, running, rounds, lambda _, there: seen.append(solver.state_of(there).local.x))
    return solver.outcome(*end)


def floor_at(log_noise: float, width: int) -> Bounds:
    """A bound on the last coordinate alone."""
    return Bounds(np.append(np.full(width - 1, -np.inf), log_noise), np.full(width, np.inf))


def relative_error(thetas: Array, reference: Array) -> float:
    return float(np.abs(thetas / reference - 1.0).max())
