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
from fleetgp.files import whole

#: Larger values are refused, as everywhere.
LARGEST = 1e100


class ObservationStore:
    """inputs, target: the columns of the file.  kept: where told rows are appended, one JSON object a line.

    watched: somebody may be writing to the file; of a CSV only whole lines count.
    """

    def __init__(
        self,
        file: Path,
        inputs: Sequence[str],
        target: str,
        kept: Path,
        *,
        missing: Literal["refuse", "drop"] = "refuse",
        watched: bool = False,
    ) -> None:
        self.file, self.columns, self.kept = file, (*inputs, target), kept
        self.missing, self.watched = missing, watched
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
        """Take in rows of inputs and target; they are on disk when this returns, and nowhere if it fails."""
        values = self._checked(rows)
        new = not self.kept.exists()
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        with self.kept.open("ab") as file:
            size = self._mend()
            try:
                for row in values.tolist():
                    file.write(json.dumps(dict(zip(self.columns, row, strict=True))).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.kept, size)
                raise
        if new:
            _sync_folder(self.kept.parent)
        self._told = np.concatenate([self._told, values])
        return len(values)

    def refresh(self) -> int:
        """Read the file again if it has changed; by how many rows."""
        stamp = self._stamped()
        if stamp is None:
            raise InputError(f"{self.file}: the file is gone; its rows are still used")
        if stamp == self._stamp:
            return 0
        before = len(self._table)
        self._table = self._read()
        return len(self._table) - before

    def _read(self) -> Array:
        stamp = self._stamped()
        if self.watched and self.file.suffix.lower() == ".csv" and self.file.is_file():
            text = self.file.read_bytes()
            if text and not text.endswith(b"\n"):
                return self._read_lines(text[: text.rfind(b"\n") + 1])
        values = self._values(self.file)
        self._stamp = stamp
        return values

    def _read_lines(self, text: bytes) -> Array:
        """The whole lines of a file that is being written; there will be another look at it."""
        copy = self.kept.with_name("watched.csv")
        copy.parent.mkdir(parents=True, exist_ok=True)
        with whole(copy) as partial:
            partial.write_bytes(text)
        try:
            return self._values(copy)
        finally:
            copy.unlink()

    def _values(self, file: Path) -> Array:
        *inputs, target = self.columns
        found = read_observations(file, inputs=inputs, target=target, missing=self.missing)
        self.dropped = found.dropped
        return self._checked(np.column_stack([found.inputs, found.observations]))

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
            for number, line in enumerate(self.kept.read_text(encoding="utf-8").splitlines(keepends=True), start=1):
                if not line.endswith("\n"):
                    break
                try:
                    row = json.loads(line)
                    rows.append([float(row[name]) for name in self.columns])
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(
                        f"{self.kept}, line {number}: a row with {', '.join(self.columns)} was expected "
                        f"({type(error).__name__}: {error}): move the file away, if its rows are of another fleet"
                    ) from error
        return self._checked(rows) if rows else np.zeros((0, len(self.columns)))

    def _mend(self) -> int:
        """Cut off a line that a crash left unfinished; the size of what is left."""
        data = self.kept.read_bytes()
        size = data.rfind(b"\n") + 1
        if size < len(data):
            os.truncate(self.kept, size)
        return size

    def _checked(self, rows: Any) -> Array:
        wanted = f"rows of {len(self.columns)} numbers ({', '.join(self.columns)})"
        try:
            values = np.array(rows, dtype=float)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{wanted} were expected: {error}") from error
        if values.ndim != 2 or values.shape[1] != len(self.columns) or not len(values):
            raise InputError(f"{wanted} were expected, but the shape is {values.shape}")
        if not np.isfinite(values).all():
            raise InputError(f"{wanted} were expected, but some are missing or infinite")
        if np.abs(values).max() > LARGEST:
            raise InputError(f"some values are beyond {LARGEST:g}: use other units")
        return values


def _sync_folder(folder: Path) -> None:
    """A new file is there after a power cut only if its folder says so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
