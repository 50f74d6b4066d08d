"""When to stop: a verdict that all agents reach in the same round, without asking anybody.

- `Maximin` (Yadav & Salapaka): max- and min-consensus of the watched values ride along with the messages in
  windows of diam(G) rounds. At the end of a window every agent holds the fleet's extremes at its start, so
  all agents judge alike and stop together. One agent that sees no change proves nothing. Trainers have one window
  after the other, because penalties learn from them; averages rest in between (`batch.Spaced`).
- `Settled`: for methods that flood, where every agent sees everyone's value anyway.
- `Unwatched`: never a verdict; for a fixed number of rounds.

None of them changes in place: `update` returns the state of one round later. The driver (`iterate.drive`) asks the
recursion whether a verdict ends it (`ends`). Trainers with a central node judge at that node: `training/admm.py`,
`training/central.py`.

A training also ends when its time is up: each agent looks at its own clock, and the first flag ends it for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.network import Clock, Network

#: Relative changes below this are rounding, not movement.
ROUNDING = 1e-14
#: A spread is judged relative to the values now plus this share of those at the start: an average may be near zero.
FIRST_SHARE = 1e-6
#: The kind under which watched values are sent.
KIND = "stopping"
#: The name in `Watch.largest` under which an agent sends a 1 when its time is up.
LATE = "late"

#: From the best to the worst.
Status = Literal["converged", "round limit", "time limit", "diverged"]


@dataclass(frozen=True)
class Watch:
    """What an agent lets the fleet judge: values that must agree, and values that must be small.

    agree: (A, ..., K).  small: (A, ..., K'), not negative.  Leading axes after A are judged one by one.
    largest: by name, (A, ..., K''), not judged: their maxima over the fleet come back with the verdict.
    """

    agree: Array
    small: Array | None = None
    largest: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """residual: how far from agreement; infinite: too early to say; NaN: somebody diverged.

    (A, ...) from `Maximin`, one copy per hosted agent; (...) from `Settled`.
    largest: the fleet's maxima of `Watch.largest`, by name.
    late: whether somebody's time is up, which ends it for all.
    highest: (A, ..., K) the fleet's maxima of what must agree, from `Maximin`: the same bits at every agent.
    """

    residual: Array
    tol: float
    largest: Mapping[str, Array] = field(default_factory=dict)
    late: bool = False
    highest: Array | None = None

    @property
    def converged(self) -> BoolArray:
        return np.asarray((self.residual <= self.tol) & (self.tol > 0.0))

    @property
    def diverged(self) -> BoolArray:
        return np.isnan(self.residual)

    @property
    def status(self) -> Status:
        """Of everything that was judged, the worst."""
        if self.diverged.any():
            return "diverged"
        if self.converged.all():
            return "converged"
        return "time limit" if self.late else "round limit"


class Edges(Protocol):
    """The edges of a round: `Incoming`, or `CellLinks` for many items."""

    def reduce(self, operation: np.ufunc, values: Array, empty: float) -> Array: ...


@dataclass(frozen=True)
class Maximin:
    """Stop when the fleet's extremes are within tol of each other, relatively or absolutely."""

    length: int
    tol: float
    relative: bool = True

    def open(self, watch: Watch) -> Window:
        """Start the first window, from the values of this round."""
        return Window.of(self, watch, None)


@dataclass(frozen=True)
class Window:
    """diam(G) rounds of max-consensus: at the end every agent knows the largest and smallest values at the start.

    carried: the sections (a, -a, small, largest) in one array. The maxima of a and -a are the fleet's largest and
    smallest a.  widths: of the sections, by name.  first_scale: the magnitudes in the first window.
    """

    rule: Maximin
    carried: Array
    widths: Mapping[str, int]
    first_scale: Array | None
    age: int = 0

    @classmethod
    def of(cls, rule: Maximin, watch: Watch, first_scale: Array | None) -> Window:
        small = watch.agree[..., :0] if watch.small is None else watch.small
        sections = {"upper": watch.agree, "lower": -watch.agree, "small": small, **watch.largest}
        widths = {name: section.shape[-1] for name, section in sections.items()}
        return cls(rule, np.concatenate(list(sections.values()), axis=-1), widths, first_scale)

    @property
    def parts(self) -> dict[str, Array]:
        """What is to be sent in this round."""
        return {KIND: self.carried}

    def update(self, received: Mapping[str, Array], edges: Edges) -> Window:
        """One round later."""
        largest = np.maximum(self.carried, edges.reduce(np.maximum, received[KIND], -np.inf))
        return replace(self, carried=largest, age=self.age + 1)

    @property
    def verdict(self) -> Verdict | None:
        """None before the last round of the window."""
        if self.age < max(self.rule.length, 1):
            return None
        sections = self._sections()
        upper, lower, small = sections.pop("upper"), -sections.pop("lower"), sections.pop("small")
        spread = upper - lower
        if self.rule.relative:
            magnitude = self._magnitude()
            scale = magnitude + FIRST_SHARE * (magnitude if self.first_scale is None else self.first_scale)
            spread = spread / np.where(scale == 0.0, 1.0, scale)
        # A NaN wins over any number in max and maximum: all notice who diverges.
        residual = np.concatenate([spread, small], axis=-1).max(axis=-1, initial=0.0)
        late = LATE in sections and bool(sections.pop(LATE).any())
        return Verdict(residual, self.rule.tol, sections, late, upper)

    def reopen(self, watch: Watch, keep: BoolArray | slice = slice(None)) -> Window:
        """The next window, from the values of this round; keep: of what axis 0 ran over, what goes on."""
        first_scale = self._magnitude() if self.first_scale is None else self.first_scale
        return Window.of(self.rule, watch, first_scale[keep])

    def _sections(self) -> dict[str, Array]:
        ends = np.cumsum(list(self.widths.values()))[:-1]
        return dict(zip(self.widths, np.split(self.carried, ends, axis=-1), strict=True))

    def _magnitude(self) -> Array:
        sections = self._sections()
        return np.asarray(np.maximum(np.abs(sections["upper"]), np.abs(sections["lower"])))


@dataclass(frozen=True)
class Unwatched:
    """Nothing is sent, nothing is judged: it runs for exactly as many rounds as it is given."""

    verdict: None = None

    def open(self, watch: Watch) -> Unwatched:
        return self

    @property
    def parts(self) -> dict[str, Array]:
        return {}

    def update(self, received: Mapping[str, Array], edges: Edges) -> Unwatched:
        return self

    def reopen(self, watch: Watch, keep: BoolArray | slice = slice(None)) -> Unwatched:
        return self


UNWATCHED = Unwatched()


@dataclass(frozen=True)
class Settled:
    """Stops a flooded iteration when a geometric tail bound says that little is left to change.

    With D_s the largest change between the last two iterates and q the largest of the last three ratios
    D_s / D_(s-1), what is still to come is about D_s q / (1 - q). Small steps alone prove nothing: near a
    contraction of 1 they go on for ever.

    last: (M, ..., K) everyone's values, the same at every agent.  changes: the last four D_s, (...).
    """

    tol: float
    last: Array | None = None
    changes: tuple[Array, ...] = ()

    def update(self, values: Array) -> Settled:
        """One iteration later. Leading axes after the first are judged one by one."""
        if self.last is None:
            return replace(self, last=values)
        change = np.abs(values - self.last).max(axis=(0, values.ndim - 1), initial=0.0)
        return replace(self, last=values, changes=(*self.changes[-3:], change))

    def narrow(self, keep: BoolArray) -> Settled:
        """Go on with some of the items on axis 1."""
        last = None if self.last is None else self.last[:, keep]
        return replace(self, last=last, changes=tuple(change[keep] for change in self.changes))

    @property
    def verdict(self) -> Verdict | None:
        """None before there is a change to judge, and for ever with tol = 0."""
        if self.last is None or not self.changes or self.tol == 0.0:
            return None
        scale = np.abs(self.last).max(axis=(0, self.last.ndim - 1), initial=0.0)
        steps = np.stack(self.changes)
        still = steps[-1] <= ROUNDING * scale
        ratio = np.full_like(scale, np.inf)
        if len(steps) == 4:
            ratio = (steps[1:] / np.where(steps[:-1] == 0.0, np.inf, steps[:-1])).max(axis=0)
        shrinking = np.where(ratio < 1.0, ratio, 0.0)
        tail = np.where(ratio < 1.0, np.maximum(shrinking / (1.0 - shrinking), 1.0), np.inf)
        residual = steps[-1] / np.where(scale == 0.0, 1.0, scale) * np.where(still, 1.0, tail)
        return Verdict(np.where(np.isfinite(scale), residual, np.nan), self.tol)


@dataclass(frozen=True)
class Deadline:
    """at: on a clock; None for never."""

    at: float | None = None
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def after(cls, seconds: float | None, clock: Clock) -> Deadline:
        """So many seconds from the beginning of this work.

        >>> [Deadline.after(seconds, Clock()).passed for seconds in (0.0, 3600.0, None)]
        [True, False, False]
        """
        return cls(None if seconds is None else clock.began + seconds, clock)

    @property
    def given(self) -> bool:
        """Whether there is one."""
        return self.at is not None

    @property
    def passed(self) -> bool:
        return self.at is not None and self.clock.passed(self.at)

    def passed_at_centre(self, network: Network) -> bool:
        """On the clock of the central node, which alone counts where there is one."""
        return self.given and bool(network.at_centre(np.array([float(self.passed)]))[0])


NEVER = Deadline()
