"""Prediction from end to end, on the agents hosted here: augment, believe, select, aggregate, tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import BatchOutcome, Status, average_items
from fleetgp.data.partition import Shard
from fleetgp.expert import DenseExpert, Posterior
from fleetgp.kernels import Kernel
from fleetgp.network import Network
from fleetgp.prediction import npae
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.prediction import Prediction
from fleetgp.prediction.rules import RULES, Beliefs, Rule
from fleetgp.prediction.selection import Selection, select
from fleetgp.training.augment import augmented, communication_data

#: A local variance is never taken for smaller than this fraction of the prior: a precision must stay finite.
SMALLEST = 1e-12


@dataclass(frozen=True)
class PredictionOptions:
    """Settings known to every agent. eta: CBNN's threshold, relative to sigma_f^2."""

    rounds: int = 20_000
    tol: float = 1e-6
    eta: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class _Answer:
    means: Array
    variances: Array
    participants: BoolArray
    averaging: BatchOutcome | None = None
    solving: BatchOutcome | None = None
    jitter: float = 0.0


def predict(
    method: PredictionMethod,
    shards: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    thetas: Array,
    queries: Array,
    options: PredictionOptions,
) -> Prediction:
    """Mean and variance of f at the queries (T, D), by the hosted agents, each with its own theta (A, P)."""
    if method.rule == "full-gp":
        answer = _pooled(shards, network, kernel, thetas, queries)
    elif method.rule == "npae":
        answer = _npae(method, _posteriors(shards, network, kernel, thetas), network, queries, options)
    else:
        answer = _aggregated(method, shards, network, kernel, thetas, queries, options)
    return _prediction(method, network, answer)


def _posteriors(shards: Sequence[Shard], network: Network, kernel: Kernel, thetas: Array) -> list[Posterior]:
    experts = [DenseExpert(x, y, kernel, agent) for (x, y), agent in zip(shards, network.hosted, strict=True)]
    return [expert.condition(theta) for expert, theta in zip(experts, thetas, strict=True)]


def _pooled(shards: Sequence[Shard], network: Network, kernel: Kernel, thetas: Array, queries: Array) -> _Answer:
    with network.phase("pool"):
        sent = network.gather({"inputs": [x for x, _ in shards], "observations": [y for _, y in shards]})
        expert = DenseExpert(np.concatenate(sent["inputs"]), np.concatenate(sent["observations"]), kernel, agent=0)
        posterior = expert.condition(np.exp(np.log(thetas).mean(axis=0)))
        told = network.scatter(np.stack(posterior.mean_and_variance(queries)), "predictions")
    everyone = np.ones((network.agents, len(queries)), dtype=bool)
    return _Answer(told[:, 0], told[:, 1], everyone, jitter=posterior.jitter)


# ---- products of experts and committee machines ------------------------------------------------------------


def _aggregated(
    method: PredictionMethod,
    shards: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    thetas: Array,
    queries: Array,
    options: PredictionOptions,
) -> _Answer:
    rule = RULES[method.rule]
    everyone = np.ones((network.agents, len(queries)), dtype=bool)
    selection = None
    if method.nearest:
        with network.phase("select"):
            own = _posteriors(shards, network, kernel, thetas)
            correlation = np.stack([p.explained_variance(queries) for p in own])
            selection = Selection(network.topology, select(network, correlation, options.eta * thetas[:, -2] ** 2))
    participants = everyone if selection is None else selection.participants
    beliefs, jitter = _beliefs(rule, method, shards, network, kernel, thetas, queries, participants, options.seed)
    hosted = np.asarray(network.hosted)
    summands = np.where(participants[hosted][..., None], rule.summands(beliefs), 0.0)
    count = np.tile(participants.sum(axis=0).astype(float), (len(hosted), 1))
    if not method.decentralized:
        with network.phase("aggregate"):
            sent = network.gather({"predictions": summands})["predictions"]
            totals = np.tile(np.sum(sent, axis=0), (len(hosted), 1, 1))
            means, variances = _finished(rule, totals, count, beliefs)
            told = network.scatter(np.stack([means[0], variances[0]]), "predictions")
        return _Answer(told[:, 0], told[:, 1], participants, jitter=jitter)
    with network.phase("average"):
        averaging = average_items(
            network, summands, kind="predictions", tol=options.tol, rounds=options.rounds, scope=selection
        )
    size = float(network.agents) if selection is None else selection.size[:, None]
    means, variances = _finished(rule, averaging.state * size, count, beliefs)
    if selection is not None:
        with network.phase("spread"):
            answers = selection.spread(network, np.stack([means, variances], axis=-1))
        means, variances = answers[..., 0], answers[..., 1]
    return _Answer(means, variances, participants, averaging, jitter=jitter)


def _beliefs(
    rule: Rule,
    method: PredictionMethod,
    shards: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    thetas: Array,
    queries: Array,
    participants: BoolArray,
    seed: int,
) -> tuple[Beliefs, float]:
    """The agents' posteriors at the queries; for grBCM from augmented data, with those of the samples alone."""
    prior = thetas[:, -2] ** 2
    floor = SMALLEST * prior[:, None]
    data, common = list(shards), np.zeros((2, len(thetas), len(queries)))
    jitter = 0.0
    if rule.augmented:
        with network.phase("augment"):
            samples = communication_data(network, shards, seed, central=not method.decentralized)
        data = [augmented(s, i, samples) for s, i in zip(shards, network.hosted, strict=True)]
        pool = (np.concatenate([x for x, _ in samples]), np.concatenate([y for _, y in samples]))
        shared = _posteriors([pool] * len(thetas), network, kernel, thetas)
        common = np.stack([np.stack(p.mean_and_variance(queries)) for p in shared], axis=1)
        jitter = max(p.jitter for p in shared)
    posteriors = _posteriors(data, network, kernel, thetas)
    local = np.stack([np.stack(p.mean_and_variance(queries)) for p in posteriors], axis=1)
    first = participants.argmax(axis=0)[None, :] == np.asarray(network.hosted)[:, None]
    beliefs = Beliefs(local[0], np.maximum(local[1], floor), prior, common[0], np.maximum(common[1], floor), first)
    return beliefs, max(jitter, *(p.jitter for p in posteriors))


def _finished(rule: Rule, totals: Array, count: Array, beliefs: Beliefs) -> tuple[Array, Array]:
    """The rule's finish; where averaging was capped early a precision may be off, but never lets a variance be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means, variances = rule.finish(totals, count, beliefs)
    prior = beliefs.prior[:, None]
    sound = (variances > 0.0) & np.isfinite(means)
    means = np.where(sound, means, 0.0)
    # gPoE alone may exceed the prior by rounding; nobody may by more.
    return means, np.where(sound, np.minimum(variances, prior), prior)


# ---- NPAE ------------------------------------------------------------------------------------------------------


def _npae(
    method: PredictionMethod,
    posteriors: Sequence[Posterior],
    network: Network,
    queries: Array,
    options: PredictionOptions,
) -> _Answer:
    local = np.stack([np.stack(p.mean_and_variance(queries)) for p in posteriors], axis=1)
    prior = np.array([p.hyperparameters.signal**2 for p in posteriors])
    explained = prior[:, None] - local[1]
    nested = npae.Nested(posteriors, local[0], explained, prior, [p.weights(queries) for p in posteriors])
    participants = np.ones((network.agents, len(queries)), dtype=bool)
    if method.solver == "direct":
        with network.phase("aggregate"):
            outcome = npae.central(nested, network)
    elif method.solver == "dale":
        with network.phase("select"):
            participants = select(network, explained, options.eta * prior)
            selection = Selection(network.topology, participants)
        outcome = npae.over_selection(nested, network, selection, tol=options.tol, rounds=options.rounds)
    else:
        outcome = npae.over_everyone(
            nested,
            network,
            star=method.solver == "jor-star",
            tol=options.tol,
            rounds=options.rounds,
            seed=options.seed,
        )
    jitter = max(outcome.jitter, *(p.jitter for p in posteriors))
    return _Answer(outcome.means, outcome.variances, participants, outcome.averaging, outcome.solving, jitter)


# ---- the result ------------------------------------------------------------------------------------------------


def _prediction(method: PredictionMethod, network: Network, answer: _Answer) -> Prediction:
    queries = answer.means.shape[1]
    outcomes = [o for o in (answer.averaging, answer.solving) if o is not None]
    status: Status = "converged"
    if any(o.status == "diverged" for o in outcomes):
        status = "diverged"
    elif any(o.status == "round limit" for o in outcomes):
        status = "round limit"
    residual = np.zeros(queries)
    for outcome in outcomes:
        residual = np.maximum(residual, outcome.residual.max(axis=0, initial=0.0))
    return Prediction(
        method=method.name,
        means=answer.means,
        variances=answer.variances,
        participants=answer.participants,
        query_rounds=_rounds(answer.averaging, queries),
        solver_rounds=_rounds(answer.solving, queries),
        residual=residual,
        status=status,
        jitter=answer.jitter,
        ledger=network.ledger,
    )


def _rounds(outcome: BatchOutcome | None, queries: int) -> IntArray:
    if outcome is None:
        return np.zeros(queries, dtype=np.int64)
    return np.asarray(outcome.rounds.max(axis=0, initial=0), dtype=np.int64)
