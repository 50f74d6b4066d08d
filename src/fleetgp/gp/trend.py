"""The functions that a mean function is made of: 1 and, of degree 1, the inputs about a centre.

Sums of their products, weighed by the inverse covariance, give the coefficients of generalized least squares:

    beta = (H'C^-1 H)^-1 H'C^-1 y        with the covariance (H'C^-1 H)^-1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.model.observations import Observations


@dataclass(frozen=True)
class Trend:
    """centre: (D,).  linear: with slopes, or a constant alone."""

    centre: Array
    linear: bool

    @property
    def count(self) -> int:
        """How many coefficients there are."""
        return 1 + len(self.centre) if self.linear else 1

    def columns(self, inputs: Array) -> Array:
        """h(x) at inputs (.., D), (.., count)."""
        ones = np.ones((*inputs.shape[:-1], 1))
        if not self.linear:
            return ones
        return np.concatenate([ones, inputs[..., : len(self.centre)] - self.centre], axis=-1)

    def with_observations(self, data: Observations) -> Array:
        """(N, count + 1): h(x_n) and y_n."""
        return np.concatenate([self.columns(data.inputs), data.values[:, None]], axis=1)
