"""Prediction from end to end, on the agents hosted here: agree, then answer the queries block by block."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import BatchOutcome
from fleetgp.data.dataset import Dataset
from fleetgp.engines.base import retold
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.vecchia.engine import NEIGHBOURS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.aggregation import aggregate
from fleetgp.prediction.calibration import Calibration
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.cross import LONGEST
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.nearest import predict_from_nearest
from fleetgp.prediction.npae import aggregate_nested
from fleetgp.prediction.results import Prediction, explained_share, joined, kept_once, worst
from fleetgp.prediction.rules import SMALLEST
from fleetgp.prediction.task import Agreed, Answer, Earlier, Task, agree

#: Queries that the agents answer together: one message carries them all.
BLOCK = 2000
#: Bytes that a block of queries may need besides the agents' posteriors; with many agents it has fewer queries.
BLOCK_BYTES = 1 << 30


def answer(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    *,
    observed: bool = False,
    to: int | None = None,
    agreed: Agreed | None = None,
    calibration: Calibration | None = None,
) -> Prediction:
    """Mean and variance at the queries (T, D), in the units of the data; observed: the variance of y instead of f's.

    to: the only agent that needs the answer. Along the tree no other is told; the answers of others are NaN then.
    agreed: what all agents hold already. Without it, everything that the method needs from other agents is sent over
        the network, however often it was sent before: agents that joined later, or were started again, can take part.
    calibration: multiplies the deviations, if it is one for this method with these options.
    """
    if agreed is None:
        agreed = agree_on(conditioned, network, method, options) if len(queries) else Agreed()
    how: dict[str, Any] = {"observed": observed, "to": to, "calibration": calibration}
    blocks = answer_in_blocks(conditioned, network, method, queries, options, agreed, **how)
    return joined([found for _, found in blocks])


def agree_on(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    options: PredictionOptions,
    before: Earlier | None = None,
) -> Agreed:
    """What the method needs from other agents, whatever is asked; see `agree`."""
    h = Hyperparameters.from_theta(conditioned.thetas[0])  # where it matters, all agents have the same
    with retold(units=conditioned.units):
        return agree(network, method, conditioned.shards, conditioned.kernel, h, options, before)


def answer_in_blocks(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    agreed: Agreed,
    *,
    observed: bool = False,
    done: Collection[int] = (),
    to: int | None = None,
    calibration: Calibration | None = None,
) -> Iterator[tuple[int, Prediction]]:
    """The answers block by block, each with its number; those in `done` are left out. No queries are one block.

    agreed: what the agents agreed on before. The ledger of every answer is the network's: it counts all blocks so far.
    """
    size = block_size(method, network, options.neighbours)
    calibration = calibration if calibration is not None and calibration.about(method, options) else None
    for number, start in enumerate(range(0, max(1, len(queries)), size)):
        if number not in done:
            some = queries[start : start + size]
            task = Task(method, network, conditioned.thetas, conditioned.prior(some), agreed, some, options, to)
            with retold(units=conditioned.units):
                found = _answer(task, conditioned)
            yield number, _prediction(task, found, conditioned, observed, calibration)


def block_size(method: PredictionMethod, network: Network, neighbours: int = NEIGHBOURS) -> int:
    """Queries per block: the same at every agent, so it depends on what all agents know alone."""
    agents, links = network.agents, len(network.topology.union.directed)
    # Doubles per query: of an agent's sums and verdicts, and of what crosses a link, which only selected agents use.
    doubles = 12 * agents + (2 if method.nearest else 16) * links
    if method.rule == "npae":
        doubles += agents * (4 * agents + LONGEST)  # rows of C_A, and what they are computed from
    if method.rule == "nearest":
        doubles += agents * 6 * neighbours  # every agent's nearest, and what they are merged in
    return int(np.clip(BLOCK_BYTES // (8 * doubles), 1, BLOCK))


def _answer(task: Task, conditioned: Conditioned) -> Answer:
    if not len(task.queries):
        nothing = np.zeros((len(task.network.hosted), 0))
        return Answer(nothing, nothing, task.everyone)
    if task.agreed.moments is not None:
        return _by_moments(task, conditioned, task.agreed.moments)
    if task.method.rule == "full-gp":
        return _exact(task, conditioned)
    if task.method.rule == "npae":
        return aggregate_nested(task, conditioned)
    if task.method.rule == "nearest":
        return predict_from_nearest(task, conditioned)
    return aggregate(task, conditioned)


def _exact(task: Task, conditioned: Conditioned) -> Answer:
    """The exact GP of all data, at a central node."""
    assert task.agreed.pool is not None
    whole = conditioned.whole(task.agreed.pool)
    known = whole.at(task.queries)
    floor = SMALLEST * task.prior[0]
    with task.network.phase("pool"):
        told = task.network.scatter(np.stack([known.mean[0], np.maximum(known.variance[0], floor)]), "predictions")
    engine = known.engine * len(conditioned.shards)
    return Answer(told[:, 0], told[:, 1], task.everyone, engine=engine, jitter=known.jitter)


def _by_moments(task: Task, conditioned: Conditioned, moments: FleetMoments) -> Answer:
    """The exact GP of all data at every agent, which has their moments: nothing is sent. Or at a central node."""
    hosted = len(conditioned.shards)
    mean, variance = conditioned.exact(moments, task.queries)
    variance = np.maximum(variance, SMALLEST * task.prior[0])
    if task.method.decentralized:
        means, variances = (np.tile(found, (hosted, 1)) for found in (mean, variance))
    else:
        with task.network.phase("pool"):
            told = task.network.scatter(np.stack([mean, variance]), "predictions")
        means, variances = told[:, 0], told[:, 1]
    return Answer(means, variances, task.everyone, engine=("moments",) * hosted)


# ---- the result ------------------------------------------------------------------------------------------------


def _prediction(
    task: Task, found: Answer, conditioned: Conditioned, observed: bool, calibration: Calibration | None
) -> Prediction:
    queries, scaling = len(task.queries), conditioned.scaling
    outcomes = [o for o in (found.averaging, found.solving) if o is not None]
    of_f = scaling.scale**2 * found.variances
    of_observation = of_f + conditioned.noise
    factors = np.ones_like(of_f) if calibration is None else calibration.factors(of_observation)
    residual = np.zeros(queries)
    for outcome in outcomes:
        residual = np.maximum(residual, outcome.residual.max(axis=0, initial=0.0))
    return Prediction(
        method=task.method.name,
        means=kept_once(scaling.mean(task.queries) + scaling.scale * found.means),
        field_variances=kept_once(factors**2 * of_f),
        participants=kept_once(found.participants),
        query_rounds=_rounds(found.averaging, queries) if found.rounds is None else found.rounds,
        solver_rounds=_rounds(found.solving, queries),
        residual=residual,
        status=worst([o.status for o in outcomes]),
        jitter=found.jitter,
        engine=found.engine,
        ledger=task.network.ledger,
        explained=kept_once(explained_share(task.method.rule, task.prior, found.participants, found.variances)),
        factors=kept_once(factors),
        noise=conditioned.noise.copy(),
        observed=observed,
        **_sampled(task, conditioned.shards),
    )


def _sampled(task: Task, shards: Dataset) -> dict[str, Any]:
    """What is said of an answer from a sample of what is in files; moments are of all of it."""
    if not shards.sampled or task.agreed.moments is not None:
        return {}
    return {"drawn": np.array(list(map(len, shards))), "held": np.array(shards.counts)}


def _rounds(outcome: BatchOutcome | None, queries: int) -> IntArray:
    if outcome is None:
        return np.zeros(queries, dtype=np.int64)
    return np.asarray(outcome.rounds.max(axis=0, initial=0), dtype=np.int64)
