"""Predictions of the agents hosted here, in the units of the data: block after block, jointly, and their gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import BatchOutcome
from fleetgp.data.dataset import Dataset
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.calibration import Calibration
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.methods import Answer, PredictionMethod, PreparedQuery, SharedState, Vector, block_size
from fleetgp.prediction.posteriors import UNUSED, first_used
from fleetgp.prediction.results import INFORMED, Gradient, Joint, Prediction, joined, kept_once, worst


def predict(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    *,
    observed: bool = False,
    to: int | None = None,
    shared: SharedState | None = None,
    calibration: Calibration | None = None,
) -> Prediction:
    """Mean and variance at the queries (T, D), in the units of the data; observed: the variance of y instead of f's.

    shared: what all agents hold already. Without it, everything that the method needs from other agents is sent over
        the network, however often it was sent before: agents that joined later, or were started again, can take part.
    to, calibration: see `predict_in_blocks`.
    """
    if shared is None:
        shared = method.agree(network, conditioned, options) if len(queries) else SharedState()
    how: dict[str, Any] = {"observed": observed, "to": to, "calibration": calibration}
    blocks = predict_in_blocks(conditioned, network, method, queries, options, shared, **how)
    return joined([block for _, block in blocks])


def predict_in_blocks(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    shared: SharedState,
    *,
    observed: bool = False,
    done: Collection[int] = (),
    to: int | None = None,
    calibration: Calibration | None = None,
) -> Iterator[tuple[int, Prediction]]:
    """The answers block by block, each with its number; those in `done` are left out. No queries are one block.

    shared: what the agents agreed on before. The ledger of every answer is the network's: it counts all blocks so far.
    to: the only agent that needs the answer. Along the tree no other receives it; the answers of others are NaN then.
    calibration: multiplies the standard deviations, if it is one for this method with these options.
    """
    size = block_size(method, network, options)
    calibration = calibration if calibration is not None and calibration.about(method, options) else None
    for number, start in enumerate(range(0, max(1, len(queries)), size)):
        if number not in done:
            query = PreparedQuery(network, conditioned, queries[start : start + size], options, shared, to)
            yield number, _prediction(method, query, observed, calibration)


def _prediction(
    method: PredictionMethod, query: PreparedQuery, observed: bool, calibration: Calibration | None
) -> Prediction:
    conditioned, count = query.conditioned, len(query.queries)
    nothing = np.zeros((len(query.hosted), 0))
    answer = method.predict(query) if count else Answer(nothing, nothing, query.everyone)
    scaling = conditioned.scaling
    outcomes = [o for o in (answer.averaging, answer.solving) if o is not None]
    of_f = scaling.scale**2 * answer.variances
    of_observation = of_f + conditioned.noise
    factors = np.ones_like(of_f) if calibration is None else calibration.factors(of_observation)
    residual = np.zeros(count)
    for outcome in outcomes:
        residual = np.maximum(residual, outcome.residual.max(axis=0, initial=0.0))
    return Prediction(
        method=method.name,
        means=kept_once(scaling.mean(query.queries) + scaling.scale * answer.means),
        field_variances=kept_once(factors**2 * of_f),
        participants=kept_once(answer.participants),
        query_rounds=_rounds(answer.averaging, count) if answer.rounds is None else answer.rounds,
        solver_rounds=_rounds(answer.solving, count),
        residual=residual,
        status=worst([o.status for o in outcomes]),
        jitter=answer.jitter,
        engine=answer.engine,
        ledger=query.network.ledger,
        explained=kept_once(method.explained(query.prior, answer.participants, answer.variances)),
        factors=kept_once(factors),
        noise=conditioned.noise.copy(),
        observed=observed,
        **_sampled(query, conditioned.shards),
    )


def _sampled(query: PreparedQuery, shards: Dataset) -> dict[str, Any]:
    """What is said of an answer from a sample of what is in files; moments are of all of it."""
    if not shards.sampled or query.shared.moments is not None:
        return {}
    return {"drawn": np.array(list(map(len, shards))), "held": np.array(shards.counts)}


def _rounds(outcome: BatchOutcome | None, queries: int) -> IntArray:
    if outcome is None:
        return np.zeros(queries, dtype=np.int64)
    return np.asarray(outcome.rounds.max(axis=0, initial=0), dtype=np.int64)


def joint(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    shared: SharedState,
    *,
    observed: bool = False,
    to: int | None = None,
    calibration: Calibration | None = None,
) -> Joint:
    """Mean and covariance at all queries (T, D) together; observed: of observations instead of f."""
    before, size = network.round, len(queries)
    query = PreparedQuery(network, conditioned, queries, options, shared, to)
    answer = method.joint(query)
    scale = conditioned.scaling.scale
    vector = answer.vector or Vector(np.full(size, np.nan), np.full((size, size), np.nan))
    noise = float(conditioned.noise[network.hosted.index(to) if to in network.hosted else 0, 0])
    covariance = scale**2 * vector.covariance
    of_observation = np.diagonal(covariance) + noise
    known = calibration if calibration is not None and calibration.about(method, options) else None
    factor = np.ones(size) if known is None else known.factors(of_observation)
    if observed:
        covariance = covariance + noise * np.eye(size)
    explained = method.explained(query.prior[0], answer.participants, np.diagonal(vector.covariance))
    return Joint(
        method=method.name,
        mean=np.asarray(conditioned.scaling.mean(queries) + scale * vector.mean),
        covariance=np.asarray(factor[:, None] * covariance * factor),
        participants=answer.participants,
        status="converged",
        rounds=network.round - before if method.decentralized else 0,
        jitter=answer.jitter,
        engine=answer.engine,
        ledger=network.ledger,
        noise=noise,
        factor=factor,
        uninformed=explained < INFORMED,
    )


def gradient(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    shared: SharedState,
    *,
    to: int | None = None,
) -> Gradient:
    """The gradient of the mean at the queries (T, D), by the model's coordinates, in the units of the data."""
    parts, size = [], block_size(method, network, options)
    for start in range(0, len(queries), size):
        before = network.round
        answer = method.gradient(
            PreparedQuery(network, conditioned, queries[start : start + size], options, shared, to)
        )
        parts.append(replace(answer, rounds=network.round - before))
    scaling, engine = conditioned.scaling, (UNUSED,) * len(network.hosted)
    gradient = scaling.scale * np.concatenate([np.zeros((0, queries.shape[1])), *(part.gradient for part in parts)])
    gradient[:, : len(scaling.slope)] += np.array(scaling.slope)
    spreads = [part.covariance for part in parts if part.covariance is not None]
    whole = scaling.scale**2 * np.concatenate(spreads) if parts and len(spreads) == len(parts) else None
    nobody = np.zeros((network.agents, 0), dtype=bool)
    return Gradient(
        method=method.name,
        gradient=gradient,
        covariance=whole if whole is not None and not np.isinf(whole).any() else None,
        kinks=np.concatenate([np.zeros((0, queries.shape[1]), dtype=bool), *(part.kinks for part in parts)]),
        participants=np.concatenate([nobody, *(part.participants for part in parts)], axis=1),
        status="converged",
        rounds=max((part.rounds for part in parts), default=0) if method.decentralized else 0,
        jitter=max((part.jitter for part in parts), default=0.0),
        engine=first_used(engine, *(part.engine for part in parts)),
        ledger=network.ledger,
    )
