"""The moments engine against exact arithmetic, the dense engine, and a fresh pass over the data."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.gp.basis import Basis, Box
from fleetgp.gp.chebyshev import coefficients, degree_for, expansion_error, fejer_weights, interpolation, nodes
from fleetgp.gp.dense.engine import DenseExpert
from fleetgp.gp.expert import Expert, tolerance
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import KERNELS
from fleetgp.gp.moments.engine import MomentsExpert
from fleetgp.gp.moments.grid import Moments
from tests.conftest import mostly_long, paper_shards

SE = KERNELS["se"]
THETA = np.array([1.2, 0.3, 1.3, 0.1])


def exact_nll(inputs: Array, observations: Array, theta: Array) -> float:
    """The likelihood in extended precision: its own kernel, its own Cholesky."""
    x, y, t = (np.asarray(a, dtype=np.longdouble) for a in (inputs, observations, theta))
    s = (((x[:, None, :] - x[None, :, :]) / t[:-2]) ** 2).sum(axis=2)
    c = t[-2] ** 2 * np.exp(-s) + t[-1] ** 2 * np.eye(len(y), dtype=np.longdouble)
    right = y.copy()
    log_determinant = np.longdouble(0.0)
    for k in range(len(y)):
        pivot = np.sqrt(c[k, k])
        log_determinant += 2 * np.log(pivot)
        column = c[k + 1 :, k] / pivot
        right[k] /= pivot
        right[k + 1 :] -= column * right[k]
        c[k + 1 :, k + 1 :] -= column[:, None] * column
    return float((right @ right + log_determinant) / 2)


def places(kind: str, n: int, dimension: int, rng: np.random.Generator) -> Array:
    if kind == "clusters":
        centres = rng.uniform(0, 2, (3, dimension))
        return np.asarray(centres[rng.integers(0, 3, n)] + 1e-3 * rng.standard_normal((n, dimension)))
    if kind == "line":
        return np.asarray(rng.uniform(0, 2, (n, 1)) * np.eye(dimension)[0] + 0.7)
    if kind == "diagonal":
        return np.asarray(rng.uniform(0, 2, (n, 1)) * np.ones(dimension))
    if kind == "repeats":
        return np.asarray(rng.uniform(0, 2, (5, dimension))[rng.integers(0, 5, n)])
    if kind == "far":
        return rng.uniform(0, 2, (n, dimension)) + 1e6
    return rng.uniform(0, 2, (n, dimension))


@settings(max_examples=80)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["uniform", "clusters", "line", "diagonal", "far", "repeats"]),
    st.integers(1, 90),
    st.integers(1, 3),
    st.floats(-1.0, 1.5),
    st.floats(-4.0, 0.5),
)
@example(1, "uniform", 1, 2, 0.0, -1.0)
@example(2, "clusters", 90, 2, 0.0, -3.0)
@example(3, "uniform", 80, 1, -1.0, -4.0)
@example(4, "line", 60, 3, 0.0, -2.0)
@example(27525, "clusters", 69, 2, 0.037109375, 0.03125)
def test_the_true_error_is_below_the_certificate(
    seed: int, kind: str, n: int, dimension: int, log_scale: float, log_noise: float
) -> None:
    rng = np.random.default_rng(seed)
    x = places(kind, n, dimension, rng)
    theta = np.array([*np.exp(log_scale + rng.uniform(-0.5, 0.5, dimension)), 1.3, 10.0**log_noise])
    y = rng.standard_normal(n) * rng.choice([0.1, 1.0, 10.0])
    if seed % 3 == 0:  # smooth, and larger than the model says
        y = 30.0 * np.cos(5.0 * (x - x.mean(axis=0)).sum(axis=1))
    expert = MomentsExpert(x, y, agent=0)
    found = expert.evaluate(np.log(theta))
    if found is None:
        return  # refused: nothing is claimed
    error = abs(found.nll - exact_nll(x, y, theta))
    assert error <= found.error
    if found.error <= tolerance(n):
        dense = DenseExpert(x, y, SE, 0).evaluate(np.log(theta))
        assert abs(found.nll - dense.nll) <= 1e-6 + 1e-10 * abs(dense.nll)
        assert np.allclose(found.gradient, dense.gradient, rtol=1e-5, atol=1e-5)


def test_the_certificate_is_tight_enough_to_be_of_use() -> None:
    """Ordinary data are certified, in one, two and three dimensions."""
    rng = np.random.default_rng(0)
    for dimension in (1, 2, 3):
        x = rng.uniform(0, 1, (400, dimension))
        y = np.sin(3 * x.sum(axis=1)) + 0.1 * rng.standard_normal(400)
        found = MomentsExpert(x, y, 0).evaluate(np.log([0.8] * dimension + [1.0, 0.1]))
        assert found is not None
        assert found.error <= 1e-6


def test_likelihood_and_gradient_of_the_papers_field_are_the_dense_ones() -> None:
    for agents in (1, 4):
        x, y = paper_shards(2025, agents)[agents // 2]
        moments, dense = MomentsExpert(x, y, 0), DenseExpert(x, y, SE, 0)
        for theta in (THETA, np.array([2.0, 0.5, 1.0, 1.0]), np.array([0.5, 0.9, 2.0, 0.3])):
            a, b = moments.evaluate(np.log(theta)), dense.evaluate(np.log(theta))
            assert a is not None
            assert abs(a.nll - b.nll) <= a.error <= 1e-6
            assert np.allclose(a.gradient, b.gradient, rtol=1e-6, atol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from(["uniform", "line", "clusters"]))
def test_posterior_inside_and_outside_the_box(seed: int, dimension: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    n = 400 if dimension == 3 else 80
    x = places(kind, n, dimension, rng)
    y = rng.standard_normal(n)
    theta = np.array([*rng.uniform(0.8, 2.0, dimension) * (1 + (dimension == 3)), 1.3, 10.0 ** rng.uniform(-1, 0)])
    queries = rng.uniform(-3, 5, (40, dimension))
    ours, reference = MomentsExpert(x, y, 0).condition(theta), DenseExpert(x, y, SE, 0).condition(theta)
    assert ours is not None
    for a, b in zip(ours.mean_and_variance(queries), reference.mean_and_variance(queries), strict=True):
        assert np.allclose(a, b, atol=1e-7)
    assert np.allclose(ours.explained_variance(queries), reference.explained_variance(queries), atol=1e-7)
    mean, variance = ours.mean_and_variance(np.full((2, dimension), 1e5))
    assert np.allclose(mean, 0.0, atol=1e-12)
    assert np.allclose(variance, 1.3**2)
    assert ours.mean_and_variance(queries[:0])[0].shape == (0,)


def test_moments_of_a_union_are_the_sum_also_on_another_box() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 3, (300, 2)), rng.standard_normal(300)
    box = Box.around(x)
    whole = Moments.of(box, (31, 45), x, y)
    parts = Moments.of(box, (31, 45), x[:100], y[:100]) + Moments.of(box, (31, 45), x[100:], y[100:])
    small = Moments.of(Box.around(x[:100]), (31, 45), x[:100], y[:100]).moved(box)
    moved = small + Moments.of(box, (31, 45), x[100:], y[100:])
    for other in (parts, moved):
        assert np.allclose(other.weights, whole.weights, atol=1e-11)
        assert np.allclose(other.responses, whole.responses, atol=1e-11)
        assert other.count == 300
        assert other.squares == pytest.approx(whole.squares)
    with pytest.raises(ValueError, match="same box"):
        whole + Moments.of(Box.around(x[:9]), (31, 45), x[:9], y[:9])


def test_appending_is_adding() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 2, (500, 2)), rng.standard_normal(500)
    order = np.argsort(np.abs(x - 1.0).max(axis=1))  # the box grows
    x, y = x[order], y[order]
    expert = MomentsExpert(x[:200], y[:200], 0)
    expert.evaluate(np.log(THETA))
    for part in (slice(200, 350), slice(350, 500)):
        expert.append(x[part], y[part])
    passes = expert.passes
    found, fresh = expert.evaluate(np.log(THETA)), MomentsExpert(x, y, 0).evaluate(np.log(THETA))
    assert found is not None
    assert fresh is not None
    assert found.nll == pytest.approx(fresh.nll, abs=2e-6)
    assert np.allclose(found.gradient, fresh.gradient, rtol=1e-6, atol=1e-6)
    inside = rng.uniform(0.5, 1.5, (50, 2))
    expert.append(inside, np.ones(50))
    assert expert.evaluate(np.log(THETA)) is not None
    assert expert.passes <= passes + 1, "no pass over old data for new points inside the box"


def test_appending_outside_the_box_leaves_no_stale_posterior() -> None:
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 6, (400, 1)), axis=0)
    y = np.sin(3 * x[:, 0])
    expert = MomentsExpert(x[:100], y[:100], 0)
    theta = np.array([0.4, 1.0, 0.1])
    assert expert.condition(theta) is not None
    expert.append(x[100:], y[100:])
    ours, reference = expert.condition(theta), DenseExpert(x, y, SE, 0).condition(theta)
    assert ours is not None
    for a, b in zip(ours.mean_and_variance(x), reference.mean_and_variance(x), strict=True):
        assert np.allclose(a, b, atol=1e-8)


def test_a_long_series_needs_no_table_of_pairs() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 120, (2000, 1))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(2000)
    theta = np.array([1.0, 1.0, 0.1])
    tracemalloc.start()
    found = MomentsExpert(x, y, 0).evaluate(np.log(theta))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None
    assert peak < 200e6
    assert abs(found.nll - DenseExpert(x, y, SE, 0).evaluate(np.log(theta)).nll) <= found.error


def test_what_the_posterior_cannot_resolve_is_left_to_the_dense_engine() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, (600, 1))
    y = 1e5 + np.sin(x[:, 0]) + 0.002 * rng.standard_normal(600)
    theta = np.array([0.3, 1.0, 0.002])
    assert Expert(x, y, SE, 0).condition(theta).engine == "dense"
    assert Expert(x, y - 1e5, SE, 0).condition(theta).engine == "moments"
    for extreme in ([1.0, 1.0, 1e-160], [1.0, 1e-200, 1.0], [1e-200, 1.0, 1.0]):
        assert MomentsExpert(x, y, 0).condition(np.array(extreme)) is None


def test_npae_on_a_box_too_large_for_a_short_basis_sends_inputs() -> None:
    rng = np.random.default_rng(0)
    shards = [(rng.uniform(0, 3000, (50, 1)), rng.standard_normal(50)) for _ in range(2)]
    out = fg.Fleet(shards, "path", theta=[1.0, 1.0, 0.1]).predict(shards[0][0][:2], "npae")
    assert "inputs" in out.ledger.kinds


def test_an_expert_can_be_given_more() -> None:
    x, y = paper_shards(900, 1)[0]
    for engine in ("dense", "moments"):
        expert = Expert(x[:600], y[:600], SE, 0, engine)
        expert.evaluate(np.log(THETA))
        expert.append(x[600:], y[600:])
        whole = Expert(x, y, SE, 0, "dense").evaluate(np.log(THETA))
        assert expert.size == 900
        assert expert.evaluate(np.log(THETA)).nll == pytest.approx(whole.nll, abs=2e-6)
        mean, _ = expert.condition(THETA).mean_and_variance(x[:5])
        assert np.allclose(mean, DenseExpert(x, y, SE, 0).condition(THETA).mean_and_variance(x[:5])[0], atol=1e-8)


def test_too_many_points_for_the_dense_engine_is_one_clear_error() -> None:
    x, y = np.zeros((3_000_000, 2)), np.zeros(3_000_000)
    with pytest.raises(InputError, match=r"agent 4.*GB.*more agents"):
        DenseExpert(x, y, KERNELS["matern32"], 4).evaluate(np.log(THETA))


def test_degrees_grow_with_one_more_pass_when_length_scales_shrink() -> None:
    x, y = paper_shards(900, 1)[0]
    expert = MomentsExpert(x, y, 0)
    expert.evaluate(np.log([2.0, 2.0, 1.0, 0.5]))
    assert expert.moments is not None
    before = expert.moments.sizes
    expert.evaluate(np.log([2.5, 1.9, 1.2, 0.5]))
    assert (expert.passes, expert.moments.sizes) == (1, before)
    short = np.log([0.5, 0.3, 1.0, 0.5])
    found = expert.evaluate(short)
    assert found is not None
    assert expert.passes == 2
    assert all(now > then for now, then in zip(expert.moments.sizes, before, strict=True))
    assert abs(found.nll - DenseExpert(x, y, SE, 0).evaluate(short).nll) <= found.error <= 1e-6
    assert expert.evaluate(np.log([1e-9, 1.0, 1.0, 0.5])) is None, "no grid of a sensible size"


def test_no_kronecker_matrix_is_ever_built() -> None:
    x, y = paper_shards(2025, 1)[0]
    expert = MomentsExpert(x, y, 0)
    expert.evaluate(np.log(THETA))
    assert expert.moments is not None
    functions = np.prod([(size - 1) // 2 for size in expert.moments.sizes])
    tracemalloc.start()
    expert.evaluate(np.log(THETA))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * functions**2 / 4


@settings(max_examples=40)
@given(st.floats(0.01, 12.0), st.integers(2, 60))
def test_expansion_error_bounds_the_true_tail(h: float, count: int) -> None:
    t = nodes(160)
    tail = np.abs(coefficients(np.exp(-((h * (t[:, None] - t)) ** 2))))
    tail[:count, :count] = 0.0
    bound = expansion_error(count, h)
    assert tail.sum() <= bound + 1e-12
    x = np.linspace(-1, 1, 101)
    grid = nodes(count)
    to_x = np.polynomial.chebyshev.chebvander(x, count - 1) @ np.linalg.inv(
        np.polynomial.chebyshev.chebvander(grid, count - 1)
    )
    interpolated = to_x @ np.exp(-((h * (grid[:, None] - grid)) ** 2)) @ to_x.T
    assert np.abs(interpolated - np.exp(-((h * (x[:, None] - x)) ** 2))).max() <= bound + 1e-11
    assert expansion_error(degree_for(h, 1e-15), h) <= 1e-15


def test_chebyshev_tables() -> None:
    rng = np.random.default_rng(0)
    poly = np.polynomial.Polynomial(rng.standard_normal(7))
    assert np.allclose(interpolation(8, 21) @ poly(nodes(8)), poly(nodes(21)))
    assert fejer_weights(9) @ poly(nodes(9)) == pytest.approx((poly.integ()(1) - poly.integ()(-1)) / 2)


def test_basis_reproduces_the_kernel_and_is_short() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, (200, 2))
    h = Hyperparameters.from_theta(THETA)
    box = Box.around(x)
    counts = tuple(degree_for(float(r), 1e-20) for r in box.half / THETA[:2])
    features = Basis(h, box, counts, 1e-14).at(x)
    assert np.abs(features @ features.T - SE(x, None, h)).max() < 1e-10
    assert features.shape[1] < np.prod(counts) / 4


def spread_out(rows: int, dimension: int) -> tuple[Array, Array]:
    """The first rows of the paper's field, in any number of dimensions."""
    x, y = paper_shards(900, 1)[0]
    return np.tile(x[:rows], (1, 5))[:, :dimension] * np.linspace(1, 1.7, dimension), y[:rows]


@pytest.mark.parametrize(
    ("rows", "theta", "kernel", "engine"),
    [
        pytest.param(900, [1.2, 0.3, 1.3, 0.3], "se", "moments", id="two dimensions"),
        pytest.param(900, [0.3, 1.3, 0.3], "se", "moments", id="one dimension"),
        pytest.param(900, [4.0, 4.0, 4.0, 1.3, 1.0], "se", "moments", id="three dimensions"),
        pytest.param(60, THETA, "se", "dense", id="too few points"),
        pytest.param(900, THETA, "matern32", "dense", id="a rough kernel"),
        pytest.param(900, [0.01, 0.01, 1.3, 0.1], "se", "dense", id="tiny length-scales"),
        pytest.param(900, [1.2, 0.3, 1.3, 1e-6], "se", "dense", id="tiny noise"),
        pytest.param(900, [1.2, 0.3, 1.3, 1e-2], "se", "dense", id="cheaper but not certified"),
        pytest.param(900, [*[0.5] * 6, 1.3, 0.1], "se", "dense", id="many dimensions"),
    ],
)
def test_auto_takes_the_cheaper_certified_engine_and_says_which(
    rows: int, theta: list[float], kernel: str, engine: str
) -> None:
    """Certificates are estimates of rounding and move with it: these are ten times inside the limit, or outside."""
    inputs, y = spread_out(rows, len(theta) - 2)
    expert = Expert(inputs, y, KERNELS[kernel], 0)
    if expert.preferred(np.asarray(theta))[0].name == "moments":
        certified = MomentsExpert(inputs, y, 0).evaluate(np.log(theta))
        assert certified is not None
        inside = certified.error < 0.1 * tolerance(rows)
        assert inside or certified.error > 10.0 * tolerance(rows), "choose an example that rounding cannot decide"
        assert inside == (engine == "moments")
    assert expert.evaluate(np.log(theta)).engine == engine


@pytest.mark.parametrize("noise", [0.02, 0.07, 0.2, 1.0])
@pytest.mark.parametrize("dimension", [1, 2])
def test_the_choice_follows_certificate_and_limit(dimension: int, noise: float) -> None:
    """On both sides of the limit, and wherever rounding puts an example that is close to it."""
    inputs, y = spread_out(400, dimension)
    theta = np.array([*[1.0 + dimension] * dimension, 1.3, noise])
    certified = MomentsExpert(inputs, y, 0).evaluate(np.log(theta))
    good = certified is not None and certified.error <= tolerance(400)
    expert = Expert(inputs, y, SE, 0)
    cheaper = expert.preferred(theta)[0].name == "moments"
    assert expert.evaluate(np.log(theta)).engine == ("moments" if good and cheaper else "dense")
    assert Expert(inputs, y, SE, 0, "moments").evaluate(np.log(theta)).engine == ("moments" if good else "dense")
    assert Expert(inputs, y, SE, 0, "dense").evaluate(np.log(theta)).engine == "dense"


def test_the_moments_engine_refuses_a_rough_kernel() -> None:
    with pytest.raises(InputError, match="squared exponential"):
        Expert(*spread_out(9, 2), KERNELS["matern32"], 0, "moments")


def test_a_fleet_says_which_engine_each_agent_used() -> None:
    shards = [*paper_shards(1800, 3), (paper_shards(60, 1)[0])]
    fleet = fg.Fleet(shards, "path")
    fit = fleet.train("dec-apx-gp", theta0=THETA, rounds=3, tol=0)
    assert fit.engine == ("moments", "moments", "moments", "dense")
    assert fleet.train("dec-apx-gp", theta0=THETA, rounds=3, tol=0, engine="dense").engine == ("dense",) * 4
    assert fleet.predict(shards[0][0][:3], "dec-rbcm").engine == ("moments", "moments", "moments", "dense")


@pytest.mark.parametrize(
    "method", mostly_long(["full-gp", "fact-gp", "dec-apx-gp", "dec-gapx-gp"], "fact-gp", "dec-apx-gp")
)
def test_training_ends_at_the_same_place_with_both_engines(method: str) -> None:
    shards = paper_shards(1200, 3)
    ends = [fg.Fleet(shards, "path").train(method, theta0=[2, 0.5, 1, 1], engine=e) for e in ("dense", "moments")]
    assert [fit.status for fit in ends] == ["converged", "converged"]
    assert set(ends[1].engine) == {"moments"}
    assert np.allclose(np.log(ends[0].theta), np.log(ends[1].theta), atol=1e-4)


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_predictions_are_the_same_with_both_engines(method: str) -> None:
    shards = paper_shards(600, 3)
    queries = np.random.default_rng(0).uniform(0, 2, (1 if method == "dec-nn-npae" else 6, 2))
    fleet = fg.Fleet(shards, "complete", theta=[1.2, 0.3, 1.3, 0.3])
    rounds = 1000 if method == "dec-nn-npae" else 20_000  # of which it would use all, to say no more
    dense, moments = (fleet.predict(queries, method, engine=e, rounds=rounds) for e in ("dense", "moments"))
    assert moments.status == dense.status
    assert np.allclose(dense.mean, moments.mean, atol=2e-5)
    assert np.allclose(dense.variance, moments.variance, atol=2e-5)


@pytest.mark.filterwarnings("ignore:.*no better known:fleetgp.errors.FleetGPWarning")  # of NPAE that is cut short
@pytest.mark.parametrize("method", ["npae", "dec-npae", "dec-npae-star", "dec-nn-npae"])
def test_npae_by_vectors_sends_no_input_and_less(method: str) -> None:
    shards = paper_shards(2400, 3)
    fleet = fg.Fleet(shards, "complete", theta=[1.2, 0.3, 1.3, 0.3])
    queries = np.random.default_rng(0).uniform(0, 2, (5, 2))
    by_weights = fleet.predict(queries, method, engine="dense", rounds=200).ledger
    by_vectors = fleet.predict(queries, method, rounds=200).ledger
    assert "inputs" in by_weights.kinds
    assert "inputs" not in by_vectors.kinds
    assert "observations" not in by_vectors.kinds
    phase = "aggregate" if method == "npae" else "rows"
    assert by_vectors.total(phase=phase).scalars < 0.7 * by_weights.total(phase=phase).scalars
