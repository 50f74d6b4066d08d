"""The local likelihoods of the hosted agents, evaluated side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import NumericalError
from fleetgp.expert import DenseExpert


@dataclass(frozen=True)
class Values:
    """nll (A,), its log-gradient (A, P) and the jitter used (A,). A failed agent has nll = inf."""

    nll: Array
    gradient: Array
    jitter: Array

    def replaced(self, where: BoolArray, other: Values) -> Values:
        """These values, with the agents in `where` taken from `other`."""
        return Values(
            np.where(where, other.nll, self.nll),
            np.where(where[:, None], other.gradient, self.gradient),
            np.maximum(self.jitter, np.where(where, other.jitter, 0.0)),
        )


class Objective:
    """l_i and its gradient for every hosted agent i, each at its own log theta."""

    def __init__(self, experts: Sequence[DenseExpert]) -> None:
        self.experts = tuple(experts)
        self.sizes = np.array([expert.size for expert in experts], dtype=float)

    def __call__(self, log_thetas: Array, where: BoolArray | None = None) -> Values:
        """Evaluate at (A, P); with `where` only these agents, the others hold zeros."""
        agents, width = log_thetas.shape
        values = Values(np.zeros(agents), np.zeros((agents, width)), np.zeros(agents))
        for i in range(agents) if where is None else np.flatnonzero(where):
            values.nll[i], values.gradient[i], values.jitter[i] = self.one(int(i), log_thetas[i])
        return values

    def one(self, i: int, log_theta: Array) -> tuple[float, Array, float]:
        """One hosted agent. Where the covariance cannot be factorized the likelihood is taken as infinite."""
        try:
            evaluation = self.experts[i].evaluate(log_theta)
        except NumericalError:
            return np.inf, np.full(len(log_theta), np.nan), 0.0
        return evaluation.nll, evaluation.gradient, evaluation.jitter
