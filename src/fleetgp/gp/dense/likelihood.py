r"""The exact likelihoods of experts of equal size, fast: one Cholesky, one inverse, one exponential per pair.

With B = C^-1 - aa', a = C^-1 y, phi and -phi' the kernel's profile and slope at the scaled squared distances, and z
the inputs over the length-scales, eq. (grad_mle) in log theta is

    d/d log l_d       = sigma_f^2 sum_ij B_ij (-phi'_ij) (z_id - z_jd)^2
    d/d log sigma_f   = sigma_f^2 sum_ij B_ij phi_ij
    d/d log sigma_eps = sigma_eps^2 tr B

All three are symmetric in i and j and phi(0) = 1, so that each pair i < j is computed once. `reference` is the same as
the formulas read; `compiled` (with Numba) and `plain` (without) are the inner loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.composite import Composite
from fleetgp.gp.dense import general, plain
from fleetgp.gp.evaluation import Evaluation
from fleetgp.gp.kernels import Kernel, Stationary
from fleetgp.linalg.compiling import compiled_module
from fleetgp.linalg.threads import scratch
from fleetgp.model.observations import Observations

#: Pairs of a stack: some milliseconds of work without the interpreter lock, and arrays that stay in cache.
STACKED = 1 << 17


class Data(Protocol):
    """Whose likelihood it is."""

    data: Observations
    kernel: Kernel


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where there is no Numba."""
    return compiled_module("fleetgp.gp.dense.compiled")


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
        return [general.evaluation(expert.data, kernel, row) for expert, row in rows]
    assert isinstance(kernel, Stationary)
    theta = np.exp(log_thetas)
    signal, noise = theta[:, -2] ** 2, theta[:, -1] ** 2
    inputs = np.stack([expert.data.inputs for expert in experts])
    y = np.stack([expert.data.values for expert in experts])
    centred = inputs - inputs.mean(axis=1, keepdims=True)
    z = np.ascontiguousarray((centred / theta[:, None, :-2]).swapaxes(1, 2))
    batch, dimension, size = z.shape
    pairs = (batch, size * (size - 1) // 2)
    profile, slope, work = scratch(pairs, pairs, (size, size))
    found = np.full((batch, 1 + dimension + 2), np.nan)
    fast = compiled()
    with np.errstate(all="ignore"):
        (plain if fast is None else fast).squared_distances(z, profile)
        if not kernel.profile_in_place(profile, slope, np.exp if fast is None else fast.exp):
            slope = profile
        if fast is not None:
            fast.likelihoods(profile, slope, work, z, y, signal, noise, found)
        jitters: list[float | None] = [0.0] * batch
        for b in np.flatnonzero(~np.isfinite(found[:, 0])):
            jitters[b] = plain.likelihood(
                profile[b], slope[b], work, z[b], y[b], float(signal[b]), float(noise[b]), found[b]
            )
    return [
        None if jitter is None else Evaluation(float(row[0]), row[1:], jitter)
        for row, jitter in zip(found, jitters, strict=True)
    ]
