"""dec-full-gp: every agent trains alone with the moments of all data, and all agree on the result.

Three reductions: the box of the data and the sizes of a grid; the moments; theta. In between an agent does what full-gp
does at a central node. Agents on different processors may differ in the last bits of what they find, and so in their
number of steps: the fleet takes the root's theta, and the worst status. Whoever ended where its grid ends says so with
its theta; then the moments on a finer grid are reduced, and all go on from where they are.

Where the data are in files, a pass over them is dear. Then all this is done first with a random sample of every
agent's rows, which is in memory: it tells the grid that all data need, and theta, so that one pass will do.

full-gp of data in files is the same with a central node: the moments go there, and it alone trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.fleet_moments import Frame, agree_on_frame, reduce_moments
from fleetgp.consensus.reductions import Alone
from fleetgp.consensus.scaling import Scaling
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import FIRST, Shards, Streamed
from fleetgp.errors import NumericalError
from fleetgp.gp.failure import ThetaError
from fleetgp.gp.fleet_expert import INSTEAD, FleetExpert, not_certified, refuse_rough
from fleetgp.gp.kernels import KERNELS, Kernel
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sizes import PLANNED_RATIO, doubled_sizes, fits, planned_reach, sizes_for_all
from fleetgp.network import MAXIMUM, Network
from fleetgp.training.central import CentralMinimizer, Pooled
from fleetgp.training.deadline import Deadline
from fleetgp.training.floor import Floor
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective
from fleetgp.training.options import TrainingOptions
from fleetgp.training.run import COARSE, LOOSEST, Report, Run, follow
from fleetgp.training.samples import WORTH
from fleetgp.training.setting import Setting
from fleetgp.training.starts import Magnitudes, default_starts, power_of_two
from fleetgp.training.walls import Walls

#: From the best to the worst.
STATUSES: tuple[Status, ...] = get_args(Status)
#: How much shorter length-scales may turn out with all data than with a sample of them, and larger the ratio of
#: sigma_f to sigma_eps, before another grid is needed. With 2,000 rows they are known to some percent.
SHORTER, CLEARER = 1.4, 2.0
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


class WholeTraining:
    """A training of the hosted agents, who all do the same: it is done once; or of a central node.

    moments: those of the whole fleet.  runs: one for each start.  chosen: the one that was chosen, where it ended.
    sample: (A,) how many rows of each agent it was trained on first; None for all.
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
        self._central = not method.decentralized
        self._deadline = Deadline.after(options.seconds)
        self._frame, sizes = agree_on_frame(
            network, shards, lambda frame: first_sizes(frame, options), central=self._central
        )
        if sizes is None:
            raise too_wide(self._frame, options)
        self._sizes = sizes
        self._scaling = scaling_of(self._frame, options)
        self._shards = self._scaling.apply(shards)
        self.sample: IntArray | None = None

    @property
    def _first(self) -> bool:
        """Whether a sample comes first; all agents know it."""
        many = self._frame.count > WORTH * FIRST * self._network.agents
        return many and isinstance(self._shards, Streamed) and self._options.starts is None and self._options.tol > 0.0

    def run(self) -> None:
        """To the end, on grids as fine as anybody needs."""
        if not (self._first and self._on_sample()):
            self._settled(self._follow(self._shards, self._sizes, self._options))
            self.runs = self._active

    def _on_sample(self) -> bool:
        """First with a sample of every agent's rows, then with all; False if the sample leads nowhere."""
        assert isinstance(self._shards, Streamed)
        rows, options = self._shards.first_rows(), self._options
        coarse = min(COARSE * options.tol, LOOSEST)
        found = self._follow(rows, self._sizes, replace(options, rounds=max(1, options.rounds // 2), tol=coarse))
        if found.wish.refused or found.wish.status == "diverged" or found.next is None:
            return False
        self.runs, run = self._active, self._active[self._best]
        self.sample = np.array([len(y) for _, y in rows])
        rounds = max(options.rounds, len(run.history))
        number, history = run.number, [*run.history[:-1], found.x[None]]
        last = self._follow(self._shards, found.next, replace(options, rounds=rounds), {number: history})
        self._settled(last)
        return True

    def _follow(
        self,
        data: Shards,
        sizes: tuple[int, ...],
        options: TrainingOptions,
        histories: Mapping[int, list[Array] | None] | None = None,
    ) -> Verdict:
        """All starts on some data, or those that have come somewhere; on finer grids until one will do."""
        refined = False
        while True:
            self.moments = reduce_moments(self._network, data, self._frame.box, sizes, central=self._central)
            self.setting = self._set()
            runner = CentralMinimizer(Pooled(self.setting.objective), self.setting.floor, self._deadline)
            begun = dict.fromkeys(range(len(self.setting.starts))) if histories is None else histories
            self._active = [Run(self.setting, runner, n, self._report, history) for n, history in begun.items()]
            self._best = follow(self.setting, self._active, options)
            verdict = self._agree(self._wish(options, refined))
            late = verdict.wish.status == "time limit"
            finer = np.maximum(verdict.wish.sizes, self.moments.sizes).tolist()
            if verdict.wish.refused or late or not verdict.wish.sizes.any():
                return verdict
            if not fits(finer):
                return replace(verdict, wish=replace(verdict.wish, refused=True))
            # Every start goes on from where it is: what was optimal takes an evaluation or two.
            sizes, refined, histories = tuple(finer), True, {run.number: run.history for run in self._active}

    def _settled(self, verdict: Verdict) -> None:
        """Take what the fleet has agreed on, or refuse where that is nothing."""
        if verdict.wish.refused:
            raise self._refusal(verdict.x)
        self.chosen = self._active[self._best]
        self.chosen.settle(verdict.x[None], verdict.wish.status)

    def _refusal(self, x: Array) -> ThetaError:
        ended = self.setting.thetas(x)
        floor = "give a larger noise_floor, or " if ended[-1] < LITTLE_NOISE * ended[-2] else ""
        why = "no moments that can be sent are precise enough where training has come to,"
        return not_certified(why, ended, floor + INSTEAD)

    def _set(self) -> Setting:
        starts, floor = starts_and_floor(self._frame, self._options, self._scaling)
        walls = Walls.around(self.moments, floor)
        objective = Objective([FleetExpert(self.moments)])
        found = self._scaling, walls, objective, walls.lifted(starts), SMOOTH.units(len(self.moments.sizes))
        return Setting(self._method, self._network, Alone(), *found)

    def _agree(self, wish: Wish) -> Verdict:
        """The same at every agent. The central node asks nobody, and tells the sizes of the next grid."""
        x, dimension = self._active[self._best].history[-1][0], len(wish.sizes)
        own = Verdict(wish, x, sizes_around(self._frame, x))
        with self._network.phase("model"):
            if self._central:
                self._network.scatter(np.concatenate([wish.sizes, own.next or ()]), "statistics")
                return own
            reduced = self._network.reduce(
                np.tile(wish.row, (len(self._network.hosted), 1, 1)),
                "hyperparameters",
                MAXIMUM,
                finish=lambda worst, _: np.concatenate([worst[0], own.row[len(wish.row) :]])[None],
                told=(len(own.row),),
            )
        assert reduced is not None, "all agents are told"
        return Verdict.read(reduced[0], dimension)

    def _wish(self, options: TrainingOptions, refined: bool) -> Wish:
        """What this agent needs, after it has followed all starts. refined: a finer grid was made already."""
        expert = self.setting.objective.experts[0]
        assert isinstance(expert, FleetExpert)
        walls, chosen = self.setting.floor, self._active[self._best]
        assert isinstance(walls, Walls)
        status, none = chosen.outcome.status, np.zeros(len(self.moments.sizes), dtype=np.int64)
        if len(chosen.history) > options.rounds or status == "time limit":
            return Wish(none, False, status)
        at_wall, failed = walls.touched(chosen.history[-1][0]), status != "converged"
        # A start that is worse where its wall stands may be better behind it: that is tried, but once only.
        touched = at_wall if refined else np.any([walls.touched(run.history[-1][0]) for run in self._active], axis=0)
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
    if options.starts is None:
        starts = default_starts(Magnitudes(2.0 * half, 1.0, 1.0), 1, SMOOTH)[:1]
    else:
        starts = options.starts
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


def scaling_of(frame: Frame, options: TrainingOptions) -> Scaling:
    if not options.normalize:
        return Scaling()
    return Scaling(frame.mean, frame.deviation if frame.deviation > 0.0 else 1.0)


def starts_and_floor(frame: Frame, options: TrainingOptions, scaling: Scaling) -> tuple[Array, Floor]:
    """Where to start, (S, P), and the floor, for the scaled observations: those of full-gp, on the fleet's own box."""
    size = deviation = 1.0
    if not options.normalize:
        size, deviation = (
            float(np.exp2(found)) if np.isfinite(found) else 1.0
            for found in power_of_two(np.array([np.hypot(frame.mean, frame.deviation), frame.deviation]))
        )
        if frame.deviation == 0.0:
            deviation = size
    floor = Floor.of(options.noise_floor * deviation)
    if options.starts is None:
        starts = default_starts(Magnitudes(2.0 * frame.box.half, size, deviation), 1, SMOOTH)
    else:
        starts = options.starts - scaling.shift(SMOOTH.units(len(frame.box.half)))
    return floor.lifted(starts), floor
