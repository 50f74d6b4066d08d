"""The agents' data in files, which are read in chunks: sums over them are gathered while they stream by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fleetgp.arrays import Array
from fleetgp.data.coordinates import Coordinates
from fleetgp.data.scaling import Scaling
from fleetgp.data.sketch import Sample
from fleetgp.data.streamed import FIRST, Streamed
from fleetgp.data.summary import Summary
from fleetgp.data.suspicions import told_of_copies
from fleetgp.data.view import AS_GIVEN, View
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.io.file_source import Source
from fleetgp.io.survey import Survey
from fleetgp.model.observations import Observations


class Elsewhere(Protocol):
    """Where the rows are that a first pass on a cluster has drawn: they never come to this process."""

    def of(self, agents: Sequence[int]) -> tuple[Any, ...]:
        """What leads to those of some agents, for the process that hosts them; nothing if they are gone."""

    def close(self) -> None:
        """They are needed no more. Safe to call twice."""


class FileShards(Streamed):
    """The agents' data in files.

    points: how many observations there are.  dropped: rows that could not be used.  empty: cells of fields without a
    value.  notes: what was done to the values.  limit: as many bytes of observations may be loaded.
    """

    def __init__(self, source: Source, known: Survey, limit: int, elsewhere: Elsewhere | None = None) -> None:
        self.source, self.limit, self.elsewhere = source, limit, elsewhere
        self.names = tuple(known.named)
        self.summaries = [known.summaries[name] for name in self.names]
        self.points, self.dropped, self.empty = known.count, known.dropped, known.empty
        self.notes, self.sampled = known.notes, bool(source.scan.sample)
        self._known = known
        self._loaded: list[Observations] | None = None
        if self.sampled:
            drawn = sum(min(len(one.rows), source.scan.sample) for one in known.samples.values())
            self._check_limit(drawn, "give a smaller sample")

    @property
    def units(self) -> dict[str, str]:
        """By column, where the files tell them."""
        units = self._known.units or ("",) * len(self.source.scan.columns.numbers)
        return {name: unit for name, unit in zip(self.source.scan.columns.numbers, units, strict=True) if unit}

    @property
    def told(self) -> list[str]:
        """What is strange about the data, as sentences."""
        copies = self._known.copies.estimate(self.points)
        columns = self.source.scan.columns
        return [
            *self._known.tally.told(columns.inputs),
            *([told_of_copies(f"about {copies}", self.points)] if copies else []),
        ]

    def load(self) -> list[Observations]:
        if self._loaded is None:
            if self.sampled:
                rows = {name: one.rows[: self.source.scan.sample] for name, one in self._known.samples.items()}
            else:
                self._check_limit(
                    self.points,
                    "train and predict with dec-full-gp or full-gp and the squared exponential, which read files in "
                    "chunks, or on a random sample of each agent's rows (sample=100_000, on the command line "
                    "--sample 100000)",
                )
                rows = self.source.load(self.points)
            self._loaded = [_observations(rows[name]).locked() for name in self.names]
        return self._loaded

    def first_rows(self) -> list[Observations]:
        return ViewedFiles(self, AS_GIVEN).first_rows()

    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        return ViewedFiles(self, AS_GIVEN).moments(box, sizes)

    def rescaled(self, scaling: Scaling) -> ViewedFiles:
        return ViewedFiles(self, View(scaling))

    def moved(self, coordinates: Coordinates) -> ViewedFiles:
        return ViewedFiles(self, View(coordinates=coordinates))

    def group(self, agents: Sequence[int]) -> SummedFiles:
        """The files of some agents, where every file is one agent's: for the process that hosts them."""
        assert self.source.apart, "a file may hold rows of agents that are hosted elsewhere"
        known = {self.names[agent]: self.summaries[agent] for agent in agents}
        elsewhere = () if self.elsewhere is None else self.elsewhere.of(agents)
        return SummedFiles(self.source.of(agents), known, elsewhere=elsewhere)

    @property
    def drawn(self) -> dict[str, Sample]:
        """By agent, the rows that the first pass has drawn; none where they are elsewhere."""
        return self._known.samples

    def _check_limit(self, rows: int, instead: str) -> None:
        size = 8 * rows * len(self.source.scan.columns.numbers)
        if size > self.limit:
            raise InputError(
                f"expected observations of at most {self.limit:,} bytes in memory, got {rows:,} rows, "
                f"{size:,} bytes: {instead}, or raise the limit "
                f"(memory={_round_up(size)}, on the command line --memory {_round_up(size)})"
            )


class SummedFiles(Streamed):
    """Data in files as sums over them, without any row.

    known: the agents' summaries by their names, of the rows as they are given.  view: how the model sees them.
    drawn: some of their rows; none if they are to be drawn anew.  elsewhere: what leads to them.
    """

    def __init__(
        self,
        source: Source,
        known: dict[str, Summary],
        view: View = AS_GIVEN,
        *,
        drawn: dict[str, Sample] | None = None,
        elsewhere: Sequence[Any] = (),
    ) -> None:
        self._source, self._known, self.view = source, known, view
        self._drawn, self.elsewhere = drawn, elsewhere
        self.names = tuple(known)
        self.summaries = [view.summary(one) for one in known.values()]

    def load(self) -> list[Observations]:
        raise InputError("expected a method that needs sums over the files alone, got one that needs their rows")

    def first_rows(self) -> list[Observations]:
        drawn = self._drawn or self._source.survey().samples
        rows = [drawn[name].rows[:FIRST] for name in self.names]
        return [self.view.of(_observations(own)) for own in rows]

    def having(self, drawn: Iterable[dict[str, Sample]]) -> SummedFiles:
        """With the rows that the first pass has drawn of each file."""
        whole = {name: sample for own in drawn for name, sample in own.items()}
        return SummedFiles(self._source, self._known, self.view, drawn=whole)

    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        count = sum(one.count for one in self.summaries)
        found = self._source.moments(box, sizes, self.view, count)
        return [found[name] for name in self.names]

    def rescaled(self, scaling: Scaling) -> SummedFiles:
        return SummedFiles(self._source, self._known, self.view.rescaled(scaling), drawn=self._drawn)

    def moved(self, coordinates: Coordinates) -> SummedFiles:
        return SummedFiles(self._source, self._known, self.view.moved(coordinates), drawn=self._drawn)


class ViewedFiles(SummedFiles):
    """The same data as the model sees them, and their rows where somebody asks for them."""

    def __init__(self, files: FileShards, view: View) -> None:
        known = dict(zip(files.names, files.summaries, strict=True))
        super().__init__(files.source, known, view, drawn=files.drawn)
        self._files, self.sampled = files, files.sampled
        self._loaded: list[Observations] | None = None

    def load(self) -> list[Observations]:
        if self._loaded is None:
            self._loaded = [self.view.of(one) for one in self._files.load()]
        return self._loaded

    def rescaled(self, scaling: Scaling) -> ViewedFiles:
        return ViewedFiles(self._files, self.view.rescaled(scaling))

    def moved(self, coordinates: Coordinates) -> ViewedFiles:
        return ViewedFiles(self._files, self.view.moved(coordinates))


def _observations(rows: Array) -> Observations:
    return Observations(rows[:, :-1].copy(), rows[:, -1].copy())


def _round_up(size: int) -> str:
    """A number of bytes that is a little larger, with two digits."""
    return f"{float(f'{1.05 * size:.1e}'):.2g}"
