"""Maps of a running fleet: at which points it is asked, and when.

A map is a question of thousands of points, which travels to all agents, and its answer back. So the page asks as few as
show the field (`MapAxes.coarse`), finer when the fleet can spare it, and never spends more than a share of the fleet's
time and bytes (`MapBudget`). The `Mapper` decides when to ask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.times import format_time
from fleetgp.errors import FleetGPError, NetworkError
from fleetgp.page.events import Contact

if TYPE_CHECKING:
    from fleetgp.page.watch import Watch

#: Points along an axis: of a fine map, and of a coarse one at least and at most.
FINE, LEAST, MOST = 100, 8, 40
#: Of a curve, which has one axis.
CURVE = 200
#: The part of the fleet's time and bytes that maps may cost.
SHARE = 0.05
#: Bytes and seconds of a point, before the first map was measured.
POINT_BYTES, POINT_SECONDS = 400.0, 1e-4
#: Maps beyond that part that changes of members and models earn at once, and seconds after which they earn another one.
EARNED, EARN = 2, 60.0
#: Half the width of a 95% interval, in standard deviations.
WIDTH = 1.959963984540054


@dataclass(frozen=True)
class MapAxes:
    """The box that a map shows, (D,) each: its corners; and the lengths over which the field changes, if known.

    >>> axes = MapAxes((0.0, 0.0), (2.0, 2.0), (1.0, 0.25))
    >>> axes.coarse, axes.fine
    ((8, 17), (100, 100))
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    lengths: tuple[float, ...] = ()

    @property
    def fine(self) -> tuple[int, ...]:
        return (CURVE,) if len(self.low) == 1 else (FINE, FINE)

    @property
    def coarse(self) -> tuple[int, ...]:
        """Two points in each length, between which a smooth curve shows the field; the first two inputs' alone."""
        shown = range(min(2, len(self.low)))
        if not self.lengths:
            return tuple(2 * LEAST for _ in shown)
        steps = (2.0 * (self.high[d] - self.low[d]) / self.lengths[d] for d in shown)
        return tuple(int(np.clip(np.ceil(step) + 1, LEAST, MOST)) for step in steps)

    @property
    def small(self) -> tuple[int, ...]:
        """A coarse map that is cheap enough to be drawn at once."""
        return tuple(min(count, 2 * LEAST) for count in self.coarse)

    def points(self, shape: Sequence[int], at: Sequence[float]) -> Array:
        """All points of a map, (T, D), the first input fastest. at: the values of the inputs after the second."""
        axes = [np.linspace(self.low[d], self.high[d], count) for d, count in enumerate(shape)]
        shown = [grid.ravel(order="F") for grid in np.meshgrid(*axes, indexing="ij")]
        return np.stack([*shown, *(np.full(len(shown[0]), value) for value in at)], axis=1)


def axes_of(places: Sequence[Mapping[str, Sequence[float]]], lengths: Sequence[float] = ()) -> MapAxes | None:
    """The box around the places of all agents, or None if none is known. A flat box is widened a little."""
    if not places:
        return None
    low = np.min([place["low"] for place in places], axis=0)
    high = np.max([place["high"] for place in places], axis=0)
    flat = high - low <= 1e-9 * np.maximum(1.0, np.abs(high))
    low, high = low - 0.5 * flat, high + 0.5 * flat
    return MapAxes(tuple(low.tolist()), tuple(high.tolist()), tuple(lengths))


def values_at(
    axes: MapAxes, inputs: Sequence[str], chosen: Sequence[float], times: Sequence[Mapping[str, Any]]
) -> tuple[tuple[float, ...], str]:
    """Return the values of the inputs after the second, and the time of the map in words.

    chosen: by the viewers; without it the time is now, and others are in the middle of the data.
    times: what agents know of the time; those without rows may not know what is now. Without any, or with the time
        along an axis of the map, there are no words.

    >>> time = {"input": "day", "units": "days since 1970-01-01", "now": 18632.5}
    >>> values_at(MapAxes((0.0, 0.0, 18628.0), (1.0, 1.0, 18632.0)), ("lon", "lat", "day"), (), [{"now": None}, time])
    ((18632.5,), '2021-01-05 12:00 UTC')
    """
    at = list(chosen or [0.5 * (low + high) for low, high in zip(axes.low[2:], axes.high[2:], strict=True)])
    time = max((one for one in times if one["now"] is not None), key=lambda one: float(one["now"]), default=None)
    if time is None or time["input"] not in inputs[2:]:
        return tuple(at), ""
    number = list(inputs[2:]).index(time["input"])
    if not chosen:
        at[number] = float(time["now"])
    return tuple(at), format_time(at[number], time["units"])


@dataclass
class MapBudget:
    """What maps have cost so far, in seconds and bytes, and when the next one is allowed.

    The cost of all maps, the next one included, is at most a share of the fleet's time and bytes. The first map is
    always allowed, so that a new viewer sees something. When agents come or go, or have a new model, a
    small one is allowed at once: two of them, then one a minute. They are paid for later.

    >>> budget = MapBudget(share=0.05)
    >>> budget.wait(points=100, seconds=10.0, total=1e6, rate=0.0)
    0.0
    >>> budget.spend(points=100, seconds=2.0, size=50_000.0)
    >>> budget.wait(points=100, seconds=50.0, total=10e6, rate=0.0)  # 2 + 2 seconds may be spent after 80
    30.0
    """

    share: float = SHARE
    seconds: float = 0.0
    bytes: float = 0.0
    per_point: tuple[float, float] = field(default=(POINT_SECONDS, POINT_BYTES))
    maps: int = 0
    earned: tuple[float, float] = (float(EARNED), 0.0)

    def spend(self, points: int, seconds: float, size: float) -> None:
        self.seconds += seconds
        self.bytes += size
        self.maps += 1
        self.per_point = seconds / points, size / points

    def wait(self, points: int, seconds: float, total: float, rate: float) -> float:
        """Seconds until a map of so many points may be asked. seconds, total: the fleet's time and bytes so far.

        rate: bytes a second that the fleet sends when it is left alone.
        """
        if not self.maps:
            return 0.0
        time, size = (cost * points for cost in self.per_point)
        late = (self.seconds + time) / self.share - seconds
        lacking = (self.bytes + size) / self.share - total
        slow = lacking / rate if rate > 0.0 else float("inf") if lacking > 0.0 else 0.0
        return max(0.0, late, slow if lacking > 0.0 else 0.0)

    def plan(
        self, axes: MapAxes, seconds: float, total: float, rate: float, *, news: bool, moved: bool
    ) -> tuple[tuple[int, ...], float, bool]:
        """The shape of the next map, seconds until it may be asked, and whether it is an earned one.

        news: the map that is shown is old.  moved: because of other members or another model.
        """
        shape = axes.coarse if news else axes.fine
        wait = self.wait(int(np.prod(shape)), seconds, total, rate)
        spare = self._spare(seconds)
        soon = max(0.0, (1.0 - spare) * EARN)
        return (axes.small, soon, True) if moved and soon < wait else (shape, wait, False)

    def take_earned(self, seconds: float) -> None:
        """One of the earned maps was drawn."""
        self.earned = self._spare(seconds) - 1.0, seconds

    def _spare(self, seconds: float) -> float:
        spare, since = self.earned
        return min(float(EARNED), spare + (seconds - since) / EARN)

    def shares(self, seconds: float, total: float) -> dict[str, float]:
        return {"time": self.seconds / max(seconds, 1e-9), "bytes": self.bytes / max(total, 1.0)}


@dataclass(frozen=True)
class MapField:
    """A map: mean and standard deviation of the field, (T,), and where the answer is only the prior."""

    axes: MapAxes
    shape: tuple[int, ...]
    mean: Array
    deviation: Array
    unknown: BoolArray

    @property
    def data(self) -> bytes:
        """float32 means and standard deviations, then a byte per point, which a browser reads without any parsing."""
        return b"".join(
            values.astype(kind).tobytes()
            for values, kind in ((self.mean, "<f4"), (self.deviation, "<f4"), (self.unknown, "u1"))
        )

    def as_dict(self) -> dict[str, Any]:
        count = len(self.shape)
        return {"shape": list(self.shape), "low": list(self.axes.low[:count]), "high": list(self.axes.high[:count])}


def deviations(answer: Mapping[str, Any]) -> Array:
    """The standard deviation of the field at each point of an agent's answer."""
    return np.asarray(np.sqrt(np.asarray(answer["variance"], dtype=float)))


def field_of(axes: MapAxes, shape: tuple[int, ...], answer: Mapping[str, Any]) -> MapField:
    mean, unknown = np.asarray(answer["mean"], dtype=float), np.asarray(answer["prior_only"], dtype=bool)
    return MapField(axes, shape, mean, deviations(answer), unknown)


def point_facts(point: Sequence[float], answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of one point: mean, 95% interval, and who took part."""
    mean, deviation = float(answer["mean"][0]), float(deviations(answer)[0])
    facts: dict[str, Any] = {
        "point": list(point),
        "mean": mean,
        "deviation": deviation,
        "low": mean - WIDTH * deviation,
        "high": mean + WIDTH * deviation,
        "unknown": bool(answer["prior_only"][0]),
        "took_part": [name for name, points in answer["said"].items() if points],
        "missing": list(answer["missing"]),
        "method": answer["method"],
        "status": answer["status"],
    }
    if "std_observed" in answer:
        observed = float(answer["std_observed"][0])
        facts |= {"observed_low": mean - WIDTH * observed, "observed_high": mean + WIDTH * observed}
    return facts


# ---- when to ask ----------------------------------------------------------------------------------------------

#: Seconds between two checks whether a map is due, and after a failure; the latter doubles up to the longest.
CHECK, RETRY, LONGEST = 0.25, 5.0, 120.0
#: Seconds for which nothing may have changed before a map is asked for: agents do not all report at the same instant.
SETTLE = 2.0
#: Points of one question: other questions come between.
BLOCK = 2_500
#: Seconds to wait until all agents have reported what a map has cost.
COUNT = 3.0


class Mapper:
    """Asks a fleet for maps, in a thread of its own.

    wanted: a viewer wants one now.  budget: what maps may cost.
    """

    def __init__(self, fleet: Watch, share: float) -> None:
        self._fleet, self.budget = fleet, MapBudget(share)
        self.wanted = threading.Event()
        self._began = time.monotonic()
        self._hellos: tuple[float, float] | None = None
        self._shown: tuple[Any, ...] = ()
        self._seen: tuple[tuple[Any, ...], float] = ((), 0.0)
        self._fine = self._asking = False
        self._problem, self._failures, self._rest = "", 0, 0.0
        self._next: float | None = None

    def facts(self) -> dict[str, Any]:
        """What the page shows about the next map. stale: why the present one is old."""
        facts: dict[str, Any] = {
            "asking": self._asking,
            "problem": self._problem,
            "stale": self._stale(self._key(self._fleet.contacts())),
            "share": self.budget.share,
            "cost": self.budget.shares(time.monotonic() - self._began, self._fleet.collector.all_bytes),
        }
        if self._next is not None and np.isfinite(self._next):
            facts["next"] = round(self._next)
        return facts

    def run(self, ending: threading.Event) -> None:
        while not ending.wait(CHECK):
            try:
                self.check()
            except Exception as error:  # whatever an agent answers, the page continues and shows it
                self._failures += 1
                self._problem = str(error) if isinstance(error, FleetGPError) else f"{type(error).__name__}: {error}"
                self._rest = time.monotonic() + min(LONGEST, RETRY * 2 ** (self._failures - 1))
            finally:
                self._asking = False

    def check(self) -> None:
        """Ask for a map if there is a reason and the fleet can spare it."""
        contacts = self._fleet.contacts()
        states = [one.state for one in contacts.values() if not one.trouble]
        if not any(state.get("trained") for state in states):
            return
        key, now = self._key(contacts), time.monotonic()
        axes = self._axes(contacts)
        if axes is None:
            self._problem = "no agent reports where its measurements are: they run an older version of FleetGP"
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
        shape, wait, earned = self.budget.plan(axes, seconds, total, self._rate(), news=news, moved=moved)
        if insisted:
            shape, earned = axes.coarse if news else axes.fine, False
        elif wait > 0.0:
            self._next = time.time() + wait
            return
        self.wanted.clear()
        self._draw(axes, shape, key)
        if earned:
            self.budget.take_earned(seconds)

    def _key(self, contacts: Mapping[str, Contact]) -> tuple[Any, ...]:
        """What a map depends on: members, models, rows, and what viewers chose."""
        states = {name: one.state for name, one in contacts.items() if not one.trouble}
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

    def _axes(self, contacts: Mapping[str, Contact]) -> MapAxes | None:
        """The box of all known places; its lengths, where the kernel has one for each input."""
        places = [one.state["place"] for one in contacts.values() if one.state.get("place")]
        theta: dict[str, float] = next((one.state["theta"] for one in contacts.values() if one.state.get("theta")), {})
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

    def _draw(self, axes: MapAxes, shape: tuple[int, ...], key: tuple[Any, ...]) -> None:
        self._asking, self._next = True, None
        fleet = self._fleet
        times = [one.state["time"] for one in fleet.contacts().values() if not one.trouble and one.state.get("time")]
        at, moment = values_at(axes, fleet.facts.inputs, fleet.chosen.at, times)
        points = axes.points(shape, at)
        before, began = fleet.collector.frames, time.monotonic()
        answers = [fleet.question(points[start : start + BLOCK].tolist()) for start in range(0, len(points), BLOCK)]
        took = time.monotonic() - began
        if len({tuple(answer["theta"]) for answer in answers}) > 1:
            raise NetworkError("the fleet learned something in between: the map is asked for again")
        whole: dict[str, Any] = {
            name: np.concatenate([answer[name] for answer in answers]) for name in ("mean", "variance", "prior_only")
        }
        self.budget.spend(len(points), took, self._cost(before, answers))
        last = answers[-1]
        about = {
            "agent": last["agent"],
            "method": last["method"],
            "t": round(time.time(), 1),
            "at": list(at),
            "took_part": [name for name in last["members"] if any(answer["said"].get(name) for answer in answers)],
            "missing": last["missing"],
            "fine": shape == axes.fine,
            **({"time": moment} if moment else {}),
        }
        fleet.post_map(field_of(axes, shape, whole), about)
        self._shown, self._fine, self._problem, self._failures = key, shape == axes.fine, "", 0

    def _cost(self, before: float, answers: list[dict[str, Any]]) -> float:
        """Bytes that the fleet has sent since, once all agents have reported; other traffic of that time counts, too.

        It is at least what the agent that was asked sent itself.
        """
        asked, deadline = time.time(), time.monotonic() + COUNT
        while time.monotonic() < deadline:
            if all(one.trouble or one.at > asked for one in self._fleet.contacts().values()):
                break
            time.sleep(0.05)
        time.sleep(CHECK)  # the collector counts with the next picture
        sent = float(sum(answer.get("bytes_sent", 0) for answer in answers))
        return max(sent, self._fleet.collector.frames - before)
