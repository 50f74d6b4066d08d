"""The local likelihoods of the hosted agents, evaluated side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NumericalError
from fleetgp.gp.evaluation import Evaluation
from fleetgp.gp.expert import Expert, evaluate
from fleetgp.training.prior import Prior


@dataclass(frozen=True)
class Values:
    """What is minimized at one log theta per agent: nll (A,), its log-gradient (A, P); a failed agent has nll = inf.

    jitter: (A,) what it took to factorize.  engine: (A,) the name of the engine that evaluated it.
    penalty: (A,) what priors have added to nll.
    """

    nll: Array
    gradient: Array
    jitter: Array
    engine: NDArray[np.object_]
    penalty: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def likelihood(self) -> Array:
        """(A,) nll without what priors have added."""
        return self.nll - self.penalty

    def replaced(self, where: BoolArray, other: Values) -> Values:
        """These values, with the agents in `where` taken from `other`."""
        return Values(
            np.where(where, other.nll, self.nll),
            np.where(where[:, None], other.gradient, self.gradient),
            np.where(where, other.jitter, self.jitter),
            np.where(where, other.engine, self.engine),
            np.where(where, other.penalty, self.penalty),
        )


class Objective:
    """l_i and its gradient for every hosted agent i, each at its own log theta, with its share of the priors' penalty.

    share: of each expert in the penalty, so that the fleet's sum has it once: known to all, and never sent.
    """

    def __init__(self, experts: Sequence[Expert], prior: Prior | None = None, share: float = 1.0) -> None:
        self.experts = tuple(experts)
        self.prior = Prior() if prior is None else prior
        self.share = share

    def of(self, experts: Sequence[Expert]) -> Objective:
        """The same for other experts."""
        return Objective(experts, self.prior, self.share)

    def changed(self, change: Callable[[Expert], Expert]) -> Objective:
        """The same for what becomes of each expert."""
        return self.of([change(expert) for expert in self.experts])

    def only(self, i: int) -> Objective:
        """That of one hosted agent alone."""
        return self.of([self.experts[i]])

    @property
    def sizes(self) -> IntArray:
        """(A,) how many observations each has."""
        return np.array([expert.size for expert in self.experts])

    def answers(self, rows: IntArray, log_thetas: Array) -> list[Evaluation | NumericalError]:
        """Some of the agents, each at its own log theta; a failure in its place."""
        return evaluate([self.experts[i] for i in rows], log_thetas)

    def __call__(self, log_thetas: Array, where: BoolArray | None = None) -> Values:
        """Evaluate at (A, P); with `where` only these agents, the others hold zeros."""
        agents, width = log_thetas.shape
        rows = np.arange(agents) if where is None else np.flatnonzero(where)
        found = self.answers(rows, log_thetas[rows])
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
        return self._penalized(values, log_thetas, rows) if self.prior.given else values

    def _penalized(self, values: Values, log_thetas: Array, rows: IntArray) -> Values:
        penalty, x = np.zeros(len(values.nll)), log_thetas[rows]
        penalty[rows] = self.share * self.prior.penalty(x)
        values.gradient[rows] += self.share * self.prior.gradient(x)
        return replace(values, nll=values.nll + penalty, penalty=penalty)

    @property
    def silent(self) -> BoolArray:
        """(A, P) which hyperparameters say nothing about an agent's data."""
        return np.stack([expert.silent for expert in self.experts])

    @property
    def bend(self) -> Array:
        """(P,) or (1,) the second derivatives of an agent's share of the penalty."""
        return self.share * self.prior.precision

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
        values = self.only(i)(log_theta[None])
        return float(values.nll[0]), values.gradient[0], float(values.jitter[0])
