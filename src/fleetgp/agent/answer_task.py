"""The task of answering: all members of a view compute the answer to a question that one of them was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.agent.activity import Activity
from fleetgp.agent.agenda import NOTHING, Agenda, Item, Trained
from fleetgp.agent.agreements import Agreements, number_of, version_of
from fleetgp.agent.description import Description
from fleetgp.agent.disk.observations import ObservationStore
from fleetgp.agent.logs import Log
from fleetgp.agent.memory import Memory
from fleetgp.agent.questions import Question
from fleetgp.agent.requests import Asked, Requests
from fleetgp.agent.tasks import Cost, Tasks
from fleetgp.errors import Cancelled, NetworkError
from fleetgp.gp.kernels import as_kernel
from fleetgp.prediction import Conditioned, Conditioner, Prediction, agree_on, answer, prediction_method

#: A question whose views end this many times is refused: it may be what ends them.
TRIES = 6


class AnswerTask:
    """Answers the questions of an agenda.

    under_way: this agent's own question, while the fleet computes its answer; other threads may read it.
    """

    def __init__(
        self,
        description: Description,
        id: int,
        data: ObservationStore,
        requests: Requests,
        activity: Activity,
        log: Log,
    ) -> None:
        self._description, self._id, self._data = description, id, data
        self._requests, self._activity, self._log = requests, activity, log
        self._kernel = as_kernel(description.kernel)
        self._conditioner = Conditioner()
        self._shard = data.shard
        self.agreements = Agreements()
        self.under_way: Asked | None = None

    def look(self) -> int:
        """Take the data as they are now, for the questions of the next agenda. Their version."""
        self._shard = self._data.shard
        return version_of(self._shard)

    def run(self, tasks: Tasks, agenda: Agenda, asked: Asked | None) -> None:
        """All questions, in the members' order. asked: the one that this agent put on the agenda."""
        model = agenda.model
        if model is None:
            return
        for position, question in agenda.questions:
            self._activity.phase = "predicting"
            if tasks.view.members[position] != self._id:
                self._compute(tasks, agenda, model, question, position)
            elif asked is not None:
                self._answer(tasks, agenda, model, asked, position)

    def _answer(self, tasks: Tasks, agenda: Agenda, model: Trained, asked: Asked, position: int) -> None:
        """The own question: however it ends, the asker is told, or the question stays for the next view."""
        asked.tries += 1
        self.under_way = asked
        try:
            found = self._compute(tasks, agenda, model, asked.question, position)
        except CannotAnswerError as error:
            self._requests.finish(asked, error=f"it cannot be computed: {error.why}")
            raise
        except (NetworkError, Cancelled) as error:
            if asked.tries >= TRIES:
                self._requests.finish(asked, error=f"not answered in {TRIES} attempts: {error}")
            raise
        finally:
            self.under_way = None
        told = told_answer(found, model, tasks, self._description)
        facts = {name: told[name] for name in ("method", "status", "rounds", "bytes_sent")}
        self._log("answered", queries=found.means.shape[1], **facts)
        self._requests.finish(asked, answer=told)

    def _compute(self, tasks: Tasks, agenda: Agenda, model: Trained, question: Question, position: int) -> Prediction:
        """Together with the others; only the member at this position, which was asked, needs the answer."""
        method, options = prediction_method(question.method), self._description.prediction_options()
        number = number_of(agenda, model, method, options)
        with tasks.next() as network:
            try:
                conditioned = self.conditioned(model)
                agreed = self.agreements.find(method.rule, number, agenda, tasks.agreed)
                if agreed is None or agreed.moments is not None:  # moments may not be enough for another theta
                    moments = None if agreed is None else agreed.moments
                    agreed = agree_on(conditioned, network, method, options, moments)
                    if network.round:  # else nothing was sent for it
                        self.agreements.keep(method.rule, number, agreed, tasks.agreed)
                queries, noisy = question.queries, question.noisy
                found = answer(conditioned, network, method, queries, options, noisy=noisy, to=position, agreed=agreed)
            except NetworkError:
                raise
            except Exception as error:  # this question is at fault, not the agent
                why = f"{type(error).__name__}: {error}"
                self._log.error("a question cannot be answered", error=why)
                raise CannotAnswerError(why) from error
        tasks.node.well_done(tasks.view)
        self._activity.questions += 1
        return found

    def conditioned(self, model: Trained) -> Conditioned:
        """This agent's posterior: that of the last question, unless model or data (at the last look) have changed."""
        theta, engine = np.array([model.theta]), self._description.prediction.engine
        return self._conditioner.condition([self._shard], self._kernel, theta, model.scaling, engine)


class CannotAnswerError(NetworkError):
    """This agent cannot compute its part of an answer. why: the error."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"a question cannot be answered here: {why}")


class Asides:
    """Questions that come while the fleet trains: answered with the model from before, as an `Interlude`.

    item(asked): what this agent has and wants.
    """

    def __init__(
        self,
        answers: AnswerTask,
        requests: Requests,
        memory: Memory,
        activity: Activity,
        tasks: Tasks,
        item: Callable[[Asked | None], Item],
    ) -> None:
        self._answers, self._requests, self._memory = answers, requests, memory
        self._activity, self._tasks, self._item = activity, tasks, item

    def wanted(self) -> bool:
        return self._memory.trained is not None and self._requests.question() is not None

    def play(self) -> None:
        asked = self._requests.question()
        # What matters for the training that is under way was told before it.
        item = replace(self._item(asked), estimates=NOTHING, chosen=False, wish=None)
        self._answers.run(self._tasks, self._tasks.agree(item), asked)
        self._activity.phase = "training"


def told_answer(found: Prediction, model: Trained, tasks: Tasks, description: Description) -> dict[str, Any]:
    """The answer of the agent that was asked, and how it came about.

    rounds, bytes_sent: of the whole question, from its agenda on: of the fleet, and what this agent sent in them.
    """
    names, cost = tasks.names, tasks.telling + Cost.of(found.ledger)
    return {
        "mean": found.means[0].tolist(),
        "variance": found.variances[0].tolist(),
        "participants": found.participants.sum(axis=0).tolist(),
        "uninformed": found.uninformed.tolist(),
        "said": dict(zip(names, found.participants.sum(axis=1).tolist(), strict=True)),
        "members": names,
        "missing": [name for name in description.names if name not in names],
        "method": found.method,
        "status": found.status,
        "rounds": cost.rounds,
        "iterations": int(found.solver_rounds.max(initial=0)),
        "jitter": found.jitter,
        "bytes_sent": cost.sent,
        "theta": model.theta,
        "trained": {
            "by": [description.names[member] for member in model.members],
            "method": model.method,
            "status": model.status,
        },
    }
