"""Lower bounds on the length-scales: where the moments that the fleet has end.

With them a training on moments is one minimization with bounds. One that ends at a wall wants a finer grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sizes import MARGIN, finest_reach
from fleetgp.training.floor import Floor

#: As close to a wall as this, in log theta, is at it.
AT = 1e-6


@dataclass(frozen=True)
class Walls(Floor):
    """A floor under sigma_eps and under the length-scales.

    lengths: (D,) the lower bounds on log l_1 .. log l_D.
    """

    lengths: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def around(cls, moments: FleetMoments, floor: Floor) -> Walls:
        """Those of a grid: above them it has all theta that are not extreme."""
        finest = np.array(finest_reach(moments.sizes, moments.count))
        return cls(floor.log, np.log(moments.box.half / finest) + 2.0 * MARGIN)

    def lifted(self, x: Array) -> Array:
        lifted = np.array(super().lifted(x))
        width = len(self.lengths)
        lifted[..., :width] = np.maximum(x[..., :width], self.lengths)
        return lifted

    def cut(self, x: Array, step: Array) -> Array:
        cut = np.array(super().cut(x, step))
        width = len(self.lengths)
        cut[..., :width] = np.minimum(step[..., :width], x[..., :width] - self.lengths)
        return cut

    def touched(self, x: Array) -> BoolArray:
        """(D,) which length-scales of x (P,) stand at their wall."""
        return np.asarray(x[: len(self.lengths)] < self.lengths + AT)
