"""The life of an agent: it agrees with others on a view, works in it until it is over, and looks for the next.

This is the one place that ends a view: whatever interrupts a task comes up to here.
"""

from __future__ import annotations

import threading
import time
import traceback

from fleetgp.agent.agenda import Agenda, Item, Scored, Tasks, with_names
from fleetgp.agent.answer_task import AnswerTask, InterimQuestions
from fleetgp.agent.description import NEEDED
from fleetgp.agent.drift_task import DriftTask
from fleetgp.agent.membership import View
from fleetgp.agent.memory import AgentState
from fleetgp.agent.node import Node
from fleetgp.agent.requests import PendingQuestion, TrainRequest
from fleetgp.agent.training_task import TrainingTask
from fleetgp.errors import Cancelled, NeighbourLostError, NetworkError, NonsenseError

#: Seconds between two looks at whether an agent that failed can work again.
RECOVERY = 0.2
#: Seconds before the first new attempt after trouble; twice as many before each further one, up to a limit.
PAUSE, LONGEST_PAUSE = 0.25, 30.0


class ViewLoop:
    """View after view, until `stopping` is set and then the node is stopped."""

    def __init__(self, state: AgentState, node: Node) -> None:
        self.state, self.node = state, node
        self.description, self.id, self.name = state.description, state.id, state.description.names[state.id]
        self.data, self.memory, self.requests = state.data, state.memory, state.requests
        self.activity, self.log = state.activity, state.log
        self.trainer = TrainingTask(state)
        self.answers = AnswerTask(state)
        self.drift = DriftTask(state)
        self.stopping = threading.Event()
        self._failed_in = 0  # the view in which the last training failed
        self._cold = False  # the last training failed: estimates and models to continue from are not trusted
        self._members: tuple[int, ...] = ()  # of the last view
        self._once_more = False  # the last training failed from a warm start: a cold one may do better
        self._announced_rows = 0  # the new rows that the others know of
        self._announced_departures = 0  # those that an operator has asked for, and the others know of
        self._rows = 0  # of all members at the last agenda
        self._announced_drift = Scored()
        self._troubles = self._failures = 0  # in a row

    def run(self) -> None:
        """View after view. Whatever is cancelled ends here, and nowhere before."""
        while not self.stopping.is_set():
            try:
                self.activity.phase = "agreeing"
                self._live_in(self.node.agree())
            except Cancelled as over:
                if not self.stopping.is_set():
                    self.log("view over", why=str(over))
            except Exception as error:  # whatever it is, the others continue, and this agent says why it does not
                self._fail(error)

    def _live_in(self, view: View) -> None:
        """Work until the view is over, or until something in it is wrong."""
        self._log_view(view)
        try:
            self._work(Tasks(self.node, view, self.activity))
        except NeighbourLostError as lost:
            names = ", ".join(
                self.description.names_of(lost.neighbours)
            )  # by the fleet's ids, unlike those of an algorithm
            why = f"round {lost.round}: nothing came from {names} within {lost.seconds:g} s"
            self.node.neighbours_lost(view, lost.neighbours, why)
        except NonsenseError as nonsense:
            self._left_out(view, nonsense)
        except NetworkError as error:
            self._trouble(view, error)

    @property
    def new_rows(self) -> int:
        """Rows that came since the model was trained."""
        return 0 if self.memory.trained is None else max(0, self.data.arrived - self.memory.rows)

    def _work(self, tasks: Tasks) -> None:
        """The tasks of a view, one after the other and the same at all its members, until it is over."""
        while True:
            with self.data.sending:
                done = self._turn(tasks)
            if done:
                self._idle(tasks)

    def _turn(self, tasks: Tasks) -> bool:
        """One agenda, and what follows from it; whether there is nothing more to do."""
        rules = self.description.training
        pending = self.requests.question()
        agenda = tasks.agree(self._item(tasks.view, pending))
        self._adopt(agenda)
        self.answers.agreements.drop_outdated(agenda)
        self.answers.run(tasks, agenda, pending)
        request = agenda.training(
            with_members=rules.retrain_on_membership_change,
            after=rules.again_after,
            summarized=self.answers.summarizes,
        )
        if request is not None and not agenda.rows:
            self.requests.fulfil(request, "no agent has rows yet")
        elif request is not None:
            self._train(tasks, agenda, request)
            return False  # all learn what came of it, before anybody asks
        self.answers.sync_totals(tasks, agenda)
        self.answers.sync_summary(tasks, agenda)
        self.answers.note_clean()
        self._rows = agenda.rows
        if agenda.model is None:
            why = "its training failed" if agenda.rows else "no agent has rows yet"
            self.requests.refuse_all(f"the fleet has no model: {why}")
        else:
            self._stand_by()
        self.activity.problem = ""
        self._troubles = self._failures = 0
        if self.memory.trained is not None:
            self.activity.phase = "serving"
        else:
            self.activity.phase = "failed" if agenda.rows else "starting"
        return True

    def _idle(self, tasks: Tasks) -> None:
        """Wait for something that concerns the others, and score new rows in the meantime."""
        while not self.node.idle(tasks.view, tasks.count, lambda: self._pending() or self.drift.waiting):
            if self._pending():
                return
            self.drift.score()

    def _item(self, view: View, pending: PendingQuestion | None) -> Item:
        """What this agent has and wants."""
        self._announced_rows, self._announced_drift = self.new_rows, self.memory.drift
        self._announced_departures = self.data.asked
        if self.data.removed > self.memory.removed:
            self.memory.end_calibration()
        (version, summary, regrouped), totals = self.answers.look(), self.memory.totals
        return Item(
            trained=self.memory.trained,
            estimates=self.memory.estimates,
            chosen=self.memory.chosen,
            failed=self._failed_in == view.id,
            new=self._announced_rows,
            wish=self.requests.training(),
            question=None if pending is None else pending.question,
            data=version,
            agreed=self.answers.agreements.held,
            rows=len(self.answers.shard),
            totals=0 if totals is None else totals.number,
            cold=self._cold,
            summary=summary,
            regrouped=regrouped,
            uncalibrated=self.memory.uncalibrated,
            kept=int(self.answers.stand.kept.counts.sum()),
            scored=self._announced_drift,
        )

    def _adopt(self, agenda: Agenda) -> None:
        """Take over the common model, if this agent has none, or that of a smaller part of the fleet."""
        model, own = agenda.model, self.memory.trained
        if model is not None and (own is None or own.id != model.id):
            self.memory.adopt(model)
            self.drift.begin(self.data.shard)
            self.node.theta = self.memory.log_theta
            self.log("model taken over", trained_by=self.description.names_of(model.members))
        if model is not None and agenda.uncalibrated(model.id):
            self.memory.end_calibration()

    def _train(self, tasks: Tasks, agenda: Agenda, request: TrainRequest) -> None:
        """Train. The member that was asked for it keeps the request until it is done, since the view may end before.

        A lost member interrupts a training, which continues from its estimates. If the training itself fails, nothing
        of it is kept and the next one starts cold: whatever it started from may be the cause.
        """
        self._failed_in = 0
        warm = not request.cold and agenda.starts() is not None
        interim = InterimQuestions(self.answers, self.state, tasks, lambda pending: self._item(tasks.view, pending))
        shard, need = self.answers.shard, agenda.need
        if not need.fits:
            self.log("theta no longer fits", rows=need.new_rows, p_value=need.p_value, change=need.change)
        try:
            outcome = self.trainer.run(tasks, agenda, request, interim, shard, self.answers.stand)
        except (Cancelled, NeighbourLostError):
            if len(self.memory.estimates):
                self.requests.resume(request)
            raise
        except Exception:
            self._distrust()
            self._once_more = warm
            raise
        if outcome != "diverged":
            self._cold = False
            self.drift.begin(shard)
        elif warm:  # at all members alike: what is due or was asked for follows at once, cold
            self._distrust()
            return
        else:
            self._failed_in = tasks.view.id
        self.requests.fulfil(request, outcome)

    def _distrust(self) -> None:
        """Start the next training cold."""
        self._cold = True
        self.memory.forget_estimates()
        self.memory.save()

    def _stand_by(self) -> None:
        """The model is good as it is: estimates of a training that was broken off are of no use any more."""
        if len(self.memory.estimates):
            self.memory.forget_estimates()
            self.memory.save()
        self.node.theta = self.memory.log_theta

    def _pending(self) -> bool:
        """Whether this agent has something for the agenda."""
        after, drift = self.description.training.again_after, self.memory.drift
        if after == NEEDED:
            grown = drift.alarming and drift != self._announced_drift
        else:
            grown = after > 0 and self.new_rows != self._announced_rows
        first = not self._rows and self.data.rows > 0 and self.memory.trained is None
        return self.requests.any or grown or first or self.data.asked != self._announced_departures

    # ---- when something is wrong ------------------------------------------------------------------------------

    def _left_out(self, view: View, nonsense: NonsenseError) -> None:
        """A member sent what nobody can work with: its neighbours leave it out, and all others continue without it."""
        culprit = view.members[nonsense.sender]
        if culprit == self.id:
            self._fail(nonsense)
            return
        name, why = self.description.names[culprit], self._with_names(nonsense.why)
        self.activity.problem = f"{name} was left out, since it sent nonsense: {why}"
        self.log.error("nonsense", sender=name, error=why)
        self.node.neighbours_lost(view, (culprit,), f"it sends nonsense: {why}", nonsense=True)

    def _trouble(self, view: View, error: NetworkError) -> None:
        """Something is wrong with what was sent, not with the links: try again, but not at once."""
        self.activity.problem = self._with_names(str(error))
        self.log.error("trouble", error=self.activity.problem)
        self.node.neighbours_lost(view, (), self.activity.problem)
        self._troubles += 1
        self.stopping.wait(min(LONGEST_PAUSE, PAUSE * 2 ** min(self._troubles, 10)))

    def _fail(self, error: Exception) -> None:
        """This agent cannot work: it leaves the fleet to the others until something changes that may help.

        That is other data, a request to train, or agents that come or go: one of them may have sent the values at
        which this agent failed. After several failures in a row it waits longer for the next attempt.
        """
        problem = f"{type(error).__name__}: {self._with_names(str(error))}"
        self.activity.phase, self.activity.problem = "failed", problem
        self.log.error("failed", error=problem, where=traceback.format_exc(limit=-3))
        self.requests.give_up_trainings(problem)
        self.node.withdraw(True)
        self._failures += 1
        again = time.monotonic() + min(LONGEST_PAUSE, PAUSE * 2 ** min(self._failures, 10))
        used, company = self.trainer.used, self.node.company()
        changed, self._once_more = self._once_more, False
        while not self.stopping.is_set() and self.requests.training() is None and self.data.stand.number == used:
            before, company = company, self.node.company()
            changed = changed or any(before.get(agent) != state for agent, state in company.items())
            if changed and time.monotonic() >= again:
                self.log("trying again", why="other members, or without what the last training started from")
                break
            self.requests.refuse_all(f"{self.name} cannot work: {problem}")
            self.stopping.wait(RECOVERY)
        self.trainer.used = self.data.stand.number
        self.node.withdraw(False)

    def _with_names(self, message: str) -> str:
        """A message of an algorithm, which knows agents by their position in the view, with their names."""
        return with_names(message, self.description.names_of(self._members))

    def _log_view(self, view: View) -> None:
        self.activity.views += 1
        self._members = view.members
        missing = sorted(set(self.description.present) - set(view.members))
        log = self.log.warn if missing else self.log
        log(
            "view",
            members=self.description.names_of(view.members),
            missing=self.description.names_of(missing),
            id=f"{view.id:012x}",
        )
