"""An agent's own data: a file, which may grow, and rows that were told to it. Nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.partition import Shard
from fleetgp.data.tables import read_observations
from fleetgp.errors import InputError


class ObservationStore:
    """inputs, target: the columns of the file.  kept: where told rows are appended, one JSON list a line."""

    def __init__(
        self, file: Path, inputs: Sequence[str], target: str, missing: Literal["refuse", "drop"], kept: Path
    ) -> None:
        self.file, self.inputs, self.target, self.missing, self.kept = file, tuple(inputs), target, missing, kept
        self.dropped = 0
        self._stamp: tuple[int, int] | None = None
        self._table = self._read()
        self._told = self._recall()

    @property
    def rows(self) -> int:
        return len(self._table) + len(self._told)

    @property
    def shard(self) -> Shard:
        rows = np.concatenate([self._table, self._told])
        return rows[:, :-1], rows[:, -1]

    def append(self, rows: Any) -> int:
        """Take in rows of inputs and target; they are on disk when this returns."""
        values = self._checked(rows)
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self._mend()
        with self.kept.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in values.tolist())
            file.flush()
            os.fsync(file.fileno())
        self._told = np.concatenate([self._told, values])
        return len(values)

    def refresh(self) -> int:
        """Read the file again if it has changed; how many rows it has more. An unfinished line is waited for."""
        stamp = self._stamped()
        if stamp is None or stamp == self._stamp:
            return 0
        if self.file.suffix.lower() == ".csv" and not _ends_a_line(self.file):
            return 0
        before = len(self._table)
        self._table = self._read()
        return len(self._table) - before

    def _read(self) -> Array:
        stamp = self._stamped()
        found = read_observations(self.file, inputs=self.inputs, target=self.target, missing=self.missing)
        self._stamp, self.dropped = stamp, found.dropped
        return np.column_stack([found.inputs, found.observations])

    def _stamped(self) -> tuple[int, int] | None:
        try:
            facts = self.file.stat()
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_size

    def _recall(self) -> Array:
        """The rows that were told before; a line that a crash cut short was never acknowledged."""
        rows = []
        if self.kept.is_file():
            for line in self.kept.read_text(encoding="utf-8").splitlines(keepends=True):
                if not line.endswith("\n"):
                    break
                rows.append(json.loads(line))
        return self._checked(rows) if rows else np.zeros((0, len(self.inputs) + 1))

    def _mend(self) -> None:
        """Cut off a line that a crash left unfinished."""
        if self.kept.is_file() and self.kept.stat().st_size and not _ends_a_line(self.kept):
            data = self.kept.read_bytes()
            with self.kept.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)

    def _checked(self, rows: Any) -> Array:
        wanted = f"rows of {len(self.inputs) + 1} numbers ({', '.join((*self.inputs, self.target))})"
        try:
            values = np.array(rows, dtype=float)
        except (TypeError, ValueError) as error:
            raise InputError(f"{wanted} were expected: {error}") from error
        if values.ndim != 2 or values.shape[1] != len(self.inputs) + 1 or not len(values):
            raise InputError(f"{wanted} were expected, but the shape is {values.shape}")
        if not np.isfinite(values).all():
            raise InputError(f"{wanted} were expected, but some are missing or infinite")
        if np.abs(values).max() > 1e100:
            raise InputError("some values are beyond 1e100: use other units")
        return values


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
