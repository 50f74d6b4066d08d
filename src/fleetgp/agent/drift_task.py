"""The scoring of an agent's new rows, while its fleet is idle: whether theta still fits."""

from __future__ import annotations

import numpy as np

from fleetgp.agent.agenda import Scored, Trained
from fleetgp.agent.memory import AgentState
from fleetgp.arrays import Array
from fleetgp.model.observations import Observations
from fleetgp.training.constraints import Bounds
from fleetgp.training.drift import FEWEST, keys_of, new_among, score, search_box

#: New rows that are scored at once, some 0.1 s per hundred: other members may wait.
MOST = 500


class DriftTask:
    """Scores each new row once, before any model is trained with it.

    Rows that came while the process did not run are not scored: nothing on disk says which ones those are.
    """

    def __init__(self, state: AgentState) -> None:
        self._state, self._description = state, state.description
        self._looked: tuple[Array, ...] = ()
        self.begin(state.data.shard)

    def begin(self, shard: Observations) -> None:
        """Take all these rows as known: they are those of a model, or are there at the start."""
        self._known = keys_of(shard)
        self._looked = ()

    @property
    def waiting(self) -> bool:
        """Whether rows came or went since the last look."""
        parts = self._state.data.parts
        same = len(self._looked) == len(parts) and all(a is b for a, b in zip(self._looked, parts, strict=True))
        return self._state.memory.trained is not None and not same

    def score(self) -> bool:
        """Score the new rows if there are enough of them; whether it did. The sums are on disk then."""
        memory = self._state.memory
        parts, shard = self._state.data.parts, self._state.data.shard
        keys = keys_of(shard)
        fresh = new_among(shard, self._known)
        new = np.flatnonzero(fresh)
        if len(new) <= MOST:
            self._looked = parts
        if memory.trained is None or len(new) < FEWEST:
            return False
        new, trained, kernel = new[:MOST], memory.trained, self._description.kernel_of(memory.trained.kernel)
        theta, box = np.array(trained.theta), self._box(trained, shard)
        drift = score(memory.drift, shard.rows(~fresh), shard.rows(new), kernel, theta, trained.view, box)
        fresh[new] = False
        self._known = keys[~fresh]  # those of rows that are gone are of no use any more
        memory.keep_drift(Scored(drift.rows, drift.batches, drift.squares, drift.odds))
        return True

    def _box(self, trained: Trained, shard: Observations) -> Bounds:
        """Where a training may go, by the settings of the fleet."""
        options, kernel = self._description.training_options(None), self._description.kernel_of(trained.kernel)
        names = kernel.names(self._description.inputs)
        size = trained.scale if self._description.normalize else float(shard.values.std())
        return search_box(options.known_of(names), names, options.noise_floor * size, kernel.noise_count)
