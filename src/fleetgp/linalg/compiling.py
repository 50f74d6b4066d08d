"""Compiled inner loops, where they can be had."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType


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
