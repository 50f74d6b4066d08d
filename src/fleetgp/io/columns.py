"""Which columns of a file are read, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetgp.io.formats import Reading


@dataclass(frozen=True)
class Columns:
    """By their names. fill: values that stand for nothing.  judged: whether a value may look like one.

    reading: what a file does not say of itself.
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


@dataclass(frozen=True)
class Part:
    """What a reader gives. values: by column.  empty: cells that hold nothing.  units: by column.

    notes: what was done to the values.
    """

    values: dict[str, Any]
    empty: int = 0
    units: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
