"""Stores of observations for tests, and a disk that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fleetgp.agent.journal import Journal
from fleetgp.agent.observations import ObservationStore

Rows = list[list[float]]


def store(folder: Path, inputs: tuple[str, ...] = ("x", "y"), **options: Any) -> ObservationStore:
    if not (folder / "a.csv").exists():
        (folder / "a.csv").write_text("x,y,t\n1,2,3\n", encoding="utf-8")
    return ObservationStore(folder / "a.csv", inputs, "t", folder / "told.jsonl", **options)


def journal(folder: Path) -> Journal:
    return Journal(folder / "told.jsonl", ("x", "y", "t"), 1e100)


def told(data: ObservationStore) -> Rows:
    """All rows but the first, which is that of the file."""
    shard = data.shard
    rows: Rows = np.column_stack([shard.inputs, shard.values])[1:].tolist()
    return rows


@contextmanager
def failing(*, after: int | None = None, fsync: bool = False, truncate: bool = False) -> Iterator[None]:
    """A disk that takes so many bytes and then is full; whose fsync or truncate fails."""
    left = after
    write = os.write

    def full(file: int, data: Any) -> int:
        nonlocal left
        assert left is not None
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, bytes(data)[: min(left, 7)])  # and never takes all that it is given
        left -= count
        return count

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with (
        mock.patch("os.write", full if after is not None else write),
        mock.patch("os.fsync", broken if fsync else os.fsync),
        mock.patch("os.ftruncate", broken if truncate else os.ftruncate),
    ):
        yield
