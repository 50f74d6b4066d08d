"""dec-nearest, against the GP of the pooled data's nearest written out, and against the exact GP."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array, IntArray
from fleetgp.graph import Tree
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import InProcess
from fleetgp.prediction import PredictionOptions, prediction_method
from fleetgp.prediction.methods import block_size
from tests.conftest import every_graph

THETA = (0.5, 0.2, 1.3, 0.2)
AGENTS = 5


@cache
def shards(n: int = 200, agents: int = AGENTS) -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(n, THETA, seed=0)
    return tuple(fg.partition(field.inputs, field.observations, agents=agents, by="stripes", axis=0))


def queries(count: int = 9) -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


def pooled(parts: tuple[tuple[Array, Array], ...]) -> tuple[Array, Array, IntArray]:
    """All inputs and observations, and whose they are."""
    owner = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), owner


def nearest_rows(x: Array, points: Array, count: int, scales: Array) -> IntArray:
    distance = np.sqrt((((x[None] - points[:, None]) / scales) ** 2).sum(axis=-1))
    return np.argsort(distance, axis=1, kind="stable")[:, :count]


def reference(x: Array, y: Array, points: Array, count: int, kernel: str, theta: Array) -> tuple[Array, Array]:
    """Mean and variance of f at each point, from plain inverses."""
    h, means, variances = Hyperparameters.from_theta(theta), [], []
    for point, rows in zip(points, nearest_rows(x, points, count, theta[:-2]), strict=True):
        inverse = np.linalg.inv(KERNELS[kernel](x[rows], x[rows], h) + theta[-1] ** 2 * np.eye(len(rows)))
        cross = KERNELS[kernel](x[rows], point[None], h)[:, 0]
        means.append(cross @ inverse @ y[rows])
        variances.append(theta[-2] ** 2 - cross @ inverse @ cross)
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("graph", every_graph(AGENTS))
def test_it_is_the_gp_of_the_nearest_of_all_data(graph: str) -> None:
    x, y, owner = pooled(shards())
    out = fg.Fleet(shards(), every_graph(AGENTS)[graph], theta=THETA, kernel="se", normalize=False).predict(
        queries(), "dec-nearest", n_nearest=15
    )
    mean, variance = reference(x, y, queries(), 15, "se", np.array(THETA))
    assert out.status == "converged"
    assert (out.means == out.means[0]).all()
    assert np.abs(out.mean - mean).max() < 1e-10
    assert np.abs(out.variance - variance).max() < 1e-10
    has = np.zeros((AGENTS, len(queries())), dtype=bool)
    for t, rows in enumerate(nearest_rows(x, queries(), 15, np.array(THETA[:2]))):
        has[owner[rows], t] = True
    assert np.array_equal(out.participants, has)
    assert has.sum() < has.size


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_every_kernel_scaling_and_the_noise(kernel: str) -> None:
    parts = tuple((x, 290.0 + 5.0 * y) for x, y in shards())
    x, y, _ = pooled(parts)
    theta = np.array([0.5, 0.2, 6.0, 1.0])
    out = fg.Fleet(parts, "cycle", theta=theta, kernel=kernel, normalize=True).predict(
        queries(), "dec-nearest", n_nearest=12, observed=True
    )
    mean, variance = reference(x, y - y.mean(), queries(), 12, kernel, theta)
    assert np.abs(out.mean - y.mean() - mean).max() < 1e-9
    assert np.abs(out.variance - variance - 1.0).max() < 1e-9


@pytest.mark.parametrize("neighbours", [200, 201, 10**6])
def test_with_all_neighbours_it_is_the_exact_gp(neighbours: int) -> None:
    f = fg.Fleet(shards(), "path", theta=THETA, kernel="matern32", normalize=False)
    out, exact = f.predict(queries(), "dec-nearest", n_nearest=neighbours), f.predict(queries(), "full-gp")
    assert np.abs(out.mean - exact.mean).max() < 1e-10
    assert np.abs(out.variance - exact.variance).max() < 1e-10
    assert out.participants.all()


def test_of_all_but_one_neighbours_each_query_leaves_out_the_farthest() -> None:
    """The last step before the exact GP goes the other way: a small GP for each query."""
    x, y, _ = pooled(shards())
    out = fg.Fleet(shards(), theta=THETA, kernel="se", normalize=False).predict(
        queries(3), "dec-nearest", n_nearest=199
    )
    mean, variance = reference(x, y, queries(3), 199, "se", np.array(THETA))
    assert np.abs(out.mean - mean).max() < 1e-9
    assert np.abs(out.variance - variance).max() < 1e-9


@pytest.mark.parametrize("agents", [1, 40])
def test_agents_with_fewer_than_that(agents: int) -> None:
    """One alone, and forty of five each."""
    x, y, _ = pooled(shards())
    fleet = fg.Fleet(shards(200, agents), theta=THETA, kernel="se", normalize=False)
    out = fleet.predict(queries(), "dec-nearest")
    mean, _ = reference(x, y, queries(), 120, "se", np.array(THETA))
    assert np.abs(out.mean - mean).max() < 1e-10


def test_of_equally_near_ones_the_same_count_however_the_data_are_shared() -> None:
    """On a grid whose distances are exact in binary, with queries between its points."""
    turned = np.random.default_rng(7).permutation(64)
    x = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0), indexing="ij"), axis=-1).reshape(-1, 2)
    y = np.random.default_rng(5).standard_normal(64)
    theta, points = np.array([2.0, 2.0, 1.0, 0.1]), np.array([[2.5, 2.5], [4.5, 3.5], [5.0, 4.5], [3.0, 3.0]])
    for count in (1, 3, 6, 10):
        mean, variance = reference(x, y, points, count, "matern12", theta)
        for agents in (1, 2, 7):
            parts = list(zip(np.array_split(x[turned], agents), np.array_split(y[turned], agents), strict=True))
            f = fg.Fleet(parts, theta=theta, kernel="matern12", normalize=False)
            out = f.predict(points, "dec-nearest", n_nearest=count)
            assert np.abs(out.mean - mean).max() < 1e-12
            assert np.abs(out.variance - variance).max() < 1e-12


def test_what_is_needed_travels_once_and_little_else() -> None:
    x, _, owner = pooled(shards())
    graph, points = fg.Graph.path(AGENTS), queries(20)
    out = fg.Fleet(shards(), graph, theta=THETA, kernel="se", normalize=False).predict(
        points, "dec-nearest", n_nearest=15
    )
    depths = Tree.of(graph).depths
    needed = np.unique(nearest_rows(x, points, 15, np.array(THETA[:2])))
    sent = out.ledger.total(kind="observations").scalars
    assert depths[owner[needed]].sum() <= sent < 1.2 * depths[owner[needed]].sum()
    assert out.ledger.total(kind="inputs").scalars == 2 * sent
    assert out.query_rounds.max() == 3 * 4, "three times up and down"


def test_who_is_far_away_sends_no_observations() -> None:
    points = np.array([[0.05, 1.0], [0.1, 0.5]])  # at the left end of five stripes
    out = fg.Fleet(shards(), "path", theta=THETA, kernel="se", normalize=False).predict(
        points, "dec-nearest", n_nearest=5
    )
    assert out.participants[0].all()
    assert not out.participants[2:].any()
    sent = out.ledger.sent_by(4)
    assert set(sent) == {"statistics", "predictions", "framing"}
    assert sent["statistics"].scalars == 1 + 5 * len(points), "how many it has, and five distances"
    assert sent["predictions"].scalars == 0


def test_many_agents_with_one_observation_each() -> None:
    """Nobody alone is sure of enough; and more agents than one number names."""
    x, y, owner = pooled(shards(200, 100))
    f = fg.Fleet(shards(200, 100), "grid", theta=THETA, kernel="se", normalize=False)
    out = f.predict(queries(), "dec-nearest", n_nearest=12)
    mean, _ = reference(x, y, queries(), 12, "se", np.array(THETA))
    assert np.abs(out.mean - mean).max() < 1e-10
    for t, rows in enumerate(nearest_rows(x, queries(), 12, np.array(THETA[:2]))):
        assert np.flatnonzero(out.participants[:, t]).tolist() == sorted(set(owner[rows]))


def test_one_asker_gets_the_same_bits_and_nobody_else_is_told() -> None:
    f = fg.Fleet(shards(), "path", theta=THETA, kernel="se", normalize=False)
    everyone, one = (f.predict(queries(), "dec-nearest", agent=agent) for agent in (None, 4))
    assert np.array_equal(one.mean, everyone.mean)
    assert np.array_equal(one.variance, everyone.variance)
    assert np.isnan(one.means[:4]).all()
    assert one.ledger.bytes < everyone.ledger.bytes


@pytest.mark.filterwarnings("ignore:.*exact copies:fleetgp.errors.FleetGPWarning")
def test_jitter_is_told() -> None:
    x = np.repeat(np.random.default_rng(0).uniform(0, 1, (10, 2)), 4, axis=0)
    parts = [(x[::2], x[::2, 0]), (x[1::2], x[1::2, 0])]
    out = fg.Fleet(parts, theta=(1.0, 1.0, 1.0, 1e-12), kernel="se", normalize=False).predict(
        [[0.5, 0.5]], "dec-nearest", n_nearest=12
    )
    assert out.jitter > 0.0
    assert (out.variances > 0.0).all()
    assert out.engine == ("dense", "dense")


def test_more_neighbours_are_asked_in_smaller_blocks() -> None:
    network, method = InProcess(fg.Graph.path(100)), prediction_method("dec-nearest")
    sizes = [block_size(method, network, PredictionOptions(n_nearest=count)) for count in (30, 3000)]
    assert sizes[1] < sizes[0]
    assert sizes[1] * 100 * 3000 * 8 < 1 << 30
