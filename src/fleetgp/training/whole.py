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
from dataclasses import replace

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.fleet_moments import Frame, agree_on_frame, reduce_moments
from fleetgp.consensus.reductions import Alone, OfRoot, of_fleet
from fleetgp.consensus.scaling import CONSTANT, Scaling, agree_on_scaling
from fleetgp.data.streamed import FIRST, Shards, Streamed
from fleetgp.errors import NothingToLearnError
from fleetgp.gp.failure import ThetaError
from fleetgp.gp.fleet_expert import INSTEAD, FleetExpert, not_certified, refuse_rough
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sizes import fits
from fleetgp.gp.moments.trend import without
from fleetgp.model.observations import Observations
from fleetgp.network import MAXIMUM, Network
from fleetgp.training.central import CentralMinimizer, Pooled
from fleetgp.training.deadline import Deadline
from fleetgp.training.mean import Correction, agree_on_correction, trend_of
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective
from fleetgp.training.options import TrainingOptions
from fleetgp.training.run import COARSE, LOOSEST, Report, Run, follow
from fleetgp.training.samples import WORTH
from fleetgp.training.setting import Setting
from fleetgp.training.walls import Walls
from fleetgp.training.whole_plans import (
    SMOOTH,
    Verdict,
    Wish,
    finer_sizes,
    first_sizes,
    scaling_of,
    sizes_around,
    starts_and_bounds,
    too_wide,
)

#: Where sigma_eps is a smaller part of sigma_f, it is what asks for precise moments.
LITTLE_NOISE = 1e-3


class WholeTraining:
    """A training of the hosted agents, who all do the same: it is done once; or of a central node.

    moments: those of the whole fleet.  runs: one for each start.  chosen: the one that was chosen, where it ended.
    sample: (A,) how many rows of each agent it was trained on first; None for all.
    """

    def __init__(
        self,
        method: TrainingMethod,
        shards: Sequence[Observations],
        network: Network,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report | None,
    ) -> None:
        refuse_rough(kernel, options.engine)
        self._method, self._network, self._options, self._report = method, network, options, report
        self._central = not method.decentralized
        self._deadline = Deadline.after(options.seconds, network.clock)
        self._frame, sizes = agree_on_frame(
            network, shards, lambda frame: first_sizes(frame, options), central=self._central
        )
        if self._frame.count > 1 and self._frame.deviation <= CONSTANT * abs(self._frame.mean):
            raise NothingToLearnError("the target of the fleet")
        if sizes is None:
            raise too_wide(self._frame, options)
        self._sizes, self._given = sizes, shards
        self.scaling, self._frame = self._agreed_scaling(shards)
        self._shards = self.scaling.apply(shards)
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
        self.sample = np.array(list(map(len, rows)))
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
        moments: FleetMoments | None = None,
    ) -> Verdict:
        """All starts on some data, or those that have come somewhere; on finer grids until one will do.

        moments: those of the data on a grid of these sizes, if they are known.
        """
        refined = False
        while True:
            box = self._frame.box
            self.moments = moments or reduce_moments(self._network, data, box, sizes, central=self._central)
            self.setting, moments = self._set(), None
            runner = CentralMinimizer(Pooled(self.setting.objective), self.setting.bounds, self._late)
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

    def _late(self) -> bool:
        return self._deadline.passed_at_centre(self._network) if self._central else self._deadline.passed

    # ---- the mean function ---------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self.chosen.outcome.status

    def correction(self) -> Correction:
        trend, theta = trend_of(self.scaling, len(self.moments.sizes)), np.exp(self.chosen.history[-1])
        reduction = Alone() if self._central else OfRoot(self._network)
        with self._network.phase("mean"):
            return agree_on_correction(reduction, self.setting.objective.experts, theta, trend)

    def take_up(self, step: Sequence[float]) -> None:
        """The moments of other residuals follow from those that there are: nothing is sent."""
        before, scaling = self.scaling, self.scaling.corrected(step)
        trend = trend_of(scaling, len(self.moments.sizes))
        more = np.array([scaling.offset, *scaling.slope]) - np.array([before.offset, *before.slope])
        self.scaling, self._shards = scaling, scaling.apply(self._given)
        moments, run = without(self.moments, trend, more / scaling.scale), self.chosen
        options = replace(self._options, rounds=max(self._options.rounds, len(run.history)))
        self._settled(self._follow(self._shards, moments.sizes, options, {run.number: run.history}, moments))

    def _agreed_scaling(self, shards: Sequence[Observations]) -> tuple[Scaling, Frame]:
        """The mean function and the scale, and what the residuals are like."""
        frame, options = self._frame, self._options
        if options.mean == "zero":
            return scaling_of(frame, options.normalize), frame
        found = scaling_of(frame, normalize=True)
        if options.mean == "linear":
            with self._network.phase("normalize"):
                found = agree_on_scaling(of_fleet(self._network, central=self._central), shards, "linear")
        left = replace(frame, mean=0.0, deviation=found.scale)
        return found if options.normalize else replace(found, scale=1.0), left

    # ---- what the agents say of their grids ------------------------------------------------------------------

    def _set(self) -> Setting:
        starts, own, floor, limits = starts_and_bounds(self._frame, self._options, self.scaling)
        self._walls = Walls.around(self.moments, own)
        dimension = len(self.moments.sizes)
        shift, known = self.scaling.shift(SMOOTH.units(dimension)), self._options.known_of(SMOOTH.names(dimension))
        objective = Objective([FleetExpert(self.moments)], known.prior.shifted(-shift))
        bounds = self._walls.bounds
        found = self.scaling, known, bounds, floor, objective, bounds.clipped(starts), shift
        return Setting(self._method, self._network, Alone(), *found, limits=limits, offset=self._offset)

    @property
    def _offset(self) -> float:
        """As in `Setting`; of the residuals, where there is a mean function or a scale."""
        frame = self._frame
        return 0.0 if self._options.normalize or frame.deviation == 0.0 else abs(frame.mean) / frame.deviation

    def _agree(self, wish: Wish) -> Verdict:
        """The same at every agent. The central node asks nobody, and tells the sizes of the next grid."""
        x, dimension = self._active[self._best].history[-1][0], len(wish.sizes)
        own = Verdict(wish, x, sizes_around(self._frame, x))
        with self._network.phase("model"):
            if self._central:
                own = Verdict.read(self._network.at_centre(own.row), dimension)
                self._network.scatter(np.concatenate([own.wish.sizes, own.next or ()]), "statistics")
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
        walls, chosen = self._walls, self._active[self._best]
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
