"""The exact likelihoods of experts of equal size, fast: one Cholesky, one inverse, one exponential per pair.

With B = C^-1 - aa', a = C^-1 y, every derivative is sum_ij B_ij dC_ij / 2. With phi and -phi' the kernel's profile and
slope at the scaled squared distances, and z the inputs over the length-scales, eq. (grad_mle) in log theta is

    d/d log l_d       = sigma_f^2 sum_ij B_ij (-phi'_ij) (z_id - z_jd)^2
    d/d log sigma_f   = sigma_f^2 sum_ij B_ij phi_ij
    d/d log sigma_eps = sigma_eps^2 tr B      or, of noise that differs, sum_i B_ii d sigma_i^2 / d log sigma_g / 2

All three are symmetric in i and j and phi(0) = 1, so that each pair i < j is computed once. `reference` is the same as
the formulas read; `compiled` has the inner loops with Numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.engines.base import DataEngine, Evaluation
from fleetgp.kernels.composite import Composite, as_composite
from fleetgp.kernels.stationary import Stationary, scaled_squared_distance
from fleetgp.linalg.cholesky import factorize, factorize_in_place
from fleetgp.linalg.compiling import compiled_module
from fleetgp.linalg.threads import scratch
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations


def evaluation(data: Observations, kernel: Composite, log_theta: Array) -> Evaluation | None:
    """NLL and log-gradient; None where no jitter is enough."""
    h = Hyperparameters.from_log(log_theta)
    with np.errstate(all="ignore"):
        covariance, points = kernel.at(data.places, None, h), data.points
        matrix = covariance.matrix if points is None else points.mean_of_pairs(covariance.matrix)
        factor = factorize(matrix, kernel.noise(data, h))
        if factor is None:
            return None
        alpha = factor.solve(data.values)
        nll = 0.5 * (float(data.values @ alpha) + factor.log_determinant)
        lower = np.tril(factor.inverse_in_place())
        b = lower + np.tril(lower, -1).T - np.outer(alpha, alpha)
        by_noise = kernel.noise_slopes(data, h) @ np.diagonal(b)
        by_kernel = covariance.contract(b if points is None else points.share_pairs(b))
        gradient = 0.5 * np.concatenate([by_kernel, by_noise])
    if not (np.isfinite(nll) and np.isfinite(gradient).all()):
        return None
    return Evaluation(nll, gradient, factor.jitter)


#: Pairs of a stack: milliseconds of work without the interpreter lock, and arrays that stay in cache.
STACKED = 1 << 17


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where there is no Numba."""
    return compiled_module("fleetgp.engines.dense.compiled")


def stack_size(size: int) -> int:
    """The number of experts of this size in a stack."""
    return max(1, 2 * STACKED // size**2)


def evaluate_stack(experts: Sequence[DataEngine], log_thetas: Array) -> list[Evaluation | None]:
    """NLL and log-gradient of experts of equal size, kernel and terms of the noise, each at its own log theta; None
    where no jitter is enough.
    """
    kernel, first = experts[0].kernel, experts[0].data
    if isinstance(kernel, Composite) or first.points is not None:
        composite = as_composite(kernel, first.dimension)
        return [evaluation(expert.data, composite, row) for expert, row in zip(experts, log_thetas, strict=True)]
    assert isinstance(kernel, Stationary)
    differs = kernel.noise_differs(first)
    inputs = np.stack([expert.data.inputs for expert in experts])
    y = np.stack([expert.data.values for expert in experts])
    batch, size, dimension = inputs.shape
    theta = np.exp(log_thetas)
    signal = theta[:, dimension] ** 2
    if differs:
        rows = [(expert.data, Hyperparameters.from_theta(row)) for expert, row in zip(experts, theta, strict=True)]
        noise = np.stack([kernel.noise(*row) for row in rows])
    else:
        noise = np.repeat(theta[:, -1:] ** 2, size, axis=1)
    centred = inputs - inputs.mean(axis=1, keepdims=True)
    z = np.ascontiguousarray((centred / theta[:, None, :dimension]).swapaxes(1, 2))
    pairs = (batch, size * (size - 1) // 2)
    profile, slope, work = scratch(pairs, pairs, (size, size))
    result = np.full((batch, 1 + dimension + 2), np.nan)
    precision = np.empty((batch, size if differs else 0))
    fast = compiled()
    with np.errstate(all="ignore"):
        (squared_distances if fast is None else fast.squared_distances)(z, profile)
        if not kernel.profile_in_place(profile, slope, np.exp if fast is None else fast.exp):
            slope = profile
        if fast is not None:
            fast.likelihoods(profile, slope, work, z, y, signal, noise, result, precision)
        jitters: list[float | None] = [0.0] * batch
        for b in np.flatnonzero(~np.isfinite(result[:, 0])):
            one = profile[b], slope[b], work, z[b], y[b], float(signal[b]), noise[b], result[b], precision[b]
            jitters[b] = likelihood_with_jitter(*one)
    if differs:
        by_noises = [0.5 * kernel.noise_slopes(*row) @ b for row, b in zip(rows, precision, strict=True)]
        result = np.concatenate([result[:, :-1], np.stack(by_noises)], axis=1)
    return [
        None if jitter is None else Evaluation(float(row[0]), row[1:], jitter)
        for row, jitter in zip(result, jitters, strict=True)
    ]


#: Rows at a time, so that they stay in cache.
ROWS = 64


def squared_distances(z: Array, s: Array) -> None:
    """s (B, P) between the columns of z (B, D, N)."""
    upper = _upper(z.shape[2])
    for points, pairs in zip(z, s, strict=True):
        pairs[:] = scaled_squared_distance(points.T)[upper]


def likelihood_with_jitter(
    profile: Array,
    slope: Array,
    work: Array,
    z: Array,
    y: Array,
    signal: float,
    noise: Array,
    result: Array,
    precision: Array,
) -> float | None:
    """What `compiled.likelihoods` does, for one expert. The jitter; None where no jitter is enough.

    nll and gradient go to result (1 + D + 2,), from phi and -phi' (P,), z (D, N), y (N,), and the variances of f and of
    each observation's noise (N,). The last derivative is for a noise that is the same for all. For any other, precision
    (N,) gets the diagonal of B; (0,) where it is not needed. work (N, N) is overwritten.
    """
    size = len(y)
    upper = _upper(size)
    diagonal = work.ravel()[:: size + 1]

    def fill() -> None:
        work[upper] = signal * profile
        diagonal[:] = signal

    same = float(noise[0])
    level = same if (noise == same).all() else float(noise.mean())
    factor = factorize_in_place(work.T, fill, noise, signal + level)
    if factor is None:
        return None
    alpha = factor.solve(y)
    result[0] = 0.5 * (float(y @ alpha) + factor.log_determinant)
    factor.inverse_in_place()
    trace = float(diagonal.sum() - alpha @ alpha)
    if len(precision):
        precision[:] = diagonal - alpha**2
    for rows in np.array_split(np.arange(size), -(-size // ROWS)):
        work[rows[0] : rows[-1] + 1] -= alpha[rows, None] * alpha
    b = work[upper]
    total = float(b @ profile)
    # sum_ij w_ij (z_i - z_j)^2 over the pairs, from the sums of the rows and columns of the upper triangle w
    work.fill(0.0)
    work[upper] = np.multiply(b, slope, out=b)
    sums = work.sum(axis=0) + work.sum(axis=1)
    scales = (z**2) @ sums - 2.0 * ((z @ work) * z).sum(axis=1)
    result[1:] = [*(2.0 * signal * scales), signal * (trace + 2.0 * total), same * trace]
    return factor.jitter


def _upper(size: int) -> BoolArray:
    """Where the pairs i < j are in a matrix."""
    return ~np.tri(size, dtype=bool)
