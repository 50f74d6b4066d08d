"""Log-normal priors on the hyperparameters: what they add to the fleet's likelihood, once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array


@dataclass(frozen=True, eq=False)
class Prior:
    """log theta is normal. centre: (P,) its mean, the logarithm of the median.  precision: (P,), 0 where there is none.

    The penalty is the sum of precision (x - centre)^2 / 2, the negative logarithm of the density of log theta but for a
    constant: its minimum is 0.
    """

    centre: Array = field(default_factory=lambda: np.zeros(1))
    precision: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def given(self) -> bool:
        return bool(self.precision.any())

    def shifted(self, by: Array) -> Prior:
        """The same in other units."""
        return Prior(self.centre + by, self.precision)

    def penalty(self, x: Array) -> Array:
        """At log theta, (.., P) -> (..).

        >>> Prior(np.zeros(2), np.array([4.0, 0.0])).penalty(np.array([0.5, 9.0])).tolist()
        0.5
        """
        return np.asarray(0.5 * (self.precision * (x - self.centre) ** 2).sum(axis=-1))

    def gradient(self, x: Array) -> Array:
        return np.asarray(self.precision * (x - self.centre))
