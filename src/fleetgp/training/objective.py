"""The local likelihoods of the hosted agents, evaluated side by side.

Curvature of the local likelihoods: one positive definite P x P matrix per agent, measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.base import Evaluation
from fleetgp.engines.expert import Expert, evaluate
from fleetgp.errors import NumericalError
from fleetgp.training.constraints import Prior


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

    def part(self, rows: slice) -> Values:
        """Those of some agents."""
        penalty = np.broadcast_to(self.penalty, self.nll.shape)
        return Values(self.nll[rows], self.gradient[rows], self.jitter[rows], self.engine[rows], penalty[rows])

    def renewed(self, rows: IntArray, other: Values) -> Values:
        """These values, with those of the agents `rows` taken from `other`, which has no others."""
        penalty = np.zeros_like(self.nll)
        pairs = (self.nll, other.nll), (self.gradient, other.gradient), (self.jitter, other.jitter)
        for own, new in (*pairs, (self.engine, other.engine), (penalty, other.penalty)):
            own[rows] = new
        return replace(self, penalty=penalty)

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
        if where is None:
            return self.at(np.arange(len(log_thetas)), log_thetas)
        agents = len(where)
        nothing = Values(
            np.zeros(agents), np.zeros_like(log_thetas), np.zeros(agents), np.full(agents, "dense", dtype=object)
        )
        rows = np.flatnonzero(where)
        return nothing.renewed(rows, self.at(rows, log_thetas[rows]))

    def at(self, rows: IntArray, log_thetas: Array) -> Values:
        """Evaluate some agents (K,), each at its own log theta (K, P); an agent may come several times."""
        answers = self.answers(rows, log_thetas)
        # Where the covariance cannot be factorized the likelihood is taken as infinite.
        failed = Evaluation(np.inf, np.full(log_thetas.shape[1], np.nan), 0.0)
        sound = [failed if isinstance(each, NumericalError) else each for each in answers]
        values = Values(
            np.array([each.nll for each in sound]),
            np.array([each.gradient for each in sound]).reshape(log_thetas.shape),
            np.array([each.jitter for each in sound]),
            np.array([each.engine for each in sound], dtype=object),
        )
        if not self.prior.given:
            return values
        penalty = self.share * self.prior.penalty(log_thetas)
        values.gradient[:] += self.share * self.prior.gradient(log_thetas)
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


#: Step of the forward differences, and the smallest eigenvalue relative to the largest.
STEP = 1e-4
FLOOR = 1e-3
#: The smallest eigenvalue of all, where a likelihood is flat in every direction.
FLATTEST = 1e-6


@dataclass(frozen=True)
class Curvature:
    """matrix: (A, P, P) positive definite, |Hessian|.  concavity: (A, P), the diagonal of its negative part.

    measured_at: (A, P), the log theta at which it was measured.
    """

    matrix: Array
    concavity: Array
    measured_at: Array

    @classmethod
    def constant(cls, value: float, x: Array) -> Curvature:
        """value * I for every agent: nothing is measured."""
        width = x.shape[1]
        return cls(np.tile(value * np.eye(width), (len(x), 1, 1)), np.zeros_like(x), np.full_like(x, np.inf))

    def replaced(self, where: BoolArray, other: Curvature) -> Curvature:
        return Curvature(
            np.where(where[:, None, None], other.matrix, self.matrix),
            np.where(where[:, None], other.concavity, self.concavity),
            np.where(where[:, None], other.measured_at, self.measured_at),
        )


@dataclass(frozen=True)
class Local:
    """Where the hosted agents stand: log theta (A, P), the likelihood there, and the model's curvature."""

    x: Array
    values: Values
    curvature: Curvature

    @classmethod
    def at(cls, objective: Objective, x: Array) -> Local:
        """At log theta (A, P), without having measured the curvature."""
        return cls(x, objective(x), Curvature.constant(1.0, x))

    @classmethod
    def unevaluated(cls, x: Array) -> Local:
        """At a start (A, P), before anything is known there."""
        none = np.zeros(len(x), dtype=bool)
        nothing = Values(np.full(len(x), np.inf), np.full_like(x, np.nan), np.zeros(len(x)), none)
        return cls(x, nothing, Curvature.constant(1.0, x))


def measure_hessian(objective: Objective, x: Array, values: Values, where: BoolArray) -> Array:
    """The Hessians at x (A, P) by forward differences of the gradient, symmetric, (A, P, P); P evaluations.

    Fewer for agents whose data do not depend on all of x: along such coordinates only the priors bend. They hold no
    meaning for agents that are not in `where`, and are not finite where a likelihood nearby is not.
    """
    silent = objective.silent
    rows, columns = np.nonzero(where[:, None] & ~silent)
    shifted = objective.at(rows, x[rows] + STEP * np.eye(x.shape[1])[columns])
    return _from_slopes(objective, silent, (rows, columns), shifted.gradient - values.gradient[rows])


def evaluate_with_hessian(objective: Objective, x: Array) -> tuple[Values, Array]:
    """The likelihoods at x (A, P), and their Hessians as `measure_hessian` has them, (A, P, P).

    All evaluations are asked for at once, so that they run side by side: an agent that is alone in its process then
    uses all cores without threads inside BLAS, which wait for each other as soon as other work needs a core.
    """
    silent, agents = objective.silent, np.arange(len(x))
    rows, columns = np.nonzero(~silent)
    shifted = x[rows] + STEP * np.eye(x.shape[1])[columns]
    both = objective.at(np.concatenate([agents, rows]), np.concatenate([x, shifted]))
    values, around = both.part(slice(len(x))), both.part(slice(len(x), None))
    slopes = around.gradient - values.gradient[rows]
    return values, _from_slopes(objective, silent, (rows, columns), slopes)


def _from_slopes(objective: Objective, silent: BoolArray, places: tuple[IntArray, IntArray], slopes: Array) -> Array:
    """Hessians (A, P, P) from differences of gradients (K, P) along one coordinate of one agent each."""
    agents, width = silent.shape
    hessian = np.zeros((agents, width, width))
    bend = np.broadcast_to(objective.bend, width)
    for i, k in np.argwhere(silent):
        hessian[i, k, k] = bend[k]
    hessian[places] = slopes / STEP
    return np.asarray(0.5 * (hessian + np.swapaxes(hessian, 1, 2)))


def measure_curvature(objective: Objective, x: Array, values: Values, where: BoolArray) -> Curvature:
    """The Hessians at x (A, P), made positive.

    P evaluations for the agents in `where`; the others hold no meaning. Eigenvalues are taken by magnitude,
    so that a saddle direction counts as stiff as it is, and floored. (Secant updates would be free, but on
    this likelihood they overshoot the true curvature by factors of a hundred before they settle.)
    """
    hessian = measure_hessian(objective, x, values, where)
    usable = where & np.isfinite(hessian).all(axis=(1, 2))
    hessian = np.where(usable[:, None, None], hessian, np.eye(x.shape[1]))
    eigenvalues, vectors = np.linalg.eigh(hessian)
    magnitude = np.abs(eigenvalues)
    bounded = np.maximum(magnitude, np.maximum(FLOOR * magnitude.max(axis=1, keepdims=True), FLATTEST))
    matrix = (vectors * bounded[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    concavity = (vectors**2 * np.maximum(-eigenvalues, 0.0)[:, None, :]).sum(axis=2)
    return Curvature(matrix, concavity, x)
