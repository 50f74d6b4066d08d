"""What takes long to make and does not change, made once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleetgp.data.dataset import InMemory
from fleetgp.model.observations import Observations


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` has filled, in whichever process came first. One that failed is made again."""
    base = factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = common / name, common / f"{name}.done"
    with (common / f"{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder


def observed(shards: Iterable[Sequence[Any]]) -> InMemory:
    """(X, y) or (X, y, s) of each agent, as everything below a fleet has them."""
    return InMemory(Observations(*shard) for shard in shards)
