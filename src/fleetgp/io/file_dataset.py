"""The agents' data in files, which are read in chunks: sums over the rows are accumulated, and kept in a cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.dataset import FIRST, Dataset
from fleetgp.data.suspicions import Sample, describe_copies
from fleetgp.data.transforms import VIEW_AS_GIVEN, Coordinates, Scaling, View
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments, moments_on
from fleetgp.errors import InputError
from fleetgp.files import ResumableCache
from fleetgp.io.survey import FirstPass, Pass, Scan, Survey, rows_of, size_of, survey
from fleetgp.linalg.threads import cores, side_by_side
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations, Summary
from fleetgp.version import __version__

#: Rows that wait for more of the same agent, in chunks, before sums are taken over them.
WAITING = 4

Piece = TypeVar("Piece")


@dataclass(frozen=True)
class FileReader:
    """Files and how to read them. owners: the agent of each file, unless a column names it.  cache: a folder."""

    files: tuple[Path, ...]
    owners: tuple[str, ...]
    scan: Scan
    cache: Path | None

    def over_files(self, work: Callable[[Path, str], Piece]) -> Iterator[Piece]:
        """Yield work(file, owner) for all files in their order, in one thread per core (in one alone for NetCDF)."""
        pairs = list(zip(self.files, self.owners, strict=True))
        wave = 1 if any(file.suffix.lower() == ".nc" for file in self.files) else cores()
        for first in range(0, len(pairs), wave):
            yield from side_by_side(lambda pair: work(*pair), pairs[first : first + wave])

    def kept(self, file: Path, **settings: Any) -> ResumableCache | None:
        """Return the cache for results of one file: another file, size or way of reading has another cache."""
        if self.cache is None:
            return None
        facts = {"version": __version__, "pieces": 3, "file": str(file.resolve())}  # pieces: of what is kept
        facts |= {"size": size_of(file), "scan": asdict(self.scan)}
        return ResumableCache(self.cache, {**facts, **settings})

    @property
    def apart(self) -> bool:
        """Whether every file is one agent's."""
        return self.scan.columns.agent is None

    def of(self, numbers: Sequence[int]) -> FileReader:
        """Some of the files."""
        files, owners = zip(*((self.files[k], self.owners[k]) for k in numbers), strict=True)
        return FileReader(files, owners, self.scan, self.cache)

    def survey(self) -> Survey:
        """The first pass, over all files."""
        with FirstPass(self.files) as progress:
            return self.joined(self.over_files(lambda file, owner: self.survey_of(file, owner, progress)))

    def survey_of(self, file: Path, owner: str, progress: FirstPass | None = None) -> Survey:
        """The first pass over one file, or its result from the cache."""
        kept = self.kept(file, owner=owner, summaries="with products")
        piece = None if kept is None else kept.get("survey")
        if piece is None:
            result = survey(file, owner, self.scan, None if progress is None else progress.read)
            if kept is not None:
                kept.put("survey", result.piece)
        else:
            result = Survey.from_piece(piece)
        if progress is not None:
            progress.known(file, result.rows, before=piece is not None)
        return result

    def joined(self, surveys: Iterable[Survey]) -> Survey:
        """Combine and check the surveys of all files, which come in the order of the files."""
        total: Survey | None = None
        for file, result in zip(self.files, surveys, strict=True):
            if total is not None and result.units and total.units and result.units != total.units:
                raise InputError(
                    f"{file}: expected the units {_listed(total.units)} of the files before it, "
                    f"got {_listed(result.units)}: convert them"
                )
            total = result if total is None else total.plus(result, self.scan.drawn)
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
        """Another pass: return the moments of each agent's rows as the model sees them. count: of all rows."""

        def one(file: Path, owner: str) -> dict[str, FleetMoments]:
            frame = [box.centre.tolist(), box.half.tolist(), sizes, *view.facts]
            kept = self.kept(file, owner=owner, frame=frame)
            if kept is not None and (piece := kept.get("moments")) is not None:
                parts = {name: FleetMoments.unpacked(box, sizes, np.array(row)) for name, row in piece.items()}
                progress.expect(-sum(part.count for part in parts.values()))
                return parts
            rows = progress.counted(rows_of(file, owner, self.scan))
            parts = gathered_moments(rows, self.scan.rows, box, sizes, view)
            if kept is not None and sum(20 * len(part.packed) for part in parts.values()) < size_of(file)[0]:
                kept.put("moments", {name: part.packed.tolist() for name, part in parts.items()})
            return parts

        total: dict[str, FleetMoments] = {}
        with Pass(f"moments {'x'.join(map(str, sizes))}", count) as progress:
            for parts in self.over_files(one):
                for name, part in parts.items():
                    total[name] = total[name].plus(part) if name in total else part
        return total

    def load(self, count: int | None = None) -> dict[str, Array]:
        """Return all rows by agent, with the columns of `Columns.numbers`. count: of all rows."""
        parts: dict[str, list[Array]] = defaultdict(list)
        with Pass("loading", count) as progress:
            for file, owner in zip(self.files, self.owners, strict=True):
                for name, rows in progress.counted(rows_of(file, owner, self.scan)):
                    parts[name].append(rows)
        return {name: np.concatenate(rows) for name, rows in parts.items()}


def gathered_moments(
    parts: Iterator[tuple[str, Array]], rows: int, box: Box, sizes: tuple[int, ...], view: View
) -> dict[str, FleetMoments]:
    """Accumulate each agent's moments, of what the model sees, from parts of their rows (n, D + 1).

    Rows are collected until one agent has `rows` of them, or all agents together `WAITING` times as many.
    """
    waiting: dict[str, list[Array]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    result: dict[str, FleetMoments] = {}

    def take(name: str) -> None:
        taken = np.concatenate(waiting.pop(name))
        rows = view.of(Observations(taken[:, : len(box.centre)], taken[:, -1]))
        part = moments_on(box, sizes, rows.inputs, rows.values)
        result[name] = result[name].plus(part) if name in result else part
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
    return result


def _listed(units: Sequence[str]) -> str:
    return ", ".join(unit or "none" for unit in units)


class RowsElsewhere(Protocol):
    """The rows that a first pass on a cluster has drawn: they stay with its workers."""

    def of(self, agents: Sequence[int]) -> tuple[Any, ...]:
        """Return references to the rows of some agents, for the process that hosts them; none if they are gone."""

    def close(self) -> None:
        """Release the rows. Safe to call twice."""


#: What the noise is, and of each agent the number of its group.
Noise = tuple[NoiseModel, Sequence[int]]


class FileSums(Dataset):
    """Data in files as sums over them, without any row.

    known: the agents' summaries by name, of the rows as given.  view: how the model sees them.
    drawn: some rows of each agent; without any they are drawn again.  elsewhere: references to such rows.
    noise: the noise model, and the number of each agent's group.
    """

    def __init__(
        self,
        reader: FileReader,
        known: dict[str, Summary],
        view: View = VIEW_AS_GIVEN,
        *,
        drawn: dict[str, Sample] | None = None,
        elsewhere: Sequence[Any] = (),
        noise: Noise | None = None,
    ) -> None:
        self.reader, self.known, self.view = reader, known, view
        self.noise = noise or (NoiseModel(known=reader.scan.columns.deviation is not None), [0] * len(known))
        self.drawn, self.elsewhere = drawn, elsewhere
        self.names = tuple(known)

    @cached_property
    def summaries(self) -> Sequence[Summary]:
        return [self.view.summary(one) for one in self.known.values()]

    def load(self) -> Sequence[Observations]:
        raise InputError("expected a method that needs sums over the files alone, got one that needs their rows")

    def first_rows(self) -> Sequence[Observations]:
        drawn = self.drawn or self.reader.survey().samples
        rows = {name: drawn[name].rows[:FIRST] for name in self.names}
        return [self.view.of(own) for own in self._observations(rows)]

    def _observations(self, rows: dict[str, Array]) -> list[Observations]:
        """Every agent's, as they are given, with what is known about their noise."""
        model, groups = self.noise
        parts = [self.reader.scan.columns.observations(rows[name].copy()) for name in self.names]
        return [model.observed(own, group).locked() for own, group in zip(parts, groups, strict=True)]

    @property
    def known_noise(self) -> bool:
        return self.noise[0].known

    def having(self, drawn: Iterable[dict[str, Sample]]) -> FileSums:
        """With the rows that the first pass has drawn of each file."""
        whole = {name: sample for own in drawn for name, sample in own.items()}
        return FileSums(self.reader, self.known, self.view, drawn=whole)

    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        result = self.reader.moments(box, sizes, self.view, sum(self.counts))
        return [result[name] for name in self.names]

    def rescaled(self, scaling: Scaling) -> FileSums:
        return self._seen(self.view.rescaled(scaling))

    def moved(self, coordinates: Coordinates) -> FileSums:
        return self._seen(self.view.moved(coordinates)) if coordinates.origin else self

    def _seen(self, view: View) -> FileSums:
        return FileSums(self.reader, self.known, view, drawn=self.drawn, noise=self.noise)


class FileDataset(FileSums):
    """Data in files, whose rows are loaded when one is needed, up to a limit.

    survey: the result of the first pass.  limit: bytes of observations that may be loaded.
    rows: what a first pass on a cluster has drawn.  whole: the same data as given.
    """

    def __init__(
        self,
        reader: FileReader,
        survey: Survey,
        limit: int,
        rows: RowsElsewhere | None = None,
        view: View = VIEW_AS_GIVEN,
        whole: FileDataset | None = None,
        noise: Noise | None = None,
    ) -> None:
        known = {name: survey.summaries[name] for name in survey.named}
        super().__init__(reader, known, view, drawn=survey.samples, noise=noise)
        self.survey, self.limit, self.rows, self._whole = survey, limit, rows, whole
        self.sampled, self.at_workers = bool(reader.scan.sample), reader.apart
        self._loaded: list[Observations] | None = None
        if self.sampled and whole is None:
            drawn = sum(min(len(one.rows), reader.scan.sample) for one in survey.samples.values())
            self._check_limit(drawn, "give a smaller sample")

    @property
    def points(self) -> int:
        """How many observations there are."""
        return self.survey.count

    @property
    def dropped(self) -> int:
        """Rows that could not be used."""
        return self.survey.dropped

    @property
    def empty(self) -> int:
        """Cells of fields without a value."""
        return self.survey.empty

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the values."""
        return self.survey.notes

    @property
    def units(self) -> dict[str, str]:
        """By column, where the files have them."""
        columns = self.reader.scan.columns.numbers
        units = self.survey.units or ("",) * len(columns)
        return {name: unit for name, unit in zip(columns, units, strict=True) if unit}

    @property
    def suspicions(self) -> list[str]:
        """What looks wrong in the data, as sentences."""
        copies = self.survey.copies.estimate(self.points)
        repeated = [describe_copies(f"about {copies}", self.points)] if copies else []
        return [*self.survey.tally.describe_inputs(self.reader.scan.columns.inputs), *repeated]

    def load(self) -> Sequence[Observations]:
        if self._loaded is None:
            if self._whole is not None:
                self._loaded = [self.view.of(one) for one in self._whole.load()]
            else:
                self._loaded = self._observations(self._read())
        return self._loaded

    def observed(self, noise_model: NoiseModel, groups: Sequence[int]) -> FileDataset:
        return FileDataset(self.reader, self.survey, self.limit, self.rows, noise=(noise_model, groups))

    def _read(self) -> dict[str, Array]:
        sample = self.reader.scan.sample
        if sample:
            return {name: one.rows[:sample] for name, one in self.survey.samples.items()}
        self._check_limit(
            self.points,
            "train and predict with dec-full-gp or full-gp and the squared exponential, which read files in chunks, or "
            "on a random sample of each agent's rows (sample=100_000, on the command line --sample 100000)",
        )
        return self.reader.load(self.points)

    def of_agents(self, agents: Sequence[int]) -> FileSums:
        """The files of some agents, where every file is one agent's: for the process that hosts them."""
        assert self.at_workers, "a file may hold rows of agents that are hosted elsewhere"
        known = {self.names[agent]: self.summaries[agent] for agent in agents}
        elsewhere = () if self.rows is None else self.rows.of(agents)
        return FileSums(self.reader.of(agents), known, elsewhere=elsewhere)

    def _seen(self, view: View) -> FileDataset:
        return FileDataset(self.reader, self.survey, self.limit, self.rows, view, self._whole or self, self.noise)

    def _check_limit(self, rows: int, instead: str) -> None:
        size = 8 * rows * len(self.reader.scan.columns.numbers)
        if size > self.limit:
            raise InputError(
                f"expected observations of at most {self.limit:,} bytes in memory, got {rows:,} rows, "
                f"{size:,} bytes: {instead}, or raise the limit "
                f"(memory={_round_up(size)}, on the command line --memory {_round_up(size)})"
            )


def _round_up(size: int) -> str:
    """A number of bytes that is a little larger, with two digits."""
    return f"{float(f'{1.05 * size:.1e}'):.2g}"
