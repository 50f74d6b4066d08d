"""The task of answering: all members of a view compute the answer to a question that one of them was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp import prediction
from fleetgp.agent.agenda import NOTHING, Agenda, Item, Tasks, Trained, with_names
from fleetgp.agent.description import WHOLE, Description
from fleetgp.agent.memory import AgentState
from fleetgp.agent.requests import PendingQuestion, Question
from fleetgp.agent.summaries import RULE, Left, SummarySync
from fleetgp.agent.totals import Agreements, MomentsSync, Totals, number_of, parts_of_members
from fleetgp.data.dataset import InMemory
from fleetgp.engines.expert import refuse_rough
from fleetgp.errors import Cancelled, InputError, NetworkError, NumericalError
from fleetgp.fleet.predictor import Predictor
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.kernels.stationary import Kernel
from fleetgp.network import Network
from fleetgp.prediction import Calibration, Prediction, PredictionCache, SharedState, prediction_method

#: A question whose views end this many times is refused: it may be what ends them.
TRIES = 6


class AnswerTask:
    """Answers the questions of an agenda.

    shard, stand: this agent's data at the last look.
    clean: what this agent holds of itself is without the rows of so many departures, see `Stand`.
    under_way: its own question, while the fleet computes the answer; other threads may read it.
    """

    def __init__(self, state: AgentState) -> None:
        self._state, self._description, self._id = state, state.description, state.id
        self._requests, self._activity, self._log = state.requests, state.activity, state.log
        self._cache = PredictionCache()
        self.stand = state.data.stand
        self.shard = state.data.observations(self.stand)
        self.clean = -1
        self.agreements = Agreements()
        fleet = len(self._description.names)
        self._sync = MomentsSync(state.id, state.memory.totals_file, fleet, self._description.dimension)
        self._summaries = SummarySync(state.id, state.memory.summary_file, self._description)
        self.under_way: PendingQuestion | None = None

    def look(self) -> tuple[int, int, bool]:
        """Take the data as they are now, for the questions of the next agenda.

        Their version; the number of the summary that this agent holds, and whether its rows change it.
        """
        self._state.data.tidy()
        self.stand = self._state.data.stand
        self.shard = self._state.data.observations(self.stand)
        model, left = self._state.memory.trained, Left(self.stand.arrived - len(self.stand), self.stand.kept)
        number, regrouped = self._summaries.look(model, self.shard, left)
        return self.shard.version, number, regrouped

    def note_clean(self) -> None:
        """Note whether all that this agent holds of itself is of the rows of the last look."""
        if self._summaries.clean(self.shard) and self._sync.holds(self.shard):
            self.clean = self.stand.departures

    def run(self, tasks: Tasks, agenda: Agenda, pending: PendingQuestion | None) -> None:
        """All questions, in the members' order. pending: the one that this agent put on the agenda."""
        model = agenda.model
        if model is None:
            return
        for position, question in agenda.questions:
            self._activity.phase = "predicting"
            if tasks.view.members[position] != self._id:
                self._compute(tasks, agenda, model, question, position)
            elif pending is not None:
                self._answer(tasks, agenda, model, pending, position)

    def _answer(self, tasks: Tasks, agenda: Agenda, model: Trained, pending: PendingQuestion, position: int) -> None:
        """Answer the own question: the asker gets an answer or an error, or the question stays for the next view."""
        pending.tries += 1
        self.under_way = pending
        try:
            result, totals = self._compute(tasks, agenda, model, pending.question, position)
        except CannotAnswerError as error:
            self._requests.finish(pending, error=f"it cannot be computed: {error.why}")
            raise
        except (NetworkError, Cancelled) as error:
            if pending.tries >= TRIES:
                self._requests.finish(pending, error=f"not answered in {TRIES} attempts: {error}")
            raise
        finally:
            self.under_way = None
        answer = answer_facts(result, model, tasks, self._description)
        if totals is not None:  # whose rows are in the answer: these agents need not be there now
            names = self._description.names_of(totals.contents.agents)
            points = len(answer["mean"])
            answer |= {"participants": [len(names)] * points, "said": dict.fromkeys(names, points), "data_of": names}
            left_out = totals.contents.left_out(parts_of_members(agenda))
            answer["left_out"] = self._description.names_of(left_out)
        elif prediction_method(pending.question.method).rule == RULE:
            answer["data_of"] = self._description.names_of(self._summaries.data_of(agenda, model))
        facts = {name: answer[name] for name in ("method", "status", "rounds", "bytes_sent", "missing")}
        took_part = [name for name, points in answer["said"].items() if points]
        self._log("answered", queries=len(answer["mean"]), asker=pending.asker, took_part=took_part, **facts)
        self._requests.finish(pending, answer=answer)

    def _compute(
        self, tasks: Tasks, agenda: Agenda, model: Trained, question: Question, position: int
    ) -> tuple[Prediction, Totals | None]:
        """Together with the others; only the member at this position, which was asked, needs the answer.

        The second result: the totals from which the asker has answered alone, if it has.
        """
        method, options = prediction_method(question.method), self._description.prediction_options()
        queries = question.queries
        with tasks.next() as network:
            try:
                self._description.refuse_private(method)
                predictor, totals = self.predictor(agenda, model), None
                if method.rule == "full-gp":
                    totals = self._synced(network, tasks.agreed, agenda, model, predictor)
                    key, rows = method.agreement_key(options), predictor.snapshot.rows
                    self._cache.hold(key, SharedState(moments=totals.moments), rows)
                elif method.rule == RULE:
                    groups = self._summaries.run(network, agenda, model, self.shard)
                    self._cache.hold(method.agreement_key(options), SharedState(groups=groups), predictor.snapshot.rows)
                if totals is not None or (method.rule == RULE and options.local):  # the asker answers alone
                    queries = queries if network.hosted == (position,) else queries[:0]
                calibration = calibration_for(model, tasks)
                asked = prediction.Question(method, queries, options, to=position, calibration=calibration)
                if totals is None and method.rule != RULE:
                    result = self._predict(network, tasks.agreed, agenda, model, predictor, asked)
                else:
                    result = predictor.predict(asked, network)
            except NetworkError:
                raise
            except Exception as error:  # this question is at fault, not the agent
                why = with_names(f"{type(error).__name__}: {error}", tasks.names)
                self._log.error("a question cannot be answered", error=why)
                raise CannotAnswerError(why) from error
        tasks.node.well_done(tasks.view)
        self._activity.questions += 1
        return result, totals

    def _predict(
        self,
        network: Network,
        here: dict[str, int],
        agenda: Agenda,
        model: Trained,
        predictor: Predictor,
        question: prediction.Question,
    ) -> Prediction:
        """What the method needs from the others, whatever is asked, is sent once."""
        method, key, rows = question.method, question.method.agreement_key(question.options), predictor.snapshot.rows
        number = number_of(agenda, model, method, question.options)
        agreed = self.agreements.find(method.rule, number, agenda, here)
        if agreed is not None:
            self._cache.hold(key, agreed, rows)
        answer = predictor.predict(question, network)
        entry = self._cache.shared.get(key)
        if agreed is None and entry is not None and entry.rounds:  # else nothing was sent for it
            self.agreements.keep(method.rule, number, entry.value, here, agenda)
        return answer

    def sync_totals(self, tasks: Tasks, agenda: Agenda) -> None:
        """Bring the totals up to date, in a fleet that predicts by dec-full-gp, before anybody asks.

        So a member that is cut off later knows of the others' data.
        """
        model = agenda.model
        if model is None or self._description.prediction.method != WHOLE or not self._sync.due(agenda):
            return
        with tasks.next() as network:
            try:
                self._synced(network, tasks.agreed, agenda, model, self.predictor(agenda, model))
            except (InputError, NumericalError) as error:  # at all members alike: a question gets this error
                self._log.warn("no totals", error=with_names(str(error), tasks.names))

    def sync_summary(self, tasks: Tasks, agenda: Agenda) -> None:
        """Bring the summaries up to date, in a fleet that predicts by dec-summary, before anybody asks."""
        model = agenda.model
        if model is None or not self.summarizes or not self._summaries.due(agenda, model):
            return
        with tasks.next() as network:
            self._summaries.run(network, agenda, model, self.shard)

    @property
    def summarizes(self) -> bool:
        """Whether the fleet predicts by dec-summary."""
        return prediction_method(self._description.prediction.method).rule == RULE

    def _synced(
        self, network: Network, here: dict[str, int], agenda: Agenda, model: Trained, predictor: Predictor
    ) -> Totals:
        refuse_rough(self._kernel(model), self._description.prediction.engine)
        conditioned = predictor.conditioned(network, prediction_method(WHOLE))
        with conditioned.in_user_units():
            removed = self.stand.removed > 0
            return self._sync.run(network, agenda, model, self.shard, conditioned.thetas[0], here, removed=removed)

    def predictor(self, agenda: Agenda, model: Trained) -> Predictor:
        """Of this agent's data at the last look. Its posterior stays, unless model or data have changed."""
        description = self._description
        self._cache.clear()  # what all members hold is in the agreements
        snapshot = ModelSnapshot(
            shards=InMemory([self.shard]),
            inputs=description.inputs,
            graph=description.graph,
            kernel=self._kernel(model),
            theta=np.array(model.theta),
            scaling=model.scaling,
            seed=description.seed,
            rows=tuple(item.rows for item in agenda.items),
            coordinates=model.coordinates,
        )
        return Predictor(snapshot, description.prediction_options(), self._cache)

    def _kernel(self, model: Trained) -> Kernel:
        return self._description.kernel_of(model.kernel)


def calibration_for(model: Trained, tasks: Tasks) -> Calibration | None:
    """The model's, for answers of those who trained it: of other members nothing was held out, or more is missing."""
    return None if model.calibration is None or model.members != tasks.view.members else model.calibration.calibration


class CannotAnswerError(NetworkError):
    """This agent cannot compute its part of an answer. why: the error."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"a question cannot be answered here: {why}")


class InterimQuestions:
    """Questions that come while the fleet trains: answered with the model from before, as an `Interlude`.

    item(pending): what this agent has and wants.
    """

    def __init__(
        self, answers: AnswerTask, state: AgentState, tasks: Tasks, item: Callable[[PendingQuestion | None], Item]
    ) -> None:
        self._answers, self._state, self._tasks, self._item = answers, state, tasks, item

    def wanted(self) -> bool:
        return self._state.memory.trained is not None and self._state.requests.question() is not None

    def play(self) -> None:
        pending = self._state.requests.question()
        # What matters for the training that is under way was said before it.
        item = replace(self._item(pending), estimates=NOTHING, chosen=False, wish=None)
        self._answers.run(self._tasks, self._tasks.agree(item), pending)
        self._state.activity.phase = "training"


def answer_facts(answer: Prediction, model: Trained, tasks: Tasks, description: Description) -> dict[str, Any]:
    """The answer of the agent that was asked, and how it came about.

    variance: of f.  std_observed: the deviation of an observation of this agent.
    rounds, bytes_sent: of the whole question, from its agenda on: of the fleet, and what this agent sent in them.
    """
    names, ledgers = tasks.names, (tasks.agenda_ledger, answer.ledger)  # of this agent: with what it sent alone
    return {
        "mean": answer.means[0].tolist(),
        "variance": answer.variance.tolist(),
        "std_observed": answer.std_observed.tolist(),
        "factor": answer.factors[0].tolist(),
        "participants": answer.participants.sum(axis=0).tolist(),
        "prior_only": answer.prior_only.tolist(),
        "said": dict(zip(names, answer.participants.sum(axis=1).tolist(), strict=True)),
        "members": names,
        "missing": [name for name in description.members if name not in names],
        "method": answer.method,
        "status": answer.status,
        "rounds": sum(ledger.rounds for ledger in ledgers),
        "iterations": int(answer.solver_rounds.max(initial=0)),
        "jitter": answer.jitter,
        "bytes_sent": sum(ledger.bytes for ledger in ledgers),
        "theta": model.theta,
        "trained": {
            "by": description.names_of(model.members),
            "method": model.method,
            "status": model.status,
            "kernel": description.kernel_of(model.kernel).name,
        },
    }
