"""Scores of a fleet's predictions of observations that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fleetgp.arrays import Array, row_hashes
from fleetgp.data.dataset import Dataset, joined
from fleetgp.errors import InputError
from fleetgp.fleet.queries import with_numbers
from fleetgp.fleet.shards import check_deviations, check_shards, split_deviations
from fleetgp.metrics import Scores, Trivial, score
from fleetgp.prediction import Prediction

EVERY = slice(None)


@dataclass(frozen=True)
class Truth:
    """Observations to predict.

    inputs: (T, D), values: (T,).  known: (T,) known variances, in addition to the fleet's noise.
    rows: the rows of each agent that has some, by its number; empty if they belong to no agent.
    """

    inputs: Array
    values: Array
    known: Array
    rows: Mapping[int, slice]

    @classmethod
    def of(cls, X: Any, y: Any, s: Any, agents: int, inputs: Sequence[str] | None, units: Mapping[str, str]) -> Truth:
        """Check what a caller gives to `Fleet.score`."""
        given = ([0], [(X, y)], None if s is None else [s]) if y is not None else _of_agents(X, s, agents)
        whose, pairs, deviations = given
        try:
            checked, _ = check_shards([(with_numbers(own, units), seen) for own, seen in pairs], inputs)
            known = _known(checked, deviations)
        except InputError as error:
            raise error if y is None else InputError(str(error).removeprefix("agent 0: ")) from error
        starts = np.cumsum([0, *map(len, checked)]).tolist()
        rows = {} if y is not None else {k: slice(*ends) for k, ends in zip(whose, pairwise(starts), strict=True)}
        every = [np.concatenate([getattr(own, name) for own in checked]) for name in ("inputs", "values")]
        return cls(every[0], every[1], known, rows)

    def scores(
        self, prediction: Prediction, trivial: Trivial, level: float, agents: Sequence[str], *, one_asks: bool
    ) -> Scores:
        """Score a prediction of these observations. agents: names.  one_asks: whether only one gets the answer."""
        means, variances = prediction.means, prediction.variances

        def scored(answer: int, rows: slice = EVERY) -> Scores:
            answers = means[answer, rows], variances[answer, rows] + self.known[rows]
            return score(answers, self.values[rows], trained=trivial, level=level)

        whole = scored(prediction.asked)
        own: tuple[Scores | None, ...] = ()
        if self.rows:
            each = (self.rows.get(agent) for agent in range(len(agents)))
            own = tuple(None if rows is None else scored(prediction.asked, rows) for rows in each)
        alike = bool((means == means[:1]).all() and (variances == variances[:1]).all())
        answers = () if one_asks else tuple(whole if alike else scored(one) for one in range(len(agents)))
        return replace(whole, answers=answers, rows_of=own, agents=tuple(agents))


def own_places(shards: Dataset, queries: Array) -> int:
    """Count the queries that equal inputs of the agents' rows to the last bit; 0 if the rows are in files."""
    if not shards.in_memory:
        return 0
    seen = np.concatenate([row_hashes(own.inputs) for own in shards])
    return int(np.isin(row_hashes(queries), seen).sum())


def trivial_of(shards: Dataset) -> Trivial:
    """Return mean and variance of all agents' observations; nothing is loaded."""
    whole = joined(shards.summaries)
    return Trivial(whole.mean, whole.squares / whole.count)


def _of_agents(shards: Any, s: Any, agents: int) -> tuple[list[int], Any, list[Any] | None]:
    """Return the agents that have rows, and these."""
    if s is not None:
        raise InputError("score: expected the known deviations s_i with each agent's rows, (X_i, y_i, s_i), got s")
    if not isinstance(shards, list | tuple) or len(shards) != agents:
        raise InputError(f"score: expected X and y, or a list with (X_i, y_i) for each of {agents} agents")
    whose = [
        number
        for number, shard in enumerate(shards)
        if not isinstance(shard, list | tuple) or len(shard) < 2 or np.size(shard[1])
    ]
    return whose, *split_deviations([shards[number] for number in whose])


def _known(shards: Dataset, known: Sequence[Any] | None) -> Array:
    if known is None:
        return np.zeros(sum(map(len, shards)))
    pairs = enumerate(zip(known, shards, strict=True))
    return np.concatenate([check_deviations(given, own.values, number) for number, (given, own) in pairs]) ** 2
