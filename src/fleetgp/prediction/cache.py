"""What predictions leave for later ones: the posteriors of the hosted agents, and what the agents have agreed on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from fleetgp.arrays import Array
from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import View
from fleetgp.engines.vecchia.engine import NEIGHBOURS
from fleetgp.kernels.stationary import Kernel
from fleetgp.network import Network
from fleetgp.prediction.conditioned import Conditioned

Value = TypeVar("Value")


@dataclass(frozen=True)
class CacheEntry:
    """What agents have agreed on, the rounds that it took, and (M,) how many rows each had.

    -1 stands for rows of which some are no longer there.
    """

    value: Any
    rounds: int
    rows: tuple[int, ...]


class PredictionCache:
    """One for all predictions of a fleet, of a worker's group or of an agent.

    Rows that come after the old ones are added to the posteriors that there are, and to what was agreed on. Where rows
    have gone, the posterior of their agent is recomputed. With another model, kernel or engine all is recomputed.

    shared: what was agreed on, by what it is for, also when there were fewer rows. It is the same at every agent.
    last: what it was last used for, a snapshot with options.  remote: what the workers of a cluster hold of it.

    The arrays of a shard must not be written to while they are in use here; new data are new arrays.
    """

    def __init__(self) -> None:
        self.shared: dict[object, CacheEntry] = {}
        self.last: Any = None
        self.remote: Any = None
        self._conditioned: Conditioned | None = None
        self._data: Dataset | None = None
        self._model: tuple[object, ...] = ()

    def clear(self) -> None:
        """Forget what was agreed on; posteriors are forgotten where the next question has others."""
        self.shared, self.remote = {}, None

    def replace(self, agents: Collection[int]) -> None:
        """Note that these agents have others than the rows of which something was agreed on."""
        if not agents:
            return
        self.remote = None
        for key, entry in self.shared.items():
            rows = tuple(-1 if agent in agents else count for agent, count in enumerate(entry.rows))
            self.shared[key] = replace(entry, rows=rows)

    def conditioned(
        self,
        shards: Dataset,
        kernel: Kernel,
        thetas: Array,
        view: View,
        engine: str,
        n_neighbours: int = NEIGHBOURS,
        names: Sequence[str] | None = None,
    ) -> Conditioned:
        """The agents at this model: those of the last time, if the model is the same.

        Then only agents whose rows have changed are conditioned again.
        """
        model = (kernel, thetas.shape, thetas.tobytes(), view, engine, n_neighbours)
        changes = {} if self._data is None else shards.changes_since(self._data)
        replaced = sum(rows is None for rows in changes.values())
        if self._conditioned is None or model != self._model or replaced == len(shards):
            self._conditioned = None  # before the next one needs the memory
            self._conditioned = Conditioned(shards, kernel, thetas, view, engine, n_neighbours, names)
        else:
            for i, rows in changes.items():
                if rows is None:
                    self._conditioned.replace(i, shards[i])
                else:
                    self._conditioned.append(i, rows)
        self._data, self._model = shards, model
        return self._conditioned

    def agreed(
        self,
        network: Network,
        key: object,
        rows: tuple[int, ...],
        agree: Callable[[CacheEntry | None], Value],
        *,
        depends_on_data: bool,
    ) -> Value:
        """What was agreed on before, or is now. The rounds that it took pass in any case.

        So graphs that vary with time are where they were, and the same question has the same answer.

        depends_on_data: `agree` is called again when rows have come, with what it was before them.
        """
        known = self.shared.get(key)
        if known is None or (depends_on_data and known.rows != rows):
            before = network.round
            value = agree(known)
            self.shared[key] = CacheEntry(value, network.round - before, rows)
            return value
        network.round += known.rounds
        return cast(Value, known.value)

    def hold(self, key: object, value: object, rows: tuple[int, ...]) -> None:
        """What all agents hold already, and no round passes for."""
        self.shared[key] = CacheEntry(value, 0, rows)
