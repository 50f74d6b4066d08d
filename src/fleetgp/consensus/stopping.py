"""When to stop: a verdict that all agents reach in the same round, without asking anybody.

- `Maximin` (Yadav & Salapaka): max- and min-consensus of the watched values ride along with the messages in
  windows of diam(G) rounds. At the end of a window every agent holds the fleet's extremes at its start, so
  all agents judge alike and stop together. One agent that sees no change proves nothing.
- `Settled`: for methods that flood, where every agent sees everyone's value anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleetgp.arrays import Array, BoolArray

#: Relative changes below this are rounding, not movement.
ROUNDING = 1e-14

Status = Literal["converged", "round limit", "diverged"]


@dataclass(frozen=True)
class Watch:
    """What an agent lets the fleet judge: values that must agree, and values that must be small.

    agree: (A, ..., K).  small: (A, ..., K'), not negative.  Leading axes after A are judged one by one.
    largest: (A, ..., K'') is not judged: its maximum over the fleet comes back with the verdict.
    """

    agree: Array
    small: Array | None = None
    largest: Array | None = None


@dataclass(frozen=True)
class Verdict:
    """residual: how far from agreement; infinite: too early to say; NaN: somebody diverged.

    (A, ...) from `Maximin`, one copy per hosted agent; (...) from `Settled`.
    """

    residual: Array
    tol: float
    largest: Array | None = None

    @property
    def converged(self) -> BoolArray:
        return np.asarray((self.residual <= self.tol) & (self.tol > 0.0))

    @property
    def diverged(self) -> BoolArray:
        return np.isnan(self.residual)


class Maximin:
    """The state machine behind maximin stopping; everything it sends is a max-consensus.

    carried = (a, -a, r, ..): the maxima of a and -a are the fleet's largest and smallest a. The spread is
    judged relative to the largest magnitude now (plus 1e-6 of the one at the start, for averages near
    zero), or absolutely with `relative=False`.
    """

    def __init__(self, window: int, tol: float, *, relative: bool = True) -> None:
        self.window = max(window, 1)
        self.tol = tol
        self.relative = relative
        self._age = 0
        self._first_scale: Array | None = None
        self._agreeing = 0
        self._informing = 0
        self.carried = np.empty(0)

    def open(self, watch: Watch) -> None:
        """Start a window from the values of this round."""
        sections = [watch.agree, -watch.agree]
        sections += [part for part in (watch.small, watch.largest) if part is not None]
        self._agreeing = watch.agree.shape[-1]
        self._informing = 0 if watch.largest is None else watch.largest.shape[-1]
        self.carried = np.concatenate(sections, axis=-1)
        self._age = 0

    def narrow(self, keep: BoolArray) -> None:
        """Go on with some of what axis 0 runs over, between windows."""
        if self._first_scale is not None:
            self._first_scale = self._first_scale[keep]

    def hear(self, neighbours_max: Array) -> Verdict | None:
        """Take in one round; a verdict when the window is full."""
        self.carried = np.maximum(self.carried, neighbours_max)
        self._age += 1
        return self._verdict() if self._age == self.window else None

    def _verdict(self) -> Verdict:
        own, k = self.carried, self._agreeing
        judged = own.shape[-1] - self._informing
        upper, lower, small = own[..., :k], -own[..., k : 2 * k], own[..., 2 * k : judged]
        spread = upper - lower
        if self.relative:
            magnitude = np.maximum(np.abs(upper), np.abs(lower))
            if self._first_scale is None:
                self._first_scale = magnitude
            scale = magnitude + 1e-6 * self._first_scale
            spread = spread / np.where(scale == 0.0, 1.0, scale)
        # A NaN wins over any number in max and maximum: whoever diverges is heard by all.
        residual = np.concatenate([spread, small], axis=-1).max(axis=-1, initial=0.0)
        return Verdict(residual, self.tol, own[..., judged:] if self._informing else None)


class Settled:
    """Stops a flooded iteration when a geometric tail bound says that little is left to change.

    With D_s the largest change between the last two iterates and q the largest of the last three ratios
    D_s / D_(s-1), what is still to come is about D_s q / (1 - q). Small steps alone prove nothing: near a
    contraction of 1 they go on for ever.
    """

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self._last: Array | None = None
        self._changes: list[Array] = []

    def narrow(self, keep: BoolArray) -> None:
        """Go on with some of the items on axis 1."""
        self._last = None if self._last is None else self._last[:, keep]
        self._changes = [change[keep] for change in self._changes]

    def hear(self, values: Array) -> Verdict | None:
        """values: (M, ..., K), everyone's, the same at every agent. Leading axes are judged one by one."""
        last, self._last = self._last, values
        if last is None:
            return None
        axes = (0, values.ndim - 1)
        scale = np.abs(values).max(axis=axes, initial=0.0)
        self._changes = [*self._changes[-3:], np.abs(values - last).max(axis=axes, initial=0.0)]
        steps = np.stack(self._changes)
        still = steps[-1] <= ROUNDING * scale
        ratio = np.full_like(scale, np.inf)
        if len(steps) == 4:
            ratio = (steps[1:] / np.where(steps[:-1] == 0.0, np.inf, steps[:-1])).max(axis=0)
        shrinking = np.where(ratio < 1.0, ratio, 0.0)
        tail = np.where(ratio < 1.0, np.maximum(shrinking / (1.0 - shrinking), 1.0), np.inf)
        residual = steps[-1] / np.where(scale == 0.0, 1.0, scale) * np.where(still, 1.0, tail)
        return Verdict(np.where(np.isfinite(scale), residual, np.nan), self.tol)
