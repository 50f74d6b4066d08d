"""Files and how they are read: passes over them, in chunks, whose sums are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.view import View
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.moments.fleet import FleetMoments, moments_on
from fleetgp.io.chunks import size_of
from fleetgp.io.kept import Kept
from fleetgp.io.passes import FirstPass, Pass
from fleetgp.io.survey import Scan, Survey, rows_of, survey
from fleetgp.linalg.threads import cores, side_by_side
from fleetgp.model.observations import Observations
from fleetgp.version import __version__

#: Rows that wait for more of the same agent, in chunks, before sums are taken over them.
WAITING = 4

Piece = TypeVar("Piece")


@dataclass(frozen=True)
class Source:
    """Files and how they are read. owners: whose each file is, where no column says it.  cache: a folder, or None."""

    files: tuple[Path, ...]
    owners: tuple[str, ...]
    scan: Scan
    cache: Path | None

    def over_files(self, work: Callable[[Path, str], Piece]) -> Iterator[Piece]:
        """work(file, owner) for all files, in their order, as many at once as there are cores; of NetCDF one, whose
        library is not made for threads.
        """
        pairs = list(zip(self.files, self.owners, strict=True))
        wave = 1 if any(file.suffix.lower() == ".nc" for file in self.files) else cores()
        for first in range(0, len(pairs), wave):
            yield from side_by_side(lambda pair: work(*pair), pairs[first : first + wave])

    def kept(self, file: Path, **settings: Any) -> Kept | None:
        """Where what was found out of a file is kept: gone if the file changes, or how it is read."""
        if self.cache is None:
            return None
        facts = {"version": __version__, "pieces": 2, "file": str(file.resolve())}  # pieces: of what is kept
        facts |= {"size": size_of(file), "scan": asdict(self.scan)}
        return Kept(self.cache, {**facts, **settings})

    @property
    def apart(self) -> bool:
        """Whether every file is one agent's."""
        return self.scan.columns.agent is None

    def of(self, numbers: Sequence[int]) -> Source:
        """Some of the files."""
        files, owners = zip(*((self.files[k], self.owners[k]) for k in numbers), strict=True)
        return Source(files, owners, self.scan, self.cache)

    def survey(self) -> Survey:
        """The first pass, over all files."""
        with FirstPass(self.files) as told:
            return self.joined(self.over_files(lambda file, owner: self.survey_of(file, owner, told)))

    def survey_of(self, file: Path, owner: str, told: FirstPass | None = None) -> Survey:
        """The first pass over one file."""
        kept = self.kept(file, owner=owner, summaries="with products")
        if kept is not None and (piece := kept.get("survey")) is not None:
            found = Survey.from_piece(piece)
            if told is not None:
                told.known(file, found.rows, before=True)
            return found
        found = survey(file, owner, self.scan, None if told is None else told.read)
        if told is not None:
            told.known(file, found.rows, before=False)
        if kept is not None:
            kept.put("survey", found.piece)
        return found

    def joined(self, surveys: Iterable[Survey]) -> Survey:
        """Those of all files, in their order, as one; checked."""
        total: Survey | None = None
        for file, found in zip(self.files, surveys, strict=True):
            if total is not None and found.units and total.units and found.units != total.units:
                raise InputError(
                    f"{file}: expected the units {_listed(total.units)} of the files before it, "
                    f"got {_listed(found.units)}: convert them"
                )
            total = found if total is None else total.plus(found, self.scan.drawn)
        assert total is not None, "there is a file"
        columns = self.scan.columns
        total.tally.refuse(columns.numbers, "all files together", fills=columns.judged)
        for name in total.named:
            if name not in total.summaries:
                raise InputError(f"agent {name!r} has no row with values in all of {list(columns.numbers)}")
        if not total.named:
            raise InputError(f"no row of the files names an agent in the column {columns.agent!r}")
        return total

    def moments(
        self, box: Box, sizes: tuple[int, ...], view: View, count: int | None = None
    ) -> dict[str, FleetMoments]:
        """Another pass: every agent's moments of the rows as the model sees them. count: how many rows there are."""

        def one(file: Path, owner: str) -> dict[str, FleetMoments]:
            frame = [box.centre.tolist(), box.half.tolist(), sizes, *view.facts]
            kept = self.kept(file, owner=owner, frame=frame)
            if kept is not None and (piece := kept.get("moments")) is not None:
                found = {name: FleetMoments.unpacked(box, sizes, np.array(row)) for name, row in piece.items()}
                told.expect(-sum(part.count for part in found.values()))
                return found
            rows = told.counted(rows_of(file, owner, self.scan))
            found = gathered_moments(rows, self.scan.rows, box, sizes, view)
            if kept is not None and sum(20 * len(part.packed) for part in found.values()) < size_of(file)[0]:
                kept.put("moments", {name: part.packed.tolist() for name, part in found.items()})
            return found

        total: dict[str, FleetMoments] = {}
        with Pass(f"moments {'x'.join(map(str, sizes))}", count) as told:
            for found in self.over_files(one):
                for name, part in found.items():
                    total[name] = total[name].plus(part) if name in total else part
        return total

    def load(self, count: int | None = None) -> dict[str, Array]:
        """All rows, (n, D + 1), by agent. count: how many there are."""
        parts: dict[str, list[Array]] = defaultdict(list)
        with Pass("loading", count) as told:
            for file, owner in zip(self.files, self.owners, strict=True):
                for name, rows in told.counted(rows_of(file, owner, self.scan)):
                    parts[name].append(rows)
        return {name: np.concatenate(rows) for name, rows in parts.items()}


def gathered_moments(
    parts: Iterator[tuple[str, Array]], rows: int, box: Box, sizes: tuple[int, ...], view: View
) -> dict[str, FleetMoments]:
    """Every agent's moments, of what the model sees, from parts of their rows (n, D + 1) as they come.

    Rows wait until one agent has `rows` of them, or all agents a few times as many.
    """
    waiting: dict[str, list[Array]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    found: dict[str, FleetMoments] = {}

    def take(name: str) -> None:
        taken = np.concatenate(waiting.pop(name))
        rows = view.of(Observations(taken[:, :-1], taken[:, -1]))
        part = moments_on(box, sizes, rows.inputs, rows.values)
        found[name] = found[name].plus(part) if name in found else part
        del counts[name]

    for name, part in parts:
        waiting[name].append(part)
        counts[name] += len(part)
        if counts[name] >= rows:
            take(name)
        elif sum(counts.values()) >= WAITING * rows:
            take(max(counts, key=lambda one: counts[one]))
    for name in list(waiting):
        take(name)
    return found


def _listed(units: Sequence[str]) -> str:
    return ", ".join(unit or "none" for unit in units)
