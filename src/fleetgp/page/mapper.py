"""The page's own questions to a running fleet: when a map is asked for, and what it cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fleetgp.errors import FleetGPError, NetworkError
from fleetgp.page.collector import Collector, Facts
from fleetgp.page.happenings import Heard
from fleetgp.page.maps import Axes, Field, Purse, axes_of, field_of
from fleetgp.page.source import Chosen

#: Seconds between two thoughts about a map, and after one that failed; twice as many after each further one.
THINK, AGAIN, LONGEST = 0.25, 5.0, 120.0
#: Seconds for which nothing may have changed before a map is asked for: agents do not all tell at the same instant.
SETTLE = 2.0
#: Points that are asked at once: other questions come between.
BLOCK = 2_500
#: Seconds to wait for the agents' word on what a map has cost.
COUNT = 3.0


class Asker(Protocol):
    """What a mapper needs of a fleet."""

    facts: Facts
    chosen: Chosen
    collector: Collector

    def heard(self) -> dict[str, Heard]: ...
    def question(self, points: list[list[float]]) -> dict[str, Any]: ...
    def post_map(self, field: Field, about: dict[str, Any]) -> None: ...


class Mapper:
    """Asks for maps in a thread of its own.

    wanted: a viewer wants one now.  purse: what maps may cost.
    """

    def __init__(self, fleet: Asker, share: float) -> None:
        self._fleet, self.purse = fleet, Purse(share)
        self.wanted = threading.Event()
        self._began = time.monotonic()
        self._hellos: tuple[float, float] | None = None
        self._shown: tuple[Any, ...] = ()
        self._seen: tuple[tuple[Any, ...], float] = ((), 0.0)
        self._fine = self._asking = False
        self._problem, self._failures, self._rest = "", 0, 0.0
        self._next: float | None = None

    def told(self) -> dict[str, Any]:
        """What the page says about maps to come. stale: why the one that is shown is old."""
        total = self._fleet.collector.all_bytes
        told: dict[str, Any] = {
            "asking": self._asking,
            "problem": self._problem,
            "stale": self._stale(self._key(self._fleet.heard())),
            "share": self.purse.share,
            "cost": self.purse.shares(time.monotonic() - self._began, total),
        }
        if self._next is not None and np.isfinite(self._next):
            told["next"] = round(self._next)
        return told

    def run(self, ending: threading.Event) -> None:
        while not ending.wait(THINK):
            try:
                self.think()
            except Exception as error:  # whatever an agent answers, the page goes on and says so
                self._failures += 1
                self._problem = str(error) if isinstance(error, FleetGPError) else f"{type(error).__name__}: {error}"
                self._rest = time.monotonic() + min(LONGEST, AGAIN * 2 ** (self._failures - 1))
            finally:
                self._asking = False

    def think(self) -> None:
        """Ask for a map, if there is reason to and the fleet can spare it."""
        heard = self._fleet.heard()
        states = [one.state for one in heard.values() if not one.trouble]
        if not any(state.get("trained") for state in states):
            return
        key, now = self._key(heard), time.monotonic()
        axes = self._axes(heard)
        if axes is None:
            self._problem = "no agent tells where its measurements are: they are of an older version of FleetGP"
            return
        insisted = self.wanted.is_set()
        if key != self._seen[0]:
            self._seen = key, now
        news = key != self._shown
        learning = any(state.get("phase") == "training" for state in states)
        early = now < max(self._rest, self._seen[1] + SETTLE)
        if not insisted and (early or (learning and self._shown) or (not news and self._fine)):
            self._next = None
            return
        seconds, total = now - self._began, self._fleet.collector.all_bytes
        moved = bool(self._shown) and key[:2] != self._shown[:2]
        shape, wait, earned = self.purse.plan(axes, seconds, total, self._rate(), news=news, moved=moved)
        if insisted:
            shape, earned = axes.coarse if news else axes.fine, False
        elif wait > 0.0:
            self._next = time.time() + wait
            return
        self.wanted.clear()
        self._draw(axes, shape, key)
        if earned:
            self.purse.take_earned(seconds)

    def _key(self, heard: Mapping[str, Heard]) -> tuple[Any, ...]:
        """What a map depends on: members, models, rows, and what viewers chose."""
        states = {name: one.state for name, one in heard.items() if not one.trouble}
        models = sorted({(state.get("trained") or {}).get("id", 0) for state in states.values()})
        rows = sum(state.get("rows", 0) for state in states.values())
        return tuple(states), tuple(models), rows, self._fleet.chosen

    def _stale(self, key: tuple[Any, ...]) -> str:
        if not self._shown or key == self._shown:
            return ""
        (_, models, rows, chosen), (_, old_models, old_rows, old_chosen) = key, self._shown
        if chosen != old_chosen:
            return "it is of another choice"
        if models != old_models:
            return "there is a new model"
        return "there are new measurements" if rows > old_rows else "others are there now"

    def _axes(self, heard: Mapping[str, Heard]) -> Axes | None:
        """The box of all that anybody has told; its lengths, where the kernel has one for each input."""
        places = [one.state["place"] for one in heard.values() if one.state.get("place")]
        theta: dict[str, float] = next((one.state["theta"] for one in heard.values() if one.state.get("theta")), {})
        lengths = [theta.get(f"l_{name}") for name in self._fleet.facts.inputs]
        same_units = not self._fleet.facts.length_unit
        known = [float(length) for length in lengths if length is not None] if same_units else []
        return axes_of(places, known if len(known) == len(lengths) else ())

    def _rate(self) -> float:
        """Bytes a second that the fleet sends when it is left alone: its hellos."""
        collector, now = self._fleet.collector, time.monotonic()
        hellos = collector.all_bytes - collector.frames
        if self._hellos is None:
            self._hellos = now, hellos
        since, before = self._hellos
        return (hellos - before) / (now - since) if now - since > 1.0 else 0.0

    def _draw(self, axes: Axes, shape: tuple[int, ...], key: tuple[Any, ...]) -> None:
        self._asking, self._next = True, None
        fleet = self._fleet
        at = fleet.chosen.at or tuple(0.5 * (a + b) for a, b in zip(axes.low[2:], axes.high[2:], strict=True))
        points = axes.points(shape, at)
        before, began = fleet.collector.frames, time.monotonic()
        answers = [fleet.question(points[start : start + BLOCK].tolist()) for start in range(0, len(points), BLOCK)]
        took = time.monotonic() - began
        if len({tuple(answer["theta"]) for answer in answers}) > 1:
            raise NetworkError("the fleet learned something in between: the map is asked for again")
        whole: dict[str, Any] = {
            name: np.concatenate([answer[name] for answer in answers])
            for name in ("mean", "std", "variance", "uninformed")
            if name in answers[0]
        }
        self.purse.spend(len(points), took, self._cost(before, answers))
        last = answers[-1]
        about = {
            "agent": last["agent"],
            "method": last["method"],
            "t": round(time.time(), 1),
            "at": list(at),
            "took_part": [name for name in last["members"] if any(answer["said"].get(name) for answer in answers)],
            "missing": last["missing"],
            "fine": shape == axes.fine,
        }
        fleet.post_map(field_of(axes, shape, whole), about)
        self._shown, self._fine, self._problem, self._failures = key, shape == axes.fine, "", 0

    def _cost(self, before: float, answers: list[dict[str, Any]]) -> float:
        """Bytes that the fleet has sent since, as soon as all have told; whatever else it sent then counts, too.

        Nor is it less than what the asked agent says that it sent itself.
        """
        asked, deadline = time.time(), time.monotonic() + COUNT
        while time.monotonic() < deadline:
            if all(one.trouble or one.at > asked for one in self._fleet.heard().values()):
                break
            time.sleep(0.05)
        time.sleep(THINK)  # the collector counts with the next picture
        told = float(sum(answer.get("bytes_sent", 0) for answer in answers))
        return max(told, self._fleet.collector.frames - before)
