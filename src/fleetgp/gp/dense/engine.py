"""The dense engine: the exact likelihood and posterior by LAPACK."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from fleetgp.arrays import Array, BoolArray, duplicate_rows
from fleetgp.errors import InputError, NumericalError
from fleetgp.gp.basis import Basis
from fleetgp.gp.evaluation import LARGEST_LOG, Evaluation
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.linalg.cholesky import Cholesky, factorize, factorize_in_place
from fleetgp.linalg.threads import blas_threads, cores, scratch, spread

#: Entries of a matrix that are worked on at a time: they stay in a core's cache.
CACHED = 1 << 16
#: Triangles up to this size are inverted as a whole, in NumPy.
SMALLEST_HALF = 16
#: Experts up to this size are evaluated in stacks, side by side: with the compiled inner part, and without it.
STACKED = (500, 180)
#: From this size on two BLAS threads are faster than one.
LARGE = 500


class DenseExpert:
    """The exact GP of one agent's data.

    The constant (N/2) log 2 pi is left out of the likelihood, as in the paper's (P1).

    >>> from fleetgp.gp.kernels import SquaredExponential
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
        try:
            factor = factorize(self.kernel(self.inputs, None, h), h.noise**2)
        except MemoryError:
            raise self.too_large() from None
        if factor is None:
            raise self.failure(h)
        return DensePosterior(self, h, factor, factor.solve(self.observations))

    def failure(self, h: Hyperparameters) -> NumericalError:
        """Why the covariance cannot be factorized at these hyperparameters."""
        return NumericalError(
            f"agent {self.agent}: the covariance of its {self.size} points is not positive definite at "
            f"theta = {h.theta.tolist()}, even with jitter; {self._likely_reason(h)}"
        )

    def too_large(self) -> InputError:
        need = 16e-9 * self.size**2
        return InputError(
            f"agent {self.agent}: the dense engine needs {need:.0f} GB for its {self.size} points, more than there is, "
            "and the moments engine does not apply here: give the data to more agents"
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

    One Cholesky, one inverse, one exponential per entry. With B = C^-1 - aa', a = C^-1 y and
    S = sigma_f^2 * slope, eq. (grad_mle) in log theta is

        d/d log l_d       = sum_ij (B o S)_ij (z_id - z_jd)^2
        d/d log sigma_f   = 1'(B o K)1
        d/d log sigma_eps = sigma_eps^2 (tr C^-1 - a'a)

    with z the inputs over the length-scales: products of B o S with the columns [z, z^2, 1].
    """
    usable = np.asarray((np.abs(log_thetas) < LARGEST_LOG).all(axis=1))
    if experts[0].size <= stacked() and usable.all():
        try:
            return _evaluate_stacked(experts, log_thetas)
        except np.linalg.LinAlgError:  # somebody needs jitter
            pass
    found: list[Evaluation | NumericalError] = []
    for expert, row, in_range in zip(experts, log_thetas, usable, strict=True):
        if not in_range:
            found.append(NumericalError(f"agent {expert.agent}: log theta = {row.tolist()} is out of range"))
        elif experts[0].size <= stacked() and len(experts) > 1:
            found += evaluate_batch([expert], row[None])
        else:
            found.append(_evaluate_in_slabs(expert, row))
    return found


def _evaluate_stacked(experts: Sequence[DenseExpert], log_thetas: Array) -> list[Evaluation | NumericalError]:
    """Small experts as one stack, in few long calls that run without the interpreter lock."""
    kernel = experts[0].kernel
    theta = np.exp(log_thetas)
    signal, noise = theta[:, -2, None, None] ** 2, theta[:, -1] ** 2
    inputs = np.stack([e.inputs for e in experts])
    observations = np.stack([e.observations for e in experts])
    diagonal = np.arange(inputs.shape[1])
    value, *work = scratch(3, len(experts), len(diagonal), len(diagonal))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z, left, right = _scaled_inputs(inputs, theta)
        np.matmul(left, right, out=value)
        np.maximum(value, 0.0, out=value)
        value[:, diagonal, diagonal] = 0.0
        value, slope = kernel.profile_and_slope(value)
        value *= signal
        if not kernel.slope_is_value:
            slope *= signal
    found = np.empty(len(experts)), np.empty_like(log_thetas)
    with np.errstate(all="ignore"):
        compiled = compiled_likelihoods()
        if compiled is not None:
            compiled(value, slope, work[0], z, observations, noise, *found)
        else:
            _likelihoods(value, slope, work[0], work[1], z, observations, noise, *found)
    if not np.isfinite(found[0]).all():
        raise np.linalg.LinAlgError
    return [Evaluation(float(nll), gradient, 0.0) for nll, gradient in zip(*found, strict=True)]


def _likelihoods(
    value: Array,
    slope: Array,
    work: Array,
    inverse: Array,
    z: Array,
    y: Array,
    noise: Array,
    nll: Array,
    gradient: Array,
) -> None:
    """What `compiled.likelihoods` does, in NumPy: nll (B,) and gradient (B, P) from K and S (B, N, N)."""
    diagonal = np.arange(z.shape[1])
    np.copyto(work, value)
    work[:, diagonal, diagonal] += noise[:, None]
    lower = np.asarray(np.linalg.cholesky(work), dtype=float)
    log_determinant = 2.0 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    _invert_triangles(lower, inverse)
    transposed = inverse.swapaxes(1, 2)
    half = inverse @ y[..., None]
    alpha = transposed @ half
    np.matmul(transposed, inverse, out=work)
    trace = np.diagonal(work, axis1=1, axis2=2).sum(axis=1)
    work -= np.multiply(alpha, alpha.swapaxes(1, 2), out=lower)
    one = np.ones_like(alpha)
    total = (np.multiply(work, value, out=lower) @ one)[:, :, 0].sum(axis=1)
    work *= slope
    sums = work @ np.concatenate([z, one], axis=2)
    scales = 2.0 * (z * (z * sums[:, :, -1:] - sums[:, :, :-1])).sum(axis=1)
    gradient[:] = np.column_stack([scales, total, noise * (trace - (alpha**2).sum(axis=(1, 2)))])
    nll[:] = 0.5 * ((half**2).sum(axis=(1, 2)) + log_determinant)


def _invert_triangles(lower: Array, inverse: Array) -> None:
    """L^-1 of a stack (B, N, N), by halves: [A 0; C D]^-1 = [A^-1 0; -D^-1 C A^-1  D^-1]."""
    size = lower.shape[1]
    if size <= SMALLEST_HALF:
        inverse[:] = np.linalg.inv(lower)
        return
    half = size // 2
    first, second = inverse[:, :half, :half], inverse[:, half:, half:]
    inverse[:, :half, half:] = 0.0
    _invert_triangles(lower[:, :half, :half], first)
    _invert_triangles(lower[:, half:, half:], second)
    below = lower[:, half:, :half] @ first
    np.negative(below, out=below)
    np.matmul(second, below, out=inverse[:, half:, :half])


def _scaled_inputs(inputs: Array, theta: Array) -> tuple[Array, Array, Array]:
    """z (B, N, D), and two factors (B, N, D + 2), (B, D + 2, N) whose product are the squared distances of its rows."""
    z = (inputs - inputs.mean(axis=1, keepdims=True)) / theta[:, None, :-2]
    square = (z**2).sum(axis=2, keepdims=True)
    one = np.ones_like(square)
    left = np.concatenate([-2.0 * z, square, one], axis=2)
    return z, left, np.concatenate([z, one, square], axis=2).swapaxes(1, 2)


def _evaluate_in_slabs(expert: DenseExpert, log_theta: Array) -> Evaluation | NumericalError:
    """One expert, in slabs of rows that stay in cache, right of the diagonal only; 2 N^2 doubles, Matern 3 N^2."""
    kernel, size, y = expert.kernel, expert.size, expert.observations
    theta = np.exp(log_theta)
    signal, noise = theta[-2] ** 2, theta[-1] ** 2
    step = size if size * size <= 2 * CACHED else max(16, CACHED // size)
    slabs = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    lower = _below_diagonal(step)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z, left, right = (a[0] for a in _scaled_inputs(expert.inputs[None], theta[None]))
    try:
        value, work = scratch(2, size, size)
        slope = value if kernel.slope_is_value else np.empty_like(value)
    except MemoryError:
        raise expert.too_large() from None

    def build(rows: slice) -> None:
        width = rows.stop - rows.start
        below = lower[:width, :width]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            s = np.matmul(left[rows], right[:, rows.start :], out=value[rows, rows.start :])
            np.maximum(s, 0.0, out=s)
            s[np.arange(width), np.arange(width)] = 0.0
            profile, descent = kernel.profile_and_slope(s)
            np.multiply(profile, signal, out=s)
            np.copyto(s[:, :width], 0.0, where=below)
            if not kernel.slope_is_value:
                descent *= signal
                np.copyto(descent[:, :width], 0.0, where=below)
                slope[rows, rows.start :] = descent

    def fill() -> None:
        for rows in slabs:
            work[rows, rows.start :] = value[rows, rows.start :]

    spread(build, slabs)
    factor = factorize_in_place(work.T, fill, noise, signal + noise)
    if factor is None:
        return expert.failure(Hyperparameters.from_theta(theta))
    log_determinant = factor.log_determinant
    alpha = factor.solve(y)
    factor.inverse_in_place()
    trace = float(np.trace(work))
    columns = np.concatenate([z, z**2, np.ones((size, 1))], axis=1)
    dimension = z.shape[1]

    def contract(rows: slice) -> tuple[Array, float]:
        """This slab's share of sum (B o S)(z - z')^2, (D,), and of 1'(B o K)1."""
        block, values = work[rows, rows.start :], value[rows, rows.start :]
        block -= alpha[rows, None] * alpha[rows.start :]
        own = float((np.diagonal(block) * np.diagonal(values)).sum())
        total = 0.0 if kernel.slope_is_value else float((block * values).sum())
        block *= slope[rows, rows.start :]
        sums = block @ columns[rows.start :]
        if kernel.slope_is_value:
            total = float(sums[:, -1].sum())
        here = z[rows]
        terms = here**2 * sums[:, -1:] + sums[:, dimension:-1] - 2.0 * here * sums[:, :dimension]
        return terms.sum(axis=0), 2.0 * total - own

    shares = spread(contract, slabs)
    scales = 2.0 * np.sum([share for share, _ in shares], axis=0)
    total = sum(share for _, share in shares)
    gradient = np.array([*scales, total, noise * (trace - float(alpha @ alpha))])
    return Evaluation(0.5 * (float(y @ alpha) + log_determinant), gradient, factor.jitter)


@cache
def compiled_likelihoods() -> Callable[..., None] | None:
    """The compiled inner part of many likelihoods; None where Numba is not there, or does not work here.

    FLEETGP_COMPILE=0 does without: compiling takes seconds and 100 MB, too much for a process with one agent.
    """
    if os.environ.get("FLEETGP_COMPILE") == "0":
        return None
    try:
        from fleetgp.gp.dense.compiled import likelihoods
    except ImportError:
        return None
    return likelihoods


def stacked() -> int:
    return STACKED[compiled_likelihoods() is None]


def batch_size(size: int) -> int:
    """How many experts of this size are evaluated as one stack."""
    return max(1, 8 * CACHED // size**2) if size <= stacked() else 1


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
