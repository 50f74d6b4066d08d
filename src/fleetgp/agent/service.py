"""An agent as a process: what it answers to operators and to Prometheus, until a signal or the operator ends it."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.agent import Agent
from fleetgp.agent.certificates import Credentials, days_ahead, days_left
from fleetgp.agent.description import LONGEST_WAIT, PREDICTORS, ROSTER, TRAINERS, Description
from fleetgp.agent.logs import PHASES, Log
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.requests import PendingQuestion, Question, Reply, TrainRequest, check_queries
from fleetgp.agent.roster import document_of
from fleetgp.agent.threads import Inbox
from fleetgp.data.times import clock, time_unit_of
from fleetgp.errors import FleetGPError, InputError, NetworkError, shortened, unknown_name
from fleetgp.network.zenoh.session import OPERATOR, prefix_of
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method

#: Rows that an agent shows at most.
MOST_ROWS = 2_000


def status_of(agent: Agent, after: int = 0) -> dict[str, Any]:
    """The agent's state as plain values. after: the number of the last event that the asker has seen."""
    node, names, trained, requests = agent.node, agent.description.names, agent.memory.trained, agent.requests
    activity, view = agent.activity, node.view
    members = [] if view is None else agent.description.names_of(view.members)
    return {
        "agent": agent.name,
        "pid": os.getpid(),
        "phase": activity.phase,
        "problem": activity.problem or activity.data_problem or agent.data.journal.problem,
        "round": activity.round if activity.phase == "training" else node.round,
        "rounds": activity.rounds,
        "agents": agent.description.members,
        "left": agent.description.left,
        "roster": agent.description.roster.version,
        "members": members,
        "missing": [name for name in agent.description.members if members and name not in members],
        "theta": agent.theta,
        "disagreement": node.disagreement(),
        "trained": None
        if trained is None
        else {
            "id": trained.id,
            "by": agent.description.names_of(trained.members),
            "method": trained.method,
            "status": trained.status,
            "rounds": trained.rounds,
            "kernel": agent.description.kernel_of(trained.kernel).name,
            "seconds": max(0.0, time.time() - trained.ended) if trained.ended else None,
            "calibrated": None if trained.calibration is None else asdict(trained.calibration),
        },
        "neighbours": node.neighbours(),
        "bytes": sum(node.links.sent.values()),
        "overhead": node.links.overhead,
        "sent": {names[neighbour]: size for neighbour, size in sorted(node.links.sent.items())},
        "kinds": dict(activity.kinds),
        "dropped": dict(node.links.dropped),
        "resent": node.links.resent,
        "rows": agent.data.rows,
        "forgotten": agent.data.forgotten,
        "removed": agent.data.removed,
        "kept_groups": len(agent.data.stand.kept),
        "kept_rows": int(agent.data.stand.kept.counts.sum()),
        "journal_bytes": agent.data.journal.size,
        "holds": agent.holds,
        "missing_rows": agent.data.journal.missing_rows,
        "summary": _summary_of(agent),
        "new_rows": agent.loop.new_rows,
        "drift": {**asdict(agent.memory.drift), "log_odds": agent.memory.drift.log_odds},
        "place": agent.data.place,
        "time": time_facts(agent.description, agent.data),
        "shows_rows": agent.description.agents[agent.id].show_rows,
        "questions": activity.questions,
        "waiting": requests.waiting,
        "fulfilled": requests.fulfilled,
        "outcome": requests.outcome,
        "views": activity.views,
        "began": activity.began,
        "seconds": time.time() - activity.began,
        "events": agent.log.recent(after),
        "digest": agent.description.digest,
    }


def _summary_of(agent: Agent) -> dict[str, dict[str, float]] | None:
    """What the summary of the fleet has of each agent, by name: how many groups and rows, their bytes, how old."""
    summary, names = agent.memory.summary, agent.description.names
    if summary is None:
        return None
    return {fact: {names[one]: value for one, value in of_agents.items()} for fact, of_agents in summary.facts.items()}


def time_facts(description: Description, data: ObservationStore) -> dict[str, Any] | None:
    """What the agent knows of the input that is the time: its name, its units, and now. None if there is none.

    units: empty where the file has numbers instead of dates: the clock then says nothing, and now is the newest row,
    or None while there is none.
    """
    if description.time is None:
        return None
    units = data.units.get(description.time, "")
    unit = time_unit_of(units)
    place = data.place
    newest = place["high"][description.inputs.index(description.time)] if place else None
    now = newest if unit is None or description.now == "data" else clock(unit)
    return {"input": description.time, "units": units, "now": now}


def shown_rows(agent: Agent) -> dict[str, Any]:
    """The inputs and targets of an agent that shows them: all, or some that are spread over all."""
    if not agent.description.agents[agent.id].show_rows:
        raise InputError(
            f"{agent.name} does not show its rows: `show_rows = true` in its own fleet.toml would allow it"
        )
    data = agent.data.shard
    inputs, targets = data.inputs, data.values
    chosen = np.unique(np.linspace(0, len(targets) - 1, min(len(targets), MOST_ROWS)).round().astype(int))
    return {"inputs": inputs[chosen].tolist(), "targets": targets[chosen].tolist(), "of": len(targets)}


#: Connections for metrics that are served at once; more are closed.
CONNECTIONS = 8
#: Seconds after which such a connection that says nothing is closed.
PATIENCE = 2.0


class _Server(ThreadingHTTPServer):
    """Few threads, however many clients connect. It is on loopback, where a scrape takes milliseconds."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any, log: Log) -> None:
        self._free = threading.Semaphore(CONNECTIONS)
        self._log = log
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """In the log instead of on stderr, whose lines are JSON."""
        error = sys.exc_info()[1]
        self._log.warn("a scrape of the metrics failed", error=f"{type(error).__name__}: {error}")


#: Metrics that are one value of the status: their name, text, key there, and whether they only grow.
SIMPLE = (
    ("rounds", "Rounds of communication", "rounds", True),
    ("questions", "Questions answered together with others", "questions", True),
    ("views", "Memberships the agent worked in", "views", True),
    ("frames_resent", "Frames sent again because both ends waited", "resent", True),
    ("round", "Round of the training under way", "round", False),
    ("observations", "Rows the agent has", "rows", False),
    ("forgotten_observations", "Rows that were forgotten", "forgotten", False),
    ("removed_observations", "Rows that were taken back", "removed", False),
    ("journal_bytes", "Bytes of the file of sent rows", "journal_bytes", False),
    ("new_observations", "Rows that came after the last training", "new_rows", False),
    ("scored_observations", "New rows that were scored with the model", "scored_rows", False),
    ("drift_log_odds", "Logarithm of the odds that theta no longer fits, by this agent's rows", "log_odds", False),
    ("theta_age_seconds", "Seconds since the model was trained", "theta_seconds", False),
    ("disagreement", "Largest difference to a neighbour's log theta", "disagreement", False),
)


class Metrics:
    """Serves /metrics to Prometheus until it is closed. Every scrape reads the agent's state as it is."""

    def __init__(self, agent: Agent, port: int) -> None:
        from prometheus_client import CollectorRegistry, MetricsHandler

        self._agent = agent
        registry = CollectorRegistry()
        registry.register(self)
        handler = type("Scrape", (MetricsHandler,), {"registry": registry, "timeout": PATIENCE})
        try:
            self._server = _Server(("127.0.0.1", port), handler, agent.log)
        except OSError as error:
            raise NetworkError(f"no metrics on port {port}: {error.strerror}") from error
        agent.threads.start("metrics", self._server.serve_forever, wake=self.close)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status, names = status_of(self._agent), self._agent.description.names
        drift, trained, groups = status["drift"], status["trained"] or {}, status["summary"] or {}
        status |= {"scored_rows": drift["rows"], "log_odds": drift["log_odds"], "theta_seconds": trained.get("seconds")}
        for name, text, key, grows in SIMPLE:
            if status[key] is not None:
                family: Any = CounterMetricFamily if grows else GaugeMetricFamily
                yield family(f"fleetgp_{name}", text, value=status[key])
        yield GaugeMetricFamily("fleetgp_members", "Agents in the present membership", value=len(status["members"]))

        def by(family: Any, name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Any:
            metric = family(f"fleetgp_{name}", text, labels=[label])
            for key, value in values:
                metric.add_metric([key], value)
            return metric

        neighbours, sent = status["neighbours"].items(), self._agent.node.links.sent
        bytes_sent = ((name, sent[names.index(name)]) for name, _ in neighbours)
        up = ((name, float(standing == "up")) for name, standing in neighbours)
        phases = ((name, float(name == status["phase"])) for name in PHASES)
        dropped, theta = status["dropped"].items(), status["theta"].items()
        yield by(CounterMetricFamily, "bytes_sent", "Bytes sent", "neighbour", bytes_sent)
        yield by(GaugeMetricFamily, "neighbour_up", "1 for a neighbour one can work with", "neighbour", up)
        yield by(CounterMetricFamily, "frames_dropped", "Messages refused", "reason", dropped)
        yield by(GaugeMetricFamily, "theta", "Hyperparameters, natural units", "parameter", theta)
        ages = groups.get("seconds", {}).items()
        yield by(GaugeMetricFamily, "groups_age_seconds", "Age of an agent's groups, held here", "agent", ages)
        yield by(GaugeMetricFamily, "phase", "1 for what the agent is doing", "phase", phases)

    def close(self) -> None:
        """Safe to call twice."""
        self._server.shutdown()
        self._server.server_close()


#: A longer request is refused.
MAX_REQUEST_BYTES = 8 * 2**20
#: Requests that may wait; the rest is refused.
MOST_REQUESTS = 64
#: Characters of what an asker calls itself.
LONGEST_NAME = 32


class Service:
    """Answers the operator over the agent's own endpoint: one JSON document in, one out.

    The key is fleetgp/RUN/AGENT/operator/VERB; with certificates only the operator's may use it. Requests are served in
    a thread of their own: a long one holds up nobody but other operators.

    stopped: called when the operator ends the agent; None: its own `stop`.
    """

    def __init__(self, agent: Agent, stopped: Callable[[], None] | None = None) -> None:
        self._agent, self._stopped = agent, agent.stop if stopped is None else stopped
        self._key = f"{prefix_of(agent.description.run)}/{agent.id}/{OPERATOR}"
        self._verbs: dict[str, Callable[[dict[str, Any], Reply], None]] = {
            "status": lambda request, reply: reply({"answer": status_of(agent, _count(request.get("after")))}),
            "rows": lambda _, reply: reply({"answer": shown_rows(agent)}),
            "ask": self._ask,
            "observe": lambda request, reply: agent.observe(request.get("rows"), request.get("request"), reply),
            "remove": self._remove,
            "forget": lambda request, reply: agent.forget(request.get("name"), request.get("before"), reply),
            "receipt": lambda request, reply: reply({"answer": agent.receipt(request.get("name"))}),
            "train": self._train,
            "roster": lambda _, reply: reply({"answer": self._roster()}),
            "admit": self._admit,
            "stop": self._stop,
        }
        self._inbox = Inbox()
        agent.threads.start("service", self._work, wake=lambda: self._inbox.put(lambda: None))
        self._queryable = agent.node.links.session.declare_queryable(f"{self._key}/*", self._arrived, complete=True)

    def _arrived(self, query: Any) -> None:
        """In Zenoh's thread: take the request, and have it served elsewhere."""
        verb = str(query.key_expr).rsplit("/", 1)[-1]
        payload = b"" if query.payload is None else bytes(query.payload)

        def reply(document: dict[str, Any]) -> None:
            query.reply(query.key_expr, json.dumps(document).encode())
            query.drop()

        if len(payload) > MAX_REQUEST_BYTES:
            error = f"expected a request of at most {MAX_REQUEST_BYTES} bytes, got {len(payload)}"
            reply({"error": error, "wrong": True})
        elif not self._inbox.put(lambda: self._serve(verb, payload, reply), source="request", most=MOST_REQUESTS):
            reply({"error": f"{self._agent.name} has too many requests waiting: try again later"})

    def _work(self) -> None:
        def failed(error: Exception) -> None:  # the asker is gone, say
            self._agent.log.warn("nobody there to answer", error=f"{type(error).__name__}: {error}")

        self._inbox.serve(self._agent.threads.ending, failed)

    def _serve(self, verb: str, payload: bytes, reply: Reply) -> None:
        try:
            if verb not in self._verbs:
                raise unknown_name("request", verb, self._verbs)
            try:
                request = json.loads(payload or b"{}")
            except (ValueError, RecursionError) as error:
                raise InputError(f"expected a request in JSON: {error}") from error
            if not isinstance(request, dict):
                raise InputError(f"expected a request that is a JSON object, got {shortened(request)}")
            self._check_fleet(verb, request)
            self._verbs[verb](request, reply)
        except FleetGPError as error:
            reply({"error": str(error), "wrong": isinstance(error, InputError)})
        except Exception as error:  # the asker gets an answer, whatever it is
            reply({"error": f"{self._agent.name}: {type(error).__name__}: {error}"})

    def _check_fleet(self, verb: str, request: dict[str, Any]) -> None:
        """Refuse a request that is for another fleet or, where columns or methods matter, by another description."""
        agent, description = self._agent, self._agent.description
        if verb == "stop" and request.get("fleet") != description.name:
            raise InputError(f"{agent.name} belongs to the fleet {description.name!r}, not {request.get('fleet')!r}")
        if verb in ("ask", "observe", "remove", "forget", "train") and request.get("digest") != description.digest:
            why = description.differences(str(request.get("digest")), f"at {agent.name}")
            why = why.replace("it holds", "you hold", 1).replace("or is", "or it is", 1)
            rank = description.rank_in(str(request.get("digest")))
            older = rank is not None and rank < description.roster.rank
            why += ": `fleetgp status` fetches the newer roster" if older else ""
            raise InputError(f"{agent.name} compared its fleet.toml with yours: {why}")

    def _ask(self, request: dict[str, Any], reply: Reply) -> None:
        description = self._agent.description
        method = request.get("method") or description.prediction.method
        if method not in PREDICTORS:
            raise unknown_name("prediction method", method, PREDICTORS)
        description.refuse_private(prediction_method(method))
        try:
            queries = np.array(request["queries"], dtype=float)
            seconds = float(request.get("seconds") or description.timeouts.ask)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"expected a list of queries: {error}") from error
        check_queries(queries, description.dimension)
        if not 0.0 < seconds <= LONGEST_WAIT:
            raise InputError(f"expected seconds above 0 and up to {LONGEST_WAIT:g}, got {seconds}")
        asker = str(request.get("asker") or "")[:LONGEST_NAME]
        question = Question(queries, method)
        self._agent.ask(PendingQuestion(question, seconds, time.monotonic() + seconds, reply, asker=asker))

    def _remove(self, request: dict[str, Any], reply: Reply) -> None:
        which = {name: request.get(name) for name in ("request", "where", "between")}
        self._agent.remove(request.get("name"), reply, **which)

    def _train(self, request: dict[str, Any], reply: Reply) -> None:
        method = request.get("method")
        if method is not None:
            if method not in TRAINERS:
                raise unknown_name("training method", method, TRAINERS)
            self._agent.description.refuse_private(training_method(method))
        reply({"answer": {"training": self._agent.train(TrainRequest(bool(request.get("cold")), method))}})

    def _roster(self) -> dict[str, Any] | None:
        """The roster as it was signed; None where there is only the list in fleet.toml."""
        signed = self._agent.description.signed
        return None if signed is None else document_of(signed)

    def _admit(self, request: dict[str, Any], reply: Reply) -> None:
        self._agent.admission.put(json.dumps(request.get("roster")).encode(), reply)

    def _stop(self, request: dict[str, Any], reply: Reply) -> None:
        reply({"answer": {"agent": self._agent.name}})
        self._stopped()


def _count(given: Any) -> int:
    """The number of the last event that the asker has seen; 0 for one that says none."""
    return given if isinstance(given, int) else 0


#: A certificate with fewer days left is warned about; seconds between two looks at it.
SOON = 30.0
DAY = 86_400.0
#: Seconds until a certificate that could not be read is read again.
RETRY = 60.0
REMEDY = "make another with `fleetgp certs`, and start the agent again"
CLOCK = "if the clock of this machine is wrong, set it; else"


def run_agent(description: Description, name: str, *, log_file: Path | None = None) -> None:
    """Work until SIGTERM, Ctrl-C or `fleetgp down`. Logs go to stderr, or to a file."""
    os.environ.setdefault("FLEETGP_COMPILE", "0")
    description.id_of(name)
    log = Log(name, file=log_file)
    process = _Process(name, log)
    try:
        process.run(description.newest(description.state / name / ROSTER))
    except Exception as error:
        log.error("ended by an error", error=str(error), kind=type(error).__name__)
        raise
    finally:
        log.close()
        if process.hangs:
            # Python would wait for the threads of a session that does not end, and the process would never.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0 if sys.exc_info()[0] is None else 1)


class _Process:
    """The process of one agent, which begins again with each newer roster."""

    def __init__(self, name: str, log: Log) -> None:
        self._name, self._log = name, log
        self._agent: Agent | None = None
        self._ending = False

    @property
    def hangs(self) -> bool:
        """Whether a session did not end."""
        return self._agent is not None and not self._agent.node.left

    def run(self, description: Description) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # A handler interrupts this thread anywhere, also where it holds a lock that `stop` or `Threads` needs.
            signal.signal(number, lambda *_: threading.Thread(target=self.stop, name="stop", daemon=True).start())
        newer: Description | None = description
        while newer is not None and not self._ending:
            if newer.id_of(self._name) not in newer.present and self._agent is not None:
                self._log("left the fleet", roster=newer.roster.version)
                return
            if self.hangs:  # its port is still taken: only another process image frees it
                self._log.warn("begins again", why="the links did not close in time")
                self._log.close()
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
            newer = self._live(newer)

    def stop(self) -> None:
        """End for good."""
        self._ending = True
        if self._agent is not None:
            self._agent.stop()

    def _live(self, description: Description) -> Description | None:
        """Work until the end, or until there is a newer roster, which is returned."""
        own = description.credentials(self._name)
        if own is not None:
            look_at_certificates(own, self._log)
        agent = self._agent = Agent(description, self._name, self._log, self._agent)
        if own is not None:
            agent.threads.start("certificates", lambda: _look_again(own, self._log, agent.threads.ending))
        if self._ending:  # since before there was this agent to stop
            agent.stop()
        return _run(agent, self.stop)


def _run(agent: Agent, stop: Callable[[], None]) -> Description | None:
    """Serve an agent until it ends; the description with a newer roster, if that is why."""
    try:
        port = agent.description.agents[agent.id].metrics
        if port is not None:
            Metrics(agent, port)
        Service(agent, stop)
        agent.run()
    finally:
        agent.close()
    return agent.successor


def look_at_certificates(own: Credentials, log: Log) -> None:
    """Nobody works with an agent whose certificate has expired, and its own log is where one looks for the reason."""
    for file in (own.certificate, own.authority):
        left, ahead = days_left(file), days_ahead(file)
        clock, remedy = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"), f"{CLOCK} {REMEDY}"
        if left <= 0.0:
            log.error("certificate expired", file=str(file), days_ago=round(-left, 1), clock=clock, remedy=remedy)
        elif ahead > 0.0:
            facts = {"file": str(file), "valid_in_days": round(ahead, 1), "clock": clock, "remedy": remedy}
            log.error("certificate is not valid yet", **facts)
        elif left < SOON:
            log.warn("certificate expires soon", file=str(file), days_left=round(left, 1), remedy=REMEDY)


def _look_again(own: Credentials, log: Log, ending: threading.Event) -> None:
    """Once a day, and when a certificate expires: that ends the agent.

    Zenoh closes a link when the certificate of its other end expires, but may let it in again within the same second,
    and then for good. An agent that has ended cannot come back without another certificate. If it does not end, its
    neighbours refuse it (`network.zenoh.session`).
    """
    left = _seconds_left(own)
    while not ending.wait(min(DAY, max(left, 0.0))):
        try:
            look_at_certificates(own, log)
            left = _seconds_left(own)
        except (OSError, InputError) as error:  # it is being replaced, say: there will be another look
            log.warn("a certificate cannot be read", error=str(error))
            left = min(DAY, RETRY)
            continue
        if left <= 0.0:
            raise FleetGPError(f"the certificate of this agent or of its authority has expired: {CLOCK} {REMEDY}")


def _seconds_left(own: Credentials) -> float:
    return 86_400.0 * min(days_left(own.certificate), days_left(own.authority))
