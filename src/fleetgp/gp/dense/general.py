r"""The exact likelihood of one expert with any kernel: as `reference` has it, from one factorization.

With B = C^-1 - aa', a = C^-1 y, every derivative is sum_ij B_ij dC_ij / 2.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.composite import Composite
from fleetgp.gp.evaluation import Evaluation
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.linalg.cholesky import factorize
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
