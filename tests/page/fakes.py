"""A fleet that is only told of: what a page shows of it is what a test says."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fleetgp.page.collector import Collector, FleetFacts
from fleetgp.page.events import Contact
from fleetgp.page.maps import MapAxes, MapField, point_facts
from fleetgp.page.source import PageSource

METHODS = ("dec-nn-grbcm", "dec-rbcm")


def applied(state: Any, patch: Any) -> Any:
    """What a patch makes of a state.

    >>> applied({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 4}, "a": None})
    {'b': {'c': 2, 'd': 4}}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


def facts_of(names: list[str], edges: list[tuple[str, str]], inputs: tuple[str, ...] = ("x", "y")) -> FleetFacts:
    return FleetFacts("test", tuple(names), tuple(edges), inputs, "temperature", METHODS, METHODS[0])


def status(name: str, neighbours: dict[str, str], **other: Any) -> dict[str, Any]:
    """What an agent tells, as far as a page looks at it."""
    number = int("".join(c for c in name if c.isdigit()) or 0)
    x, y = 0.1 + (number % 6) / 6.0, 0.1 + (number // 6) / 6.0
    return {
        "agent": name,
        "phase": "serving",
        "problem": "",
        "round": 0,
        "members": [name, *neighbours],
        "theta": {"l_x": 1.2, "l_y": 0.3, "sigma_f": 1.0, "sigma_eps": 0.1},
        "disagreement": 0.0,
        "trained": {"id": 7, "by": [name, *neighbours], "method": "dec-fact-gp", "status": "converged", "rounds": 9},
        "neighbours": neighbours,
        "bytes": 3000,
        "overhead": 1000,
        "sent": dict.fromkeys(neighbours, 1500),
        "kinds": {"statistics": 1500, "framing": 500},
        "rows": 100,
        "new_rows": 0,
        "place": {"low": [x - 0.1, y - 0.1], "high": [x + 0.1, y + 0.1], "centre": [x, y]},
        "began": 1.0,
        "events": [],
        **other,
    }


def grid_edges(names: list[str], columns: int = 6) -> list[tuple[str, str]]:
    """Neighbours in rows and columns."""
    beside = [(a, b) for k, (a, b) in enumerate(itertools.pairwise(names)) if (k + 1) % columns]
    return beside + list(zip(names, names[columns:], strict=False))


class FakeFleet(PageSource):
    """So many agents in rows of six. contacts: what is known of each, for a test to change before `tell`."""

    def __init__(self, agents: int = 30, inputs: tuple[str, ...] = ("x", "y")) -> None:
        names = [f"boat{k}" for k in range(agents)]
        edges = grid_edges(names)
        super().__init__(facts_of(names, edges, inputs))
        self.collector = Collector(self.facts)
        self.now, self.asked, self.trained, self.renewed = 1000.0, [], 0, 0  # type: ignore[var-annotated]
        self.contacts = {
            name: Contact(status(name, dict.fromkeys(self.facts.neighbours(name), "up")), self.now, "", self.now)
            for name in names
        }

    def tell(self, seconds: float = 1.0) -> None:
        self.now += seconds
        picture = self.collector.take(self.contacts, self.now)
        self.post(
            {**picture, "maps": {"asking": False, "problem": "", "stale": "", "cost": {"time": 0.0, "bytes": 0.0}}}
        )

    def draw(self, shape: tuple[int, ...] = (100, 100), shift: float = 0.0) -> None:
        """Another map."""
        axes = MapAxes((0.0,) * len(self.facts.inputs), (1.1,) * len(self.facts.inputs))
        points = axes.points(shape, (0.5,) * (len(self.facts.inputs) - len(shape)))
        mean = np.sin(6.0 * points[:, 0] + shift) + points[:, -1]
        deviation, unknown = 0.1 + 0.1 * points[:, 0], points[:, 0] > 1.0
        about = {"agent": "boat0", "method": METHODS[0], "t": self.now, "missing": [], "at": [], "fine": True}
        self.post_map(MapField(axes, shape, mean, deviation, unknown), about)

    def _ask(self, point: tuple[float, ...]) -> dict[str, Any]:
        self.asked.append((point, self.chosen))
        answer = {
            "mean": [sum(point)],
            "variance": [0.04],
            "prior_only": [False],
            "said": {"boat0": 1, "boat1": 0},
            "missing": [],
            "method": self.chosen.method,
            "status": "converged",
        }
        return {**point_facts(point, answer), "agent": "boat0"}

    def renew(self) -> None:
        self.renewed += 1

    def train(self) -> dict[str, Any]:
        self.trained += 1
        return {"agent": "boat0"}

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass
