r"""The likelihood and the posterior as the formulas read: slow, and what the fast forms are tested against.

With C = K + sigma_eps^2 I and a = C^-1 y, and without the constant (N/2) log 2 pi, as in the paper's (P1):

    l                = (y'a + log|C|) / 2
    dl / d log theta = tr((C^-1 - aa') dC / d log theta) / 2          eq. (grad_mle)
    mu(x*)           = k*'a                                           eq. (local_mean)
    sigma^2(x*)      = k(x*, x*) - k*' C^-1 k*                        eq. (local_variance)
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel


def covariance(inputs: Array, kernel: Kernel, h: Hyperparameters, jitter: float = 0.0) -> Array:
    """C, (N, N)."""
    return kernel(inputs, None, h) + np.diag(kernel.noise(inputs, h) + jitter)


def likelihood(
    inputs: Array, observations: Array, kernel: Kernel, log_theta: Array, jitter: float = 0.0
) -> tuple[float, Array]:
    """l and its gradient in log theta, (P,)."""
    h = Hyperparameters.from_log(log_theta)
    c = covariance(inputs, kernel, h, jitter)
    inverse, alpha = np.linalg.inv(c), np.linalg.solve(c, observations)
    nll = 0.5 * (observations @ alpha + np.linalg.slogdet(c).logabsdet)
    by_kernel = kernel.log_gradient(inputs, None, h)
    by_noise = [np.diag(slope) for slope in kernel.noise_slopes(inputs, h)]
    b = inverse - np.outer(alpha, alpha)
    gradient = [0.5 * np.trace(b @ derivative) for derivative in (*by_kernel, *by_noise)]
    return float(nll), np.array(gradient)


def posterior(inputs: Array, observations: Array, kernel: Kernel, theta: Array, queries: Array) -> tuple[Array, Array]:
    """Mean and variance of f at the queries, (T,) and (T,)."""
    h = Hyperparameters.from_theta(theta)
    c, cross = covariance(inputs, kernel, h), kernel(inputs, queries, h)
    mean = cross.T @ np.linalg.solve(c, observations)
    explained = np.diagonal(cross.T @ np.linalg.solve(c, cross))
    return mean, kernel.variance(queries, h) - explained
