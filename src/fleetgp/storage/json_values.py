"""Values in JSON: what it cannot hold, and what must be of the kind that it was written as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def to_json(value: float) -> float | None:
    """A number as JSON has it: none for infinity."""
    return float(value) if np.isfinite(value) else None


def from_json(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def typed(facts: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A value of a description, if it is of the kind that it was written as."""
    value = facts[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name}: expected {kind.__name__}, got {value!r:.60}")
    return value
