"""Gradients of predictions by the inputs, on the agents hosted here: exactly those of what `predict` answers.

Each agent differentiates its own mean and variance; the rules are differentiated as they stand, by a complex step: a
function of x + i h x' with h = 1e-30 has its derivative along x' in its imaginary part, to rounding. What the agents
add up, and its derivatives along each input, go along the tree together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.engines.base import Posterior, Slopes, joined, retold, slopes_of_each
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.errors import InputError
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.aggregation import beliefs_of, first_of, taking_part
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.local import nearest_in
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.nearest import as_numbers, at_root, from_numbers, nearest_rows, numbers_for, whose
from fleetgp.prediction.posteriors import UNUSED, Posteriors, chunks, first_used
from fleetgp.prediction.predict import block_size
from fleetgp.prediction.results import Gradient
from fleetgp.prediction.rules import SMALLEST, Beliefs
from fleetgp.prediction.task import Agreed, Task

#: The complex step: its square is nothing beside 1, and no number of a model is so small.
STEP = 1e-30


@dataclass(frozen=True)
class Steep:
    """Of a block of queries, in the model's coordinates and units: gradient (T, D), covariance (T, D, D) or none."""

    gradient: Array
    covariance: Array | None
    participants: BoolArray
    engine: tuple[str, ...]
    kinks: BoolArray
    jitter: float = 0.0
    rounds: int = 0


def check_gradient(method: PredictionMethod, agents: int) -> None:
    """One clear error for a method that has no gradients."""
    if method.rule == "npae" and agents > 1:
        raise InputError(
            f"{method.name} has no gradients: they would take those of the covariances of all agents' means: use "
            "dec-nn-grbcm or dec-nearest, or differences of predictions"
        )


def answer_gradients(
    conditioned: Conditioned,
    network: Network,
    method: PredictionMethod,
    queries: Array,
    options: PredictionOptions,
    agreed: Agreed,
    *,
    to: int | None = None,
) -> Gradient:
    """The gradient of the mean at the queries (T, D), by the model's coordinates, in the units of the data.

    to: the only agent that needs the answer; the others, along the tree, are not told. agreed: see `agree_on`.
    """
    parts, size = [], block_size(method, network, options.n_neighbours)
    for start in range(0, max(1, len(queries)), size):
        some = queries[start : start + size]
        task = Task(method, network, conditioned.thetas, conditioned.prior(some), agreed, some, options, to)
        before = network.round
        with retold(units=conditioned.units):
            parts.append(replace(_answer(task, conditioned), rounds=network.round - before))
    scaling = conditioned.scaling
    gradient = scaling.scale * np.concatenate([part.gradient for part in parts])
    gradient[:, : len(scaling.slope)] += np.array(scaling.slope)
    spreads = [part.covariance for part in parts if part.covariance is not None]
    whole = scaling.scale**2 * np.concatenate(spreads) if len(spreads) == len(parts) else None
    return Gradient(
        method=method.name,
        gradient=gradient,
        covariance=whole if whole is not None and not np.isinf(whole).any() else None,
        kinks=np.concatenate([part.kinks for part in parts]),
        participants=np.concatenate([part.participants for part in parts], axis=1),
        status="converged",
        rounds=max(part.rounds for part in parts) if method.decentralized else 0,
        jitter=max(part.jitter for part in parts),
        engine=first_used(*(part.engine for part in parts)),
        ledger=network.ledger,
    )


def _answer(task: Task, conditioned: Conditioned) -> Steep:
    hosted, method, shards = task.network.hosted, task.method, conditioned.shards
    if not len(task.queries):
        nothing = np.zeros(task.queries.shape)
        return Steep(nothing, None, task.everyone, (UNUSED,) * len(hosted), nothing > 0.0)
    if task.agreed.moments is not None:
        return _of_one(task, conditioned, conditioned.of_moments(task.agreed.moments), [])
    if method.rule == "full-gp":
        assert task.agreed.pool is not None
        return _of_one(task, conditioned, conditioned.whole(task.agreed.pool).items([0])[0], [task.agreed.pool])
    if method.rule == "nearest":
        return _of_nearest(task, conditioned)
    if task.network.agents == 1:
        return _of_one(task, conditioned, conditioned.own(hosted).items([0])[0], shards)
    return _of_committee(task, conditioned)


def _of_one(task: Task, conditioned: Conditioned, posterior: Posterior, data: Sequence[Observations]) -> Steep:
    """Of the exact GP of all data: at every agent, or at a central node, which tells all."""
    found = _slopes(posterior, task.queries, sum(map(len, data)))
    if not task.method.decentralized:
        with task.network.phase("pool"):
            rows = np.concatenate([found.mean, found.covariance.reshape(len(task.queries), -1)], axis=1)
            task.network.scatter(rows, "predictions")
    kinks = np.zeros(task.queries.shape, dtype=bool)
    for one in data:
        kinks |= _kinks(conditioned, one.inputs, task.queries)
    engine = (posterior.engine,) * len(task.network.hosted)
    return Steep(found.mean, found.covariance, task.everyone, engine, kinks, posterior.jitter)


def _slopes(posterior: Posterior, queries: Array, size: int) -> Slopes:
    """In chunks of queries, for a posterior of so many observations."""
    width = queries.shape[1]
    parts = chunks(np.arange(len(queries)), size * width)
    return joined([posterior.slopes(queries[part]) for part in parts], width)


def _kinks(conditioned: Conditioned, inputs: Array, queries: Array) -> BoolArray:
    """(T, D) along which inputs a mean from these observations has a kink at which query."""
    found = np.zeros(queries.shape, dtype=bool)
    for axes in conditioned.kernel.rough_axes(queries.shape[1]):
        places = {row.tobytes() for row in inputs[:, list(axes)] + 0.0}  # no -0.0
        there = np.array([row.tobytes() in places for row in queries[:, list(axes)] + 0.0], dtype=bool)
        found[:, list(axes)] |= there[:, None]
    return found


# ---- dec-nearest -------------------------------------------------------------------------------------------------


def _of_nearest(task: Task, conditioned: Conditioned) -> Steep:
    """Of the small exact GP of each query, at the root."""
    network, (size, width) = task.network, task.queries.shape
    count, rows = nearest_rows(task, conditioned)
    pool = at_root(network, conditioned.shards, rows)

    def finish(_: Array, everyone: BoolArray | None) -> Array:
        assert pool is not None, "the root was told"
        root, inputs = network.tree.root, pool.data.inputs
        h = Hyperparameters.from_theta(task.thetas[network.hosted.index(root)])
        near = nearest_in(inputs, task.queries, count, conditioned.kernel, h)
        found, jitter = slopes_of_each(
            conditioned.kernel,
            h,
            pool.data,
            near,
            task.queries,
            lambda some: DenseEngine(pool.data.rows(some), conditioned.kernel, root).failure(h),
        )
        kinks = _kinks(conditioned, inputs, task.queries)
        spread = np.where(np.isfinite(found.covariance), found.covariance, -1.0).reshape(size, -1)
        who, needed = as_numbers(whose(task, pool, near)), np.full((size, 1), jitter)
        return np.concatenate([found.mean, spread, kinks, needed, who], axis=1)

    wide = [width, width**2, width, 1]
    with network.phase("aggregate"):
        silent = np.zeros((len(network.hosted), size, 0))
        told = network.reduce(
            silent,
            "predictions",
            finish=finish,
            result_shape=(sum(wide) + numbers_for(network.agents),),
            recipient=task.to,
        )
    engine = ("dense",) * len(network.hosted)
    if told is None:
        return _untold(task, engine)
    mean, spread, kinks, needed, who = np.split(told, np.cumsum(wide), axis=1)
    covariance = spread.reshape(size, width, width)
    rough = bool(conditioned.kernel.rough_axes(width))
    participants = from_numbers(who, network.agents)
    return Steep(mean, None if rough else covariance, participants, engine, kinks > 0.0, float(needed.max()))


def _untold(task: Task, engine: tuple[str, ...]) -> Steep:
    """Where another agent asks."""
    nothing = np.full(task.queries.shape, np.nan)
    return Steep(nothing, None, np.zeros_like(task.everyone), engine, np.isfinite(nothing))


# ---- committees --------------------------------------------------------------------------------------------------


def _of_committee(task: Task, conditioned: Conditioned) -> Steep:
    """The rule's sums with their derivatives; the root makes the gradient of them."""
    network, rule, (size, width) = task.network, task.rule, task.queries.shape
    participants = taking_part(task, conditioned)
    takes = participants[list(network.hosted)]
    own = conditioned.own(network.hosted).at(task.queries, np.zeros_like(takes) if rule.augmented else takes)
    beliefs, believed = beliefs_of(task, rule, conditioned, takes, own, first_of(task, participants))
    along = list(_along_each_input(task, conditioned, beliefs, takes))
    terms = [rule.summands(one) for one in along]
    x = np.concatenate([terms[0].real, *(np.imag(term) / STEP for term in terms)], axis=-1)
    samples = [one.inputs for one in task.agreed.samples]
    known = [np.concatenate([own.inputs, *samples]) for own in conditioned.shards]
    kinks = np.stack([_kinks(conditioned, inputs, task.queries) for inputs in known])
    rows = np.where(takes[..., None], np.concatenate([x, kinks], axis=-1), 0.0)
    count = participants.sum(axis=0).astype(float)

    def finish(totals: Array, everyone: BoolArray | None) -> Array:
        root = network.hosted.index(network.tree.root) if task.method.decentralized else 0
        values, *changes, kinked = np.split(totals, terms[0].shape[-1] * np.arange(1, width + 2), axis=1)
        found = np.empty((size, width))
        for d, change in enumerate(changes):
            total: Any = values + 1j * STEP * change
            means, _ = rule.finish(total[None], count[None], along[d].of_agent(root))
            found[:, d] = np.imag(means[0]) / STEP
        return np.concatenate([found, kinked > 0.0], axis=1)

    with network.phase("aggregate"):
        if task.method.decentralized:
            told = network.reduce(rows, "predictions", finish=finish, result_shape=(2 * width,), recipient=task.to)
        else:
            sent = network.gather({"predictions": rows})["predictions"]
            told = network.scatter(finish(np.sum(sent, axis=0), None), "predictions")[0]
    if told is None:
        return _untold(task, believed.engine)
    kinked = told[:, width:] > 0.0
    return Steep(told[:, :width], None, participants, believed.engine, kinked, believed.jitter)


def _along_each_input(task: Task, conditioned: Conditioned, beliefs: Beliefs, takes: BoolArray) -> Iterator[Beliefs]:
    """What the agents believe a complex step along each input away."""
    network, floor = task.network, SMALLEST * task.prior
    thetas = [Hyperparameters.from_theta(theta) for theta in conditioned.thetas]
    prior = np.stack([conditioned.kernel.curvature(task.queries, h)[0] for h in thetas])  # (A, T, D)
    own, common = conditioned.own(network.hosted), (np.zeros_like(prior), np.zeros_like(prior))
    if task.agreed.samples:
        own = conditioned.augmented(network.hosted, task.agreed.samples)
        shared, which = conditioned.of_samples(task.agreed.samples)
        everywhere = np.ones((len(shared.data), len(task.queries)), dtype=bool)
        of_mean, of_variance = _of_each(shared, task.queries, everywhere)
        common = of_mean[which], of_variance[which]
    mean, variance = _of_each(own, task.queries, takes)
    free, common_free = beliefs.variance > floor, beliefs.common_variance > floor
    for d in range(task.queries.shape[1]):
        yield Beliefs(
            _stepped(beliefs.mean, mean[..., d]),
            _stepped(beliefs.variance, np.where(free, variance[..., d], 0.0)),
            _stepped(beliefs.prior, prior[..., d]),
            _stepped(beliefs.common_mean, common[0][..., d]),
            _stepped(beliefs.common_variance, np.where(common_free, common[1][..., d], 0.0)),
            beliefs.first,
        )


def _stepped(values: Array, slopes: Array) -> Any:
    return values + 1j * STEP * slopes


def _of_each(posteriors: Posteriors, queries: Array, wanted: BoolArray) -> tuple[Array, Array]:
    """The slopes of mean and variance of each posterior where wanted (n, T), zero elsewhere: (n, T, D) each."""
    mean, variance = np.zeros((*wanted.shape, queries.shape[1])), np.zeros((*wanted.shape, queries.shape[1]))
    for i, asked in enumerate(wanted):
        if asked.any():
            found = _slopes(posteriors.items([i])[0], queries[asked], len(posteriors.data[i]))
            mean[i, asked], variance[i, asked] = found.mean, found.variance
    return mean, variance
