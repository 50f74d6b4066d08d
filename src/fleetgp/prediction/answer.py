"""Predictions of the agents hosted here, in the units of the data: block after block, jointly, and their gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import BatchOutcome
from fleetgp.data.dataset import Dataset
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.calibration import Calibration
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.methods import (
    Answer,
    PredictionMethod,
    PreparedQuery,
    PreviousState,
    SharedState,
    Vector,
    block_size,
)
from fleetgp.prediction.posteriors import UNUSED, first_used
from fleetgp.prediction.results import INFORMED, Gradient, Joint, Prediction, joined, kept_once, worst


@dataclass(frozen=True)
class Question:
    """queries: (T, D), as a user has them.  observed: whether variances are of an observation instead of f.

    done: numbers of blocks to leave out.
    to: the only agent that needs the answer. Along the tree no other receives it; the answers of others are NaN then.
    calibration: multiplies the standard deviations, if it is one for this method with these options.
    """

    method: PredictionMethod
    queries: Array
    options: PredictionOptions
    observed: bool = False
    done: Collection[int] = ()
    to: int | None = None
    calibration: Calibration | None = None

    @property
    def own_calibration(self) -> Calibration | None:
        """The calibration if it is for this question."""
        known = self.calibration
        return known if known is not None and known.about(self.method, self.options) else None


def predict(
    conditioned: Conditioned, network: Network, question: Question, shared: SharedState | None = None
) -> Prediction:
    """Mean and variance at the queries, in the units of the data.

    shared: what all agents hold already. Without it, everything that the method needs from other agents is sent over
        the network, however often it was sent before: agents that joined later, or were started again, can take part.
    """
    if shared is None:
        shared = agree(conditioned, network, question) if len(question.queries) else SharedState()
    return joined([block for _, block in predict_in_blocks(conditioned, network, question, shared)])


def agree(
    conditioned: Conditioned, network: Network, question: Question, previous: PreviousState | None = None
) -> SharedState:
    """What the method needs from other agents, whatever is asked; see `PredictionMethod.agree`."""
    with conditioned.in_user_units():
        return question.method.agree(network, conditioned, question.options, previous)


def predict_in_blocks(
    conditioned: Conditioned, network: Network, question: Question, shared: SharedState
) -> Iterator[tuple[int, Prediction]]:
    """The answers block by block, each with its number. No queries are one block.

    shared: what the agents agreed on before. The ledger of every answer is the network's: it counts all blocks so far.
    """
    method, nothing = question.method, np.zeros((len(network.hosted), 0))
    places, size = conditioned.view.coordinates.places(question.queries), block_size(method, network, question.options)
    for number, start in enumerate(range(0, max(1, len(places)), size)):
        if number not in question.done:
            some = places[start : start + size]
            query = PreparedQuery(network, conditioned, some, question.options, shared, question.to)
            with conditioned.in_user_units():
                answer = method.predict(query) if len(some) else Answer(nothing, nothing, query.everyone)
            yield number, _prediction(question, query, answer)


def _prediction(question: Question, query: PreparedQuery, answer: Answer) -> Prediction:
    conditioned, count, method = query.conditioned, len(query.queries), question.method
    calibration, to = question.own_calibration, question.to
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
        observed=question.observed,
        asked=query.hosted.index(to) if to in query.hosted else 0,
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


def joint(conditioned: Conditioned, network: Network, question: Question, shared: SharedState) -> Joint:
    """Mean and covariance at all queries together, in the units of the data."""
    method, to, calibration = question.method, question.to, question.own_calibration
    before, size, places = network.round, len(question.queries), conditioned.view.coordinates.places(question.queries)
    query = PreparedQuery(network, conditioned, places, question.options, shared, to)
    with conditioned.in_user_units():
        answer = method.joint(query)
    scale = conditioned.scaling.scale
    vector = answer.vector or Vector(np.full(size, np.nan), np.full((size, size), np.nan))
    noise = float(conditioned.noise[network.hosted.index(to) if to in network.hosted else 0, 0])
    covariance = scale**2 * vector.covariance
    of_observation = np.diagonal(covariance) + noise
    factor = np.ones(size) if calibration is None else calibration.factors(of_observation)
    if question.observed:
        covariance = covariance + noise * np.eye(size)
    explained = method.explained(query.prior[0], answer.participants, np.diagonal(vector.covariance))
    return Joint(
        method=method.name,
        mean=np.asarray(conditioned.scaling.mean(places) + scale * vector.mean),
        covariance=np.asarray(factor[:, None] * covariance * factor),
        participants=answer.participants,
        status="converged",
        rounds=network.round - before if method.decentralized else 0,
        jitter=answer.jitter,
        engine=answer.engine,
        ledger=network.ledger,
        noise=noise,
        factor=factor,
        prior_only=explained < INFORMED,
    )


def gradient(conditioned: Conditioned, network: Network, question: Question, shared: SharedState) -> Gradient:
    """The gradient of the mean at the queries, by the inputs as a user has them, in the units of the data."""
    coordinates, method = conditioned.view.coordinates, question.method
    places, parts = coordinates.places(question.queries), []
    size, width = block_size(method, network, question.options), places.shape[1]
    for start in range(0, len(places), size):
        before, some = network.round, places[start : start + size]
        with conditioned.in_user_units():
            answer = method.gradient(PreparedQuery(network, conditioned, some, question.options, shared, question.to))
        parts.append(replace(answer, rounds=network.round - before))
    scaling, engine = conditioned.scaling, (UNUSED,) * len(network.hosted)
    slopes = scaling.scale * np.concatenate([np.zeros((0, width)), *(part.gradient for part in parts)])
    slopes[:, : len(scaling.slope)] += np.array(scaling.slope)
    spreads = [part.covariance for part in parts if part.covariance is not None]
    spread = scaling.scale**2 * np.concatenate(spreads) if parts and len(spreads) == len(parts) else None
    known = None if spread is None or np.isinf(spread).any() else spread
    kinks = np.concatenate([np.zeros((0, width)), *(part.kinks.astype(float) for part in parts)])
    nobody, change = np.zeros((network.agents, 0), dtype=bool), coordinates.jacobian(question.queries)
    return Gradient(
        method=method.name,
        gradient=np.einsum("tp,tpd->td", slopes, change),
        covariance=None if known is None else np.einsum("tpd,tpq,tqe->tde", change, known, change),
        kinks=np.einsum("tp,tpd->td", kinks, np.abs(change)) > 0.0,
        participants=np.concatenate([nobody, *(part.participants for part in parts)], axis=1),
        status="converged",
        rounds=max((part.rounds for part in parts), default=0) if method.decentralized else 0,
        jitter=max((part.jitter for part in parts), default=0.0),
        engine=first_used(engine, *(part.engine for part in parts)),
        ledger=network.ledger,
    )
