"""The task of training: all members of a view train together, and each keeps the model."""

from __future__ import annotations

import time
from dataclasses import asdict

import numpy as np

from fleetgp.agent.agenda import NOTHING, Agenda, Calibrated, Change, Tasks, Trained, with_names
from fleetgp.agent.memory import AgentState
from fleetgp.agent.requests import TrainRequest
from fleetgp.agent.summaries import Own
from fleetgp.agent.totals import Totals, parts_of_members
from fleetgp.arrays import Array
from fleetgp.consensus import Interlude, Status
from fleetgp.consensus.reductions import total
from fleetgp.data.dataset import InMemory
from fleetgp.errors import InputError, NetworkError, NothingToLearnError
from fleetgp.kernels.expression import Kernels
from fleetgp.kernels.stationary import PURE
from fleetgp.model.observations import Observations
from fleetgp.prediction import Holding, prediction_method
from fleetgp.prediction.calibrate import Fleetwide, calibrate
from fleetgp.prediction.conditioned import SentGroups
from fleetgp.training import Fit, train, training_method
from fleetgp.training.problem import SPANS
from fleetgp.training.reporting import about_coordinates, about_divergence, about_flat, about_mean, about_offset

#: Estimates this far from the magnitudes of an agent's own data, in log theta, are not kept: a factor of 1e10.
BEYOND = 10.0 * np.log(10.0)


class TrainingTask:
    """Trains one agent together with the others.

    used_rows: how many rows the last training had, whatever came of it.
    """

    def __init__(self, state: AgentState) -> None:
        self._id, self._description, self._memory = state.id, state.description, state.memory
        self._activity, self._log = state.activity, state.log
        self.used_rows = state.data.rows

    def run(
        self, tasks: Tasks, agenda: Agenda, request: TrainRequest, interim: Interlude, shard: Observations
    ) -> Status:
        """How it ended. If it did not diverge, there is a new model. shard: the data that the agenda is about."""
        self._activity.phase, self._activity.round = "training", 0
        if request.cold:
            self._memory.forget_estimates()
        kernels, warm = self._kernels_and_starts(agenda, request)
        starts = self._description.starts() if warm is None else warm
        method = request.method or self._description.training.method
        self._description.refuse_private(training_method(method))
        self.used_rows = len(shard)
        self._log("training", method=method, warm=warm is not None, members=tasks.names, rows=self.used_rows)
        count, magnitudes = len(SPANS) if starts is None else len(starts), self._magnitudes(shard)
        estimates: dict[int, Array] = {}  # the current one of every start

        def report(start: int, done: int, thetas: Array, chosen: bool) -> None:
            estimates[start] = np.log(thetas[0])
            if chosen:
                rows = estimates[start][None]
            else:  # those of all starts, once each of them has begun
                rows = np.array([estimates[k] for k in range(count)]) if len(estimates) == count else NOTHING
            if len(rows) and rows.shape[1] == len(magnitudes) and (np.abs(rows - magnitudes) > BEYOND).any():
                rows = NOTHING  # somebody's values are wrong: nothing to continue from
                self._memory.forget_estimates()
            self._note(tasks, rows, chosen, done)
            tasks.node.theta = np.log(thetas[0]).tolist()

        with tasks.next() as network:
            options = self._description.training_options(starts)
            try:
                fit = train(training_method(method), InMemory([shard]), network, kernels, options, report, interim)
            except NothingToLearnError as error:  # at all members alike
                self._memory.forget_estimates()
                why = with_names(str(error), tasks.names)
                self._log.error("training failed", method=method, status="diverged", rounds=0, why=why)
                tasks.node.well_done(tasks.view)
                return "diverged"
        tasks.node.well_done(tasks.view)
        if fit.status == "diverged":
            why = about_divergence(fit, options, self._description.parameters)
            self._memory.forget_estimates()
            self._log.error("training failed", method=method, status=fit.status, rounds=fit.rounds, why=why)
        else:
            self._keep(fit, tasks, agenda, method, network.epoch)
            self._calibrate(fit, tasks, shard)
        tasks.node.theta = self._memory.log_theta
        return fit.status

    def _kernels_and_starts(self, agenda: Agenda, request: TrainRequest) -> tuple[Kernels, Array | None]:
        """What to train, and where to continue, if there is something to continue from.

        Where the kernel is to be chosen, that of a model stays until the fleet starts again: estimates of a training
        that did not end are of no use, since nobody knows which kernel they belong to.
        """
        kernels, model = self._description.kernels, agenda.model
        if len(kernels) == 1:
            return kernels, None if request.cold else agenda.starts()
        if request.cold or model is None or not model.kernel or agenda.starts() is None:
            return kernels, None
        return (self._description.kernel_of(model.kernel),), np.array([model.log_theta])

    def _magnitudes(self, shard: Observations) -> Array:
        """The logarithms of what this agent's own data would have for hyperparameters, roughly, (P,).

        NaN without rows.
        """
        units = self._description.kernels[0].units(self._description.dimension)
        if not len(shard):
            return np.full(len(units), np.nan)
        sizes = np.array([1.0, np.sqrt((shard.values**2).mean()), *np.ptp(shard.inputs, axis=0)])
        sizes = sizes[units - PURE]  # which is followed by OBSERVED and the inputs
        return np.log(np.where(sizes > 0.0, sizes, 1.0))

    def _calibrate(self, fit: Fit, tasks: Tasks, shard: Observations) -> None:
        """With the others, for the method of the file. What cannot be is logged; the model is kept in any case."""
        hold, part = self._description.training.calibrate, self._description.prediction
        if hold == "no":
            return
        self._activity.phase = "calibrating"
        with tasks.next() as network:
            (own,), held = network.hosted, self._memory.summary
            sent: SentGroups = {} if held is None else {own: tuple(held.members(shard))}
            try:
                theta = np.exp(total(network, np.log(fit.thetas)) / network.agents)
                kernel = self._description.kernel_of(fit.kernel)
                theta = theta / np.exp(fit.coordinates.shift(kernel.units(self._description.dimension)))
                options = self._description.prediction_options()
                fleet = Fleetwide(InMemory([shard]).moved(fit.coordinates), kernel, theta, fit.scaling, sent)
                private = self._description.private is not None
                holding = Holding(hold, seed=self._description.seed, apart=private)
                calibration = calibrate(fleet, network, prediction_method(part.method), options, holding)
            except NetworkError:
                raise
            except InputError as error:  # at all members alike
                self._log.warn("not calibrated", why=with_names(str(error), tasks.names))
                return
            except Exception as error:  # here alone, it may be: the others must not wait
                why = with_names(str(error), tasks.names)
                self._log.error("not calibrated", why=why)
                raise NetworkError(f"this agent cannot calibrate: {why}") from error
            finally:
                if sent.get(own):
                    self._memory.summary_file.hold_own(Own.of(self._id, fit.thetas[0].tolist(), shard, sent[own]))
        tasks.node.well_done(tasks.view)
        self._memory.calibrate(Calibrated.of(calibration))
        factors = {knot.holdout: knot.factor for knot in calibration.knots}
        self._log("calibrated", method=part.method, factors=factors, bytes=network.ledger.bytes)

    def _note(self, tasks: Tasks, estimates: Array, chosen: bool, done: int) -> None:
        self._activity.round = done
        self._memory.note(estimates, chosen, done)
        if done % self._description.checkpoint_rounds == 0:
            self._memory.save()

    def _keep(self, fit: Fit, tasks: Tasks, agenda: Agenda, method: str, id: int) -> None:
        trained = Trained(
            log_theta=tuple(np.log(fit.thetas[0]).tolist()),
            id=id,
            members=tasks.view.members,
            method=method,
            status=fit.status,
            rounds=fit.rounds,
            offset=fit.scaling.offset,
            scale=fit.scaling.scale,
            change=Change.of(fit.scaling, fit.coordinates),
            kernel=fit.kernel,
            ended=time.time(),
        )
        moments = fit.moments
        totals = None if moments is None else Totals.of(moments, parts_of_members(agenda), trained)
        self._memory.finish(trained, self.used_rows, totals)
        log = self._log if fit.status == "converged" else self._log.warn
        log(
            "trained",
            method=method,
            status=fit.status,
            rounds=fit.rounds,
            theta=trained.theta,
            jitter=float(fit.jitter.max()),
            at_noise_floor=bool(fit.at_floor.any()),
            at_bounds=list(fit.at_bounds),
            flat=list(fit.flat),
            bytes=fit.ledger.bytes,
            **({} if fit.mean is None else {"mean": asdict(fit.mean)}),
            **({"outliers": int(fit.outliers[0])} if len(fit.outliers) else {}),
        )
        parts = about_coordinates(fit.coordinates), about_offset(fit), about_mean(fit)
        for remark in (*parts, about_flat(fit, fit.known.names)):
            if remark:
                self._log.warn("about the model", what=remark)
