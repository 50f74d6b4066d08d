"""`Fleet.score`: how good the fleet's predictions are, against observations that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array, row_hashes
from fleetgp.data.dataset import Dataset, joined
from fleetgp.errors import InputError
from fleetgp.fleet.named import AgentName, with_numbers
from fleetgp.fleet.privacy import refuse_queries
from fleetgp.fleet.shards import check_deviations, check_shards, parted
from fleetgp.metrics import LEVEL, Scores, Trivial, score

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet

EVERY = slice(None)
#: What a fleet does whose rows are private.
INSTEAD = "Score observations that may be known to all by score(X, y), or use calibrate, which reports coverage"


def score_fleet(
    fleet: Fleet,
    X: Any,
    y: Any = None,
    method: str | None = None,
    *,
    s: Any = None,
    agent: AgentName | None = None,
    level: float = LEVEL,
    **asking: Any,
) -> Scores:
    """All scores of the fleet's predictions of observations that it has not seen (`Scores`).

    X, y: (T, D) and (T,), an array or a data frame with the inputs, times as in `predict`. Or X alone, as a list of
        (X_i, y_i) or (X_i, y_i, s_i), one for each agent: then `rows_of` of the result has the scores of each one's own
        rows. A fleet with private="rows" refuses this, and inputs of its own rows: they would be queries, which all
        agents see.
    s: (T,) known standard deviations of these observations, if they have such: they come on top of sigma_eps.
    method, asking: as in `predict`, whose variance is that of an observation here.
    agent: who asks; without it every agent is told, and `answers` of the result has the scores of each one's answer.
    level: of the intervals.

    The MSLL is against the mean and the variance of the fleet's own observations.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(400, seed=1)
    >>> fleet = Fleet(partition(field.inputs[:300], field.observations[:300], agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = fleet.score(field.inputs[300:], field.observations[300:])
    >>> found.rows, found.rmse < 0.2, found.msll < -1.0, len(found.answers)
    (100, True, True, 4)
    """
    if "observed" in asking:
        raise InputError(
            "score does not accept observed: it compares with observations and takes their variance, so leave it out"
        )
    if y is None:
        refuse_queries(fleet.private, "score with agents' own rows", INSTEAD)
    whose, pairs, known = ([0], [(X, y)], None if s is None else [s]) if y is not None else _of_agents(fleet, X, s)
    try:
        numbers = [(with_numbers(own, fleet.units), seen) for own, seen in pairs]
        checked, _ = check_shards(numbers, fleet.inputs)
        added = _known(checked, known)
    except InputError as error:
        raise error if y is None else InputError(str(error).removeprefix("agent 0: ")) from error
    truth = np.concatenate([own.values for own in checked])
    asked = np.concatenate([own.inputs for own in checked])
    if fleet.private is not None and (count := own_places(fleet.data, asked)):
        refuse_queries(fleet.private, f"score with {count:,} of the agents' own rows", INSTEAD)
    found = fleet.predict(asked, method, observed=True, agent=agent, **asking)
    means, variances, trivial = found.means, found.variances, trivial_of(fleet.data)

    def scored(answer: int, rows: slice = EVERY) -> Scores:
        answers = means[answer, rows], variances[answer, rows] + added[rows]
        return score(answers, truth[rows], trained=trivial, level=level)

    whole = scored(found.asked)
    rows_of: list[Scores | None] = [None] * fleet.agents if y is None else []
    starts = np.cumsum([0, *map(len, checked)]).tolist()
    for number, rows in zip(whose if rows_of else (), pairwise(starts), strict=False):
        rows_of[number] = scored(found.asked, slice(*rows))
    alike = bool((means == means[:1]).all() and (variances == variances[:1]).all())
    answers = [] if agent is not None else [whole if alike else scored(one) for one in range(fleet.agents)]
    return replace(whole, answers=tuple(answers), rows_of=tuple(rows_of), agents=fleet.labels)


def own_places(shards: Dataset, queries: Array) -> int:
    """How many of the queries are inputs of the agents' rows, to the last bit; none where these are in files."""
    if not shards.in_memory:
        return 0
    seen = np.concatenate([row_hashes(own.inputs) for own in shards])
    return int(np.isin(row_hashes(queries), seen).sum())


def trivial_of(shards: Dataset) -> Trivial:
    """What says the same everywhere, of all agents' observations; nothing is loaded."""
    whole = joined(shards.summaries)
    return Trivial(whole.mean, whole.squares / whole.count)


def _of_agents(fleet: Fleet, shards: Any, s: Any) -> tuple[list[int], Any, list[Any] | None]:
    """The agents that have rows, and these."""
    if s is not None:
        raise InputError("score: expected the known deviations s_i with each agent's rows, (X_i, y_i, s_i), got s")
    if not isinstance(shards, list | tuple) or len(shards) != fleet.agents:
        raise InputError(f"score: expected X and y, or a list with (X_i, y_i) for each of {fleet.agents} agents")
    whose = [
        number
        for number, shard in enumerate(shards)
        if not isinstance(shard, list | tuple) or len(shard) < 2 or np.size(shard[1])
    ]
    return whose, *parted([shards[number] for number in whose])


def _known(shards: Dataset, known: Sequence[Any] | None) -> Array:
    """(T,) the variances that come on top of what the fleet knows of its noise."""
    if known is None:
        return np.zeros(sum(map(len, shards)))
    pairs = enumerate(zip(known, shards, strict=True))
    return np.concatenate([check_deviations(given, own.values, number) for number, (given, own) in pairs]) ** 2
