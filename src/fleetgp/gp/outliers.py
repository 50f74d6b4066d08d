r"""A rule for outliers: an observation counts as one that is 2.5 deviations off at most.

Each observation is compared with what the others say of it, leave-one-out: e_n is how far it is off, v_n the variance
of f there given the others, and z_n = e_n / sqrt(v_n + s_n^2 + sigma_g^2), with the noise that it has if it is none. If
|z_n| is more than 2.5, its noise becomes s_n^2 + w_n sigma_g^2 with the w_n that makes it 2.5:

    w_n = 1 + ((z_n / 2.5)^2 - 1) (v_n + s_n^2 + sigma_g^2) / sigma_g^2

What the others say depends on their weights, so this goes in a few turns, from w = 1. Outliers may have made sigma_g
too large, which would hide them: where the middle one of |z| is smaller than that of a normal distribution, all are
judged by that.

The weights are a function of the observations that an expert has and of theta: nothing is kept, and nothing is sent.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.gp.evaluation import WeightedPosterior
from fleetgp.gp.expert import Expert
from fleetgp.gp.hyperparameters import Hyperparameters

#: An observation counts as one that is so many deviations off, at most.
FARTHEST = 2.5
#: Weights and what the others say, in turns.
TURNS = 5
#: The standard deviation of a normal distribution over the median of its size.
NORMAL = 1.4826
#: The median is not believed to be smaller than this, and not of fewer observations.
SMALLEST, FEWEST = 0.01, 10


def reweighed(expert: Expert, theta: Array) -> Expert:
    """The GP of the same observations, with weights by this rule at theta (natural units). Raises NumericalError."""
    kernel, noise = expert.kernel, expert.kernel.noise_model
    plain = expert.data.weighted(np.ones(expert.size))
    nominal, groups = kernel.noise(plain, Hyperparameters.from_theta(theta)), noise.group(plain)
    trained = noise.trained(plain, kernel.sigmas(theta)) ** 2
    found = expert.reobserved(plain)
    for _ in range(TURNS):
        posterior = found.condition(theta)
        assert isinstance(posterior, WeightedPosterior), "no kernel with weights has moments"
        error, variance = posterior.left_out()
        total = variance + nominal
        weights = 1.0 + excess(error / np.sqrt(total), groups) * total / trained
        if np.array_equal(weights, _weights(found)):
            break
        found = expert.reobserved(plain.weighted(weights))
    return found


def excess(z: Array, groups: IntArray) -> Array:
    """(N,) (z / 2.5)^2 - 1, or 0, from how many deviations each observation is off. groups: whose noise it has.

    >>> excess(np.array([0.1, 2.0, -2.5, 5.0]), np.zeros(4, dtype=int)).tolist()
    [0.0, 0.0, 0.0, 3.0]
    """
    size = np.abs(z)
    for group in np.unique(groups):
        own = groups == group
        if own.sum() >= FEWEST:
            size[own] /= np.clip(NORMAL * np.median(size[own]), SMALLEST, 1.0)
    return np.maximum(0.0, (size / FARTHEST) ** 2 - 1.0)


def outliers(expert: Expert) -> int:
    """How many observations are weighed down."""
    return int((_weights(expert) > 1.0).sum())


def _weights(expert: Expert) -> Array:
    weight = expert.data.weight
    return np.ones(expert.size) if weight is None else weight
