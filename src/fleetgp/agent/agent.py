"""One agent: its files, its links, its threads, and what anybody may ask of it.

The algorithms are those of every other network; what the agent does with them, and when, is its view loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgp.agent.admission import Admission
from fleetgp.agent.description import ROSTER, Description
from fleetgp.agent.logs import Activity, Log
from fleetgp.agent.memory import AgentState, Memory
from fleetgp.agent.node import Node
from fleetgp.agent.observations import store_of
from fleetgp.agent.recorder import Recorder, watch_file
from fleetgp.agent.requests import PendingQuestion, Reply, Requests, TrainRequest
from fleetgp.agent.threads import Threads
from fleetgp.agent.view_loop import ViewLoop
from fleetgp.consensus.agreements import FEWEST_ROWS
from fleetgp.errors import FleetGPError, InputError
from fleetgp.files import own_folder

#: Seconds between two looks at the deadlines of questions.
DEADLINES = 0.5
#: Seconds between two looks at whether rows have become too old.
TIDYING = 60.0


class Agent:
    """One agent of a fleet, in this process. `run` works until `stop` is called; any thread may call the others.

    successor: the description with a newer roster, once one was taken over: `run` ends then, for another `Agent`.
    """

    def __init__(self, description: Description, name: str, log: Log, before: Agent | None = None) -> None:
        """Read the agent's files, open its links and start its threads.

        before: this agent with the roster before, which has ended.
        """
        self.description, self.name, self.log = description, name, log
        self.id = description.id_of(name)
        description.check_member(name)
        self.successor: Description | None = None
        own, folder = description.agents[self.id], description.state / name
        own_folder(folder)
        self.data = store_of(description, name, folder, log)
        if description.private is not None and 0 < self.data.rows < FEWEST_ROWS:
            raise InputError(
                f'{name}: private = "rows" needs at least {FEWEST_ROWS} rows of every agent, got {self.data.rows}: '
                "means and extremes over so few reveal them. Start it when its file has more"
            )
        self.memory = Memory(folder / "checkpoint.json", description, log)
        self.data.sent = lambda shard: self.memory.sent(self.id, shard)
        self.data.regroup = self.memory.regroup
        self.data.tidy()
        self.threads = Threads(log)
        self.activity: Activity = Activity() if before is None else before.activity
        self.requests: Requests = Requests(log) if before is None else before.requests
        self.admission = Admission(description, folder / ROSTER, log, self._spread, self._renew)
        awaited = None if before is None else [id for id in before.company if id in description.present]
        self.node = Node(description, self.id, log, self.threads, rosters=self.admission.put, awaited=awaited)
        self.node.theta = self.memory.log_theta
        self._recorder = Recorder(name, self.data, log, self.node.wake)
        state = AgentState(description, self.id, self.data, self.memory, self.requests, self.activity, log)
        self.loop = ViewLoop(state, self.node)
        self._closed = False
        self.company: tuple[int, ...] = (self.id,)  # of the last view
        self.threads.failed = self.stop
        self.threads.start("recorder", self._recorder.work, wake=self._recorder.close)
        self.threads.start("deadlines", self._keep_deadlines)
        if description.memory.window is not None:
            self.threads.start("tidying", self._tidy)
        self.threads.start("admission", lambda: self.admission.work(self.threads.ending), wake=self.admission.wake)
        if own.watch:
            watched = self.data, self.activity, log, self.node.wake, self.threads.ending
            self.threads.start("watch", lambda: watch_file(*watched))
        facts = {"rows": self.data.rows, "digest": description.digest[:16], "roster": description.roster.version}
        log("started" if before is None else "continued", endpoint=own.endpoint, **facts)

    def run(self) -> None:
        """Live, view after view. An agent without one of its threads would only seem to work: it ends with an error."""
        try:
            if self.threads.failure is None:
                self.loop.run()
        finally:
            self.activity.phase = "stopped"
            self.memory.save()
            why = "is stopping" if self.successor is None else "takes over a newer roster: ask again"
            self.requests.refuse_all(f"{self.name} {why}")
            self.close()
            self.log("stopped")
        if self.threads.failure is not None:
            raise FleetGPError(f"{self.name}: {self.threads.failure}")

    def stop(self) -> None:
        self.loop.stopping.set()
        self.node.stop()

    def _spread(self, roster: bytes) -> None:
        self.node.links.spread(roster)

    def _renew(self, description: Description) -> None:
        """End, for an agent with a newer roster."""
        view = self.node.view
        self.company, self.successor = ((self.id,) if view is None else view.members), description
        self.stop()

    def close(self) -> None:
        """Leave the fleet, and end all threads. Once: nobody waits a second time for a thread that does not end."""
        if not self._closed:
            self._closed = True
            self.threads.close()
            self.node.close()

    def ask(self, pending: PendingQuestion) -> None:
        self.requests.ask(pending)
        self.node.wake()

    def train(self, request: TrainRequest) -> int:
        """Train again, as soon as what is under way is done. The request's number."""
        number = self.requests.add_training(request)
        self.node.wake()
        return number

    def observe(self, rows: Any, request: Any, reply: Reply) -> None:
        """Have new rows written down and acknowledged, by another thread; they count from the next prediction on."""
        self._recorder.observe(rows, request, reply)

    def remove(self, name: Any, reply: Reply, **which: Any) -> None:
        """Have rows taken back, by another thread; predictions are without them from the next one on."""
        self._recorder.remove(name, reply, **which)

    def forget(self, name: Any, before: Any, reply: Reply) -> None:
        """Have rows before a time forgotten, by another thread."""
        self._recorder.forget(name, before, reply)

    def receipt(self, name: Any) -> dict[str, Any]:
        """The receipt of a removal, and what shows whether the others still hold the rows; see `holds`.

        clean: whether what this agent holds of itself is without them. The groups that it holds then, and all later
        ones, are without them too.
        """
        receipt, answers = self.data.receipt(name), self.loop.answers
        clean = answers.clean >= (self.data.departure_of(name) or 0)
        return {**receipt, "clean": clean, "data": answers.shard.version, "held": self.holds.get(self.name, {})}

    @property
    def holds(self) -> dict[str, dict[str, Any]]:
        """What this agent holds of each agent's rows, by its name: when its groups were made, which data totals and
        other agreements are of.
        """
        names, result = self.description.names, dict[str, dict[str, Any]]()
        summary, totals = self.memory.summary, self.memory.totals
        for agent, (made, _) in ({} if summary is None else summary.versions).items():
            result.setdefault(names[agent], {})["groups"] = made
        for part in () if totals is None else totals.contents.parts:
            result.setdefault(names[part.agent], {})["totals"] = part.version
        for versions in self.loop.answers.agreements.versions:
            for agent, version in versions.items():
                result.setdefault(names[agent], {}).setdefault("agreements", []).append(version)
        return result

    @property
    def theta(self) -> dict[str, float]:
        """The current estimate by name, in the units of the data; empty before there is one."""
        values = np.exp(self.node.theta).tolist()
        return dict(zip(self.description.parameters, values, strict=True)) if values else {}

    def _tidy(self) -> None:
        """Forget what becomes too old while no rows come."""
        while not self.threads.ending.wait(TIDYING):
            self._recorder.tidy()

    def _keep_deadlines(self) -> None:
        """Nobody waits longer than was promised, and the fleet does not compute what nobody waits for."""
        while not self.threads.ending.wait(DEADLINES):
            self.requests.expire(f"{self.name} is {self.activity}")
            pending = self.loop.answers.under_way
            if pending is not None and pending.expired:
                self.node.abandon("a question took too long")
