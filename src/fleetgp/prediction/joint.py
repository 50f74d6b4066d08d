"""Joint predictions from end to end, on the agents hosted here: mean and covariance of f at all queries together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.reductions import of_fleet, total
from fleetgp.engines.base import Posterior, retold
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.errors import InputError
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import Network
from fleetgp.network.reduction import Finish
from fleetgp.options import PredictionOptions
from fleetgp.prediction.aggregation import taking_part
from fleetgp.prediction.calibration import Calibration
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.local import nearest_in
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.nearest import as_numbers, at_root, from_numbers, nearest_rows, numbers_for, whose
from fleetgp.prediction.posteriors import UNUSED
from fleetgp.prediction.results import INFORMED, Joint, explained_share
from fleetgp.prediction.rules import Frame, Role, Vector, evidence, normalizer, settled, squared_information
from fleetgp.prediction.task import Agreed, Task

#: Queries of a joint prediction: of a committee, whose agents add up a matrix of so many rows, 1 MB over each edge; and
#: of the exact GP, where a matrix takes 0.8 GB.
MOST_OF_COMMITTEE, MOST_JOINT = 500, 10_000
#: Observations near any of the queries that dec-nearest makes one GP of: they are sent to the root.
MOST_NEAR = 5000


@dataclass(frozen=True)
class Found:
    """What the agents answer: None where no hosted one was told. participants: (M, T)."""

    vector: Vector | None
    participants: BoolArray
    engine: tuple[str, ...]
    jitter: float = 0.0


def answer_jointly(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    agreed: Agreed,
    *,
    observed: bool = False,
    to: int | None = None,
    calibration: Calibration | None = None,
) -> Joint:
    """Mean and covariance at the queries (T, D), in the units of the data; observed: of observations instead of f.

    to: the only agent that needs the answer; the others, along the tree, are not told. agreed: see `agree_on`.
    """
    before = network.round
    task = Task(method, network, conditioned.thetas, conditioned.prior(queries), agreed, queries, options, to)
    with retold(units=conditioned.units):
        found = _answer(task, conditioned)
    size, scale = len(queries), conditioned.scaling.scale
    vector = found.vector or Vector(np.full(size, np.nan), np.full((size, size), np.nan))
    noise = float(conditioned.noise[network.hosted.index(to) if to in network.hosted else 0, 0])
    covariance = scale**2 * vector.covariance
    of_observation = np.diagonal(covariance) + noise
    known = calibration if calibration is not None and calibration.about(method, options) else None
    factor = np.ones(size) if known is None else known.factors(of_observation)
    if observed:
        covariance = covariance + noise * np.eye(size)
    return Joint(
        method=method.name,
        mean=np.asarray(conditioned.scaling.mean(queries) + scale * vector.mean),
        covariance=np.asarray(factor[:, None] * covariance * factor),
        participants=found.participants,
        status="converged",
        rounds=network.round - before if method.decentralized else 0,
        jitter=found.jitter,
        engine=found.engine,
        ledger=network.ledger,
        noise=noise,
        factor=factor,
        uninformed=explained_share(method.rule, task.prior[0], found.participants, np.diagonal(vector.covariance))
        < INFORMED,
    )


def check_joint(method: PredictionMethod, agents: int, count: int) -> None:
    """One clear error for what has no joint prediction, or for too many queries."""
    exact = method.rule in ("full-gp", "nearest") or agents == 1
    if method.rule == "npae" and not exact:
        raise InputError(
            f"{method.name} has no joint covariance: it would take those of all agents' means at all pairs of queries: "
            "use dec-nn-grbcm or dec-nearest, or predict for variances"
        )
    if not count:
        raise InputError("expected at least one query, got none")
    most = MOST_JOINT if exact else MOST_OF_COMMITTEE
    if count > most:
        advice = "give fewer" if exact else "give fewer, or use dec-nearest or dec-full-gp, which have more"
        raise InputError(f"{method.name}: expected at most {most} queries at once, got {count}: {advice}")


def _answer(task: Task, conditioned: Conditioned) -> Found:
    hosted = len(task.network.hosted)
    if task.agreed.moments is not None:
        posterior = conditioned.of_moments(task.agreed.moments)
        return _of_one(task, posterior, hosted)
    if task.method.rule == "full-gp":
        assert task.agreed.pool is not None
        whole = conditioned.whole(task.agreed.pool)
        return _of_one(task, whole.items([0])[0], hosted)
    if task.method.rule == "nearest":
        return _of_nearest(task, conditioned)
    if task.network.agents == 1:
        return _of_one(task, conditioned.own(task.network.hosted).items([0])[0], hosted)
    return _of_committee(task, conditioned)


def _of_one(task: Task, posterior: Posterior, hosted: int) -> Found:
    """The exact GP of all data: at every agent, which has their moments, or at a central node, which tells all."""
    found = Vector(*posterior.mean_and_covariance(task.queries))
    if not task.method.decentralized:
        with task.network.phase("pool"):
            task.network.scatter(_packed(found), "predictions")
    return Found(found, task.everyone, (posterior.engine,) * hosted, posterior.jitter)


# ---- dec-nearest -------------------------------------------------------------------------------------------------


def _of_nearest(task: Task, conditioned: Conditioned) -> Found:
    """The GP of the observations that are among the nearest to any of the queries, at the root."""
    network, size = task.network, len(task.queries)
    count, rows = nearest_rows(task, conditioned)
    with network.phase("size"):
        needed = int(total(network, np.array([float(len(some)) for some in rows])))
    if needed > MOST_NEAR:
        raise InputError(
            f"dec-nearest: a joint covariance is of at most {MOST_NEAR} observations near any of the queries, got "
            f"{needed}: give fewer queries, or fewer neighbours"
        )
    pool = at_root(network, conditioned.shards, rows)
    names = numbers_for(network.agents)

    def finish(_: Array, everyone: BoolArray | None) -> Array:
        assert pool is not None, "the root was told"
        root = network.tree.root
        h = Hyperparameters.from_theta(task.thetas[network.hosted.index(root)])
        near = nearest_in(pool.data.inputs, task.queries, count, conditioned.kernel, h)
        posterior = DenseEngine(pool.data.rows(np.unique(near)), conditioned.kernel, root).posterior(h)
        found = Vector(*posterior.mean_and_covariance(task.queries))
        who = as_numbers(whose(task, pool, near))
        return np.concatenate([_packed(found), who.ravel(), [posterior.jitter]])

    length = _length(size)
    with network.phase("aggregate"):
        silent = np.zeros((len(network.hosted), length + size * names + 1, 0))
        told = network.reduce(silent, "predictions", finish=finish, result_shape=(), recipient=task.to)
    engine = ("dense",) * len(network.hosted)
    if told is None:
        return Found(None, np.zeros_like(task.everyone), engine)
    who = from_numbers(told[length:-1].reshape(size, names), network.agents)
    return Found(_unpacked(told[:length], size), who, engine, float(told[-1]))


# ---- committees --------------------------------------------------------------------------------------------------


def _of_committee(task: Task, conditioned: Conditioned) -> Found:
    """Every agent's evidence, added up along the tree, or at a central node; what the root makes of it."""
    network, rule, size = task.network, task.method.rule, len(task.queries)
    participants = taking_part(task, conditioned)
    frames = _frames(task, conditioned)
    samples = task.agreed.samples
    own = conditioned.augmented(network.hosted, samples) if rule == "grbcm" else conditioned.own(network.hosted)
    count, known, engine, jitter = participants.sum(axis=0).astype(float), [], [], 0.0
    for i, agent in enumerate(network.hosted):
        posterior = own.items([i])[0] if participants[agent].any() else None
        found = frames[i].base if posterior is None else Vector(*posterior.mean_and_covariance(task.queries))
        known.append((frames[i], found, Role(participants[agent], count)))
        engine.append(UNUSED if posterior is None else posterior.engine)
        jitter = max(jitter, 0.0 if posterior is None else posterior.jitter)
    norm = _norm(task, known) if rule == "grbcm" else None
    told_by_each = [evidence(rule, *one, norm) for one in known]
    parts = [np.append(_packed(Vector(heard, precision)), 0.0) for precision, heard in told_by_each]

    def finish(totals: Array, _: BoolArray | None) -> Array:
        root = network.hosted.index(network.tree.root) if task.method.decentralized else 0
        summed = _unpacked(totals[:-1], size)
        vector, needed = settled(rule, frames[root], summed.covariance, summed.mean)
        return np.append(_packed(vector), needed)

    with network.phase("aggregate"):
        told = _totals(task, np.stack(parts), finish)
    if told is None:
        return Found(None, np.zeros_like(participants), tuple(engine), jitter)
    return Found(_unpacked(told[:-1], size), participants, tuple(engine), max(jitter, float(told[-1])))


def _totals(task: Task, parts: Array, finish: Finish) -> Array | None:
    """What is made of the sum of the agents' parts (A, n), (n,); None where nobody here is told."""
    network = task.network
    if task.method.decentralized:
        return network.reduce(parts, "predictions", finish=finish, result_shape=(), recipient=task.to)
    sent = network.gather({"predictions": parts})["predictions"]
    return np.asarray(network.scatter(finish(np.sum(sent, axis=0), None), "predictions")[0])


def _frames(task: Task, conditioned: Conditioned) -> list[Frame]:
    """What the rule starts from, at each hosted agent: the prior, or what the samples say. One for all of a theta."""
    if task.method.rule == "grbcm":
        posteriors, which = conditioned.of_samples(task.agreed.samples)
        bases = [Vector(*one.mean_and_covariance(task.queries)) for one in posteriors.items(range(max(which) + 1))]
    else:
        thetas, rows = np.unique(conditioned.thetas, axis=0, return_inverse=True)
        which, nothing = rows.ravel(), np.zeros(len(task.queries))
        models = [Hyperparameters.from_theta(theta) for theta in thetas]
        bases = [Vector(nothing, conditioned.kernel(task.queries, None, h)) for h in models]
    scales = task.prior.mean(axis=1)
    frames = [Frame(base, float(scales[np.argmax(which == k)])) for k, base in enumerate(bases)]
    return [frames[k] for k in which]


def _norm(task: Task, known: Sequence[tuple[Frame, Vector, Role]]) -> Array:
    """What the weights of grBCM are divided by: a reduction of the agents' squared information."""
    size = len(task.queries)
    upper = np.triu_indices(size)
    with task.network.phase("select"):
        total = of_fleet(task.network, central=not task.method.decentralized).total(
            np.stack([squared_information(*one)[upper] for one in known])
        )
    return normalizer(_unpacked(np.concatenate([np.zeros(size), total]), size).covariance)


# ---- what is sent ------------------------------------------------------------------------------------------------


def _length(size: int) -> int:
    """How many numbers a vector of so many queries has: means, and the covariances of all pairs."""
    return size + size * (size + 1) // 2


def _packed(one: Vector) -> Array:
    return np.concatenate([one.mean, one.covariance[np.triu_indices(len(one.mean))]])


def _unpacked(numbers: Array, size: int) -> Vector:
    covariance = np.empty((size, size))
    covariance[np.triu_indices(size)] = numbers[size:]
    covariance.T[np.triu_indices(size)] = numbers[size:]
    return Vector(np.array(numbers[:size]), covariance)
