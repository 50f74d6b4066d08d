"""The dense engine: the exact likelihood and posterior by LAPACK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fleetgp import lapack
from fleetgp.arrays import Array, BoolArray
from fleetgp.basis import Basis
from fleetgp.cholesky import Cholesky, factorize, factorize_in_place
from fleetgp.errors import NumericalError
from fleetgp.hyperparameters import Hyperparameters
from fleetgp.kernels import Kernel
from fleetgp.threads import blas_threads, cores, spread

#: exp(2 * 150) is still far inside the range of a double.
LARGEST_LOG = 150.0
#: Entries of a matrix that are worked on at a time: they stay in a core's cache.
CACHED = 1 << 16
#: From this size on two BLAS threads are faster than one.
LARGE = 500


@dataclass(frozen=True)
class Evaluation:
    """l(theta) = (y'C^-1 y + log|C|) / 2, its gradient in log theta, the jitter it needed, and the engine.

    error: a bound on the error of the likelihood beyond that of the dense engine; 0 for the dense engine.
    """

    nll: float
    gradient: Array
    jitter: float
    engine: str = "dense"
    error: float = 0.0


class DenseExpert:
    """The exact GP of one agent's data.

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
        """NLL and log-gradient, with all cores on this one agent."""
        with blas_threads(cores() if self.size >= LARGE else 1):
            (found,) = evaluate_batch([self], log_theta[None])
        if isinstance(found, NumericalError):
            raise found
        return found

    def condition(self, theta: Array) -> DensePosterior:
        """The posterior at fixed hyperparameters (natural units), ready for queries."""
        h = Hyperparameters.from_theta(theta)
        factor = factorize(self.kernel(self.inputs, None, h), h.noise**2)
        if factor is None:
            raise self.failure(h)
        return DensePosterior(self, h, factor, factor.solve(self.observations))

    def failure(self, h: Hyperparameters) -> NumericalError:
        """Why the covariance cannot be factorized at these hyperparameters."""
        return NumericalError(
            f"agent {self.agent}: the covariance of its {self.size} points is not positive definite at "
            f"theta = {h.theta.tolist()}, even with jitter; {self._likely_reason(h)}"
        )

    def _likely_reason(self, h: Hyperparameters) -> str:
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.observations).all()):
            return "its data hold NaN or infinite values: remove them"
        if not np.isfinite(h.theta**2).all() or min(h.length_scales) < 1e-150:
            return "theta is out of range: start closer to the scale of the data"
        pair = duplicate_rows(self.inputs)
        if pair is not None:
            return f"rows {pair[0]} and {pair[1]} are duplicates: remove one, or use a larger sigma_eps"
        return f"sigma_eps / sigma_f = {h.noise / h.signal:.1e} is tiny: use a larger sigma_eps"


def evaluate_batch(experts: Sequence[DenseExpert], log_thetas: Array) -> list[Evaluation | NumericalError]:
    r"""NLL and log-gradient of experts of equal size, each at its own log theta; a failure in its place.

    One Cholesky, one inverse and one exponential per entry of a triangle; 2 N^2 doubles each (3 N^2 for a
    Matern kernel). With B = C^-1 - aa', a = C^-1 y and S = sigma_f^2 * slope, eq. (grad_mle) in log theta is

        d/d log l_d       = sum_ij (B o S)_ij (z_id - z_jd)^2
        d/d log sigma_f   = 1'(B o K)1
        d/d log sigma_eps = sigma_eps^2 (tr C^-1 - a'a)

    with z the inputs over the length-scales: products of B o S with the columns [z, z^2, 1]. The matrices
    are walked in slabs of rows that stay in cache, right of the diagonal only.
    """
    if not (np.abs(log_thetas) < LARGEST_LOG).all():
        return _one_by_one(experts, log_thetas)
    kernel, size = experts[0].kernel, experts[0].size
    theta = np.exp(log_thetas)
    signal, noise = theta[:, -2, None, None] ** 2, theta[:, -1] ** 2
    observations = np.stack([e.observations for e in experts])
    inputs = np.stack([e.inputs for e in experts])
    slabs = _slabs(size)
    side = max(slab.stop - slab.start for slab in slabs)
    lower = _below_diagonal(side)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z = (inputs - inputs.mean(axis=1, keepdims=True)) / theta[:, None, :-2]
        square = np.einsum("bnd,bnd->bn", z, z)[..., None]
        one = np.ones_like(square)
        left = np.concatenate([-2.0 * z, square, one], axis=2)
        right = np.concatenate([z, one, square], axis=2).swapaxes(1, 2)
    value, work = np.empty((2, len(experts), size, size))
    slope = value if kernel.slope_is_value else np.empty_like(value)

    def build(rows: slice) -> None:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            s = np.matmul(left[:, rows], right[:, :, rows.start :], out=value[:, rows, rows.start :])
            np.maximum(s, 0.0, out=s)
            width = rows.stop - rows.start
            s[:, np.arange(width), np.arange(width)] = 0.0
            profile, descent = kernel.profile_and_slope(s)
            np.multiply(profile, signal, out=s)
            below = lower[:width, :width]
            np.copyto(s[:, :, :width], 0.0, where=below)
            if not kernel.slope_is_value:
                descent *= signal
                np.copyto(descent[:, :, :width], 0.0, where=below)
                slope[:, rows, rows.start :] = descent

    spread(build, slabs)
    factors = []
    alpha = np.empty_like(observations)
    trace, log_determinant = np.zeros((2, len(experts)))
    for b in range(len(experts)):

        def fill(b: int = b) -> None:
            for rows in slabs:
                work[b, rows, rows.start :] = value[b, rows, rows.start :]

        factor = factorize_in_place(work[b].T, fill, noise[b], float(signal[b, 0, 0]) + noise[b])
        factors.append(factor)
        if factor is None:
            work[b], value[b], slope[b], alpha[b] = 0.0, 0.0, 0.0, 0.0
            continue
        log_determinant[b] = factor.log_determinant
        alpha[b] = observations[b]
        lapack.solve_in_place(factor.lower, alpha[b])
        factor.inverse_in_place()
        trace[b] = np.trace(work[b])

    columns = np.concatenate([z, z**2, one], axis=2)

    def contract(rows: slice) -> tuple[Array, Array]:
        """This slab's share of the sums: sum (B o S)(z - z')^2, (B, D), and twice 1'(B o K)1, (B,)."""
        block = work[:, rows, rows.start :]
        block -= alpha[:, rows, None] * alpha[:, None, rows.start :]
        near = [np.diagonal(m[:, rows, rows.start :], axis1=1, axis2=2) for m in (work, value)]
        own = (near[0] * near[1]).sum(axis=1)
        if not kernel.slope_is_value:
            total = 2.0 * (block * value[:, rows, rows.start :]).sum(axis=2).sum(axis=1) - own
        block *= slope[:, rows, rows.start :]
        sums = block @ columns[:, rows.start :]
        if kernel.slope_is_value:
            total = 2.0 * sums[:, :, -1].sum(axis=1) - own
        here, dimension = z[:, rows], z.shape[2]
        terms = here**2 * sums[:, :, -1:] + sums[:, :, dimension:-1] - 2.0 * here * sums[:, :, :dimension]
        return terms.sum(axis=1), total

    shares = spread(contract, slabs)
    scales = 2.0 * sum(share for share, _ in shares)
    total = sum(share for _, share in shares)
    gradient = np.column_stack([scales, total, noise * (trace - np.einsum("bn,bn->b", alpha, alpha))])
    nll = 0.5 * (np.einsum("bn,bn->b", observations, alpha) + log_determinant)
    return [
        expert.failure(Hyperparameters.from_theta(theta[b]))
        if factor is None
        else Evaluation(float(nll[b]), gradient[b], factor.jitter)
        for b, (expert, factor) in enumerate(zip(experts, factors, strict=True))
    ]


def _one_by_one(experts: Sequence[DenseExpert], log_thetas: Array) -> list[Evaluation | NumericalError]:
    """Some theta is out of range: those fail, the others do not suffer."""
    found: list[Evaluation | NumericalError] = []
    for expert, row in zip(experts, log_thetas, strict=True):
        if (np.abs(row) < LARGEST_LOG).all():
            found.extend(evaluate_batch([expert], row[None]))
        else:
            found.append(NumericalError(f"agent {expert.agent}: log theta = {row.tolist()} is out of range"))
    return found


def batch_size(size: int) -> int:
    """How many experts of this size fit the cache together."""
    return max(1, CACHED // size**2)


def _slabs(size: int) -> list[slice]:
    step = size if size * size <= 2 * CACHED else max(16, CACHED // size)
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


@cache
def _below_diagonal(side: int) -> BoolArray:
    return np.tril(np.ones((side, side), dtype=bool), -1)


class DensePosterior:
    """f | D_i at fixed theta; eqs. (local_mean), (local_variance), (local_covariance)."""

    engine = "dense"

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

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_i' C_i^-1 k_i*, (r, T), for a basis phi on a box that holds the inputs."""
        return np.asarray(basis.at(self.expert.inputs).T @ self.weights(queries))


def cross_covariance(own: DensePosterior, own_weights: Array, other_inputs: Array, other_weights: Array) -> Array:
    """Eq. (cross_covariance) for i != j: w_i' k(X_i, X_j) w_j at each query, (T,); no noise term.

    For i = j it is `explained_variance`, since there C_ii holds the noise.
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
