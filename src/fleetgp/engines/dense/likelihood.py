"""The exact likelihood of one expert with any kernel: as `reference` has it, from one factorization.

With B = C^-1 - aa', a = C^-1 y, every derivative is sum_ij B_ij dC_ij / 2.

The exact likelihoods of experts of equal size, fast: one Cholesky, one inverse, one exponential per pair.

With B = C^-1 - aa', a = C^-1 y, phi and -phi' the kernel's profile and slope at the scaled squared distances, and z
the inputs over the length-scales, eq. (grad_mle) in log theta is

    d/d log l_d       = sigma_f^2 sum_ij B_ij (-phi'_ij) (z_id - z_jd)^2
    d/d log sigma_f   = sigma_f^2 sum_ij B_ij phi_ij
    d/d log sigma_eps = sigma_eps^2 tr B      or, of noise that differs, sum_i B_ii d sigma_i^2 / d log sigma_g / 2

All three are symmetric in i and j and phi(0) = 1, so that each pair i < j is computed once. `reference` is the same as
the formulas read; `compiled` (with Numba) and `plain` (without) are the inner loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.base import Evaluation
from fleetgp.engines.dense import plain
from fleetgp.kernels.composite import Composite
from fleetgp.kernels.stationary import Kernel, Stationary
from fleetgp.linalg.cholesky import factorize
from fleetgp.linalg.compiling import compiled_module
from fleetgp.linalg.threads import scratch
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations


def evaluation(data: Observations, kernel: Composite, log_theta: Array) -> Evaluation | None:
    """NLL and log-gradient; None where no jitter is enough."""
    h = Hyperparameters.from_log(log_theta)
    with np.errstate(all="ignore"):
        covariance = kernel.at(data.inputs, None, h)
        factor = factorize(covariance.matrix, kernel.noise(data, h))
        if factor is None:
            return None
        alpha = factor.solve(data.values)
        nll = 0.5 * (float(data.values @ alpha) + factor.log_determinant)
        lower = np.tril(factor.inverse_in_place())
        b = lower + np.tril(lower, -1).T - np.outer(alpha, alpha)
        by_noise = kernel.noise_slopes(data, h) @ np.diagonal(b)
        gradient = 0.5 * np.concatenate([covariance.contract(b), by_noise])
    if not (np.isfinite(nll) and np.isfinite(gradient).all()):
        return None
    return Evaluation(nll, gradient, factor.jitter)


#: Pairs of a stack: some milliseconds of work without the interpreter lock, and arrays that stay in cache.
STACKED = 1 << 17


class Data(Protocol):
    """Whose likelihood it is."""

    data: Observations
    kernel: Kernel


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where there is no Numba."""
    return compiled_module("fleetgp.engines.dense.compiled")


def stack_size(size: int) -> int:
    """How many experts of this size are worth a stack."""
    return max(1, 2 * STACKED // size**2)


def evaluate_stack(experts: Sequence[Data], log_thetas: Array) -> list[Evaluation | None]:
    """NLL and log-gradient of experts of equal size and kernel, each at its own log theta; None where no jitter is
    enough.
    """
    kernel = experts[0].kernel
    if isinstance(kernel, Composite):
        rows = zip(experts, log_thetas, strict=True)
        return [evaluation(expert.data, kernel, row) for expert, row in rows]
    assert isinstance(kernel, Stationary)
    inputs = np.stack([expert.data.inputs for expert in experts])
    y = np.stack([expert.data.values for expert in experts])
    batch, size, dimension = inputs.shape
    theta = np.exp(log_thetas)
    signal, noise = theta[:, dimension] ** 2, _noises(experts, theta)
    centred = inputs - inputs.mean(axis=1, keepdims=True)
    z = np.ascontiguousarray((centred / theta[:, None, :dimension]).swapaxes(1, 2))
    pairs = (batch, size * (size - 1) // 2)
    profile, slope, work = scratch(pairs, pairs, (size, size))
    found = np.full((batch, 1 + dimension + 2), np.nan)
    precision = np.empty((batch, size if kernel.noise_model.differs else 0))
    fast = compiled()
    with np.errstate(all="ignore"):
        (plain if fast is None else fast).squared_distances(z, profile)
        if not kernel.profile_in_place(profile, slope, np.exp if fast is None else fast.exp):
            slope = profile
        if fast is not None:
            fast.likelihoods(profile, slope, work, z, y, signal, noise, found, precision)
        jitters: list[float | None] = [0.0] * batch
        for b in np.flatnonzero(~np.isfinite(found[:, 0])):
            one = profile[b], slope[b], work, z[b], y[b], float(signal[b]), noise[b], found[b], precision[b]
            jitters[b] = plain.likelihood(*one)
    if kernel.noise_model.differs:
        found = np.concatenate([found[:, :-1], _by_noises(experts, theta, precision)], axis=1)
    return [
        None if jitter is None else Evaluation(float(row[0]), row[1:], jitter)
        for row, jitter in zip(found, jitters, strict=True)
    ]


def _noises(experts: Sequence[Data], theta: Array) -> Array:
    """(B, N) the variances of the noise of all observations, at theta (B, P)."""
    if experts[0].kernel.noise_model.differs:
        models = [Hyperparameters.from_theta(row) for row in theta]
        return np.stack([one.kernel.noise(one.data, h) for one, h in zip(experts, models, strict=True)])
    return np.repeat(theta[:, -1:] ** 2, len(experts[0].data), axis=1)


def _by_noises(experts: Sequence[Data], theta: Array, precision: Array) -> Array:
    """(B, Q) the derivatives by all hyperparameters of the noise. precision: (B, N) the diagonals of B."""
    models = [Hyperparameters.from_theta(row) for row in theta]
    rows = zip(experts, models, precision, strict=True)
    return np.stack([0.5 * one.kernel.noise_slopes(one.data, h) @ diagonal for one, h, diagonal in rows])
