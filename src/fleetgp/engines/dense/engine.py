"""The dense engine: the exact likelihood and posterior by LAPACK, and its expected cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Self

import numpy as np

from fleetgp.arrays import Array, duplicate_rows
from fleetgp.engines.base import (
    LARGEST_LOG,
    MORE_NOISE,
    OUT_OF_RANGE,
    DataEngine,
    Evaluation,
    Posterior,
    ThetaError,
    Trend,
    out_of_range,
    owner,
)
from fleetgp.engines.covariances import covariance_of
from fleetgp.engines.dense.likelihood import evaluate_stack, stack_size
from fleetgp.engines.exact import ExactPosterior
from fleetgp.errors import InputError, NumericalError
from fleetgp.linalg.cholesky import factorize
from fleetgp.linalg.threads import cores, share
from fleetgp.model.hyperparameters import Hyperparameters

#: Floating-point operations per second of the factorization and the inverse of a large matrix.
LARGE_RATE = 3.5e10
#: Seconds per entry of a matrix: an exponential, the gradient, and what LAPACK is slower by on small matrices.
ENTRY = 9e-9
#: Seconds for the calls themselves.
CALLS = 1e-4


def expected_seconds(size: int, points: int) -> float:
    """Of a likelihood with its gradient: N^3 operations for the factor and the inverse, P^2 for all else."""
    return size**3 / LARGE_RATE + ENTRY * points**2 + CALLS


#: Below this length-scale a squared distance overflows, whatever the data.
SMALLEST_SCALE = 1e-150

#: A squared pivot below this share of the diagonal is rounding: rows that repeat, with noise that is next to nothing.
PIVOT = 1e-15


class DenseEngine(DataEngine):
    """The exact GP of one agent's data; its answer is never None.

    The constant (N/2) log 2 pi is left out of the likelihood, as in the paper's (P1).

    >>> from fleetgp.kernels.stationary import SquaredExponential
    >>> from fleetgp.model.observations import Observations
    >>> expert = DenseEngine(Observations(np.array([[0.0]]), np.array([2.0])), SquaredExponential(), agent=0)
    >>> round(expert.evaluate(np.log([1.0, 1.0, 1.0])).nll, 6)  # C = 2: (4/2 + log 2)/2
    1.346574
    """

    name = "dense"

    def cost(self, theta: Array) -> float:
        return expected_seconds(self.size, len(self.data.places))

    def evaluate(self, log_theta: Array) -> Evaluation:
        """NLL and log-gradient, with all cores on this one agent."""
        (result,) = self.evaluate_many([self], log_theta[None])
        if isinstance(result, NumericalError):
            raise result
        return result

    @classmethod
    def evaluate_many(cls, engines: Sequence[Self], log_thetas: Array) -> Sequence[Evaluation | NumericalError]:
        """Each at its own log theta, on all cores, those of equal size in stacks; a failure in its place."""
        result: dict[int, Evaluation | NumericalError] = {}
        alike = defaultdict(list)
        for i, (expert, row) in enumerate(zip(engines, log_thetas, strict=True)):
            if (np.abs(row) < LARGEST_LOG).all() and not expert.size:  # what has no rows has nothing to say of theta
                result[i] = Evaluation(0.0, np.zeros(len(row)), 0.0)
            elif (np.abs(row) < LARGEST_LOG).all():
                data = expert.data
                alike[data.inputs.shape, expert.kernel, data.points is None, data.weight is None].append(i)
            else:
                result[i] = out_of_range(expert.agent, row)

        def evaluate(rows: list[int]) -> None:
            try:
                evaluations = evaluate_stack([engines[i] for i in rows], log_thetas[rows])
            except MemoryError:
                raise engines[rows[0]].too_large() from None
            for i, evaluation in zip(rows, evaluations, strict=True):
                result[i] = evaluation or engines[i].failure(Hyperparameters.from_log(log_thetas[i]))

        stacks = []
        for ((size, _), *_), rows in alike.items():
            turns = -(-len(rows) // (stack_size(size) * cores()))
            count = min(len(rows), turns * cores())  # as many for each core
            stacks += [part.tolist() for part in np.array_split(rows, count)]
        share(evaluate, stacks, largest=max((size for (size, _), *_ in alike), default=0))
        return [result[i] for i in range(len(engines))]

    def condition(self, theta: Array, before: Posterior | None = None) -> ExactPosterior:
        """before: the posterior of the first rows, which is extended, with N^2 operations for each new row."""
        try:
            result = before.extended(self.data) if isinstance(before, ExactPosterior) else None
            return result or self.posterior(Hyperparameters.from_theta(theta))
        except MemoryError:
            raise self.too_large() from None

    def posterior(self, h: Hyperparameters) -> ExactPosterior:
        """The same from all rows; callers translate a MemoryError."""
        result = ExactPosterior.of(self.data, self.kernel, h, pivot=PIVOT)
        if result is None:
            raise self.failure(h)
        return result

    def products(self, theta: Array, trend: Trend) -> Array:
        h = Hyperparameters.from_theta(theta)
        factor = factorize(covariance_of(self.kernel, self.data, h), self.kernel.noise(self.data, h))
        if factor is None:
            raise self.failure(h)
        half = factor.half_solve_in_place(np.asfortranarray(trend.with_observations(self.data)))
        return np.asarray(half.T @ half)

    def failure(self, h: Hyperparameters) -> NumericalError:
        """Why the covariance cannot be factorized at these hyperparameters."""
        what = (
            f"{owner(self.agent)}: the covariance of its {self.size} points is not positive definite, even with jitter,"
        )
        return ThetaError(what, h.theta, self._advice(h))

    def too_large(self) -> InputError:
        return InputError(
            f"{owner(self.agent)}: the dense engine needs {gigabytes(self.size):.0f} GB for its {self.size} points, "
            'more than there is: use engine="auto", which takes another one for so many'
        )

    def _advice(self, h: Hyperparameters) -> str:
        if not all(np.isfinite(array).all() for array in self.data.arrays):
            return "remove the NaN or infinite values from its data"
        if not np.isfinite(h.theta**2).all() or h.theta[:-2].min(initial=1.0) < SMALLEST_SCALE:
            return OUT_OF_RANGE
        pair = duplicate_rows(self.data.inputs)
        if pair is not None:
            return f"remove one of the rows {pair[0]} and {pair[1]}, which are duplicates; or {MORE_NOISE}"
        return MORE_NOISE


def gigabytes(size: int) -> float:
    """What an evaluation needs: two matrices of doubles."""
    return 16e-9 * size**2
