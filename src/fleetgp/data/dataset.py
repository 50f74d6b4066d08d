"""The agents' data: in memory, in files, or known only by sums over them.

Methods that need sums use `summaries` and `moments`. Methods that need rows index the dataset, which then loads them,
or raises an error if they are too many or elsewhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.transforms import Coordinates, Scaling, shortest_arc, turned_into
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.errors import InputError
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations, Summary

#: How many rows of each agent `first_rows` has where not all are in memory.
FIRST = 2000


class Dataset(Sequence[Observations]):
    """Every agent's observations, one entry per agent. It never changes: new rows make another dataset.

    names: of the agents; empty if they only have numbers.  in_memory: whether all rows are.
    sampled: whether `load` returns a sample of the rows.
    at_workers: whether the workers of a cluster can have the data of some agents each.
    """

    names: tuple[str, ...] = ()
    in_memory: bool = False
    sampled: bool = False
    at_workers: bool = False

    @property
    @abstractmethod
    def summaries(self) -> Sequence[Summary]:
        """One per agent, of all its rows, without loading them."""

    @abstractmethod
    def load(self) -> Sequence[Observations]:
        """Return all rows, or those of a sample; an InputError if they are too many."""

    @abstractmethod
    def first_rows(self) -> Sequence[Observations]:
        """Return rows of every agent for a first look: all that are in memory, else up to `FIRST`, drawn at random."""

    @abstractmethod
    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        """Return every agent's moments, of all its rows, on a box that contains them."""

    @abstractmethod
    def rescaled(self, scaling: Scaling) -> Dataset:
        """Return the dataset with the scaled residuals of a mean function in place of y."""

    @abstractmethod
    def moved(self, coordinates: Coordinates) -> Dataset:
        """Return the dataset with the inputs in other coordinates; scaling comes after this."""

    def __len__(self) -> int:
        return len(self.summaries)

    def __getitem__(self, number: Any) -> Any:
        return self.load()[number]

    @property
    def counts(self) -> list[int]:
        """How many observations each agent has, without loading them."""
        return [one.count for one in self.summaries]

    @property
    def dimension(self) -> int:
        """D, the number of inputs."""
        return len(self.summaries[0].low)

    @property
    def constant(self) -> bool:
        """Whether all observations are the same, without loading them."""
        return joined(self.summaries).squares == 0.0

    def load_instead(self, why: Exception) -> None:
        """Load all rows where moments do not suffice; if they are too many, raise an error with both reasons."""
        try:
            self.load()
        except InputError as error:
            raise InputError(
                f"moments of the data do not suffice ({why}), and their rows are not loaded: {error}"
            ) from why

    # ---- noise -----------------------------------------------------------------------------------------------

    @property
    def known_noise(self) -> bool:
        """Whether observations have known standard deviations."""
        return False

    def observed(self, noise_model: NoiseModel, groups: Sequence[int]) -> Dataset:
        """Return the dataset with the columns of a noise model. groups: the number of each agent's noise."""
        if noise_model.differs:
            raise InputError("noise that differs, and robust, need rows, got data that are known only by sums")
        return self

    # ---- longitudes ------------------------------------------------------------------------------------------

    def arc(self, longitude: int) -> tuple[float, float]:
        """Return the shortest arc that contains a longitude of all data; each agent's data count as an interval."""
        low, high = (np.array([getattr(one, end)[longitude] for one in self.summaries]) for end in ("low", "high"))
        return shortest_arc(low, high)

    def summaries_along_arc(self, longitude: int) -> Sequence[Summary]:
        """Return summaries with longitudes along the shortest arc of all data; unchanged if longitude is -1."""
        if longitude < 0:
            return self.summaries
        west, east = self.arc(longitude)
        result = []
        for one in self.summaries:
            middle = 0.5 * (one.low + one.high)[longitude : longitude + 1]
            turn = np.zeros(len(one.low))
            turn[longitude] = (turned_into(middle, west, east) - middle)[0]
            result.append(replace(one, low=one.low + turn, high=one.high + turn, centre=one.centre + turn))
        return result

    def along_arc(self, longitude: int) -> Dataset:
        """Return all rows with longitudes along the shortest arc; unchanged if longitude is -1."""
        return InMemory(self.load()).along_arc(longitude)

    def summaries_apart(self, longitude: int) -> Sequence[Summary]:
        """Return summaries with each agent's longitudes along the shortest arc of its own data."""
        return self.summaries

    # ---- other rows ------------------------------------------------------------------------------------------

    def grown(self, agent: int, rows: Observations) -> Dataset:
        """Return the dataset with these rows of an agent after its old ones."""
        raise self.not_changing("add a file")

    def replaced(self, agent: int, rows: Observations) -> Dataset:
        """Return the dataset with these rows of an agent instead of its old ones."""
        raise self.not_changing("change the files")

    def not_changing(self, instead: str) -> InputError:
        """Return the error of other rows for data that are not in memory. instead: what to do."""
        return InputError(f"expected a fleet with data in memory, got one from files: {instead}, and read again")

    def first(self, counts: Sequence[int]) -> Dataset:
        """Return the dataset with only the first rows of each agent. counts: (M,) how many."""
        if len(counts) != len(self) or any(not 0 <= n <= len(own) for n, own in zip(counts, self, strict=True)):
            raise ValueError(f"expected a number of rows for each of {len(self)} agents, got {list(counts)}")
        pairs = zip(self, counts, strict=True)
        return InMemory(own if n == len(own) else own.rows(slice(n)) for own, n in pairs)

    def same(self, other: Dataset) -> bool:
        """Whether these are the same arrays, or the same files; values are not compared."""
        return self is other

    def changes_since(self, before: Dataset) -> dict[int, Observations | None]:
        """Return the new rows of each agent whose data differ; None where its old rows are not all there."""
        return {} if self.same(before) else dict.fromkeys(range(len(self)))


class InMemory(Dataset):
    """The agents' rows as arrays.

    >>> data = Observations(np.arange(6.0).reshape(3, 2), np.arange(3.0))
    >>> both = InMemory([data, data.rows(slice(2))])
    >>> both.counts, both.dimension, both.grown(1, data).counts
    ([3, 2], 2, [3, 5])
    """

    in_memory = at_workers = True

    def __init__(self, rows: Iterable[Observations]) -> None:
        self._rows = tuple(rows)

    @cached_property
    def summaries(self) -> Sequence[Summary]:
        return [Summary.of(one) for one in self._rows]

    @property
    def counts(self) -> list[int]:
        return [len(one) for one in self._rows]

    @property
    def dimension(self) -> int:
        return self._rows[0].dimension

    @property
    def constant(self) -> bool:
        some = [one.values for one in self._rows if len(one)]
        return bool(min(values.min() for values in some) == max(values.max() for values in some)) if some else True

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        return InMemory(self._rows[number]) if isinstance(number, slice) else self._rows[number]

    def load(self) -> Sequence[Observations]:
        return self._rows

    def first_rows(self) -> Sequence[Observations]:
        return self._rows

    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        return side_by_side(lambda one: FleetMoments.of(ChebyshevSums(one.inputs, one.values, box), sizes), self._rows)

    def rescaled(self, scaling: Scaling) -> InMemory:
        return InMemory(scaling.scaled(one) for one in self._rows)

    def moved(self, coordinates: Coordinates) -> InMemory:
        return InMemory(one.at(coordinates.places(one.inputs)) for one in self._rows) if coordinates.origin else self

    @property
    def known_noise(self) -> bool:
        return any(one.noise_std is not None for one in self._rows)

    def observed(self, noise_model: NoiseModel, groups: Sequence[int]) -> InMemory:
        if not noise_model.differs:
            return self
        return InMemory(noise_model.observed(*each).locked() for each in zip(self._rows, groups, strict=True))

    def arc(self, longitude: int) -> tuple[float, float]:
        """Return the shortest arc that contains the longitudes of all rows."""
        values = np.concatenate([one.inputs[:, longitude] for one in self._rows])
        return shortest_arc(values, values) if values.size else (0.0, 0.0)

    def along_arc(self, longitude: int) -> InMemory:
        return self if longitude < 0 else InMemory(_turned(one, longitude, self.arc(longitude)) for one in self._rows)

    def summaries_along_arc(self, longitude: int) -> Sequence[Summary]:
        return self.along_arc(longitude).summaries

    def summaries_apart(self, longitude: int) -> Sequence[Summary]:
        return [Summary.of(InMemory([one]).along_arc(longitude)[0]) for one in self._rows]

    def grown(self, agent: int, rows: Observations) -> InMemory:
        return self.replaced(agent, Observations.joined([self._rows[agent], rows]).locked())

    def same(self, other: Dataset) -> bool:
        return len(self) == len(other) and other.in_memory and all(a is b for a, b in zip(self, other, strict=True))

    def replaced(self, agent: int, rows: Observations) -> InMemory:
        return InMemory((*self._rows[:agent], rows, *self._rows[agent + 1 :]))

    def changes_since(self, before: Dataset) -> dict[int, Observations | None]:
        """
        >>> data = Observations(np.arange(6.0).reshape(3, 2), np.arange(3.0))
        >>> first, last = data.rows(slice(2)), data.rows(slice(1, None))
        >>> changes = InMemory([data, data, last]).changes_since(InMemory([first, data, data]))
        >>> {agent: None if rows is None else len(rows) for agent, rows in changes.items()}
        {0: 1, 2: None}
        """
        if len(before) != len(self) or not before.in_memory:
            return dict.fromkeys(range(len(self)))
        every = enumerate(_added(*pair) for pair in zip(before, self, strict=True))
        return {agent: rows for agent, rows in every if rows is None or len(rows)}


def _added(old: Observations, new: Observations) -> Observations | None:
    """Return the rows after the old ones; None where these are others."""
    first = new if new is old else new.rows(slice(len(old)))
    return new.rows(slice(len(old), None)) if old.same(first) else None


def joined(summaries: Iterable[Summary]) -> Summary:
    """Join summaries of several agents."""
    return reduce(Summary.plus, summaries)


def corners(summaries: Sequence[Summary]) -> tuple[Array, Array]:
    """Return (D,) the lowest and the highest coordinates of all data."""
    return np.min([one.low for one in summaries], axis=0), np.max([one.high for one in summaries], axis=0)


def centres_of(shards: Sequence[Observations]) -> Array:
    """Return (M, D) the mean place of each agent's rows; of an agent without rows that of the others."""
    known = [own.inputs.mean(axis=0) for own in shards if len(own)]
    nothing = np.mean(known, axis=0) if known else np.zeros(shards[0].dimension)
    return np.stack([own.inputs.mean(axis=0) if len(own) else nothing for own in shards])


def _turned(one: Observations, longitude: int, arc: tuple[float, float]) -> Observations:
    """Return the rows with whole turns added to longitudes outside an arc."""
    own = one.inputs[:, longitude]
    turned = turned_into(own, *arc)
    if np.array_equal(own, turned):
        return one
    inputs = one.inputs.copy()
    inputs[:, longitude] = turned
    return one.at(inputs)
