"""What a page shows and what its viewers may do, for a fleet of processes and for the simulator alike."""

from __future__ import annotations

import abc
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetgp.errors import InputError, NetworkError, shortened, unknown_name
from fleetgp.page.collector import FleetFacts
from fleetgp.page.maps import MapField

#: Questions of viewers that may be under way at once.
MOST_ASKED = 4
#: The agent that is asked where the viewer has chosen none.
ANY = ""


@dataclass(frozen=True)
class ViewerChoice:
    """What viewers chose. agent: whom to ask, or ANY.  at: the values of the inputs after the second, or ()."""

    agent: str
    method: str
    at: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"agent": self.agent, "method": self.method, "at": list(self.at)}


class PageSource(abc.ABC):
    """A fleet that a page shows. Any thread may call it.

    facts: what does not change.  version: grows with each picture.  chosen: by the viewers.
    """

    def __init__(self, facts: FleetFacts) -> None:
        self.facts = facts
        self.chosen = ViewerChoice(ANY, facts.method)
        self.version = 0
        self._picture: dict[str, Any] = {}
        self._map: tuple[int, MapField | None, dict[str, Any]] = (0, None, {})
        self._lock = threading.Lock()
        self._asking = threading.BoundedSemaphore(MOST_ASKED)
        self.post({"fleet": facts.as_dict(), "sentence": "", "tone": "busy", "agents": {}, "maps": {}})

    # ---- what is shown --------------------------------------------------------------------------------------

    def picture(self) -> tuple[int, dict[str, Any]]:
        """The version and the last picture, which is replaced, never changed."""
        with self._lock:
            return self.version, self._picture

    def field(self, version: int) -> bytes | None:
        """The numbers of a map, if it is the one that is shown."""
        with self._lock:
            number, field, _ = self._map
        return field.data if field is not None and number == version else None

    def rows(self) -> dict[str, Any]:
        """The rows of agents that show them, by name."""
        return {}

    def post(self, picture: dict[str, Any]) -> None:
        """Show another picture, with the present map and choices."""
        with self._lock:
            number, field, about = self._map
            shown = {} if field is None else {"version": number, **field.as_dict(), **about}
            self._picture = {**picture, "map": shown, "chosen": self.chosen.as_dict()}
            self.version += 1

    def post_map(self, field: MapField, about: dict[str, Any]) -> None:
        with self._lock:
            self._map = self._map[0] + 1, field, about

    # ---- what viewers may do --------------------------------------------------------------------------------

    def choose(self, given: Mapping[str, Any]) -> None:
        """agent, method, at: each that is given."""
        chosen = self.chosen
        if "agent" in given:
            if given["agent"] not in (ANY, *self.facts.names):
                raise unknown_name("agent", shortened(given["agent"]), self.facts.names)
            chosen = replace(chosen, agent=given["agent"])
        if "method" in given:
            if given["method"] not in self.facts.methods:
                raise unknown_name("prediction method", shortened(given["method"]), self.facts.methods)
            chosen = replace(chosen, method=given["method"])
        if "at" in given:
            chosen = replace(chosen, at=numbers(given["at"], max(0, len(self.facts.inputs) - 2)))
        self.chosen = chosen

    def ask(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer at a point, for all its inputs."""
        point = numbers(given.get("point"), len(self.facts.inputs))
        if not self._asking.acquire(blocking=False):
            raise NetworkError(f"{MOST_ASKED} questions are under way: ask again when they are answered")
        try:
            return self._ask(point)
        finally:
            self._asking.release()

    @abc.abstractmethod
    def _ask(self, point: tuple[float, ...]) -> dict[str, Any]: ...

    @abc.abstractmethod
    def renew(self) -> None:
        """Ask for a new map now, whatever it costs."""

    @abc.abstractmethod
    def train(self) -> dict[str, Any]:
        """Have the fleet train again."""

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None:
        """End all threads. Safe to call twice."""


def numbers(given: Any, count: int) -> tuple[float, ...]:
    """So many finite numbers, or one clear error.

    >>> numbers([1, 2.5], 2)
    (1.0, 2.5)
    """
    good = isinstance(given, list | tuple) and len(given) == count
    if good and all(isinstance(value, int | float) and math.isfinite(value) for value in given):
        return tuple(float(value) for value in given)
    raise InputError(f"expected {count} finite numbers, got {shortened(given)}")
