"""Recordings of all configurations, and what is different between two of them."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

import numpy as np
import scipy

from tests.same.configurations import CONFIGURATIONS, run
from tests.same.records import decoded, difference, encoded


def environment() -> dict[str, str]:
    names = ("FLEETGP_COMPILE", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NUMBA_CPU_NAME")
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return {**versions, "machine": platform.node(), **{name: os.environ.get(name, "") for name in names}}


def recorded(only: list[str]) -> dict[str, Any]:
    """The records of all configurations, or of those whose names have one of these texts in them."""
    result: dict[str, Any] = {}
    chosen = [name for name in CONFIGURATIONS if not only or any(part in name for part in only)]
    for number, name in enumerate(chosen, 1):
        began = time.perf_counter()
        try:
            result[name] = encoded(run(name))
        except Exception as error:  # of a configuration: the others go on, and it is in the record
            result[name] = {"error": f"{type(error).__name__}: {error}"}
        failed = f"  {result[name]['error']}" if "error" in result[name] else ""
        print(f"{number:4}/{len(chosen)}  {time.perf_counter() - began:6.2f} s  {name}{failed}", flush=True)
    return {"environment": environment(), "records": result}


def compared(old: dict[str, Any], new: dict[str, Any], all_of_old: bool) -> bool:
    """Print a line for each configuration that differs, and a summary; return whether there was none."""
    for name in sorted(old["environment"].keys() | new["environment"].keys()):
        before, after = (each["environment"].get(name) for each in (old, new))
        if before != after:
            print(f"other {name}: {before!r} -> {after!r}")
    names = [name for name in old["records"] if all_of_old or name in new["records"]]
    names += [name for name in new["records"] if name not in old["records"]]
    counts: dict[str, int] = {}
    for name in names:
        if name not in new["records"] or name not in old["records"]:
            verdict = "not in the new recording" if name in old["records"] else "not in the old recording"
        else:
            verdict = difference(*(decoded(each["records"][name]) for each in (old, new))).verdict
        counts[verdict.split(":")[0].split(" (")[0]] = counts.get(verdict.split(":")[0].split(" (")[0], 0) + 1
        if verdict != "same bits":
            print(f"{name}: {verdict}")
    print("; ".join(f"{verdict}: {count}" for verdict, count in sorted(counts.items())))
    return set(counts) <= {"same bits"}
