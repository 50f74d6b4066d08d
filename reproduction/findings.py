"""A claim of the paper, held against numbers: the verdict follows from checks, each a number and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """A number that must lie strictly below its limit, or, if `above`, strictly above it."""

    what: str
    value: float
    limit: float
    above: bool = False

    @property
    def margin(self) -> float:
        """The distance from the limit, relative to it (unless it is 0); positive where the check holds.

        >>> below("error", 0.75, 1.0).margin, above("error", 0.75, 1.0).margin
        (0.25, -0.25)
        """
        distance = self.value - self.limit if self.above else self.limit - self.value
        return distance / (abs(self.limit) or 1.0)

    @property
    def holds(self) -> bool:
        """False for a number that is not one."""
        return self.margin > 0.0

    def as_dict(self) -> dict[str, Any]:
        wanted = "above" if self.above else "below"
        return {"what": self.what, "value": self.value, wanted: self.limit, "margin": self.margin}


def below(what: str, value: float, limit: float) -> Check:
    return Check(what, float(value), float(limit))


def above(what: str, value: float, limit: float) -> Check:
    return Check(what, float(value), float(limit), above=True)


@dataclass(frozen=True)
class Finding:
    """A claim, what we see, and the checks that decide.

    It agrees where all checks hold. Otherwise it agrees in part where all of the `core` hold, or, if the claim has no
    core, where any check holds.
    """

    claim: str
    seen: str
    checks: Sequence[Check]
    core: Sequence[Check] = ()

    @property
    def verdict(self) -> str:
        """One of "agrees", "in part" and "differs"."""
        if all(check.holds for check in (*self.core, *self.checks)):
            return "agrees"
        partly = all(check.holds for check in self.core) if self.core else any(check.holds for check in self.checks)
        return "in part" if partly else "differs"

    @property
    def margin(self) -> float:
        """How far, relative to its limit, the number is that lies closest to one."""
        return min(abs(check.margin) for check in (*self.core, *self.checks))

    def as_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "seen": self.seen,
            "margin": self.margin,
            "core": [check.as_dict() for check in self.core],
            "checks": [check.as_dict() for check in self.checks],
        }
