"""One agent: it finds its neighbours, trains with them, answers with them, and goes on when some are lost.

The algorithms are those of every other network. What is here decides, with all members of a view, what to do next.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.agenda import Agenda, Item, Trained, Wish, agree_on_agenda
from fleetgp.agent.description import Description
from fleetgp.agent.disk.checkpoint import Checkpoint
from fleetgp.agent.disk.observations import ObservationStore
from fleetgp.agent.disk.recorder import Recorder, Reply
from fleetgp.agent.logs import Log
from fleetgp.agent.membership.membership import View
from fleetgp.agent.node import Node, StoppedError
from fleetgp.agent.requests import Asked, Requests, told_answer
from fleetgp.arrays import Array
from fleetgp.errors import NetworkError, NonsenseError
from fleetgp.files import own_folder
from fleetgp.gp.hyperparameters import names as hyperparameter_names
from fleetgp.gp.hyperparameters import sound_log_theta
from fleetgp.gp.kernels import as_kernel
from fleetgp.network.zenoh.epoch import NeighbourLostError, ZenohNetwork
from fleetgp.network.zenoh.links import EpochOverError
from fleetgp.prediction import predict_in_units, prediction_method
from fleetgp.training import train, training_method
from fleetgp.training.starts import SPANS

#: Seconds between two looks at a watched file.
WATCH = 1.0
#: A question whose views end this many times is refused: it may be what ends them.
TRIES = 6


class Agent:
    """One agent of a fleet, in this process. `run` works until `stop` is called, from any thread.

    phase: "starting", "agreeing", "training", "predicting", "serving", "failed" or "stopped".
    """

    def __init__(self, description: Description, name: str, log: Log) -> None:
        self.description, self.name, self.log = description, name, log
        self.id = description.id_of(name)
        own = description.agents[self.id]
        self.folder = description.state / name
        own_folder(self.folder)
        self.data = ObservationStore(
            description.data_of(self.id),
            description.inputs,
            description.target,
            self.folder / "observed.jsonl",
            missing=own.missing,
            fill=own.fill,
            watched=own.watch,
        )
        if self.data.dropped:
            log.warn("rows dropped", rows=self.data.dropped, file=str(own.data))
        if self.data.journal.damaged:
            told = self.data.journal
            log.error(
                "observed rows damaged",
                file=str(told.path),
                unreadable_lines=told.damaged,
                rows_kept=len(told.rows),
                copy=str(told.aside) if told.aside else "none: no room; the file is left as it is",
            )
        self.phase, self.round, self.problem, self.data_problem = "starting", 0, "", ""
        self.rounds = self.questions = self.views = 0
        self.began = time.time()
        self._kernel = as_kernel(description.kernel)
        self._failed_in = 0
        self.requests = Requests(log)
        self._proposed: Asked | None = None
        self._told_new = self._troubles = self._tasks = 0
        self._used_rows = self.data.rows
        self._unsaved = False
        self._stopping = threading.Event()
        found = Checkpoint.load(self._checkpoint, description)
        if found is None and self._checkpoint.exists():
            aside = self._checkpoint.with_suffix(".old.json")
            self._checkpoint.replace(aside)
            log.warn("checkpoint left aside", why="it is damaged, or of another model", file=str(aside))
        self.memory = found or Checkpoint()
        if self.memory.trained is not None or len(self.memory.estimates):
            log("resumed", model=self.memory.trained is not None, round=self.memory.round)
        self.node = Node(description, self.id, log, self._expire)
        self._recorder = Recorder(name, self.data, log, self.node.wake)
        self._tell_theta()
        if own.watch:
            threading.Thread(target=self._watch, name="watch", daemon=True).start()
        log("started", endpoint=own.endpoint, rows=self.data.rows, digest=description.digest[:16])

    # ---- the life of an agent -------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self.phase = "agreeing"
                    view = self.node.agree()
                    self._say_view(view)
                    self._work(view)
                except NeighbourLostError as lost:
                    self.node.lost(view, lost.neighbours, str(lost))
                except StoppedError:
                    break
                except EpochOverError as over:
                    self.log("view over", why=str(over))
                except NonsenseError as nonsense:
                    self._left_out(view, nonsense)
                except NetworkError as error:
                    self._trouble(view, error)
                except Exception as error:  # whatever it is, the others go on and this agent says why it does not
                    self._fail(error)
        finally:
            self.phase = "stopped"
            self._save()
            self.requests.refuse_all(f"{self.name} is stopping")
            self._recorder.close()
            self.node.close()
            self.log("stopped")

    def stop(self) -> None:
        self._stopping.set()
        self.node.stop()

    def _work(self, view: View) -> None:
        """The tasks of a view, one after the other and the same at all its members, until it is over."""
        self._tasks = 0
        rules = self.description.training
        while True:
            agenda = self._agenda(view, self._item(view))
            self._adopt(agenda)
            self._answer_all(view, agenda)
            wish = agenda.training(with_members=rules.again_with_members, after=rules.again_after)
            if wish is not None:
                self._fulfil(view, agenda, wish)
            elif agenda.model is None:
                self.requests.refuse_all("the fleet has no model: its training came to nothing")
            else:
                self._stand_by()
            self.problem = ""
            self._troubles = 0
            self.phase = "serving" if self.memory.trained is not None else "failed"
            self.node.idle(view, self._tasks, self._pending)

    def _agenda(self, view: View, item: Item) -> Agenda:
        """Everybody's item, at everybody."""
        fleet = self.description
        with self._task(view) as network:
            return agree_on_agenda(network, item, view.members, len(fleet.names), fleet.dimension)

    def _answer_all(self, view: View, agenda: Agenda) -> None:
        for position, _ in agenda.questions if agenda.model is not None else ():
            self._answer(view, agenda, position)

    def _pending(self) -> bool:
        grown = self.description.training.again_after > 0 and self.new_rows != self._told_new
        return self.requests.any or grown

    def _item(self, view: View) -> Item:
        memory = self.memory
        self._proposed = self.requests.question()
        self._told_new = self.new_rows
        return Item(
            memory.trained,
            memory.estimates,
            memory.chosen,
            self._failed_in == view.id,
            self._told_new,
            self.requests.wish(),
            None if self._proposed is None else self._proposed.question,
        )

    def _adopt(self, agenda: Agenda) -> None:
        """Whoever has no model, or that of a smaller part of the fleet, takes over the common one."""
        model, own = agenda.model, self.memory.trained
        if model is not None and (own is None or own.id != model.id):
            self.memory = replace(self.memory, trained=model)
            self._tell_theta()
            self._save()
            self.log("model taken over", trained_by=self._named(model.members))

    def _stand_by(self) -> None:
        """The model is good as it is: estimates of a training that was broken off are of no use any more."""
        if len(self.memory.estimates):
            self.memory = replace(self.memory, estimates=np.zeros((0, 0)), chosen=False, round=0)
            self._save()
        self._tell_theta()

    # ---- training -------------------------------------------------------------------------------------------

    def _fulfil(self, view: View, agenda: Agenda, wish: Wish) -> None:
        """Train; whoever asked for it remembers that until it is done, since the view may end before."""
        try:
            outcome = self._train(view, agenda, wish)
        except NetworkError:
            if len(self.memory.estimates):
                self.requests.warm_up(wish)
            raise
        self.requests.fulfil(wish, outcome)

    def _train(self, view: View, agenda: Agenda, wish: Wish) -> str:
        """How it ended: the status of the fit."""
        self.phase, self.round = "training", 0
        if wish.cold:
            self.memory = replace(self.memory, estimates=np.zeros((0, 0)), chosen=False)
        method = wish.method or self.description.training.method
        starts = None if wish.cold else agenda.starts()
        warm = starts is not None
        if starts is None:
            starts = self.description.starts()
        self.log("training", method=method, warm=warm, members=self._named(view.members), rows=self.data.rows)
        shard = self.data.shard
        rows = self._used_rows = len(shard[1])
        with self._task(view) as network:
            progress = _Estimates(len(SPANS) if starts is None else len(starts))

            def report(start: int, done: int, thetas: Array, chosen: bool) -> None:
                self.round = done
                estimates = progress.take(start, np.log(thetas[0]), chosen)
                if sound_log_theta(estimates, self.description.dimension):
                    self.memory = replace(self.memory, estimates=estimates, chosen=chosen, round=done)
                self.node.theta = np.log(thetas[0]).tolist()
                if done % self.description.checkpoint_rounds == 0:
                    self._save()

            options = self.description.training_options(starts)
            asides = _Asides(self, view)
            fit = train(training_method(method), [shard], network, self._kernel, options, report, asides)
        self.node.well_done(view)
        if fit.status == "diverged":
            self._failed_in = view.id
            self.memory = replace(self.memory, estimates=np.zeros((0, 0)), chosen=False)
            self._tell_theta()
            self.log.error("training came to nothing", method=method, status=fit.status, rounds=fit.rounds)
            return fit.status
        trained = Trained(
            tuple(np.log(fit.thetas[0]).tolist()),
            network.epoch,
            view.members,
            method,
            fit.status,
            fit.rounds,
            fit.scaling.offset,
            fit.scaling.scale,
        )
        self.memory = Checkpoint(trained, rows)
        self._tell_theta()
        self._save()
        said = self.log if fit.status == "converged" else self.log.warn
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
        return fit.status

    # ---- answering ------------------------------------------------------------------------------------------

    def aside(self, view: View) -> None:
        """In the middle of a training: all members answer the questions that wait, with the model from before."""
        self._proposed = self.requests.question()
        question = None if self._proposed is None else self._proposed.question
        self._answer_all(view, self._agenda(view, Item(self.memory.trained, question=question)))
        self.phase = "training"

    def _answer(self, view: View, agenda: Agenda, position: int) -> None:
        self.phase = "predicting"
        model, question = agenda.model, agenda.items[position].question
        assert model is not None
        assert question is not None
        mine = view.members[position] == self.id
        if mine and self._proposed is not None:
            self._proposed.tries += 1
        try:
            with self._task(view) as network:
                found = predict_in_units(
                    prediction_method(question.method),
                    [self.data.shard],
                    network,
                    self._kernel,
                    np.array([model.theta]),
                    model.scaling,
                    question.queries,
                    self.description.prediction_options(),
                    noisy=question.noisy,
                )
        except NetworkError as error:
            if mine and self._proposed is not None and self._proposed.tries >= TRIES:
                self.requests.finish(self._proposed, error=f"not answered in {TRIES} attempts: {error}")
            raise
        except Exception as error:  # this question is at fault, not the agent
            self.log.error("a question cannot be answered", error=f"{type(error).__name__}: {error}")
            if mine and self._proposed is not None:
                self.requests.finish(self._proposed, error=f"it cannot be computed: {type(error).__name__}: {error}")
            raise NetworkError(f"a question cannot be answered here: {type(error).__name__}: {error}") from error
        self.node.well_done(view)
        self.questions += 1
        if mine and self._proposed is not None:
            self.log("answered", queries=found.means.shape[1], method=found.method, status=found.status)
            self.requests.finish(self._proposed, answer=told_answer(found, model, view, self.description))

    def ask(self, asked: Asked) -> None:
        """Take up a question; from any thread."""
        self.requests.ask(asked)
        self.node.wake()

    def wish(self, wish: Wish) -> int:
        """Train again, as soon as what is under way is done; from any thread. The wish's number."""
        number = self.requests.add_wish(wish)
        self._failed_in = 0
        self.node.wake()
        return number

    def observe(self, rows: Any, request: Any, reply: Reply) -> None:
        """Have new rows written down and acknowledged, by another thread; they count from the next prediction on."""
        self._recorder.put(rows, request, reply)

    @property
    def new_rows(self) -> int:
        return max(0, self.data.rows - self.memory.rows) if self.memory.trained is not None else 0

    def _expire(self) -> None:
        """Called by the control thread, twice a second."""
        doing = f"{self.phase}, round {self.round}" if self.phase == "training" else self.phase
        expired = self.requests.expire(f"{self.name} is {doing}")
        if self.phase == "predicting" and self._proposed in expired:
            self.node.abandon("a question took too long")  # the fleet has better things to do

    # ---- when something is wrong ------------------------------------------------------------------------------

    def _left_out(self, view: View, nonsense: NonsenseError) -> None:
        """A member sent what nobody can work with: its neighbours leave it out, and all others go on without it."""
        culprit = view.members[nonsense.sender]
        if culprit == self.id:
            self._fail(nonsense)
            return
        self.problem = f"{self.description.names[culprit]} was left out, since it sent nonsense: {nonsense.why}"
        self.log.error("nonsense", sender=self.description.names[culprit], error=nonsense.why)
        self.node.lost(view, (culprit,), f"it sends nonsense: {nonsense.why}", nonsense=True)

    def _trouble(self, view: View, error: NetworkError) -> None:
        """Something is wrong with what was sent, not with the links: try again, but not at once."""
        self.problem = str(error)
        self.log.error("trouble", error=self.problem)
        self.node.lost(view, (), self.problem)
        self._troubles += 1
        self._stopping.wait(min(30.0, 0.25 * 2 ** min(self._troubles, 10)))

    def _fail(self, error: Exception) -> None:
        """This agent cannot work: it leaves the fleet to the others until it gets other data, or is told to train."""
        self.phase, self.problem = "failed", f"{type(error).__name__}: {error}"
        self.log.error("failed", error=self.problem, where=traceback.format_exc(limit=-3))
        self.requests.give_up_wishes(self.problem)
        self.node.withdraw(True)
        while not self._stopping.is_set() and self.requests.wish() is None and self.data.rows == self._used_rows:
            self.requests.refuse_all(f"{self.name} cannot work: {self.problem}")
            self._stopping.wait(0.2)
        self._used_rows = self.data.rows
        self.node.withdraw(False)

    @contextmanager
    def _task(self, view: View) -> Iterator[ZenohNetwork]:
        """The network of the next task, which has the same number at all members; its rounds count, however it ends."""
        self._tasks += 1
        with self.node.epoch(view, self._tasks - 1) as network:
            try:
                yield network
            finally:
                self.rounds += network.ledger.rounds

    # ---- odds and ends ----------------------------------------------------------------------------------------

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    def _save(self) -> None:
        try:
            self.memory.save(self._checkpoint, self.description)
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:  # once: it is tried again every few rounds
                self.log.error("no checkpoint", error=str(error))
            self._unsaved = True

    def _tell_theta(self) -> None:
        trained, estimates = self.memory.trained, self.memory.estimates
        if len(estimates) and self.memory.chosen:
            self.node.theta = estimates[0].tolist()
        else:
            self.node.theta = [] if trained is None else list(trained.log_theta)

    def _watch(self) -> None:
        complained = ""
        while not self._stopping.wait(WATCH):
            try:
                more = self.data.refresh()
                complained = self.data_problem = ""
            except Exception as error:  # half a file, say: there will be another look
                if str(error) != complained:
                    complained = self.data_problem = str(error)
                    self.log.warn("the watched file cannot be read", error=complained)
                continue
            if more:
                self.log("observed" if more > 0 else "rows gone", rows=abs(more), in_all=self.data.rows)
                self.node.wake()

    def _say_view(self, view: View) -> None:
        self.views += 1
        missing = sorted(set(range(len(self.description.names))) - set(view.members))
        said = self.log.warn if missing else self.log
        said("view", members=self._named(view.members), missing=self._named(missing), id=f"{view.id:012x}")

    def _named(self, members: Any) -> list[str]:
        return [self.description.names[member] for member in members]

    @property
    def theta(self) -> dict[str, float]:
        """The current estimate by name, in the units of the data; empty before there is one."""
        labels = [*(f"l_{name}" for name in self.description.inputs), *hyperparameter_names(0)]
        values = np.exp(self.node.theta).tolist()
        return dict(zip(labels, values, strict=True)) if values else {}


class _Asides:
    """Questions that come while the fleet trains: an `Interlude` of the training."""

    def __init__(self, agent: Agent, view: View) -> None:
        self._agent, self._view = agent, view

    def wanted(self) -> bool:
        return self._agent.memory.trained is not None and self._agent.requests.question() is not None

    def play(self) -> None:
        self._agent.aside(self._view)


class _Estimates:
    """The current estimate of every start of a training."""

    def __init__(self, starts: int) -> None:
        self._starts = starts
        self._rows: dict[int, Array] = {}

    def take(self, start: int, log_theta: Array, chosen: bool) -> Array:
        """(S, P), or (1, P) of the chosen one; nothing while some start has not begun."""
        self._rows[start] = log_theta
        if chosen:
            return log_theta[None]
        if len(self._rows) < self._starts:
            return np.zeros((0, 0))
        return np.array([self._rows[k] for k in range(self._starts)])
