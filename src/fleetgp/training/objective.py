"""The local likelihoods of the hosted agents, evaluated side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import NumericalError
from fleetgp.gp.expert import Expert, evaluate


@dataclass(frozen=True)
class Values:
    """The likelihoods at one log theta per agent: nll (A,), its log-gradient (A, P); a failed agent has nll = inf.

    jitter: (A,) what it took to factorize.  engine: (A,) the name of the engine that evaluated it.
    """

    nll: Array
    gradient: Array
    jitter: Array
    engine: NDArray[np.object_]

    def replaced(self, where: BoolArray, other: Values) -> Values:
        """These values, with the agents in `where` taken from `other`."""
        return Values(
            np.where(where, other.nll, self.nll),
            np.where(where[:, None], other.gradient, self.gradient),
            np.where(where, other.jitter, self.jitter),
            np.where(where, other.engine, self.engine),
        )


class Objective:
    """l_i and its gradient for every hosted agent i, each at its own log theta."""

    def __init__(self, experts: Sequence[Expert]) -> None:
        self.experts = tuple(experts)

    def __call__(self, log_thetas: Array, where: BoolArray | None = None) -> Values:
        """Evaluate at (A, P); with `where` only these agents, the others hold zeros."""
        agents, width = log_thetas.shape
        rows = np.arange(agents) if where is None else np.flatnonzero(where)
        found = evaluate([self.experts[i] for i in rows], log_thetas[rows])
        values = Values(
            np.zeros(agents), np.zeros((agents, width)), np.zeros(agents), np.full(agents, "dense", dtype=object)
        )
        for i, evaluation in zip(rows, found, strict=True):
            if isinstance(evaluation, NumericalError):
                # Where the covariance cannot be factorized the likelihood is taken as infinite.
                values.nll[i], values.gradient[i] = np.inf, np.nan
            else:
                values.nll[i], values.gradient[i], values.jitter[i] = (
                    evaluation.nll,
                    evaluation.gradient,
                    evaluation.jitter,
                )
                values.engine[i] = evaluation.engine
        return values

    def settle(self, log_thetas: Array) -> None:
        """Have each agent settle on one engine for what comes, around its own log theta."""
        for expert, x in zip(self.experts, log_thetas, strict=True):
            expert.settle(x)

    def error_estimates(self, log_thetas: Array, values: Values) -> Array:
        """(A,) what the likelihoods at (A, P) may be wrong by: estimates, for the engine that approximates."""
        rows = zip(self.experts, log_thetas, values.engine, strict=True)
        return np.array([expert.error_estimate(x) if name == "vecchia" else 0.0 for expert, x, name in rows])

    def one(self, i: int, log_theta: Array) -> tuple[float, Array, float]:
        """nll, gradient and jitter of one hosted agent."""
        values = Objective([self.experts[i]])(log_theta[None])
        return float(values.nll[0]), values.gradient[0], float(values.jitter[0])
