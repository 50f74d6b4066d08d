"""dec-nearest: the GP of the m observations of the whole fleet that are nearest to each query.

Each agent sends a few of the distances to its own nearest observations. Such lists, merged along the tree, give a
distance within which the fleet has m. What is no farther goes to the root, once for all queries of a block; the root
makes mean and variance of the nearest, with a small exact GP for each query, and sends with them whose they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.reductions import total
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.exact import ExactPosterior, slopes_of_each
from fleetgp.errors import InputError
from fleetgp.kernels.composite import Composite
from fleetgp.kernels.stationary import Kernel, Stationary
from fleetgp.linalg.cholesky import factorize
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Merge, Network
from fleetgp.network.wire import check_from_peers
from fleetgp.options import PredictionOptions
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.methods import (
    ROWS,
    Answer,
    GradientAnswer,
    JointAnswer,
    PredictionMethod,
    PreparedQuery,
    PreviousState,
    SharedState,
    Vector,
)
from fleetgp.prediction.posteriors import CHUNK, SMALLEST, chunks
from fleetgp.prediction.reach import nearest_in

#: Distances that an agent sends for each query. With more of them fewer observations come to the root in vain, which
#: are few already (1 in 100 where agents hold different places), and cost less than the distances.
STEPS = 5
#: Agents that are named in one number, by its bits.
BITS = 48
#: Observations near any of the queries of a joint prediction, which makes one GP of them: they are sent to the root.
MOST_NEAR = 5000


class Pool(NamedTuple):
    """What the root has been sent. owners: (n,) whose each observation is."""

    data: Observations
    owners: IntArray


@dataclass(frozen=True)
class Nearest(PredictionMethod):
    """The exact GP of the observations nearest to each query, at the root of the tree."""

    @property
    def rule(self) -> str:
        return "nearest"

    @property
    def options(self) -> tuple[str, ...]:
        return ("n_nearest",)

    @property
    def notes(self) -> tuple[str, str]:
        return (
            "distances; its rows among the nearest",
            "rows may be sent: as one agent with all data; rough fields",
        )

    def kinds(self, kernel: Kernel | None, engine: str, consensus: str) -> tuple[str, ...]:
        return ("statistics", "predictions", *ROWS)

    def exact(self, agents: int) -> bool:
        return True

    def doubles(self, agents: int, options: PredictionOptions) -> int:
        return agents * 6 * options.n_nearest  # every agent's nearest, and what they are merged in

    def check_joint(self, agents: int) -> None:
        pass

    def check_gradient(self, agents: int) -> None:
        pass

    def agree(
        self,
        network: Network,
        conditioned: Conditioned,
        options: PredictionOptions,
        previous: PreviousState | None = None,
    ) -> SharedState:
        """How many observations there are, counted again whenever there are more."""
        with network.phase("size"):
            return SharedState(size=int(total(network, np.array([float(len(own)) for own in conditioned.shards]))))

    # ---- answers ---------------------------------------------------------------------------------------------

    def predict(self, query: PreparedQuery) -> Answer:
        """Mean and variance at each query given its nearest observations; whose they are takes part."""
        network, before, queries = query.network, query.network.round, query.queries
        kernel = query.conditioned.kernel
        count, own = nearest_rows(query)
        pool = at_root(query, own)

        def finish(_: Array, everyone: BoolArray | None) -> Array:
            assert pool is not None, "the root has it"
            root = network.tree.root
            theta = query.thetas[network.hosted.index(root)]
            known, near = local_answers(pool.data, queries, count, kernel, theta, root)
            return np.concatenate([known, as_numbers(whose(query, pool, near))], axis=1)

        with network.phase("aggregate"):
            silent = np.zeros((len(query.hosted), len(queries), 0))
            width = 3 + numbers_for(network.agents)
            result = network.reduce(silent, "predictions", finish=finish, result_shape=(width,), recipient=query.to)
        rounds, engine = np.full(len(queries), network.round - before), ("dense",) * len(query.hosted)
        if result is None:
            return Answer.along_tree(query, None, query.nobody, rounds, engine=engine)
        who, jitter = from_numbers(result[:, 3:], network.agents), float(result[:, 2].max())
        return Answer.along_tree(query, result[:, :2], who, rounds, engine=engine, jitter=jitter)

    def joint(self, query: PreparedQuery) -> JointAnswer:
        """The GP of the observations that are among the nearest to any of the queries."""
        network, size, kernel = query.network, len(query.queries), query.conditioned.kernel
        count, rows = nearest_rows(query)
        with network.phase("size"):
            needed = int(total(network, np.array([float(len(some)) for some in rows])))
        if needed > MOST_NEAR:
            raise InputError(
                f"dec-nearest: a joint covariance is of at most {MOST_NEAR} observations near any of the queries, got "
                f"{needed}: give fewer queries, or a smaller n_nearest"
            )
        pool = at_root(query, rows)
        names = numbers_for(network.agents)

        def finish(_: Array, everyone: BoolArray | None) -> Array:
            assert pool is not None, "the root has it"
            root = network.tree.root
            h = Hyperparameters.from_theta(query.thetas[network.hosted.index(root)])
            near = nearest_in(pool.data.inputs, query.queries, count, kernel, h)
            posterior = DenseEngine(pool.data.rows(np.unique(near)), kernel, root).posterior(h)
            vector = Vector(*posterior.mean_and_covariance(query.queries))
            who = as_numbers(whose(query, pool, near))
            return np.concatenate([vector.packed, who.ravel(), [posterior.jitter]])

        length = Vector.length(size)
        with network.phase("aggregate"):
            silent = np.zeros((len(query.hosted), length + size * names + 1, 0))
            result = network.reduce(silent, "predictions", finish=finish, result_shape=(), recipient=query.to)
        engine = ("dense",) * len(query.hosted)
        if result is None:
            return JointAnswer(None, query.nobody, engine)
        who = from_numbers(result[length:-1].reshape(size, names), network.agents)
        return JointAnswer(Vector.unpacked(result[:length], size), who, engine, float(result[-1]))

    def gradient(self, query: PreparedQuery) -> GradientAnswer:
        """Of the small exact GP of each query, at the root."""
        network, (size, width), kernel = query.network, query.queries.shape, query.conditioned.kernel
        count, rows = nearest_rows(query)
        pool = at_root(query, rows)

        def finish(_: Array, everyone: BoolArray | None) -> Array:
            assert pool is not None, "the root has it"
            root, inputs = network.tree.root, pool.data.inputs
            h = Hyperparameters.from_theta(query.thetas[network.hosted.index(root)])
            near = nearest_in(inputs, query.queries, count, kernel, h)
            slopes, jitter = slopes_of_each(
                kernel,
                h,
                pool.data,
                near,
                query.queries,
                lambda some: DenseEngine(pool.data.rows(some), kernel, root).failure(h),
            )
            kinks = query.conditioned.kinks(inputs, query.queries)
            spread = np.where(np.isfinite(slopes.covariance), slopes.covariance, -1.0).reshape(size, -1)
            who, needed = as_numbers(whose(query, pool, near)), np.full((size, 1), jitter)
            return np.concatenate([slopes.mean, spread, kinks, needed, who], axis=1)

        wide = [width, width**2, width, 1]
        with network.phase("aggregate"):
            silent = np.zeros((len(query.hosted), size, 0))
            shape = (sum(wide) + numbers_for(network.agents),)
            result = network.reduce(silent, "predictions", finish=finish, result_shape=shape, recipient=query.to)
        engine = ("dense",) * len(query.hosted)
        if result is None:
            return GradientAnswer.unknown(query, engine)
        mean, spread, kinks, needed, who = np.split(result, np.cumsum(wide), axis=1)
        covariance = None if kernel.rough_axes(width) else spread.reshape(size, width, width)
        participants = from_numbers(who, network.agents)
        return GradientAnswer(mean, covariance, participants, engine, kinks > 0.0, float(needed.max()))


# ---- which observations ------------------------------------------------------------------------------------------


def nearest_rows(query: PreparedQuery) -> tuple[int, list[IntArray]]:
    """How many observations answer a query, and of each hosted agent the rows that may be among them."""
    count = min(query.options.n_nearest, query.shared.size)
    distances, rows = query.conditioned.reach.nearest(query.queries, count)
    with query.network.phase("select"):
        enough = _enough(query.network, distances)
    needed = np.isfinite(distances) & (distances <= enough[:, None])
    return count, [np.unique(some[wanted]) for some, wanted in zip(rows, needed, strict=True)]


def whose(query: PreparedQuery, pool: Pool, near: IntArray) -> BoolArray:
    """(M, T) whose observations are among the nearest to each query, rows (T, m) of the pool."""
    who = query.nobody
    who[pool.owners[near].T, np.arange(len(query.queries))] = True
    return who


def _nearest(one: Array, other: Array) -> Array:
    """The smallest of two lists, as many as one has."""
    return np.sort(np.concatenate([one, other], axis=-1), axis=-1)[..., : one.shape[-1]]


NEAREST = Merge(_nearest, np.inf)


def _enough(network: Network, distances: Array) -> Array:
    """(T,) a distance within which the fleet has m observations, from each agent's m nearest, (A, T, m).

    An agent sends the distance of every s-th: as many more are within it. The smallest of all agents' such distances
    say where there are m. Infinite where this is not sure: there are hardly more then.
    """
    count = distances.shape[2]
    step = -(-count // STEPS)
    ends = np.minimum(step * np.arange(1, -(-count // step) + 1), count) - 1
    enough = network.reduce(
        distances[..., ends], "statistics", NEAREST, finish=lambda merged, _: merged[:, -1:], result_shape=(1,)
    )
    assert enough is not None, "all agents receive it"
    return np.asarray(enough[:, 0])


def at_root(query: PreparedQuery, rows: Sequence[IntArray]) -> Pool | None:
    """These rows of the agents, in the order of their ids, where the root of the tree is hosted; None elsewhere."""
    network = query.network
    parts = [own.rows(some) for own, some in zip(query.conditioned.shards, rows, strict=True)]
    packed, root = [part.packed for part in parts], network.tree.root
    width = packed[0].shape[1]
    with network.phase("pool"):
        sent = network.collect({"inputs": packed, "observations": [part.values for part in parts]}, recipient=root)
    if sent is None:
        return None
    inputs, observations = sent["inputs"], sent["observations"]
    check_from_peers(inputs, lambda _, x: x.size == 0 or x.shape[1:] == (width,), f"(n, {width}) inputs")
    check_from_peers(observations, lambda i, y: y.shape == inputs[i].shape[:1], "one observation per input")
    data = [parts[0].unpacked(x, y) for x, y in zip(inputs, observations, strict=True)]
    return Pool(Observations.joined(data), np.repeat(np.arange(network.agents), list(map(len, data))))


def numbers_for(agents: int) -> int:
    """How many numbers have a bit for each agent."""
    return -(-agents // BITS)


def as_numbers(who: BoolArray) -> Array:
    """Who takes part, (M, T), as the bits of a few numbers a query, (T, W).

    >>> as_numbers(np.array([[True, False], [False, True], [True, True]])).tolist()
    [[5.0], [6.0]]
    """
    starts = range(0, len(who), BITS)
    return np.stack([2.0 ** np.arange(len(part)) @ part for part in (who[s : s + BITS] for s in starts)], axis=1)


def from_numbers(numbers: Array, agents: int) -> BoolArray:
    """The reverse.

    >>> from_numbers(np.array([[5.0], [6.0]]), 3).tolist()
    [[True, False], [False, True], [True, True]]
    """
    bits = numbers.T.astype(np.int64)[:, None, :] >> np.arange(BITS)[:, None] & 1
    return np.asarray(bits.reshape(-1, len(numbers))[:agents] > 0)


# ---- a small exact GP for each query -----------------------------------------------------------------------------


def local_answers(
    pool: Observations, queries: Array, count: int, kernel: Kernel, theta: Array, agent: int
) -> tuple[Array, IntArray]:
    """Mean and variance of f at each query, and the jitter that they needed, (T, 3), given its nearest in the pool.

    And which rows these are, (T, m).  agent: who computes, for error messages.
    """
    h = Hyperparameters.from_theta(theta)
    try:
        rows = nearest_in(pool.inputs, queries, count, kernel, h)
        if len(pool) <= count:
            answers = _of_all(DenseEngine(pool, kernel, agent).posterior(h), queries)
        else:
            answers = _of_each(pool, queries, rows, kernel, h, agent)
    except MemoryError:
        raise InputError(f"dec-nearest with n_nearest={count} needs more memory than there is: use fewer") from None
    answers[:, 1] = np.maximum(answers[:, 1], SMALLEST * kernel.variance(queries, h))
    return answers, rows


def _of_all(posterior: ExactPosterior, queries: Array) -> Array:
    """Mean, variance and jitter (T, 3) given the whole pool."""
    parts = chunks(np.arange(len(queries)), len(posterior.data))
    values = side_by_side(lambda part: np.stack(posterior.mean_and_variance(queries[part]), axis=1), parts)
    return np.column_stack([np.concatenate(values), np.full(len(queries), posterior.jitter)])


def _of_each(
    pool: Observations, queries: Array, rows: IntArray, kernel: Kernel, h: Hyperparameters, agent: int
) -> Array:
    """Mean, variance and jitter (T, 3) given these rows (T, m) of the pool."""
    prior, noise = kernel.variance(queries, h), kernel.noise(pool, h)
    answers = np.empty((len(queries), 3))

    def answer(part: IntArray) -> None:
        crosses, covariances = _covariances(kernel, pool.inputs[rows[part]], queries[part], h)
        for t, near, k, covariance in zip(part, rows[part], crosses, covariances, strict=True):
            factor = factorize(covariance, noise[near])
            if factor is None:
                raise DenseEngine(pool.rows(near), kernel, agent).failure(h)
            half_k, half_y = factor.half_solve(np.stack([k, pool.values[near]], axis=1)).T
            answers[t] = half_k @ half_y, prior[t] - half_k @ half_k, factor.jitter

    step = max(1, CHUNK // rows.shape[1] ** 2)
    side_by_side(answer, [np.arange(start, min(start + step, len(answers))) for start in range(0, len(answers), step)])
    return answers


def _covariances(kernel: Kernel, points: Array, queries: Array, h: Hyperparameters) -> tuple[Array, Array]:
    """Of each query with its points (T, m, D), (T, m), and of these among each other, (T, m, m)."""
    if isinstance(kernel, Composite):
        return kernel.at(points, queries[:, None], h).matrix[..., 0], kernel.at(points, None, h).matrix
    assert isinstance(kernel, Stationary)
    # Seen from the query: no digits are lost far from the origin.
    scales, signal = kernel.split(h)
    seen = points / scales - (queries / scales)[:, None]
    cross = np.einsum("tmd,tmd->tm", seen, seen)
    pairs = np.zeros((*cross.shape, cross.shape[1]))
    for axis in np.moveaxis(seen, -1, 0):
        pairs += (axis[:, :, None] - axis[:, None, :]) ** 2
    kernel.profile_in_place(cross)
    kernel.profile_in_place(pairs)
    return signal**2 * cross, signal**2 * pairs
