"""The task of training: all members of a view train together, and each keeps what it has found."""

from __future__ import annotations

import numpy as np

from fleetgp.agent.activity import Activity
from fleetgp.agent.agenda import NOTHING, Agenda, Trained
from fleetgp.agent.description import Description
from fleetgp.agent.disk.observations import ObservationStore
from fleetgp.agent.logs import Log
from fleetgp.agent.memory import Memory
from fleetgp.agent.questions import Wish
from fleetgp.agent.tasks import Tasks
from fleetgp.agent.totals import Totals, parts_of_members
from fleetgp.arrays import Array
from fleetgp.consensus import Interlude, Status
from fleetgp.data.partition import Shard
from fleetgp.training import Fit, train, training_method
from fleetgp.training.endings import about_divergence
from fleetgp.training.starts import SPANS


class TrainingTask:
    """Trains one agent together with the others.

    used_rows: how many rows the last training had, whatever came of it.
    """

    def __init__(
        self, description: Description, data: ObservationStore, memory: Memory, activity: Activity, log: Log
    ) -> None:
        self._description, self._memory = description, memory
        self._activity, self._log = activity, log
        self._kernel = description.kernel
        self.used_rows = data.rows

    def run(self, tasks: Tasks, agenda: Agenda, wish: Wish, asides: Interlude, shard: Shard) -> Status:
        """How it ended. If it did not diverge, there is a new model. shard: the data that the agenda tells of."""
        self._activity.phase, self._activity.round = "training", 0
        if wish.cold:
            self._memory.forget_estimates()
        warm = None if wish.cold else agenda.starts()
        starts = self._description.starts() if warm is None else warm
        method = wish.method or self._description.training.method
        self.used_rows = len(shard[1])
        self._log("training", method=method, warm=warm is not None, members=tasks.names, rows=self.used_rows)
        estimates = Estimates(len(SPANS) if starts is None else len(starts))

        def report(start: int, done: int, thetas: Array, chosen: bool) -> None:
            self._note(tasks, estimates.take(start, np.log(thetas[0]), chosen), chosen, done)
            tasks.node.theta = np.log(thetas[0]).tolist()

        with tasks.next() as network:
            options = self._description.training_options(starts)
            fit = train(training_method(method), [shard], network, self._kernel, options, report, asides)
        tasks.node.well_done(tasks.view)
        if fit.status == "diverged":
            why = about_divergence(fit, options, self._description.inputs)
            self._memory.forget_estimates()
            self._log.error("training failed", method=method, status=fit.status, rounds=fit.rounds, why=why)
        else:
            self._keep(fit, tasks, agenda, method, network.epoch)
        tasks.node.theta = self._memory.log_theta
        return fit.status

    def _note(self, tasks: Tasks, estimates: Array, chosen: bool, done: int) -> None:
        self._activity.round = done
        self._memory.note(estimates, chosen, done)
        if done % self._description.checkpoint_rounds == 0:
            self._memory.save()

    def _keep(self, fit: Fit, tasks: Tasks, agenda: Agenda, method: str, id: int) -> None:
        trained = Trained(
            tuple(np.log(fit.thetas[0]).tolist()),
            id,
            tasks.view.members,
            method,
            fit.status,
            fit.rounds,
            fit.scaling.offset,
            fit.scaling.scale,
        )
        moments = fit.moments
        totals = None if moments is None else Totals.of(moments, parts_of_members(agenda), fit.scaling)
        self._memory.finish(trained, self.used_rows, totals)
        said = self._log if fit.status == "converged" else self._log.warn
        said(
            "trained",
            method=method,
            status=fit.status,
            rounds=fit.rounds,
            theta=trained.theta,
            jitter=float(fit.jitter.max()),
            at_noise_floor=bool(fit.at_floor.any()),
            bytes=fit.ledger.bytes,
        )


class Estimates:
    """The current estimate of every start of a training.

    >>> estimates = Estimates(2)
    >>> len(estimates.take(0, np.array([0.5]), False)), estimates.take(1, np.array([0.7]), False).tolist()
    (0, [[0.5], [0.7]])
    >>> estimates.take(1, np.array([0.8]), True).tolist()
    [[0.8]]
    """

    def __init__(self, starts: int) -> None:
        self._starts = starts
        self._rows: dict[int, Array] = {}

    def take(self, start: int, log_theta: Array, chosen: bool) -> Array:
        """(S, P), or (1, P) of the chosen one; nothing while some start has not begun."""
        self._rows[start] = log_theta
        if chosen:
            return log_theta[None]
        if len(self._rows) < self._starts:
            return NOTHING
        return np.array([self._rows[k] for k in range(self._starts)])
