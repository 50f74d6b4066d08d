"""Whether what a peer sent makes sense: checked where it comes in, so that nobody works with nonsense or relays it.

Values are checked here, by their kind of content. Frames are checked in `frames` and `zenoh/network`, the bytes of a
frame in `wire`, records between agents in `agent/records`, `agent/agenda` and `agent/membership/presence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.gp.hyperparameters import LOG_RANGE
from fleetgp.network.wire import Part

#: Larger coordinates and observations are refused everywhere.
LARGEST = 1e100


def is_sound(kind: str, value: NDArray[Any]) -> bool:
    """Whether a value of some kind of content is finite and in range, as far as its kind tells.

    A prediction that diverges and a verdict about it may be infinite or NaN; a maximum over nothing is -inf.

    >>> is_sound("hyperparameters", np.array([0.3, -2.0])), is_sound("hyperparameters", np.array([0.3, 800.0]))
    (True, False)
    >>> is_sound("statistics", np.array([-np.inf])), is_sound("statistics", np.array([np.nan]))
    (True, False)
    """
    if kind == "participants":
        return value.dtype.kind == "u" and value.ndim == 1
    if kind == "agenda":
        return value.dtype == np.uint8 and value.ndim == 1
    if value.dtype != np.float64:
        return False
    if kind == "hyperparameters":
        return bool((np.abs(value) <= LOG_RANGE).all())
    if kind in ("inputs", "observations", "queries"):
        return bool((np.abs(value) <= LARGEST).all())
    if kind == "moments":
        return bool(np.isfinite(value).all())
    return kind != "statistics" or not np.isnan(value).any()


def content(parts: Sequence[Part], kind: str, sender: int, shape: tuple[int, ...]) -> Array:
    """What a message holds of a kind, or one error that says what is wrong with it, and who sent it."""
    arrived = next((part.value for part in parts if part.kind == kind), None)
    if arrived is None or arrived.shape != shape:
        got = "none" if arrived is None else f"an array of shape {arrived.shape}"
        raise NonsenseError(sender, f"expected {kind} of shape {shape}, got {got}")
    if not is_sound(kind, arrived):
        raise NonsenseError(sender, f"{kind} that are not finite, or out of range")
    return arrived


def check_rows(kind: str, senders: Sequence[int] | IntArray, rows: NDArray[Any], shape: tuple[int, ...]) -> None:
    """The same for the rows of several senders, (K, ..), that came together."""
    if rows.shape != shape:
        raise NonsenseError(int(senders[0]), f"expected {kind} of shape {shape}, got an array of shape {rows.shape}")
    if not is_sound(kind, rows):
        wrong = next(k for k, row in enumerate(rows) if not is_sound(kind, row))
        raise NonsenseError(int(senders[wrong]), f"{kind} that are not finite, or out of range")


def check_from_peers(values: Sequence[Array], sound: Callable[[int, Array], bool], expected: str) -> None:
    """A NonsenseError that names the first agent whose value is not as expected; values: of all agents, by id."""
    for agent, value in enumerate(values):
        if not sound(agent, value):
            raise NonsenseError(agent, f"expected {expected}, got an array of shape {value.shape}")
