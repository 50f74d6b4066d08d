r"""The noise of observations: sigma_n^2 = s_n^2 + w_n sigma_g^2.

s_n is a known standard deviation, w_n a weight, and g the observation's group, for example its agent. They are in the
rows of `Observations`; the sigmas are hyperparameters, the last of theta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.model.observations import Observations


@dataclass(frozen=True)
class NoiseModel:
    """Which terms the noise has.

    known: whether observations have known standard deviations.
    robust: whether outliers are weighed down, by the rule of `outliers`.
    groups: their names, without copies; none for one noise for all.
    """

    known: bool = False
    robust: bool = False
    groups: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The hyperparameters, the last of theta."""
        return tuple(f"sigma_eps_{name}" for name in self.groups) or ("sigma_eps",)

    @property
    def differs(self) -> bool:
        """Whether it is any other than one noise for all."""
        return self.known or self.robust or bool(self.groups)

    def observed(self, data: Observations, group: int) -> Observations:
        """The observations of an agent of this group, with what the terms need; all weights are 1."""
        if self.known != (data.noise_std is not None):
            raise ValueError("expected known standard deviations exactly where the noise has them")
        return Observations(
            data.inputs,
            data.values,
            data.noise_std,
            np.full(len(data), group) if self.groups else None,
            np.ones(len(data)) if self.robust else None,
        )

    def group(self, data: Observations) -> IntArray:
        """(N,) the noise group of each."""
        if data.group is None:
            return np.zeros(len(data), dtype=np.int64)
        return np.clip(data.group, 0, len(self.names) - 1)  # whatever a peer may send

    def variance(self, data: Observations, sigmas: Array) -> Array:
        """sigma_n^2, (N,)."""
        trained = sigmas[self.group(data)] ** 2
        weighted = trained if data.weight is None else data.weight * trained
        return np.asarray(weighted if data.noise_std is None else data.noise_std**2 + weighted)

    def slopes(self, data: Observations, sigmas: Array) -> Array:
        """Its derivatives by the logarithms of the sigmas, (Q, N)."""
        weight, group = 1.0 if data.weight is None else data.weight, self.group(data)
        return np.stack([2.0 * sigma**2 * weight * (group == g) for g, sigma in enumerate(sigmas)])

    def trained(self, data: Observations, sigmas: Array) -> Array:
        """sigma_g of each observation's group, (N,)."""
        return np.asarray(sigmas[self.group(data)])

    def absent(self, data: Observations) -> BoolArray:
        """(Q,) the groups without any of these observations."""
        return np.asarray(~np.isin(np.arange(len(self.names)), self.group(data)))


#: One noise for all observations.
SAME = NoiseModel()
