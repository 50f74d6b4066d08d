"""Compiled inner loops, where they can be had."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


@cache
def compiled_module(name: str) -> ModuleType | None:
    """A module that needs Numba; None where Numba is not there, or does not work here.

    FLEETGP_COMPILE=0 does without: compiling takes seconds and 100 MB, too much for a process with one agent.
    """
    if os.environ.get("FLEETGP_COMPILE") == "0":
        return None
    try:
        return import_module(name)
    except ImportError:
        return None


def jitted(function: Callable[..., Any]) -> Any:
    """A function compiled by Numba when it is first called, without the interpreter lock, and kept on the disk for the
    next process, where there is a place for it: compiling takes seconds.

    Sums may be reordered, so that they use vector instructions. NaN and infinity keep their meaning.
    """
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write
        return njit(**options)(function)
