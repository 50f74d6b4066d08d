"""Maps: at which points the fleet is asked, and how often. Pure.

A map is a question of thousands of points, which travels to all agents, and its answer back. So the page asks as few as
show the field (`Axes.coarse`), finer when the fleet can spare it, and never spends more than a share of the fleet's
time and bytes (`Purse`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray

#: Points along an axis: of a fine map, and of a coarse one at least and at most.
FINE, LEAST, MOST = 100, 8, 40
#: Of a curve, which has one axis.
CURVE = 200
#: The part of the fleet's time and bytes that maps may cost.
SHARE = 0.05
#: Bytes of a point in the fleet, and seconds, before the first map has told.
POINT_BYTES, POINT_SECONDS = 400.0, 1e-4
#: Maps beyond that part that changes of members and models earn at once, and seconds after which they earn another one.
EARNED, EARN = 2, 60.0
#: Digits of an answer's standard deviations that make a 95 % interval.
WIDTH = 1.959963984540054


@dataclass(frozen=True)
class Axes:
    """The box that a map shows, (D,) each: its corners; and the lengths over which the field changes, if known.

    >>> axes = Axes((0.0, 0.0), (2.0, 2.0), (1.0, 0.25))
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
        rows = np.array([point[::-1] for point in itertools.product(*axes[::-1])])
        others = np.broadcast_to(np.asarray(at, dtype=float), (len(rows), len(at)))
        return np.concatenate([rows, others], axis=1)


def axes_of(places: Sequence[Mapping[str, Sequence[float]]], lengths: Sequence[float] = ()) -> Axes | None:
    """The box around the places of all agents; None if nobody has told one. Flat ones are widened a little."""
    if not places:
        return None
    low = np.min([place["low"] for place in places], axis=0)
    high = np.max([place["high"] for place in places], axis=0)
    flat = high - low <= 1e-9 * np.maximum(1.0, np.abs(high))
    low, high = low - 0.5 * flat, high + 0.5 * flat
    return Axes(tuple(low.tolist()), tuple(high.tolist()), tuple(lengths))


@dataclass
class Purse:
    """What maps have cost so far, in seconds and bytes, and when the next one may be.

    The rule: all that was spent, with the next map, is at most a share of all the fleet's time and bytes. The first one
    may always be, since who opens the page wants to see something. When agents come or go, or have a new model, a small
    one may be drawn at once: two of them, then one a minute. They are paid for later.

    >>> purse = Purse(share=0.05)
    >>> purse.wait(points=100, seconds=10.0, total=1e6, rate=0.0)
    0.0
    >>> purse.spend(points=100, seconds=2.0, size=50_000.0)
    >>> purse.wait(points=100, seconds=50.0, total=10e6, rate=0.0)  # 2 + 2 seconds may be spent after 80
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
        self, axes: Axes, seconds: float, total: float, rate: float, *, news: bool, moved: bool
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
class Field:
    """A map: mean and standard deviation of the field, (T,), and where nobody knows better than the prior."""

    axes: Axes
    shape: tuple[int, ...]
    mean: Array
    deviation: Array
    unknown: BoolArray

    @property
    def data(self) -> bytes:
        """float32 means and deviations, then a byte a point: what a browser reads without any parsing."""
        return b"".join(
            [
                self.mean.astype("<f4").tobytes(),
                self.deviation.astype("<f4").tobytes(),
                self.unknown.astype("u1").tobytes(),
            ]
        )

    def told(self) -> dict[str, Any]:
        shown = range(len(self.shape))
        return {
            "shape": list(self.shape),
            "low": [self.axes.low[d] for d in shown],
            "high": [self.axes.high[d] for d in shown],
        }


def deviations(answer: Mapping[str, Any]) -> Array:
    """The standard deviation of the field at each point of an agent's answer."""
    if "std" in answer:
        return np.asarray(answer["std"], dtype=float)
    variances: Array = np.asarray(answer["variance"], dtype=float)
    return np.asarray(np.sqrt(variances))


def field_of(axes: Axes, shape: tuple[int, ...], answer: Mapping[str, Any]) -> Field:
    unknown = np.asarray(answer.get("uninformed", np.zeros(len(answer["mean"]))), dtype=bool)
    return Field(axes, shape, np.asarray(answer["mean"], dtype=float), deviations(answer), unknown)


def told_point(point: Sequence[float], answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of one point: its mean, its 95 % interval, and who had a say."""
    mean, deviation = float(answer["mean"][0]), float(deviations(answer)[0])
    told: dict[str, Any] = {
        "point": list(point),
        "mean": mean,
        "deviation": deviation,
        "low": mean - WIDTH * deviation,
        "high": mean + WIDTH * deviation,
        "unknown": bool(np.any(answer.get("uninformed", False))),
        "took_part": [name for name, points in answer.get("said", {}).items() if points],
        "missing": list(answer.get("missing", [])),
        "method": answer["method"],
        "status": answer["status"],
    }
    if "std_observed" in answer:
        observed = float(answer["std_observed"][0])
        told |= {"observed_low": mean - WIDTH * observed, "observed_high": mean + WIDTH * observed}
    return told
