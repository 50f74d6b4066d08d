"""dec-full-gp: every agent trains alone with the moments of all data, and all agree on the result.

Three reductions: the box of the data and the sizes of a grid; the moments; theta. In between an agent does what full-gp
does at a central node. Agents on different processors may differ in the last bits of what they find, and so in their
number of steps: the fleet takes the root's theta, and the worst status. Whoever ended where its grid ends says so with
its theta; then the moments on a finer grid are reduced, and all go on from where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.fleet_moments import Frame, agree_on_frame, reduce_moments
from fleetgp.consensus.reductions import Alone, ByTree, OfRoot
from fleetgp.consensus.scaling import Scaling, agree_on_scaling
from fleetgp.data.partition import Shard
from fleetgp.errors import NumericalError
from fleetgp.gp.fleet_expert import INSTEAD, FleetExpert, not_certified, refuse_rough
from fleetgp.gp.kernels import KERNELS, Kernel
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sizes import PLANNED_RATIO, doubled_sizes, fits, planned_reach, sizes_for_all
from fleetgp.gp.moments.trend import without
from fleetgp.network import MAXIMUM, Network
from fleetgp.training.bounds import Bounds
from fleetgp.training.central import CentralMinimizer, CentralState, Pooled
from fleetgp.training.deadline import Deadline
from fleetgp.training.mean import Correction, agree_on_correction, trend_of
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective
from fleetgp.training.options import TrainingOptions
from fleetgp.training.run import Report, Run, follow
from fleetgp.training.setting import Setting, bounds_and_floor
from fleetgp.training.starts import Magnitudes, default_starts, different, power_of_two
from fleetgp.training.walls import Walls

#: From the best to the worst.
STATUSES: tuple[Status, ...] = get_args(Status)
#: Where sigma_eps is a smaller part of sigma_f, it is what asks for precise moments.
LITTLE_NOISE = 1e-3
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


class WholeTraining:
    """A training of the hosted agents, who all do the same: it is done once.

    moments: those of the whole fleet.  runs: one for each start.  best: the one that was chosen.  begun: the runs of
    all starts, where one of them was taken up again.
    """

    def __init__(
        self,
        method: TrainingMethod,
        shards: Sequence[Shard],
        network: Network,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report | None,
    ) -> None:
        refuse_rough(kernel, options.engine)
        self._method, self._network, self._options, self._report = method, network, options, report
        self._deadline = Deadline.after(options.seconds)
        self._frame, sizes = agree_on_frame(network, shards, lambda frame: first_sizes(frame, options))
        if sizes is None:
            raise too_wide(self._frame, options)
        self.scaling, self._frame = self._agreed_scaling(shards)
        self._given, self._shards = shards, self.scaling.apply(shards, kernel)
        self.moments = reduce_moments(network, self._shards, self._frame.box, sizes)
        self.setting = self._set()
        self.begun = self.runs = self._begun([None] * len(self.setting.starts))
        self.best, self._refined = 0, False

    def run(self) -> None:
        """To the end, on grids as fine as anybody needs."""
        while True:
            self.best = follow(self.setting, self.runs, self._options)
            finer = self._agree()
            if finer is None:
                return
            self.moments = reduce_moments(self._network, self._shards, self._frame.box, finer)
            self.setting, self._refined = self._set(), True
            every, self.runs = self.begun is self.runs, self._begun([run.history for run in self.runs])
            self.begun = self.runs if every else self.begun

    @property
    def status(self) -> Status:
        return self.runs[self.best].outcome.status

    def correction(self) -> Correction:
        trend = trend_of(self.scaling, len(self.moments.sizes))
        theta = np.exp(self.runs[self.best].history[-1])
        with self._network.phase("mean"):
            return agree_on_correction(OfRoot(self._network), self.setting.objective.experts, theta, trend)

    def take_up(self, scaling: Scaling) -> None:
        """The moments of other residuals follow from those that there are: nothing is sent."""
        before, trend = self.scaling, trend_of(scaling, len(self.moments.sizes))
        more = np.array([scaling.offset, *scaling.slope]) - np.array([before.offset, *before.slope])
        self.scaling, self._shards = scaling, scaling.apply(self._given, SMOOTH)
        self.moments = without(self.moments, trend, more / scaling.scale)
        history, number = self.runs[self.best].history, self.runs[self.best].number
        self.setting = self._set()
        self.runs, self.best = self._begun([history], number), 0
        self.run()

    def _agreed_scaling(self, shards: Sequence[Shard]) -> tuple[Scaling, Frame]:
        """The mean function and the scale, and what the residuals are like."""
        frame, options = self._frame, self._options
        if options.mean == "zero":
            return scaling_of(frame, options.normalize), frame
        found = scaling_of(frame, normalize=True)
        if options.mean == "linear":
            with self._network.phase("normalize"):
                found = agree_on_scaling(ByTree(self._network), shards, "linear")
        left = replace(frame, mean=0.0, deviation=found.scale)
        return found if options.normalize else replace(found, scale=1.0), left

    def _set(self) -> Setting:
        starts, own, floor = starts_and_bounds(self._frame, self._options, self.scaling)
        self._walls = Walls.around(self.moments, own)
        dimension = len(self.moments.sizes)
        units, known = SMOOTH.units(dimension), self._options.known_of(SMOOTH.names(dimension))
        objective = Objective([FleetExpert(self.moments)], known.prior.shifted(-self.scaling.shift(units)))
        bounds = self._walls.bounds
        found = self.scaling, known, bounds, floor, objective, bounds.clipped(starts), units
        return Setting(self._method, self._network, Alone(), *found)

    def _begun(self, histories: Sequence[list[Array] | None], first: int = 0) -> list[Run[CentralState]]:
        """Every start from where it is, once more: what was optimal takes an evaluation or two."""
        runner = CentralMinimizer(Pooled(self.setting.objective), self.setting.bounds, self._deadline)
        return [
            Run(self.setting, runner, first + number, self._report, history) for number, history in enumerate(histories)
        ]

    def _agree(self) -> tuple[int, ...] | None:
        """Theta, the same at every agent; or the sizes of the grid with which to go on."""
        chosen, wish = self.runs[self.best], self._wish()
        own = np.array([*wish.sizes, float(wish.refused), float(STATUSES.index(wish.status))])
        hosted, dimension = len(self._network.hosted), len(wish.sizes)
        ended = chosen.history[-1][0]
        with self._network.phase("model"):
            told = self._network.reduce(
                np.tile(own, (hosted, 1, 1)),
                "hyperparameters",
                MAXIMUM,
                finish=lambda worst, _: np.concatenate([worst[0], ended])[None],
                told=(len(own) + len(ended),),
            )
        assert told is not None, "all agents are told"
        found = told[0]
        sizes, refused, status = found[:dimension].astype(int), found[dimension], int(found[dimension + 1])
        theta = found[dimension + 2 :]
        late = STATUSES[status] == "time limit"
        finer = np.maximum(sizes, self.moments.sizes).tolist() if sizes.any() and not late else []
        if refused or (finer and not fits(finer)):
            why, ended = (
                "no moments that can be sent are precise enough where training has come to,",
                self.setting.thetas(theta),
            )
            floor = "give a larger noise_floor, or " if ended[-1] < LITTLE_NOISE * ended[-2] else ""
            raise not_certified(why, ended, floor + INSTEAD)
        if finer:
            return tuple(finer)
        chosen.settle(theta[None], STATUSES[status])
        return None

    def _wish(self) -> Wish:
        """What this agent needs, after it has followed all starts."""
        expert = self.setting.objective.experts[0]
        assert isinstance(expert, FleetExpert)
        walls, chosen = self._walls, self.runs[self.best]
        status, none = chosen.outcome.status, np.zeros(len(self.moments.sizes), dtype=np.int64)
        if len(chosen.history) > self._options.rounds or status == "time limit":
            return Wish(none, False, status)
        at_wall, failed = walls.touched(chosen.history[-1][0]), status != "converged"
        # A start that is worse where its wall stands may be better behind it: that is tried, but once only.
        touched = at_wall if self._refined else np.any([walls.touched(run.history[-1][0]) for run in self.runs], axis=0)
        wanted = finer_sizes(self.moments, touched, expert.beyond if failed else none)
        if wanted.any() and fits(np.maximum(wanted, self.moments.sizes).tolist()):
            return Wish(wanted, False, status)
        stuck = bool(at_wall.any()) or (failed and expert.failing) or not expert.certain(chosen.history[-1][0])
        return Wish(none, stuck, status)


def first_sizes(frame: Frame, options: TrainingOptions) -> tuple[int, ...] | None:
    """Those of a grid for the starts, and for what is likely to lie on the way from them; None if it is too large.

    The shortest of the default starts are lifted to where the grid ends.
    """
    half, count = frame.box.half, frame.count
    likely = np.full(len(half), planned_reach(len(half), count))
    starts, _, _ = starts_and_bounds(frame, options, scaling_of(frame, options.normalize))
    if options.starts is None:
        starts = starts[:1]
    reaches, ratios = half / np.exp(starts[:, :-2]), np.exp(2.0 * (starts[:, -2] - starts[:, -1]))
    ratios = np.maximum(ratios, PLANNED_RATIO)
    both = sizes_for_all([*reaches, likely], [*ratios, PLANNED_RATIO], count)
    return both or sizes_for_all(reaches, ratios, count)


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


def starts_and_bounds(frame: Frame, options: TrainingOptions, scaling: Scaling) -> tuple[Array, Bounds, float]:
    """Where to start, (S, P), the bounds, and the floor among them, for the scaled observations: those of full-gp, on
    the fleet's own box.
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
        starts = default_starts(Magnitudes(2.0 * frame.box.half, size, deviation), 1, SMOOTH)
        return different(bounds.clipped(starts)), bounds, floor
    return bounds.clipped(options.starts - shift), bounds, floor
