"""Which engine answers, and that both answer the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import MOST_DENSE, Expert, condition, tolerance
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.training.reporting import about_approximation
from tests.conftest import mostly_long, paper_shards
from tests.engines.moments.problems import SE, THETA, spread_out

#: The methods whose answers come from the engine that was asked for: dec-full-gp and dec-nearest have one of their own.
BY_ENGINES = [method for method in fg.PREDICTION_METHODS if method not in ("dec-full-gp", "dec-nearest")]


def test_npae_on_a_box_too_large_for_a_short_basis_sends_inputs() -> None:
    rng = np.random.default_rng(0)
    shards = [(rng.uniform(0, 3000, (50, 1)), rng.standard_normal(50)) for _ in range(2)]
    out = fg.Fleet(shards, "path", theta=[1.0, 1.0, 0.1], kernel="se", normalize=False).predict(
        shards[0][0][:2], "npae"
    )
    assert "inputs" in out.ledger.kinds


def test_an_expert_can_be_given_more() -> None:
    x, y = paper_shards(900, 1)[0]
    for engine in ("dense", "moments"):
        expert = Expert(Observations(x[:600], y[:600]), SE, 0, engine)
        expert.evaluate(np.log(THETA))
        expert.grow(Observations(x, y))
        whole = Expert(Observations(x, y), SE, 0, "dense").evaluate(np.log(THETA))
        assert expert.size == 900
        assert expert.evaluate(np.log(THETA)).nll == pytest.approx(whole.nll, abs=2e-6)
        mean, _ = expert.condition(THETA).mean_and_variance(x[:5])
        assert np.allclose(
            mean, DenseEngine(Observations(x, y), SE, 0).condition(THETA).mean_and_variance(x[:5])[0], atol=1e-8
        )


def test_too_many_points_for_the_dense_engine_is_one_clear_error() -> None:
    x, y = np.zeros((3_000_000, 2)), np.zeros(3_000_000)
    with pytest.raises(InputError, match=r'^agent 4: .*GB.*engine="auto"'):
        DenseEngine(Observations(x, y), KERNELS["matern32"], 4).evaluate(np.log(THETA))
    with pytest.raises(InputError, match=r'^the fleet: .*GB.*engine="auto"'):  # it was pooled, for one node
        DenseEngine(Observations(x, y), KERNELS["matern32"], None).condition(np.array(THETA))


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
    """Certificates are estimates of rounding and move with it: these are five times inside the limit, or outside."""
    inputs, y = spread_out(rows, len(theta) - 2)
    expert = Expert(Observations(inputs, y), KERNELS[kernel], 0)
    if expert.preferred(np.asarray(theta))[0].name == "moments":
        certified = MomentsEngine(Observations(inputs, y), 0).evaluate(np.log(theta))
        assert certified is not None
        inside = certified.error < tolerance(rows) / 5.0
        assert inside or certified.error > 5.0 * tolerance(rows), "choose an example that rounding cannot decide"
        assert inside == (engine == "moments")
    assert expert.evaluate(np.log(theta)).engine == engine


@pytest.mark.parametrize("noise", [0.02, 0.07, 0.2, 1.0])
@pytest.mark.parametrize("dimension", [1, 2])
def test_the_choice_follows_certificate_and_limit(dimension: int, noise: float) -> None:
    """On both sides of the limit, and wherever rounding puts an example that is close to it."""
    inputs, y = spread_out(400, dimension)
    theta = np.array([*[1.0 + dimension] * dimension, 1.3, noise])
    certified = MomentsEngine(Observations(inputs, y), 0).evaluate(np.log(theta))
    good = certified is not None and certified.error <= tolerance(400)
    expert = Expert(Observations(inputs, y), SE, 0)
    cheaper = expert.preferred(theta)[0].name == "moments"
    assert expert.evaluate(np.log(theta)).engine == ("moments" if good and cheaper else "dense")
    assert Expert(Observations(inputs, y), SE, 0, "moments").evaluate(np.log(theta)).engine == (
        "moments" if good else "dense"
    )
    assert Expert(Observations(inputs, y), SE, 0, "dense").evaluate(np.log(theta)).engine == "dense"


@pytest.mark.parametrize(
    ("size", "kernel", "theta", "engine"),
    [
        (MOST_DENSE, "matern32", THETA, "dense"),
        (MOST_DENSE + 1, "matern32", THETA, "vecchia"),
        (MOST_DENSE + 1, "se", [1.2, 0.3, 1.3, 0.3], "moments"),
        (MOST_DENSE + 1, "se", [0.01, 0.01, 1.3, 0.1], "vecchia"),
        (MOST_DENSE + 1, "se", [1.2, 0.3, 1.3, 1e-6], "vecchia"),
    ],
)
def test_what_is_too_much_for_dense_and_not_certified_is_approximated(
    size: int, kernel: str, theta: list[float], engine: str
) -> None:
    inputs, y = paper_shards(size, 1)[0]
    expert = Expert(Observations(inputs, y), KERNELS[kernel], 0)
    assert expert.preferred(np.asarray(theta))[-1].name == ("dense" if size <= MOST_DENSE else "vecchia")
    assert expert.evaluate(np.log(theta)).engine == engine
    posterior = expert.condition(np.asarray(theta))
    assert posterior.engine == engine
    assert (
        Expert(Observations(inputs[:9], y[:9]), KERNELS[kernel], 0, "vecchia").evaluate(np.log(theta)).engine
        == "vecchia"
    )
    assert Expert(Observations(inputs, y), KERNELS[kernel], 0, "dense").preferred(np.asarray(theta))[0].name == "dense"


@pytest.mark.parametrize("method", BY_ENGINES)
@pytest.mark.parametrize("kernel", ["se", "matern32"])
def test_predictions_with_all_observations_near_are_the_dense_ones(method: str, kernel: str) -> None:
    shards = paper_shards(240, 3)
    queries = np.random.default_rng(0).uniform(0, 2, (1 if method == "dec-nn-npae" else 5, 2))
    fleet = fg.Fleet(shards, "complete", theta=[0.8, 0.3, 1.3, 0.3], kernel=kernel, normalize=False)
    dense = fleet.predict(queries, method, engine="dense")
    near = fleet.predict(queries, method, engine="vecchia", n_neighbours=240)
    assert set(near.engine) == {"vecchia"}
    assert near.status == dense.status
    assert np.allclose(dense.mean, near.mean, atol=1e-5)
    assert np.allclose(dense.variance, near.variance, atol=1e-5)


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-grbcm"])
def test_small_and_large_agents_of_one_fleet(method: str) -> None:
    """Some by dense, extended from the samples, some by Vecchia: each as if it were alone."""
    x, y = paper_shards(2400, 1)[0]
    shards = [(x[rows], y[rows]) for rows in (slice(0, 200), slice(200, 400), slice(400, None))]
    fleet = fg.Fleet(shards, "path", theta=[0.8, 0.3, 1.3, 0.3], kernel="matern32", normalize=False)
    queries = np.random.default_rng(0).uniform(0, 2, (20, 2))
    found, dense = (fleet.predict(queries, method, engine=engine) for engine in ("auto", "dense"))
    assert found.engine == ("dense", "dense", "vecchia")
    assert np.abs(found.mean - dense.mean).max() < 0.1
    assert np.abs(found.variance / dense.variance - 1.0).max() < 0.15


def test_a_training_by_vecchia_ends_near_the_exact_one_and_says_how_near_its_likelihood_is() -> None:
    shards = paper_shards(600, 2)
    fleet = fg.Fleet(shards, "path", kernel="matern32", normalize=False)
    exact = fleet.train("fact-gp", theta0=[1.0, 0.5, 1.0, 0.3], engine="dense")
    found = fleet.train("fact-gp", theta0=[1.0, 0.5, 1.0, 0.3], engine="vecchia", n_neighbours=30)
    assert found.status == exact.status == "converged"
    assert set(found.engine) == {"vecchia"}
    assert np.abs(np.log(found.theta / exact.theta)).max() < 0.1
    assert not exact.approximation.any()
    assert (found.approximation > 0.0).all()
    assert found.approximation.max() < 5.0
    assert about_approximation(exact) == ""
    told = f"change it by some {found.approximation.max():.2g} nats an agent, at most."
    assert about_approximation(found).startswith("The likelihood of 2 of 2 agents is approximate (vecchia)")
    assert about_approximation(found).endswith(told)


def test_the_moments_engine_refuses_a_rough_kernel() -> None:
    with pytest.raises(InputError, match="squared exponential"):
        Expert(Observations(*spread_out(9, 2)), KERNELS["matern32"], 0, "moments")


def test_a_fleet_says_which_engine_each_agent_used() -> None:
    shards = [*paper_shards(1800, 3), (paper_shards(60, 1)[0])]
    fleet = fg.Fleet(shards, "path", kernel="se", normalize=False)
    fit = fleet.train("dec-apx-gp", theta0=THETA, rounds=3, tol=0)
    assert fit.engine == ("moments", "moments", "moments", "dense")
    assert fleet.train("dec-apx-gp", theta0=THETA, rounds=3, tol=0, engine="dense").engine == ("dense",) * 4
    assert fleet.predict(shards[0][0][:3], "dec-rbcm").engine == ("moments", "moments", "moments", "dense")


@pytest.mark.parametrize(
    "method", mostly_long(["full-gp", "fact-gp", "dec-apx-gp", "dec-gapx-gp"], "fact-gp", "dec-apx-gp")
)
def test_training_ends_at_the_same_place_with_both_engines(method: str) -> None:
    shards = paper_shards(600, 3)
    ends = [
        fg.Fleet(shards, "path", kernel="se", normalize=False).train(method, theta0=[2, 0.5, 1, 1], engine=e)
        for e in ("dense", "moments")
    ]
    assert [fit.status for fit in ends] == ["converged", "converged"]
    assert set(ends[1].engine) == {"moments"}
    assert np.allclose(np.log(ends[0].theta), np.log(ends[1].theta), atol=1e-4)


@pytest.mark.parametrize("method", BY_ENGINES)
def test_predictions_are_the_same_with_both_engines(method: str) -> None:
    shards = paper_shards(600, 3)
    queries = np.random.default_rng(0).uniform(0, 2, (6, 2))
    fleet = fg.Fleet(shards, "complete", theta=[1.2, 0.3, 1.3, 0.3], kernel="se", normalize=False)
    dense, moments = (fleet.predict(queries, method, engine=e) for e in ("dense", "moments"))
    assert moments.status == dense.status
    assert np.allclose(dense.mean, moments.mean, atol=2e-5)
    assert np.allclose(dense.variance, moments.variance, atol=2e-5)


@pytest.mark.parametrize("method", ["npae", "dec-npae", "dec-npae-star", "dec-nn-npae"])
def test_npae_by_vectors_sends_no_input_and_less(method: str) -> None:
    shards = paper_shards(2400, 3)
    fleet = fg.Fleet(shards, "complete", theta=[1.2, 0.3, 1.3, 0.3], kernel="se", normalize=False)
    queries = np.random.default_rng(0).uniform(0, 2, (5, 2))
    by_weights = fleet.predict(queries, method, engine="dense").ledger
    by_vectors = fleet.predict(queries, method).ledger
    assert "inputs" in by_weights.kinds
    assert "inputs" not in by_vectors.kinds
    assert "observations" not in by_vectors.kinds
    assert by_vectors.total(phase="aggregate").scalars < 0.7 * by_weights.total(phase="aggregate").scalars


@pytest.mark.parametrize(("engine", "largest"), [("dense", 300), ("moments", 0)])
def test_threads_inside_blas_are_for_the_dense_engine(
    engine: str, largest: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """One large agent gets all BLAS threads, which by moments would make it slower."""
    told = []

    def share(work: Callable[[int], None], items: Sequence[int], *, largest: int) -> None:
        told.append(largest)
        for item in items:
            work(item)

    monkeypatch.setattr("fleetgp.engines.expert.share", share)
    one = Expert(Observations(rng.uniform(0, 2, (300, 2)), rng.standard_normal(300)), SE, 0, engine)
    (posterior,) = condition([one], THETA[None], lambda found: found)
    assert told == [largest]
    assert posterior.engine == engine
