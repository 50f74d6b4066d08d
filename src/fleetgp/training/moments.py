"""dec-full-gp: every agent trains alone with the moments of all data, and all agree on the result.

Three reductions: the box of the data and the sizes of a grid; the moments; theta. In between an agent does what full-gp
does at a central node. A grid ends at walls, lower bounds on the length-scales. An agent that ended at a wall reports
so with its theta; then the moments on a finer grid are reduced, and all continue from where they are. Agents on
different processors may differ in their last bits: the fleet takes the root's theta, and the worst status.

Where the data are in files, a pass over them is expensive. Then all this is done first with a random sample of every
agent's rows, from which theta and the grid that all data need are known, so that one pass is enough.

full-gp of data in files is the same with a central node: the moments go there, and it alone trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.agreements import CONSTANT, Frame, Scaling, agree_on_frame, agree_on_scaling, reduce_moments
from fleetgp.consensus.reductions import Alone, OfRoot, of_fleet
from fleetgp.consensus.stopping import Deadline
from fleetgp.data.dataset import FIRST, Dataset, InMemory
from fleetgp.engines.expert import INSTEAD, FleetExpert, not_certified, refuse_rough
from fleetgp.engines.moments.fleet import (
    MARGIN,
    PLANNED_RATIO,
    FleetMoments,
    doubled_sizes,
    finest_reach,
    fits,
    planned_reach,
    sizes_for_all,
)
from fleetgp.engines.moments.grid import without_trend
from fleetgp.errors import NothingToLearnError, NumericalError
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.network import MAXIMUM, Network
from fleetgp.training.constraints import Bounds
from fleetgp.training.fit import Fit
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective
from fleetgp.training.options import TrainingOptions
from fleetgp.training.outer_loops import Correction, agree_on_correction, settle_mean, trend_of
from fleetgp.training.problem import (
    WORTH,
    Magnitudes,
    SearchRegion,
    TrainingProblem,
    power_of_two,
)
from fleetgp.training.run import Report, Run, best_run, coarse, fit_of

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


#: From the best to the worst.
STATUSES: tuple[Status, ...] = get_args(Status)
#: How much shorter length-scales may turn out with all data than with a sample of them, and larger the ratio of
#: sigma_f to sigma_eps, before another grid is needed. With 2,000 rows they are known to some percent.
SHORTER, CLEARER = 1.4, 2.0
#: The kernel whose data have moments.
SMOOTH = KERNELS["se"]


@dataclass(frozen=True)
class Ending:
    """Where an agent ended on a grid, or what the fleet has agreed on: the worst of all, and x and next of the root.

    sizes: (D,) of the grid that is needed; zeros if this one is fine enough.
    refused: it ended where nothing is certified, and no grid helps.
    x: log theta.  next: the sizes of a grid on which all data can continue from x; None if there is none.
    """

    sizes: IntArray
    refused: bool
    status: Status
    x: Array
    next: tuple[int, ...] | None

    @classmethod
    def read(cls, row: Array, dimension: int) -> Ending:
        sizes, after = (np.rint(np.expm1(part)).astype(np.int64) for part in (row[:dimension], row[-dimension:]))
        refused, status = row[dimension : dimension + 2]
        x = row[dimension + 2 : -dimension]
        return cls(sizes, bool(refused), STATUSES[int(status)], x, tuple(after.tolist()) if after.all() else None)

    @property
    def row(self) -> Array:
        """To be sent: of numbers as small as logarithms of hyperparameters are, since others are taken for nonsense.

        The worst of the first D + 2 numbers is their maximum.
        """
        worst = [*np.log1p(self.sizes), float(self.refused), float(STATUSES.index(self.status))]
        return np.array([*worst, *self.x, *np.log1p(self.next or (0,) * len(self.sizes))])


def first_sizes(frame: Frame, options: TrainingOptions) -> tuple[int, ...] | None:
    """Those of a grid for the starts, and for what is likely to lie on the way from them; None if it is too large.

    The shortest of the default starts are lifted to where the grid ends.
    """
    half, count = frame.box.half, frame.count
    likely = np.full(len(half), planned_reach(len(half), count))
    starts = search_region(frame, options, scaling_of(frame, options.normalize)).starts
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


def search_region(frame: Frame, options: TrainingOptions, scaling: Scaling) -> SearchRegion:
    """That of full-gp, on the fleet's own box, for the scaled observations."""
    size = deviation = 1.0
    if not options.normalize:
        size, deviation = (
            float(np.exp2(power)) if np.isfinite(power) else 1.0
            for power in power_of_two(np.array([np.hypot(frame.mean, frame.deviation), frame.deviation]))
        )
        if frame.deviation == 0.0:
            deviation = size
    dimension = len(frame.box.half)
    magnitudes = Magnitudes(2.0 * frame.box.half, size, deviation)
    return SearchRegion.of(SMOOTH, options, scaling.shift(SMOOTH.units(dimension)), dimension, magnitudes, 1)


#: Where sigma_eps is a smaller part of sigma_f, it is what asks for precise moments.
LITTLE_NOISE = 1e-3


class MomentsTraining:
    """A training of the hosted agents, who all do the same: it is done once; or of a central node.

    moments: those of the whole fleet.  runs: one for each start.  chosen: the one that was chosen, where it ended.
    sample: (A,) how many rows of each agent it was trained on first; None for all.
    """

    def __init__(
        self,
        method: TrainingMethod,
        shards: Dataset,
        network: Network,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report | None,
    ) -> None:
        refuse_rough(kernel, options.engine)
        self._method, self._network, self._kernel = method, network, kernel
        self._options, self._report = options, report
        self._central = not method.decentralized
        self._deadline = Deadline.after(options.seconds, network.clock)
        self._frame, sizes = agree_on_frame(
            network, shards, lambda frame: first_sizes(frame, options), central=self._central
        )
        if self._frame.count > 1 and self._frame.deviation <= CONSTANT * abs(self._frame.mean):
            raise NothingToLearnError("the target of the fleet")
        if sizes is None:
            widths = " x ".join(f"{width:.4g}" for width in 2.0 * self._frame.box.half)
            longer = "" if options.starts is None else "give a theta0 with longer length-scales or more noise, or "
            raise NumericalError(
                f"dec-full-gp: data on a box of {widths} have more moments than can be sent, already at the theta that "
                f"the training starts with: {longer}{INSTEAD}"
            )
        self._sizes, self._given = sizes, shards
        self.scaling, self._frame = self._agreed_scaling(shards)
        self._shards = shards.rescaled(self.scaling)
        self.sample: IntArray | None = None

    def run(self) -> None:
        """To the end, on grids as fine as any agent needs; first with a sample of many rows in files."""
        many = self._frame.count > WORTH * FIRST * self._network.agents and not self._shards.in_memory
        first = many and self._options.starts is None and self._options.tol > 0.0
        if not (first and self._on_sample()):
            self._settled(self._follow(self._shards, self._sizes, self._options))
            self.runs = self._active

    def _on_sample(self) -> bool:
        """First with a sample of every agent's rows, then with all; False if the sample leads nowhere."""
        rows, options = InMemory(self._shards.first_rows()), self._options
        first = replace(options, rounds=max(1, options.rounds // 2), tol=coarse(options.tol))
        ending = self._follow(rows, self._sizes, first)
        if ending.refused or ending.status == "diverged" or ending.next is None:
            return False
        self.runs, run = self._active, self._active[self._best]
        self.sample = np.array(list(map(len, rows)))
        rounds = max(options.rounds, len(run.history))
        number, history = run.number, [*run.history[:-1], ending.x[None]]
        last = self._follow(self._shards, ending.next, replace(options, rounds=rounds), {number: history})
        self._settled(last)
        return True

    def _follow(
        self,
        data: Dataset,
        sizes: tuple[int, ...],
        options: TrainingOptions,
        histories: Mapping[int, list[Array] | None] | None = None,
        moments: FleetMoments | None = None,
    ) -> Ending:
        """All starts on some data, or those that have come somewhere; on finer grids until one will do.

        moments: those of the data on a grid of these sizes, if they are known.
        """
        refined = False
        while True:
            box = self._frame.box
            self.moments = moments or reduce_moments(self._network, data, box, sizes, central=self._central)
            self.problem, moments = self._set(), None
            solver = self._method.solver(self.problem, self._options)
            begun = dict.fromkeys(range(len(self.problem.starts))) if histories is None else histories
            self._active = [Run(self.problem, solver, n, self._report, history) for n, history in begun.items()]
            with self._network.phase("training"):
                self._best = self._best_of(self._active, options)
            ending = self._agree(self._ending(options, refined))
            if ending.refused or ending.status == "time limit" or not ending.sizes.any():
                return ending
            finer = np.maximum(ending.sizes, self.moments.sizes).tolist()
            if not fits(finer):
                return replace(ending, refused=True)
            # Every start continues from where it is: what was optimal takes an evaluation or two.
            sizes, refined, histories = tuple(finer), True, {run.number: run.history for run in self._active}

    def _best_of(self, runs: Sequence[Run[Any]], options: TrainingOptions) -> int:
        """Follow all starts to where their likelihoods can be compared, and the best one to its end; its number."""
        best = 0
        if len(runs) > 1:
            for run in runs:
                run.go(options.rounds, coarse(options.tol))
                if run.outcome.status == "time limit":
                    break
            best = best_run(self.problem, runs)
        runs[best].finish(options.rounds, options.tol)
        return best

    def _settled(self, ending: Ending) -> None:
        """Take what the fleet has agreed on, or refuse where that is nothing."""
        if ending.refused:
            ended = self.problem.thetas(ending.x)
            floor = "give a larger noise_floor, or " if ended[-1] < LITTLE_NOISE * ended[-2] else ""
            why = "no moments that can be sent are precise enough where training has come to,"
            raise not_certified(why, ended, floor + INSTEAD)
        self.chosen = self._active[self._best]
        self.chosen.settle(ending.x[None], ending.status)

    def fit(self) -> Fit:
        """Train, in turns with the mean function if there is one."""
        self.run()
        settled = settle_mean(self, self._options.mean)
        fit = fit_of(self.problem, self.runs, self.chosen, None if settled is None else settled.of(self.scaling))
        fit = replace(fit, moments=self.moments, approximation=np.zeros(len(fit.thetas)))
        return fit if self.sample is None else replace(fit, sample=self.sample)

    # ---- the mean function ---------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self.chosen.outcome.status

    def correction(self) -> Correction:
        trend, theta = trend_of(self.scaling, len(self.moments.sizes)), np.exp(self.chosen.history[-1])
        reduction = Alone() if self._central else OfRoot(self._network)
        with self._network.phase("mean"):
            return agree_on_correction(reduction, self.problem.objective.experts, theta, trend)

    def correct_mean(self, step: Sequence[float]) -> None:
        """The moments of other residuals follow from those that there are: nothing is sent."""
        before, scaling = self.scaling, self.scaling.corrected(step)
        trend = trend_of(scaling, len(self.moments.sizes))
        more = np.array([scaling.offset, *scaling.slope]) - np.array([before.offset, *before.slope])
        self.scaling, self._shards = scaling, self._given.rescaled(scaling)
        moments, run = without_trend(self.moments, trend, more / scaling.scale), self.chosen
        options = replace(self._options, rounds=max(self._options.rounds, len(run.history)))
        self._settled(self._follow(self._shards, moments.sizes, options, {run.number: run.history}, moments))

    def _agreed_scaling(self, shards: Dataset) -> tuple[Scaling, Frame]:
        """The mean function and the scale, and what the residuals are like."""
        frame, options = self._frame, self._options
        if options.mean == "zero":
            return scaling_of(frame, options.normalize), frame
        scaling = scaling_of(frame, normalize=True)
        if options.mean == "linear":
            with self._network.phase("normalize"):
                scaling = agree_on_scaling(of_fleet(self._network, central=self._central), shards, "linear")
        left = replace(frame, mean=0.0, deviation=scaling.scale)
        return scaling if options.normalize else replace(scaling, scale=1.0), left

    # ---- what the agents say of their grids ------------------------------------------------------------------

    def _set(self) -> TrainingProblem:
        frame = self._frame  # of the residuals, where there is a mean function or a scale
        region = search_region(frame, self._options, self.scaling)
        self._walls = Walls.around(self.moments, region.bounds)
        dimension, bounds = len(self.moments.sizes), self._walls.bounds
        shift, known = self.scaling.shift(SMOOTH.units(dimension)), self._options.known_of(SMOOTH.names(dimension))
        return TrainingProblem(
            method=self._method,
            kernel=self._kernel,
            network=self._network,
            reduction=Alone(),
            scaling=self.scaling,
            known=known,
            bounds=bounds,
            floor=region.floor,
            objective=Objective([FleetExpert(self.moments)], known.prior.shifted(-shift)),
            starts=bounds.clipped(region.starts),
            shift=shift,
            deadline=self._deadline,
            limits=region.limits,
            offset=0.0 if self._options.normalize or frame.deviation == 0.0 else abs(frame.mean) / frame.deviation,
        )

    def _agree(self, own: Ending) -> Ending:
        """The same at every agent. The central node asks nobody, and sends the sizes of the next grid."""
        dimension = len(own.sizes)
        with self._network.phase("model"):
            if self._central:
                own = Ending.read(self._network.at_centre(own.row), dimension)
                self._network.scatter(np.concatenate([own.sizes, own.next or ()]), "statistics")
                return own
            reduced = self._network.reduce(
                np.tile(own.row[: dimension + 2], (len(self._network.hosted), 1, 1)),
                "hyperparameters",
                MAXIMUM,
                finish=lambda worst, _: np.concatenate([worst[0], own.row[dimension + 2 :]])[None],
                result_shape=(len(own.row),),
            )
        assert reduced is not None, "every agent gets the result"
        return Ending.read(reduced[0], dimension)

    def _ending(self, options: TrainingOptions, refined: bool) -> Ending:
        """Of this agent, after it has followed all starts. refined: a finer grid was made already."""
        expert = self.problem.objective.experts[0]
        assert isinstance(expert, FleetExpert)
        walls, chosen = self._walls, self._active[self._best]
        x, status, none = (
            chosen.history[-1][0],
            chosen.outcome.status,
            np.zeros(len(self.moments.sizes), dtype=np.int64),
        )
        ending = Ending(none, False, status, x, sizes_around(self._frame, x))
        if len(chosen.history) > options.rounds or status == "time limit":
            return ending
        at_wall, failed = walls.touched(x), status != "converged"
        # A start that is worse where its wall stands may be better behind it: that is tried, but once only.
        touched = at_wall if refined else np.any([walls.touched(run.history[-1][0]) for run in self._active], axis=0)
        wanted = finer_sizes(self.moments, touched, expert.beyond if failed else none)
        if wanted.any() and fits(np.maximum(wanted, self.moments.sizes).tolist()):
            return replace(ending, sizes=wanted)
        return replace(ending, refused=bool(at_wall.any()) or (failed and expert.failing) or not expert.certain(x))
