"""The likelihood and the posterior as the formulas read: slow, and what the fast forms are tested against.

With C = K + sigma_eps^2 I and a = C^-1 y, and without the constant (N/2) log 2 pi, as in the paper's (P1):

    l                = (y'a + log|C|) / 2
    dl / d log theta = tr((C^-1 - aa') dC / d log theta) / 2          eq. (grad_mle)
    mu(x*)           = k*'a                                           eq. (local_mean)
    sigma^2(x*)      = k(x*, x*) - k*' C^-1 k*                        eq. (local_variance)
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations


def covariance(data: Observations, kernel: Kernel, h: Hyperparameters, jitter: float = 0.0) -> Array:
    """C, (N, N)."""
    return kernel(data.inputs, None, h) + np.diag(kernel.noise(data, h) + jitter)


def likelihood(data: Observations, kernel: Kernel, log_theta: Array, jitter: float = 0.0) -> tuple[float, Array]:
    """l and its gradient in log theta, (P,)."""
    h = Hyperparameters.from_log(log_theta)
    c = covariance(data, kernel, h, jitter)
    inverse, alpha = np.linalg.inv(c), np.linalg.solve(c, data.values)
    nll = 0.5 * (data.values @ alpha + np.linalg.slogdet(c).logabsdet)
    by_kernel = kernel.log_gradient(data.inputs, None, h)
    by_noise = [np.diag(slope) for slope in kernel.noise_slopes(data, h)]
    b = inverse - np.outer(alpha, alpha)
    gradient = [0.5 * np.trace(b @ derivative) for derivative in (*by_kernel, *by_noise)]
    return float(nll), np.array(gradient)


def posterior(data: Observations, kernel: Kernel, theta: Array, queries: Array) -> tuple[Array, Array]:
    """Mean and variance of f at the queries, (T,) and (T,)."""
    h = Hyperparameters.from_theta(theta)
    c, cross = covariance(data, kernel, h), kernel(data.inputs, queries, h)
    mean = cross.T @ np.linalg.solve(c, data.values)
    explained = np.diagonal(cross.T @ np.linalg.solve(c, cross))
    return mean, kernel.variance(queries, h) - explained
