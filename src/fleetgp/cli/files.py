"""Observations in several files, or in one that is too large to be read as a whole, for `fleetgp fit`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetgp.cli import options
from fleetgp.data.summary import joined
from fleetgp.errors import InputError
from fleetgp.fleet.files import MEMORY, read_files
from fleetgp.io import Reading
from fleetgp.io.chunks import CHUNKED, size_of
from fleetgp.io.file_shards import FileShards

#: A file of more bytes is read in chunks, whatever its kind.
LARGE = 200_000_000


@dataclass(frozen=True)
class InFiles:
    """How files are read that may be larger than memory."""

    sample: options.SAMPLE = None
    memory: options.MEMORY = None

    def chunked(self, files: Sequence[Path], agents: int | None) -> bool:
        """Whether the files are read in chunks."""
        if len(files) == 1 and files[0].suffix.lower() != ".zarr" and self.sample is None and self.memory is None:
            file = files[0]
            return agents is None and file.suffix.lower() in CHUNKED and file.is_file() and size_of(file)[0] > LARGE
        if agents is not None:
            raise InputError(
                "--agents splits the rows of one file, which is read as a whole: expected --agent, or a file for each "
                "agent"
            )
        return True

    def read(
        self,
        files: Sequence[Path],
        inputs: list[str],
        target: str,
        agent: str | None,
        missing: str,
        fill: list[str] | None,
        reading: Reading,
        seed: int,
        cache: Path,
    ) -> FileShards:
        """The agents' data. What was found out of finished files is kept in the cache."""
        try:
            found = read_files(
                files,
                inputs=inputs,
                target=target,
                agent=agent,
                missing=options.missing_of(missing),
                fill=options.fills_of(fill),
                reading=reading,
                sample=self.sample,
                memory=MEMORY if self.memory is None else self.memory,
                cache=cache,
                seed=seed,
            )
        except InputError as error:
            going_on = "; the same command goes on from what was read" if cache.exists() else ""
            raise InputError(f"{error}{going_on}") from error
        if joined(found.summaries).squares == 0.0:
            raise InputError(f"the column {target!r} has one value only: there is nothing to learn")
        if len(found) > 20 and 2 * len(found) > found.points:
            raise InputError(
                f"the column {agent!r} names {len(found)} agents in {found.points} rows: is it the right one?"
            )
        return found


def reading_beside(out: Path) -> Path:
    """Where what was found out of files is kept until the model is written."""
    return out.with_name(f".{out.name}.reading")


def forget(cache: Path) -> None:
    shutil.rmtree(cache, ignore_errors=True)


def notes_of(shards: FileShards) -> tuple[str, ...]:
    """What was left out besides rows with missing values."""
    return (f"{shards.empty:,} cells of fields hold nothing, and are no observations",) if shards.empty else ()
