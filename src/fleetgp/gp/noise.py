r"""The noise of observations, where it is not the same for all: sigma_n^2 = s_n^2 + w_n sigma_g^2.

s_n is a known standard deviation, w_n a weight, and g the group that the observation is of, each agent's own say. They
travel with the observations, as columns behind the inputs that no covariance looks at: wherever rows go, they go along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray

#: Of a point that is no observation: known deviation, weight, group.
NEITHER = {"known": 0.0, "weight": 1.0, "group": 0.0}


@dataclass(frozen=True)
class Noise:
    """columns: what stands behind the inputs, of "known", "weight" and "group", in this order.

    begin: how many inputs there are.  groups: the names of the groups; none for one noise for all.
    """

    begin: int = 0
    columns: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, dimension: int, *, known: bool, robust: bool, groups: Sequence[str]) -> Noise:
        """With what was asked for, behind so many inputs. groups: without copies."""
        asked = ("known", known), ("weight", robust), ("group", bool(groups))
        columns = tuple(name for name, there in asked if there)
        return cls(dimension, columns, tuple(groups)) if columns else SAME

    @property
    def names(self) -> tuple[str, ...]:
        """Of its hyperparameters, the last of theta."""
        return tuple(f"sigma_eps_{name}" for name in self.groups) or ("sigma_eps",)

    @property
    def holds_known(self) -> bool:
        """Whether observations have known deviations."""
        return "known" in self.columns

    @property
    def robust(self) -> bool:
        """Whether outliers are weighed down, by the rule of `outliers`."""
        return "weight" in self.columns

    @property
    def given(self) -> bool:
        """Whether it is any other than one noise for all."""
        return bool(self.columns)

    def place(self, column: str) -> int | None:
        """Of a column among all columns of the inputs; None if there is none."""
        return self.begin + self.columns.index(column) if column in self.columns else None

    def _column(self, points: Array, column: str) -> Array:
        place = self.place(column)
        return np.full(points.shape[:-1], NEITHER[column]) if place is None else points[..., place]

    def group(self, points: Array) -> IntArray:
        """(.., N) whose noise each has."""
        found = self._column(points, "group").astype(np.int64)
        return np.clip(found, 0, len(self.names) - 1)  # whatever a peer may send

    def variance(self, points: Array, sigmas: Array) -> Array:
        """sigma_n^2 at points (.., N, D), (.., N)."""
        trained = self._column(points, "weight") * sigmas[self.group(points)] ** 2
        return np.asarray(self._column(points, "known") ** 2 + trained)

    def slopes(self, points: Array, sigmas: Array) -> Array:
        """Its derivatives by the logarithms of the sigmas, (Q, .., N)."""
        weight, group = self._column(points, "weight"), self.group(points)
        return np.stack([2.0 * sigma**2 * weight * (group == g) for g, sigma in enumerate(sigmas)])

    def rescaled(self, points: Array, scale: float) -> Array:
        """The points of observations that were divided by this scale: their known deviations are, too."""
        place = self.place("known")
        if place is None:
            return points
        found = points.copy()
        found[..., place] /= scale
        return found

    def visible(self, points: Array) -> Array:
        """The inputs (.., D) without these columns."""
        return points[..., : self.begin] if self.columns else points

    def padded(self, points: Array, group: int = 0, known: Array | None = None) -> Array:
        """Points without these columns, (N, D), with them. known: their deviations; none for points that are no
        observations.
        """
        if not self.columns:
            return points
        values: dict[str, Array | float] = {**NEITHER, "group": float(group)}
        if known is not None:
            values["known"] = known
        return np.column_stack([points, *(np.broadcast_to(values[name], len(points)) for name in self.columns)])

    def known(self, points: Array) -> Array:
        """The known deviations of observations, (.., N); 0 where there are none."""
        return self._column(points, "known")

    def weights(self, points: Array) -> Array:
        """(.., N)."""
        return self._column(points, "weight")

    def weighed(self, points: Array, weights: Array | float) -> Array:
        """The points of observations with these weights (N,)."""
        found, place = points.copy(), self.place("weight")
        assert place is not None, "there is such a column"
        found[..., place] = weights
        return found

    def trained(self, points: Array, sigmas: Array) -> Array:
        """sigma_g of whoever made these observations, (.., N)."""
        return np.asarray(sigmas[self.group(points)])

    def absent(self, points: Array) -> BoolArray:
        """(Q,) the groups that none of these observations is of."""
        return np.asarray(~np.isin(np.arange(len(self.names)), self.group(points)))


#: One noise for all observations.
SAME = Noise()
