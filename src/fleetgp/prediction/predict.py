"""Prediction from end to end, on the agents hosted here: augment, believe, select, aggregate, tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import BatchOutcome, Status, average_items
from fleetgp.consensus.reductions import ByConsensus, ByServer
from fleetgp.consensus.samples import augmented, communication_data
from fleetgp.consensus.scaling import Scaling
from fleetgp.data.partition import Shard
from fleetgp.gp.dense.engine import DenseExpert
from fleetgp.gp.evaluation import Posterior
from fleetgp.gp.expert import Expert, condition
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel, SquaredExponential
from fleetgp.network import Network
from fleetgp.prediction import npae
from fleetgp.prediction.cross import ByVectors, ByWeights, Carrier, common_basis
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.prediction import Prediction
from fleetgp.prediction.rules import RULES, SMALLEST, Beliefs, Rule
from fleetgp.prediction.selection import Selection, select


@dataclass(frozen=True)
class PredictionOptions:
    """Settings known to every agent. eta: CBNN's threshold, relative to sigma_f^2."""

    rounds: int = 20_000
    tol: float = 1e-6
    eta: float = 1e-3
    seed: int = 0
    engine: str = "auto"


@dataclass(frozen=True)
class _Believed:
    """mean and variance (A, T), and where they came from: the engine of each, and the largest jitter."""

    mean: Array
    variance: Array
    engine: tuple[str, ...]
    jitter: float


@dataclass(frozen=True)
class _Answer:
    means: Array
    variances: Array
    participants: BoolArray
    averaging: BatchOutcome | None = None
    solving: BatchOutcome | None = None
    engine: tuple[str, ...] = ()
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
    task = _Task(method, shards, network, kernel, thetas, queries, options)
    if not len(queries):
        nothing = np.zeros((len(network.hosted), 0))
        answer = _Answer(nothing, nothing, task.everyone)
    elif method.rule == "full-gp":
        answer = _pooled(task)
    elif method.rule == "npae":
        answer = _npae(task)
    else:
        answer = _aggregated(task)
    return _prediction(task, answer)


def predict_in_units(
    method: PredictionMethod,
    shards: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    thetas: Array,
    scaling: Scaling,
    queries: Array,
    options: PredictionOptions,
    *,
    noisy: bool,
) -> Prediction:
    """The same, in the units of the data, where the model is for scaled observations. noisy: the variance of y."""
    unscaled = thetas / np.exp(scaling.shift(thetas))
    found = predict(method, scaling.apply(shards), network, kernel, unscaled, queries, options)
    noise = thetas[:, -1:] ** 2 if noisy else 0.0
    return replace(
        found,
        means=scaling.offset + scaling.scale * found.means,
        variances=scaling.scale**2 * found.variances + noise,
    )


@dataclass(frozen=True)
class _Task:
    """What was asked, and of whom."""

    method: PredictionMethod
    shards: Sequence[Shard]
    network: Network
    kernel: Kernel
    thetas: Array
    queries: Array
    options: PredictionOptions

    @property
    def prior(self) -> Array:
        """k(x*, x*) by each hosted agent's theta, (A,)."""
        return self.thetas[:, -2] ** 2

    @property
    def everyone(self) -> BoolArray:
        return np.ones((self.network.agents, len(self.queries)), dtype=bool)

    def experts(self, data: Sequence[Shard]) -> list[Expert]:
        return [
            Expert(x, y, self.kernel, i, self.options.engine)
            for (x, y), i in zip(data, self.network.hosted, strict=True)
        ]

    def believe(self, data: Sequence[Shard]) -> _Believed:
        """Each hosted agent's posterior given some data, at the queries; nobody's covariance is kept."""

        def at_queries(posterior: Posterior) -> tuple[Array, Array, str, float]:
            return *posterior.mean_and_variance(self.queries), posterior.engine, posterior.jitter

        mean, variance, engine, jitter = zip(*condition(self.experts(data), self.thetas, at_queries), strict=True)
        return _Believed(np.stack(mean), np.stack(variance), engine, max(jitter))

    def selection(self, explained: Array) -> Selection:
        """CBNN, from how much of the variance each agent's own data explain, (A, T)."""
        with self.network.phase("select"):
            chosen = select(self.network, explained, self.options.eta * self.prior)
        return Selection(self.network.topology, chosen)


def _pooled(task: _Task) -> _Answer:
    with task.network.phase("pool"):
        sent = task.network.gather({"inputs": [x for x, _ in task.shards], "observations": [y for _, y in task.shards]})
        pool = (np.concatenate(sent["inputs"]), np.concatenate(sent["observations"]))
        theta = np.exp(np.log(task.thetas).mean(axis=0))
        expert = Expert(*pool, task.kernel, 0, task.options.engine)
        (posterior,) = condition([expert], theta[None], lambda posterior: posterior)
        mean, variance = posterior.mean_and_variance(task.queries)
        floor = SMALLEST * posterior.hyperparameters.signal**2
        told = task.network.scatter(np.stack([mean, np.maximum(variance, floor)]), "predictions")
    engine = (posterior.engine,) * len(task.shards)
    return _Answer(told[:, 0], told[:, 1], task.everyone, engine=engine, jitter=posterior.jitter)


# ---- products of experts and committee machines ------------------------------------------------------------


def _aggregated(task: _Task) -> _Answer:
    rule, network, options = RULES[task.method.rule], task.network, task.options
    selection = None
    own = task.believe(task.shards) if task.method.nearest or not rule.augmented else None
    if task.method.nearest and own is not None:
        # The agents' own data count, for grBCM too: with the samples of all, everyone is correlated everywhere.
        selection = task.selection(task.prior[:, None] - own.variance)
    participants = task.everyone if selection is None else selection.participants
    beliefs, believed = _beliefs(task, rule, participants, own)
    hosted = np.asarray(network.hosted)
    summands = np.where(participants[hosted][..., None], rule.summands(beliefs), 0.0)
    count = np.tile(participants.sum(axis=0).astype(float), (len(hosted), 1))
    if not task.method.decentralized:
        with network.phase("aggregate"):
            sent = network.gather({"predictions": summands})["predictions"]
            totals = np.tile(np.sum(sent, axis=0), (len(hosted), 1, 1))
            means, variances = _finished(rule, totals, count, beliefs)
            told = network.scatter(np.stack([means[0], variances[0]]), "predictions")
        return _Answer(told[:, 0], told[:, 1], participants, engine=believed.engine, jitter=believed.jitter)
    with network.phase("average"):
        averaging = average_items(
            network, summands, kind="predictions", tol=options.tol, rounds=options.rounds, scope=selection
        )
    size = float(network.agents) if selection is None else selection.size[:, None]
    means, variances = _finished(rule, averaging.state * size, count, beliefs)
    if selection is not None:
        with network.phase("spread"):
            means, variances, averaging = selection.spread(network, means, variances, averaging)
    return _Answer(means, variances, participants, averaging, engine=believed.engine, jitter=believed.jitter)


def _beliefs(task: _Task, rule: Rule, participants: BoolArray, own: _Believed | None) -> tuple[Beliefs, _Believed]:
    """What enters the rule: the agents' own posteriors; for grBCM those of augmented data and of the samples alone."""
    network, floor = task.network, SMALLEST * task.prior[:, None]
    believed = common = own
    if rule.augmented or believed is None or common is None:
        with network.phase("augment"):
            samples = communication_data(network, task.shards, task.options.seed, central=not task.method.decentralized)
        pool = (np.concatenate([x for x, _ in samples]), np.concatenate([y for _, y in samples]))
        common = task.believe([pool] * len(network.hosted))
        found = task.believe([augmented(s, i, samples) for s, i in zip(task.shards, network.hosted, strict=True)])
        believed = replace(found, jitter=max(found.jitter, common.jitter))
    first = participants.argmax(axis=0)[None, :] == np.asarray(network.hosted)[:, None]
    variances = (np.maximum(b.variance, floor) for b in (believed, common))
    return Beliefs(believed.mean, next(variances), task.prior, common.mean, next(variances), first), believed


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


def _npae(task: _Task) -> _Answer:
    network, options = task.network, task.options
    posteriors, carrier = _crossing(task)
    mean, variance = np.stack([np.stack(p.mean_and_variance(task.queries)) for p in posteriors], axis=1)
    nested = npae.Nested(mean, task.prior[:, None] - variance, task.prior, carrier)
    participants = task.everyone
    if task.method.solver == "direct":
        with network.phase("aggregate"):
            outcome = npae.central(nested, network)
    elif task.method.solver == "dale":
        selection = task.selection(nested.explained)
        participants = selection.participants
        outcome = npae.over_selection(nested, network, selection, tol=options.tol, rounds=options.rounds)
    else:
        star = task.method.solver == "jor-star"
        outcome = npae.over_everyone(
            nested, network, star=star, tol=options.tol, rounds=options.rounds, seed=options.seed
        )
    jitter = max(outcome.jitter, *(p.jitter for p in posteriors))
    engine = tuple(p.engine for p in posteriors)
    return _Answer(outcome.means, outcome.variances, participants, outcome.averaging, outcome.solving, engine, jitter)


def _crossing(task: _Task) -> tuple[Sequence[Posterior], Carrier]:
    """The agents' posteriors, and how they tell each other what their means have in common."""
    if task.options.engine != "dense" and isinstance(task.kernel, SquaredExponential):
        with task.network.phase("box"):
            central = not task.method.decentralized
            reduction = ByServer(task.network) if central else ByConsensus(task.network)
            h = Hyperparameters.from_theta(task.thetas[0])  # all agents have the same
            basis = common_basis([x for x, _ in task.shards], h, reduction)
        if basis is not None:
            posteriors = condition(task.experts(task.shards), task.thetas, lambda posterior: posterior)
            return posteriors, ByVectors(posteriors, basis, task.queries)
    dense = [
        DenseExpert(x, y, task.kernel, i).condition(theta)
        for (x, y), i, theta in zip(task.shards, task.network.hosted, task.thetas, strict=True)
    ]
    return dense, ByWeights(dense, task.queries)


# ---- the result ------------------------------------------------------------------------------------------------


def _prediction(task: _Task, answer: _Answer) -> Prediction:
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
        method=task.method.name,
        means=answer.means,
        variances=answer.variances,
        participants=answer.participants,
        query_rounds=_rounds(answer.averaging, queries),
        solver_rounds=_rounds(answer.solving, queries),
        residual=residual,
        status=status,
        jitter=answer.jitter,
        engine=answer.engine,
        ledger=task.network.ledger,
        explained=_explained(task, answer),
    )


def _explained(task: _Task, answer: _Answer) -> Array:
    """The share of the prior's variance that each agent's answer explains, (A, T).

    PoE is measured by the product of priors alone, which is as sure of itself as there are agents in it.
    """
    prior = task.prior[:, None]
    if task.method.rule == "poe":
        prior = prior / np.maximum(answer.participants.sum(axis=0), 1)
    return np.asarray(1.0 - answer.variances / prior)


def _rounds(outcome: BatchOutcome | None, queries: int) -> IntArray:
    if outcome is None:
        return np.zeros(queries, dtype=np.int64)
    return np.asarray(outcome.rounds.max(axis=0, initial=0), dtype=np.int64)
