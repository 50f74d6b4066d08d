"""What is probably not meant among rows that keep coming: each batch is looked at once, and what was seen adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.sketch import WATCHED, Copies
from fleetgp.data.suspicions import told_of_copies
from fleetgp.data.tally import Tally


@dataclass(frozen=True)
class Watched:
    """What the sentences of `told_suspicions` are about, of rows that need not be looked at again."""

    tally: Tally
    copies: Copies
    rows: int

    @classmethod
    def of(cls, inputs: Array, observations: Array) -> Watched:
        numbers = np.column_stack([inputs, observations])
        return cls(Tally.of(numbers), Copies.of(numbers), len(numbers))

    def plus(self, other: Watched) -> Watched:
        """Of both parts."""
        return Watched(self.tally.plus(other.tally), self.copies.plus(other.copies), self.rows + other.rows)

    def told(self, names: Sequence[str]) -> list[str]:
        """The sentences of `told_suspicions`; how many copies there are is an estimate where rows are many.

        >>> X, y = np.arange(12.0).reshape(6, 2), np.array([1.0, 2.0, 3.0, 2.5, 1.5, -9999.0])
        >>> first, last = Watched.of(X[:3], y[:3]), Watched.of(X[3:], y[3:])
        >>> first.told(["a", "b"]), len(first.plus(last).told(["a", "b"]))
        ([], 1)
        """
        copies = self.copies.estimate(self.rows)
        about = "about " if len(self.copies.hashes) == WATCHED else ""
        repeated = [told_of_copies(f"{about}{copies}", self.rows)] if copies else []
        return [*self.tally.suspicions(names), *repeated]
