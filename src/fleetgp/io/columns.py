"""Which columns of a file are read, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetgp.io.formats import Reading


@dataclass(frozen=True)
class Columns:
    """By their names. fill: values that stand for nothing.  judged: whether a value may look like one.

    reading: what a CSV file does not say of itself.
    """

    inputs: tuple[str, ...]
    target: str
    agent: str | None = None
    fill: tuple[float, ...] = ()
    judged: bool = True
    reading: Reading = field(default_factory=Reading)

    @property
    def numbers(self) -> tuple[str, ...]:
        return *self.inputs, self.target

    @property
    def all(self) -> tuple[str, ...]:
        return *self.numbers, *([self.agent] if self.agent else [])
