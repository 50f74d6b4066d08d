"""Lower bounds on the length-scales: where the moments that the fleet has end.

With them a training on moments is one minimization with bounds. One that ends at a wall wants a finer grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sizes import MARGIN, finest_reach
from fleetgp.training.bounds import Bounds

#: As close to a wall as this, in log theta, is at it.
AT = 1e-6


@dataclass(frozen=True, eq=False)
class Walls:
    """lengths: (D,) the walls, lower bounds on log l_1 .. log l_D.  own: (P,) the bounds without them."""

    lengths: Array
    own: Bounds

    @classmethod
    def around(cls, moments: FleetMoments, own: Bounds) -> Walls:
        """Those of a grid: above them it has all theta that are not extreme."""
        finest = np.array(finest_reach(moments.sizes, moments.count))
        return cls(np.log(moments.box.half / finest) + 2.0 * MARGIN, own)

    @property
    def bounds(self) -> Bounds:
        """With the walls, but for those that leave nothing below an upper bound."""
        others = np.full(len(self.own.lower) - len(self.lengths), -np.inf)
        return self.own.above(np.concatenate([self.lengths, others]))

    def touched(self, x: Array) -> BoolArray:
        """(D,) which length-scales of x (P,) stand at their wall, or behind it, where their own bounds would have more
        of the grid.
        """
        width = len(self.lengths)
        return np.asarray((x[:width] < self.lengths + AT) & (self.own.lower[:width] < self.lengths))
