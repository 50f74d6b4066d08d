"""The simulator on the same page: a fleet in this process, whose agents report what processes would report."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import FleetGPError, NetworkError
from fleetgp.fleet.privacy import PREDICTOR
from fleetgp.graph import Topology
from fleetgp.network import Ledger
from fleetgp.page.collector import Collector, FleetFacts
from fleetgp.page.events import PAGE, Contact
from fleetgp.page.maps import MapAxes, axes_of, field_of, point_facts
from fleetgp.page.source import ANY, PageSource
from fleetgp.progress import Progress

METHODS = tuple(name for name in fg.PREDICTION_METHODS if name.startswith("dec-"))
#: Seconds between two pictures, and points along an axis of a map.
TICK, SIDE = 0.25, 60
#: An agent's last events that are kept, and rows of an agent that are shown.
EVENTS, MOST_ROWS = 16, 500
#: An agent takes part in a point if it explains this share of the variance there.
ETA = 0.3


class Simulated(PageSource):
    """Trains a fleet in this process, round by round, and maps its field.

    shards: what `Fleet` takes; the agents' names are agent1, agent2, ...  method: of training.
    """

    def __init__(
        self, shards: list[Any], graph: str | Topology, inputs: tuple[str, ...], target: str, method: str
    ) -> None:
        names = tuple(f"agent{k + 1}" for k in range(len(shards)))
        self.fleet = fg.Fleet(shards, graph, inputs=list(inputs), kernel="se", normalize=False)
        edges = tuple((names[a], names[b]) for a, b in self.fleet.graph.union.edges.tolist())
        facts = FleetFacts("demo", names, edges, inputs, target, METHODS, PREDICTOR, simulated=True)
        super().__init__(facts)
        self.shards, self._method = shards, method
        self._collector = Collector(facts)
        self._wanted, self._renewed, self._ending = threading.Event(), threading.Event(), threading.Event()
        self._wanted.set()
        self._working = threading.Lock()
        self._phase, self._round, self._trained, self._problem = "starting", 0, 0, ""
        self._thetas: Array = np.zeros((0, 0))
        self._sent: Counter[tuple[int, int]] = Counter()
        self._kinds: dict[int, Counter[str]] = {k: Counter() for k in range(len(shards))}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._count, self._began = 0, time.time()
        self._shown: tuple[Any, ...] = ()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for work in (self._work, self._tick):
            thread = threading.Thread(target=work, daemon=True, name="page simulator")
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(5.0)

    def renew(self) -> None:
        self._renewed.set()

    def train(self) -> dict[str, Any]:
        self._wanted.set()
        return {"agent": self.facts.names[0]}

    def rows(self) -> dict[str, Any]:
        rows = {}
        for name, (inputs, targets, *_) in zip(self.facts.names, self.shards, strict=True):
            kept = slice(None, None, max(1, len(targets) // MOST_ROWS))
            rows[name] = {"inputs": inputs[kept].tolist(), "targets": targets[kept].tolist(), "of": len(targets)}
        return rows

    # ---- work -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ending.wait(0.05):
            try:
                if self._wanted.is_set():
                    self._wanted.clear()
                    self._learn()
                chosen = (self._trained, self.chosen)
                if self._trained and (self._renewed.is_set() or chosen != self._shown):
                    self._renewed.clear()
                    self._draw()
                    self._shown = chosen
                self._problem = ""
            except FleetGPError as error:
                self._problem, self._shown = str(error), (self._trained, self.chosen)
            except KeyboardInterrupt:  # the page is closed in the midst of a training
                return
            self._phase = "serving" if self._trained else "failed"

    def _learn(self) -> None:
        def listener(progress: Progress) -> None:
            if self._ending.is_set():
                raise KeyboardInterrupt
            if progress.thetas is not None:
                self._thetas, self._round = progress.thetas, progress.round

        self._phase, self._round = "training", 0
        with self._working:
            fit = self.fleet.train(self._method, theta0=fg.PAPER_THETA0, progress=listener)
        self._thetas, self._trained = fit.thetas, self._trained + 1
        self._book(fit.ledger)

    def _draw(self) -> None:
        self._phase = "predicting"
        places = [self._place(k) for k in range(len(self.shards))]
        axes = axes_of(places) or MapAxes((0.0,), (1.0,))
        shape = axes.fine if len(axes.low) == 1 else (SIDE, SIDE)
        at = self.chosen.at or tuple(0.5 * (a + b) for a, b in zip(axes.low[2:], axes.high[2:], strict=True))
        answer = self._answer(axes.points(shape, at))
        about = {"agent": answer["agent"], "method": answer["method"], "t": time.time(), "at": list(at)}
        self.post_map(field_of(axes, shape, answer), {**about, "missing": [], "fine": True})

    def _ask(self, point: tuple[float, ...]) -> dict[str, Any]:
        if not self._trained:
            raise NetworkError("the fleet has no model yet: wait until it has learned one")
        answer = self._answer(np.array([point]))
        said = [name for name, points in answer["said"].items() if points]
        self._count += 1
        self._events.append(
            {"number": self._count, "time": time.time(), "event": "answered", "asker": PAGE, "queries": 1}
            | {"method": answer["method"], "took_part": said, "missing": [], "rounds": answer["rounds"]}
        )
        return {**point_facts(point, answer), "agent": answer["agent"]}

    def _answer(self, points: Array) -> dict[str, Any]:
        """What an agent would answer, and which one was asked."""
        names, chosen = self.facts.names, self.chosen
        asked = 0 if chosen.agent == ANY else names.index(chosen.agent)
        eta = ETA if chosen.method.startswith("dec-nn-") else None
        with self._working:
            answer = self.fleet.predict(points, chosen.method, agent=asked, eta=eta)
        self._book(answer.ledger)
        return {
            "mean": answer.mean,
            "variance": answer.variance,
            "prior_only": answer.prior_only,
            "said": dict(zip(names, answer.participants.sum(axis=1).tolist(), strict=True)),
            "missing": [],
            "method": answer.method,
            "status": answer.status,
            "rounds": answer.rounds,
            "agent": names[asked],
        }

    def _book(self, ledger: Ledger) -> None:
        self._sent.update({edge: traffic.bytes for edge, traffic in ledger.by_edge().items()})
        for agent, kinds in self._kinds.items():
            kinds.update({kind: traffic.bytes for kind, traffic in ledger.sent_by(agent).items()})

    # ---- what the agents report -----------------------------------------------------------------------------

    def _tick(self) -> None:
        while not self._ending.wait(TICK):
            now = time.time()
            contacts = {name: Contact(self._status(k), now, "", self._began) for k, name in enumerate(self.facts.names)}
            picture = self._collector.take(contacts, now)
            self.post(
                {**picture, "maps": {"asking": self._phase == "predicting", "problem": self._problem, "stale": ""}}
            )

    def _place(self, agent: int) -> dict[str, list[float]]:
        inputs = self.shards[agent][0]
        corners = {"low": inputs.min(axis=0), "high": inputs.max(axis=0), "centre": inputs.mean(axis=0)}
        return {name: values.tolist() for name, values in corners.items()}

    def _status(self, agent: int) -> dict[str, Any]:
        names, thetas, own = self.facts.names, self._thetas, self.facts.names[agent]
        neighbours = self.facts.neighbours(own)
        logs = np.log(thetas) if len(thetas) else thetas
        others = [names.index(name) for name in neighbours]
        spread = float(np.abs(logs[others] - logs[agent]).max()) if len(logs) and others else 0.0
        trained = {"id": self._trained, "by": list(names), "method": self._method, "status": "converged"}
        sent = {names[r]: size for (s, r), size in list(self._sent.items()) if s == agent}
        return {
            "agent": own,
            "phase": self._phase,
            "round": self._round,
            "theta": dict(zip(self.fleet.names, thetas[agent].tolist(), strict=True)) if len(thetas) else {},
            "disagreement": spread,
            "trained": {**trained, "rounds": self._round} if self._trained else None,
            "members": list(names),
            "neighbours": dict.fromkeys(neighbours, "up"),
            "bytes": sum(sent.values()),
            "sent": sent,
            "kinds": dict(self._kinds[agent]),
            "rows": len(self.shards[agent][1]),
            "place": self._place(agent),
            "shows_rows": True,
            "began": self._began,
            "events": list(self._events) if agent == 0 else [],
        }


def demo_fleet(points: int = 2000, seed: int = 1, agents: int = 10) -> Simulated:
    """The fleet of `fleetgp demo`: agents on a path share the paper's field. It trains by the paper's rounds."""
    field = fg.synthetic_field(points, seed=seed)
    shards = fg.partition(field.inputs, field.observations, agents=agents, by="grid")
    return Simulated(list(shards), "places", ("x", "y"), "value", "dec-apx-gp")
