"""What an agent does when it is asked from outside, over its own endpoint: one JSON document in, one out.

The key is fleetgp/RUN/AGENT/operator/VERB; with certificates only the operator's may use it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgp.agent.agent import Agent
from fleetgp.agent.description import PREDICTORS, TRAINERS
from fleetgp.agent.description.description import LONGEST_WAIT
from fleetgp.agent.metrics import shown_rows, status_of
from fleetgp.agent.requests import Asked, Question, Wish, check_queries
from fleetgp.agent.threads import Inbox
from fleetgp.errors import FleetGPError, InputError, shortened, unknown_name
from fleetgp.network.zenoh.session import OPERATOR, prefix_of
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method

#: A longer request is refused.
MAX_REQUEST_BYTES = 8 * 2**20
#: Requests that may wait; the rest is refused.
MOST_REQUESTS = 64
#: Characters of what an asker calls itself.
LONGEST_NAME = 32

Reply = Callable[[dict[str, Any]], None]


class Service:
    """Listens for requests, and does them in a thread of its own: a long one holds up nobody but other operators."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._key = f"{prefix_of(agent.description.run)}/{agent.id}/{OPERATOR}"
        self._verbs: dict[str, Callable[[dict[str, Any], Reply], None]] = {
            "status": lambda request, reply: reply({"answer": status_of(agent, _count(request.get("after")))}),
            "rows": lambda _, reply: reply({"answer": shown_rows(agent)}),
            "ask": self._ask,
            "observe": self._observe,
            "train": self._train,
            "stop": self._stop,
        }
        self._inbox = Inbox()
        agent.threads.start("service", self._work, wake=lambda: self._inbox.put(lambda: None))
        self._queryable = agent.node.links.session.declare_queryable(f"{self._key}/*", self._came, complete=True)

    def _came(self, query: Any) -> None:
        """In Zenoh's thread: take the request, and have it done elsewhere."""
        verb = str(query.key_expr).rsplit("/", 1)[-1]
        payload = b"" if query.payload is None else bytes(query.payload)

        def reply(told: dict[str, Any]) -> None:
            query.reply(query.key_expr, json.dumps(told).encode())
            query.drop()

        if len(payload) > MAX_REQUEST_BYTES:
            reply(
                {"error": f"expected a request of at most {MAX_REQUEST_BYTES} bytes, got {len(payload)}", "wrong": True}
            )
        elif not self._inbox.put(lambda: self._do(verb, payload, reply), source="request", most=MOST_REQUESTS):
            reply({"error": f"{self._agent.name} has too many requests waiting: try again later"})

    def _work(self) -> None:
        while not self._agent.threads.ending.is_set():
            action = self._inbox.get(1.0)
            try:
                if action is not None:
                    action()
            except Exception as error:  # the asker is gone, say
                self._agent.log.warn("nobody there to answer", error=f"{type(error).__name__}: {error}")

    def _do(self, verb: str, payload: bytes, reply: Reply) -> None:
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
        except Exception as error:  # the asker is told, whatever it is
            reply({"error": f"{self._agent.name}: {type(error).__name__}: {error}"})

    def _check_fleet(self, verb: str, request: dict[str, Any]) -> None:
        """Whoever asks must mean this fleet, and for what goes by columns or methods, have the same description."""
        agent = self._agent
        if verb == "stop" and request.get("fleet") != agent.description.name:
            raise InputError(
                f"{agent.name} belongs to the fleet {agent.description.name!r}, not {request.get('fleet')!r}"
            )
        if verb in ("ask", "observe", "train") and request.get("digest") != agent.description.digest:
            why = agent.description.differences(str(request.get("digest")), f"at {agent.name}").replace(
                "it holds", "you hold", 1
            )
            raise InputError(f"{agent.name} compared its fleet.toml with yours: {why.replace('or is', 'or it is', 1)}")

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
        question = Question(queries, method)
        asker = str(request.get("asker") or "")[:LONGEST_NAME]
        self._agent.ask(Asked(question, seconds, time.monotonic() + seconds, reply, asker=asker))

    def _observe(self, request: dict[str, Any], reply: Reply) -> None:
        self._agent.observe(request.get("rows"), request.get("request"), reply)

    def _train(self, request: dict[str, Any], reply: Reply) -> None:
        method = request.get("method")
        if method is not None and method not in TRAINERS:
            raise unknown_name("training method", method, TRAINERS)
        if method is not None:
            self._agent.description.refuse_private(training_method(method))
        reply({"answer": {"wish": self._agent.wish(Wish(bool(request.get("cold")), method))}})

    def _stop(self, request: dict[str, Any], reply: Reply) -> None:
        reply({"answer": {"agent": self._agent.name}})
        self._agent.stop()


def _count(given: Any) -> int:
    """The number of the last event that the asker has heard of; 0 for one that says none."""
    return given if isinstance(given, int) else 0
