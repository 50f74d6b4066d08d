"""A local GP: likelihood, gradient, posterior, and the cross-covariances between experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from fleetgp.arrays import Array
from fleetgp.cholesky import Cholesky, factorize
from fleetgp.errors import NumericalError
from fleetgp.hyperparameters import Hyperparameters
from fleetgp.kernels import Kernel, scaled_squared_distance

#: exp(2 * 150) is still far inside the range of a double.
LARGEST_LOG = 150.0


@dataclass(frozen=True)
class Evaluation:
    """l(theta) = (y'C^-1 y + log|C|) / 2, its gradient in log theta, and the jitter it needed."""

    nll: float
    gradient: Array
    jitter: float


class DenseExpert:
    """The exact GP of one agent's data, by LAPACK.

    The constant (N/2) log 2 pi is left out of the likelihood, as in the paper's (P1).

    >>> from fleetgp.kernels import SquaredExponential
    >>> expert = DenseExpert(np.array([[0.0]]), np.array([2.0]), SquaredExponential(), agent=0)
    >>> round(expert.evaluate(np.log([1.0, 1.0, 1.0])).nll, 6)  # C = 2: (4/2 + log 2)/2
    1.346574
    """

    def __init__(self, inputs: Array, observations: Array, kernel: Kernel, agent: int) -> None:
        self.inputs = inputs
        self.observations = observations
        self.kernel = kernel
        self.agent = agent

    @property
    def size(self) -> int:
        return len(self.observations)

    def evaluate(self, log_theta: Array) -> Evaluation:
        r"""NLL and log-gradient: one Cholesky, one inverse, one exponential per entry, 2 N^2 doubles.

        With B = C^-1 - aa', a = C^-1 y and S = sigma_f^2 * slope, eq. (grad_mle) in log theta reads

            d/d log l_d       = sum_ij (B o S)_ij (z_id - z_jd)^2 = 2 z_d^2'(B o S)1 - 2 z_d'(B o S) z_d
            d/d log sigma_f   = 1'(B o K)1
            d/d log sigma_eps = sigma_eps^2 (tr C^-1 - a'a)

        with z the inputs over the length-scales, so only products with the (D + 1) columns [z, 1] are
        needed. For the squared exponential S = K.
        """
        if not (np.abs(log_theta) < LARGEST_LOG).all():
            raise NumericalError(f"agent {self.agent}: log theta = {log_theta.tolist()} is out of range")
        h = Hyperparameters.from_log(log_theta)
        with np.errstate(over="ignore", under="ignore"):
            z = (self.inputs - self.inputs.mean(axis=0)) / np.asarray(h.length_scales)
            value, slope = self.kernel.profile_and_slope(scaled_squared_distance(z))
            value *= h.signal**2
        factor = self._factorize(value, h)
        jitter, log_determinant = factor.jitter, factor.log_determinant
        alpha = factor.solve(self.observations)
        inverse = factor.inverse_in_place()
        trace = float(np.trace(inverse))
        columns = np.column_stack([z, np.ones(self.size)])
        if slope is value:
            product = _weighted_product(inverse, value, alpha, columns)
            total = float(product[:, -1].sum())
        else:
            slope *= h.signal**2
            total = float(_weighted_product(inverse.copy(order="F"), value, alpha, columns)[:, -1].sum())
            product = _weighted_product(inverse, slope, alpha, columns)
        scales = 2.0 * (product[:, -1] @ z**2 - np.einsum("nd,nd->d", z, product[:, :-1]))
        noise = h.noise**2 * (trace - float(alpha @ alpha))
        nll = 0.5 * (float(self.observations @ alpha) + log_determinant)
        return Evaluation(nll, np.array([*scales, total, noise]), jitter)

    def condition(self, theta: Array) -> Posterior:
        """The posterior at fixed hyperparameters (natural units), ready for queries."""
        h = Hyperparameters.from_theta(theta)
        factor = self._factorize(self.kernel(self.inputs, None, h), h)
        return Posterior(self, h, factor, factor.solve(self.observations))

    def _factorize(self, covariance: Array, h: Hyperparameters) -> Cholesky:
        factor = factorize(covariance, h.noise**2)
        if factor is None:
            raise NumericalError(
                f"agent {self.agent}: the covariance of its {self.size} points is not positive definite at "
                f"theta = {h.theta.tolist()}, even with jitter; {self._likely_reason(h)}"
            )
        return factor

    def _likely_reason(self, h: Hyperparameters) -> str:
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.observations).all()):
            return "its data hold NaN or infinite values: remove them"
        if not np.isfinite(h.theta**2).all() or min(h.length_scales) < 1e-150:
            return "theta is out of range: start closer to the scale of the data"
        pair = duplicate_rows(self.inputs)
        if pair is not None:
            return f"rows {pair[0]} and {pair[1]} are duplicates: remove one, or use a larger sigma_eps"
        return f"sigma_eps / sigma_f = {h.noise / h.signal:.1e} is tiny: use a larger sigma_eps"


class Posterior:
    """f | D_i at fixed theta; eqs. (local_mean), (local_variance), (local_covariance)."""

    def __init__(self, expert: DenseExpert, h: Hyperparameters, factor: Cholesky, alpha: Array) -> None:
        self.expert = expert
        self.hyperparameters = h
        self.jitter = factor.jitter
        self._factor = factor
        self._alpha = alpha

    def _cross(self, queries: Array) -> Array:
        return self.expert.kernel(self.expert.inputs, queries, self.hyperparameters)

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        cross = self._cross(queries)
        half = self._factor.half_solve(cross)
        explained = np.einsum("nt,nt->t", half, half)
        return self._alpha @ cross, np.maximum(self.hyperparameters.signal**2 - explained, 0.0)

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,): NPAE's cross-covariance and CBNN's correlation."""
        half = self._factor.half_solve(self._cross(queries))
        return np.asarray(np.einsum("nt,nt->t", half, half))

    def weights(self, queries: Array) -> Array:
        """C_i^-1 k_i*, (N_i, T): what another agent needs, with X_i, for a cross-covariance."""
        return self._factor.solve(self._cross(queries))


def cross_covariance(own: Posterior, own_weights: Array, other_inputs: Array, other_weights: Array) -> Array:
    """Eq. (cross_covariance) for i != j: w_i' k(X_i, X_j) w_j at each query, (T,); no noise term.

    For i = j it is `Posterior.explained_variance`, since there C_ii holds the noise.
    """
    covariance = own.expert.kernel(own.expert.inputs, other_inputs, own.hyperparameters)
    return np.asarray(np.einsum("nt,nt->t", own_weights, covariance @ other_weights))


def duplicate_rows(inputs: Array) -> tuple[int, int] | None:
    """The first pair of equal rows, or None.

    >>> duplicate_rows(np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]))
    (0, 2)
    """
    order = np.lexsort(inputs.T)
    equal = np.flatnonzero((np.diff(inputs[order], axis=0) == 0.0).all(axis=1))
    if not equal.size:
        return None
    first, second = sorted((int(order[equal[0]]), int(order[equal[0] + 1])))
    return first, second


def _weighted_product(inverse: Array, weight: Array, alpha: Array, columns: Array) -> Array:
    """((C^-1 - aa') o W) V from the lower triangle of C^-1, which is overwritten; W symmetric."""
    inverse *= weight
    both = blas.dsymm(1.0, inverse, columns, lower=1)
    both -= alpha[:, None] * blas.dsymm(1.0, weight.T, alpha[:, None] * columns, lower=1)
    return np.asarray(both, dtype=float)
