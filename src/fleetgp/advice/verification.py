"""What `verify` answers with: a row for each check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from fleetgp.errors import unknown_name
from fleetgp.io.formats import pandas_for

Verdict = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Check:
    """name: what was checked.  measured, limit: it passes if what was measured is at most the limit; None where it was
    not applicable.  meaning: what it says, in one sentence.  telling: whether that is worth reading if it passed, too.

    >>> Check.of("agents agree", 0.1, 0.01, "They differ.").verdict
    'failed'
    """

    name: str
    verdict: Verdict
    measured: float | None
    limit: float | None
    meaning: str
    telling: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, name: str, measured: float, limit: float, meaning: str, *, telling: bool = False) -> Check:
        """What is no number fails."""
        verdict: Verdict = "passed" if measured <= limit else "failed"
        return cls(name, verdict, float(measured), float(limit), meaning, telling)

    @property
    def facts(self) -> dict[str, Any]:
        """For programs."""
        return {name: value for name, value in asdict(self).items() if name != "telling"}

    @classmethod
    def idle(cls, name: str, why: str) -> Check:
        """Not applicable, and why."""
        return cls(name, "not applicable", None, None, why)


@dataclass(frozen=True)
class Verification:
    """checks: what was checked, each with a verdict.  sampled: sentences about what they were made on. Print it.

    >>> from fleetgp import Fleet, partition, synthetic_field, verify
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = verify(fleet, methods=["dec-rbcm"])
    >>> found["dec-rbcm: agents agree"].verdict, found["training converged"].verdict
    ('passed', 'not applicable')
    >>> found.to_frame().columns.tolist()
    ['name', 'verdict', 'measured', 'limit', 'meaning']
    """

    checks: tuple[Check, ...]
    sampled: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether none has failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that have."""
        return tuple(check for check in self.checks if check.verdict == "failed")

    def __getitem__(self, name: str) -> Check:
        """A check by its name; an InputError that has all of them for another."""
        for check in self.checks:
            if isinstance(name, str) and check.name == name:
                return check
        raise unknown_name("check", name, [check.name for check in self.checks])

    @property
    def facts(self) -> dict[str, Any]:
        """For programs: plain numbers, texts and lists."""
        return {
            "passed": self.passed,
            "checks": [check.facts for check in self.checks],
            "sampled": list(self.sampled),
        }

    def to_frame(self) -> Any:
        """The checks as a pandas DataFrame, with the columns name, verdict, measured, limit and meaning."""
        return pandas_for("to_frame").DataFrame([check.facts for check in self.checks])

    def __str__(self) -> str:
        rows = [[check.name, check.verdict, told(check.measured), told(check.limit)] for check in self.checks]
        table = aligned(["check", "verdict", "measured", "at most"], rows, left=2)
        return "\n".join([table, "", *self.sentences])

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is to be said beside the table, the last line of how many passed."""
        told = [check for check in self.checks if check.verdict != "passed" or check.telling]
        return (*(f"{check.name}: {check.meaning}" for check in told), *self.sampled, self._counts)

    @property
    def _counts(self) -> str:
        """How many there are of each verdict, in a sentence."""
        number = {word: sum(check.verdict == word for check in self.checks) for word in get_args(Verdict)}
        idle = f", {number['not applicable']} not applicable" if number["not applicable"] else ""
        if self.failed:
            return f"{number['failed']} of {len(self.checks)} checks failed, {number['passed']} passed{idle}."
        return f"All {number['passed']} checks passed{idle}."


def told(number: float | None) -> str:
    """For people.

    >>> told(None), told(0.0), told(1.23456e-9), told(0.05)
    ('', '0', '1.2e-09', '0.05')
    """
    return "" if number is None else f"{number:.2g}"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns below each other; the first `left` ones begin at the left, the others end at the right.

    >>> print(aligned(["method", "bytes"], [["dec-poe", "12"], ["dec-npae", "3456"]]))
    method    bytes
    dec-poe      12
    dec-npae   3456
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return "\n".join(line.rstrip() for line in lines)
