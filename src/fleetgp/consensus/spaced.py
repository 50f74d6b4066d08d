"""Windows of max-consensus with rests between them, in which only the content travels.

Whoever averages sends what is judged as the content of every round. So in the first round of a window the extremes are
those of the messages themselves, and words are needed in the others only: 2 numbers beside each number of content. The
first window brings the magnitudes at the start as well, one number more, in all of its rounds. Before each window the
agents rest for three times as many rounds as it will send numbers beside each number of content: words about stopping
are then less than a quarter of what has been sent, whenever one looks.

When a window opens follows from the number of rounds: nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.stopping import KIND, Maximin, Reducing, Verdict, Watch, Window

#: Rounds of rest for each number that a window sends beside a number of content.
REST = 3
#: The section of the first window with the magnitudes at the start.
START = "start"


@dataclass(frozen=True)
class Spaced:
    """Between two rounds of a recursion whose messages, of a kind, are what must agree.

    start: (C, K) the magnitudes at the start, each cell's own before the first verdict, then (agreed) the fleet's.
    age: rounds since the last verdict.  window: None while they rest.
    """

    rule: Maximin
    kind: str
    start: Array
    agreed: bool = False
    age: int = 0
    window: Window | None = None

    @classmethod
    def of(cls, rule: Maximin, kind: str, values: Array) -> Spaced:
        """Before the first round, with the values (C, K) at the start."""
        return cls(rule, kind, np.abs(values))

    @property
    def due(self) -> bool:
        """Whether a window opens with the next round."""
        length = max(self.rule.length, 1)
        words = 2 * (length - 1) + (0 if self.agreed else length)
        return self.age == REST * words

    def opened(self, values: Array) -> Spaced:
        """With a window about the values (C, K) of this round."""
        if self.agreed:
            return replace(self, window=Window.of(self.rule, Watch(values), self.start))
        return replace(self, window=Window.of(self.rule, Watch(values, largest={START: self.start}), None))

    @property
    def parts(self) -> dict[str, Array]:
        """What is to be sent in this round beside the content."""
        if self.window is None:
            return {}
        if self.window.age:
            return self.window.parts
        return {} if self.agreed else {KIND: self.start}

    def heard(self, received: Mapping[str, Array], edges: Reducing) -> Spaced:
        """One round later."""
        if self.window is None:
            return replace(self, age=self.age + 1)
        if not self.window.age:
            content = received[self.kind]
            values = content.reshape(len(content), self.start.shape[1])
            words = [] if self.agreed else [received[KIND]]
            received = {KIND: np.concatenate([values, -values, *words], axis=-1)}
        return replace(self, age=self.age + 1, window=self.window.heard(received, edges))

    @property
    def verdict(self) -> Verdict | None:
        """About the values with which the window opened; None in other rounds than its last."""
        found = None if self.window is None else self.window.verdict
        if self.window is None or found is None or self.agreed:
            return found
        return replace(self.window, first_scale=found.largest[START]).verdict

    def rested(self, verdict: Verdict, keep: BoolArray) -> Spaced:
        """After a verdict, the next rest; keep: of the cells, those that go on."""
        start = self.start if self.agreed else verdict.largest[START]
        return Spaced(self.rule, self.kind, start[keep], agreed=True)
