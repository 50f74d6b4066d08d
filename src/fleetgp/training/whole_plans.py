"""For `whole`: where trainings with all data start, the grids that they need, and what agents say of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.fleet_moments import Frame
from fleetgp.consensus.scaling import Scaling
from fleetgp.errors import NumericalError
from fleetgp.gp.fleet_expert import INSTEAD
from fleetgp.gp.kernels import KERNELS
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sizes import PLANNED_RATIO, doubled_sizes, planned_reach, sizes_for_all
from fleetgp.training.bounds import Bounds
from fleetgp.training.flat import limits_around, limits_of, open_limits, within
from fleetgp.training.options import TrainingOptions
from fleetgp.training.setting import bounds_and_floor
from fleetgp.training.starts import Magnitudes, default_starts, different, power_of_two, reach_of

#: From the best to the worst.
STATUSES: tuple[Status, ...] = get_args(Status)
#: How much shorter length-scales may turn out with all data than with a sample of them, and larger the ratio of
#: sigma_f to sigma_eps, before another grid is needed. With 2,000 rows they are known to some percent.
SHORTER, CLEARER = 1.4, 2.0
#: The kernel whose data have moments.
SMOOTH = KERNELS["se"]


@dataclass(frozen=True)
class Wish:
    """What an agent says with its theta. sizes: (D,) of the grid that it needs; zeros if its own will do.

    refused: it has ended where nothing is certified, and no grid helps.
    """

    sizes: IntArray
    refused: bool
    status: Status

    @property
    def row(self) -> Array:
        """To be sent: of numbers as small as logarithms of hyperparameters are, since others are taken for nonsense."""
        return np.array([*np.log1p(self.sizes), float(self.refused), float(STATUSES.index(self.status))])


@dataclass(frozen=True)
class Verdict:
    """What the fleet has agreed on. wish: the worst of all.  x: log theta, the root's.

    next: the sizes of a grid on which all data can go on from x; None if there is none.
    """

    wish: Wish
    x: Array
    next: tuple[int, ...] | None

    @classmethod
    def read(cls, row: Array, dimension: int) -> Verdict:
        sizes, after = (np.rint(np.expm1(part)).astype(np.int64) for part in (row[:dimension], row[-dimension:]))
        refused, status = row[dimension : dimension + 2]
        wish = Wish(sizes, bool(refused), STATUSES[int(status)])
        return cls(wish, row[dimension + 2 : -dimension], tuple(after.tolist()) if after.all() else None)

    @property
    def row(self) -> Array:
        after = self.next or (0,) * len(self.wish.sizes)
        return np.concatenate([self.wish.row, self.x, np.log1p(after)])


def first_sizes(frame: Frame, options: TrainingOptions) -> tuple[int, ...] | None:
    """Those of a grid for the starts, and for what is likely to lie on the way from them; None if it is too large.

    The shortest of the default starts are lifted to where the grid ends.
    """
    half, count = frame.box.half, frame.count
    likely = np.full(len(half), planned_reach(len(half), count))
    starts, *_ = starts_and_bounds(frame, options, scaling_of(frame, options.normalize))
    if options.starts is None:
        starts = starts[:1]
    reaches, ratios = half / np.exp(starts[:, :-2]), np.exp(2.0 * (starts[:, -2] - starts[:, -1]))
    ratios = np.maximum(ratios, PLANNED_RATIO)
    both = sizes_for_all([*reaches, likely], [*ratios, PLANNED_RATIO], count)
    return both or sizes_for_all(reaches, ratios, count)


def sizes_around(frame: Frame, x: Array) -> tuple[int, ...] | None:
    """Those of a grid for all data at log theta, and for what a training may still come to from there."""
    reach = SHORTER * frame.box.half / np.exp(x[:-2])
    ratio = max(CLEARER**2 * float(np.exp(2.0 * (x[-2] - x[-1]))), PLANNED_RATIO)
    return sizes_for_all([reach], [ratio], frame.count) if np.isfinite(ratio) else None


def too_wide(frame: Frame, options: TrainingOptions) -> NumericalError:
    """The error of a fleet whose data have no grid to start with."""
    widths = " x ".join(f"{width:.4g}" for width in 2.0 * frame.box.half)
    longer = "" if options.starts is None else "give a theta0 with longer length-scales or more noise, or "
    return NumericalError(
        f"dec-full-gp: data on a box of {widths} have more moments than can be sent, already at the theta that the "
        f"training starts with: {longer}{INSTEAD}"
    )


def finer_sizes(moments: FleetMoments, touched: BoolArray, beyond: IntArray) -> IntArray:
    """(D,) those of a grid for length-scales half as long along the axes whose walls were touched, and along all axes
    for what failed because of its grid, but no shorter ones; zero where what there is will do.
    """
    doubled = np.array(doubled_sizes(moments.sizes, moments.count))
    wanted = np.maximum(np.where(touched, doubled, 0), np.minimum(beyond, doubled))
    return np.where(wanted > moments.sizes, wanted, 0)


def scaling_of(frame: Frame, normalize: bool) -> Scaling:
    if not normalize:
        return Scaling()
    return Scaling(frame.mean, frame.deviation if frame.deviation > 0.0 else 1.0)


def starts_and_bounds(frame: Frame, options: TrainingOptions, scaling: Scaling) -> tuple[Array, Bounds, float, Bounds]:
    """Where to start, (S, P), the bounds, and the floor and the limits among them, for the scaled observations: those
    of full-gp, on the fleet's own box.
    """
    size = deviation = 1.0
    if not options.normalize:
        size, deviation = (
            float(np.exp2(found)) if np.isfinite(found) else 1.0
            for found in power_of_two(np.array([np.hypot(frame.mean, frame.deviation), frame.deviation]))
        )
        if frame.deviation == 0.0:
            deviation = size
    dimension = len(frame.box.half)
    shift = scaling.shift(SMOOTH.units(dimension))
    known = options.known_of(SMOOTH.names(dimension))
    bounds, floor = bounds_and_floor(known, shift, options.noise_floor * deviation)
    if options.starts is None:
        magnitudes = Magnitudes(2.0 * frame.box.half, size, deviation)
        starts = different(bounds.clipped(default_starts(magnitudes, 1, SMOOTH)))
        found = limits_of(SMOOTH, reach_of(magnitudes, 1), size, dimension)
    else:
        starts = bounds.clipped(options.starts - shift)
        found = limits_around(SMOOTH, starts, dimension)
    limits = open_limits(found, bounds, known.prior)
    return starts, within(limits, bounds), floor, limits
