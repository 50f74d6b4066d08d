"""The agents' data where they may be larger than memory: what is known of them, and sums over them, without rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetgp.data.summary import Summary
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.sums import ChebyshevSums
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.observations import Observations

if TYPE_CHECKING:
    from fleetgp.data.coordinates import Coordinates
    from fleetgp.data.scaling import Scaling
#: Rows of each agent that are kept for a first look.
FIRST = 2000


class Streamed(Sequence[Observations]):
    """As a sequence, every agent's observations: whoever asks for one has all of them loaded, or an error.

    names: the agents'.  summaries: of all their rows, one per agent.  sampled: what is loaded is a sample.
    """

    names: tuple[str, ...]
    summaries: Sequence[Summary]
    sampled: bool = False

    @abstractmethod
    def load(self) -> list[Observations]:
        """All rows, or those of a sample; one clear error where they are too many."""

    @abstractmethod
    def first_rows(self) -> list[Observations]:
        """Up to `FIRST` rows of every agent, drawn at random."""

    @abstractmethod
    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        """Those of every agent's rows, of all of them, on a box that holds them."""

    @abstractmethod
    def rescaled(self, scaling: Scaling) -> Streamed:
        """The same with the scaled residuals of a mean function in the place of y_n, which are not scaled yet."""

    @abstractmethod
    def moved(self, coordinates: Coordinates) -> Streamed:
        """The same with the inputs in other coordinates, before anything is scaled."""

    def __len__(self) -> int:
        return len(self.summaries)

    def __getitem__(self, number: Any) -> Any:
        return self.load()[number]


#: Data in memory, or streamed.
Shards = list[Observations] | Streamed


def summaries_of(shards: Sequence[Observations]) -> Sequence[Summary]:
    """One per agent; nothing is loaded."""
    return shards.summaries if isinstance(shards, Streamed) else [Summary.of(one) for one in shards]


def counts_of(shards: Sequence[Observations]) -> list[int]:
    """How many observations each agent has; nothing is loaded."""
    return [one.count for one in shards.summaries] if isinstance(shards, Streamed) else [len(one) for one in shards]


def dimension_of(shards: Sequence[Observations]) -> int:
    """How many inputs there are; nothing is loaded."""
    return len(shards.summaries[0].low) if isinstance(shards, Streamed) else shards[0].dimension


def moments_of(shards: Sequence[Observations], box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
    """Every agent's own, on a box that holds all data."""
    if isinstance(shards, Streamed):
        return shards.moments(box, sizes)
    return side_by_side(lambda one: FleetMoments.of(ChebyshevSums(one.inputs, one.values, box), sizes), list(shards))


def load_instead(shards: Streamed, why: Exception) -> None:
    """Load all rows, where moments of them will not do; one clear error for both where they are too many."""
    try:
        shards.load()
    except InputError as error:
        raise InputError(f"moments of the data will not do ({why}), and their rows are not loaded: {error}") from why


def as_they_are(shards: Shards) -> Sequence[Observations]:
    """The data as of now: a list may get other rows later."""
    return shards if isinstance(shards, Streamed) else tuple(shards)
