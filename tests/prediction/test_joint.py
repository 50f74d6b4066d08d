"""Joint posteriors: against formulas written out in other coordinates, and against predictions of single queries."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh, logm, sqrtm

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.agreements import augmented, sample
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.prediction import Conditioned, Joint, PredictionOptions, Question, joint, prediction_method
from tests.conftest import every_graph, examples
from tests.shared import observed

THETA = (0.6, 0.5, 1.3, 0.2)
AGENTS = 5
RULES = ["poe", "gpoe", "bcm", "rbcm", "grbcm"]
ALL = [m for m in fg.PREDICTION_METHODS if "npae" not in m]
KERNEL = "matern32"


@cache
def shards(n: int = 100, agents: int = AGENTS) -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(n, THETA, seed=0)
    return tuple(fg.partition(field.inputs, field.observations, agents=agents))


def fleet(graph: object = "path", kernel: str = KERNEL) -> fg.Fleet:
    return fg.Fleet(shards(), graph, theta=THETA, kernel=kernel, normalize=False)


def kernel_for(method: str) -> str:
    return "se" if method == "dec-full-gp" else KERNEL


def queries(count: int = 6) -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


def posterior(x: Array, y: Array, points: Array, kernel: str = KERNEL) -> tuple[Array, Array]:
    """The exact GP with plain inverses."""
    h, k = Hyperparameters.from_theta(THETA), KERNELS[kernel]
    inverse = np.linalg.inv(k(x, x, h) + h.noise**2 * np.eye(len(y)))
    cross = k(x, points, h)
    return cross.T @ inverse @ y, k(points, points, h) - cross.T @ inverse @ cross


def by_hand(rule: str, points: Array, participants: BoolArray) -> tuple[Array, Array]:
    """In f's own coordinates: pieces are the generalized eigenvectors of an agent's posterior against the base."""
    parts, everything = shards(), np.arange(len(points))
    base_mean = np.zeros(len(points))
    base = KERNELS[KERNEL](points, points, Hyperparameters.from_theta(THETA))
    product = rule in ("poe", "gpoe")
    precision = np.zeros_like(base) if product else np.linalg.inv(base)
    heard = np.zeros(len(points))
    for i, (x, y) in enumerate(parts):
        some = everything[participants[i]]
        here = np.ix_(some, some)
        mean, covariance = posterior(x, y, points[some])
        if rule == "gpoe":
            count = participants.sum(axis=0)[some]
            covariance = covariance * np.minimum.outer(count, count)
        p, vectors = eigh(covariance, base[here])  # V'BV = I, V'SV = p
        beta = -0.5 * np.log(p) if rule == "rbcm" else np.ones_like(p)
        precision[here] += vectors * (beta * (1 / p - (not product))) @ vectors.T
        heard[some] += vectors * (beta / p) @ vectors.T @ (mean - base_mean[some])
    return base_mean + np.linalg.solve(precision, heard), np.linalg.inv(precision)


def relative_weights_by_hand(points: Array) -> tuple[Array, Array]:
    """grBCM with functions of matrices, all agents taking part."""
    parts = shards()
    samples = [sample(s, AGENTS, 0) for s in observed(parts)]
    pool = Observations.joined(samples)
    inputs, observations = pool.inputs, pool.values
    base_mean, base = posterior(inputs, observations, points)
    white, unit = np.linalg.inv(sqrtm(base)), np.eye(len(points))
    data = [augmented(s, i, samples) for i, s in enumerate(observed(parts))]
    told = [posterior(own.inputs, own.values, points) for own in data]
    seen = [(white @ (mean - base_mean), white @ covariance @ white) for mean, covariance in told]
    information = [-0.5 * logm(p) for _, p in seen]
    norm = np.linalg.inv(sqrtm(sqrtm(sum(d @ d for d in information))))
    precision, heard = unit, np.zeros(len(points))
    for d, (mean, p) in zip(information, seen, strict=True):
        root = sqrtm(np.linalg.inv(p) - unit)
        evidence = root @ norm @ d @ norm
        precision = precision + evidence @ root
        heard = heard + evidence @ np.linalg.solve(root, np.linalg.solve(p, mean))
    whole = np.linalg.inv(white)
    return base_mean + whole @ np.linalg.solve(precision, heard), whole @ np.linalg.solve(precision, whole)


def test_weights_of_grbcm_are_matrices_of_norm_one() -> None:
    mean, covariance = relative_weights_by_hand(queries())
    for method in ("grbcm", "dec-grbcm"):
        found = fleet().joint(queries(), method)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rule", ["poe", "gpoe", "bcm", "rbcm"])
def test_committees_are_their_rule_in_every_piece_of_knowledge(rule: str) -> None:
    everyone = np.ones((AGENTS, 6), dtype=bool)
    mean, covariance = by_hand(rule, queries(), everyone)
    for method in (rule, f"dec-{rule}"):
        found = fleet().joint(queries(), method)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-10)
        assert found.participants.all()
        assert (found.status, found.jitter) == ("converged", 0.0)


@pytest.mark.parametrize("rule", ["poe", "gpoe", "bcm", "rbcm"])
def test_agents_that_take_part_in_some_queries_speak_of_these_alone(rule: str) -> None:
    found = fleet().joint(queries(), f"dec-nn-{rule}", eta=0.3)
    assert (~found.participants).sum() > 0
    assert len(set(found.participants.sum(axis=0).tolist())) > 1
    mean, covariance = by_hand(rule, queries(), found.participants)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("method", ALL)
def test_of_one_query_it_is_the_prediction(method: str) -> None:
    f = fleet(kernel=kernel_for(method))
    for point in queries(3):
        one, found = f.predict(point[None], method), f.joint(point[None], method)
        np.testing.assert_allclose(found.mean, one.mean, rtol=1e-9)
        np.testing.assert_allclose(found.variance, one.variance, rtol=1e-8)
        np.testing.assert_array_equal(found.participants, one.participants)


@pytest.mark.parametrize("method", [m for m in ALL if m != "dec-full-gp"])  # whose moments span no such gaps
def test_of_independent_queries_it_is_the_prediction(method: str) -> None:
    """Three islands, 100 length-scales apart; every agent has some data on two of them."""
    rng = np.random.default_rng(1)
    islands = np.repeat([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0]], 30, axis=0)
    x = islands + rng.uniform(0, 2, islands.shape)
    y = rng.standard_normal(90)
    owner = (np.arange(90) // 30 + np.arange(90) % 2) % 3
    f = fg.Fleet(
        [(x[owner == i], y[owner == i]) for i in range(3)], theta=THETA, kernel=kernel_for(method), normalize=False
    )
    points = np.array([[1.0, 1.0], [61.0, 0.5], [1.2, 61.0]])
    options: dict[str, Any] = {"eta": 0.05} if "-nn-" in method else {}
    one, found = f.predict(points, method, **options), f.joint(points, method, **options)
    if "-nn-" in method:
        assert len(set(one.participants.argmax(axis=0).tolist())) > 1, "not always the same one comes first"
    np.testing.assert_allclose(found.mean, one.mean, rtol=1e-8)
    np.testing.assert_allclose(found.variance, one.variance, rtol=1e-8)
    np.testing.assert_allclose(found.covariance - np.diag(found.variance), 0.0, atol=1e-9)


@pytest.mark.parametrize("method", ["full-gp", "dec-full-gp"])
def test_the_exact_methods_are_the_posterior_of_all_data(method: str) -> None:
    x, y = (np.concatenate(parts) for parts in zip(*shards(), strict=True))
    mean, covariance = posterior(x, y, queries(), "se")
    found = fleet(kernel="se").joint(queries(), method)
    np.testing.assert_allclose(found.mean, mean, atol=1e-7)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-7)


def test_nearest_is_the_posterior_of_the_rows_that_are_near_any_query() -> None:
    x, y = (np.concatenate(parts) for parts in zip(*shards(), strict=True))
    points = queries()
    near = {int(n) for p in points for n in np.argsort((((x - p) / THETA[:2]) ** 2).sum(axis=1))[:7]}
    mean, covariance = posterior(x[sorted(near)], y[sorted(near)], points)
    found = fleet("cycle").joint(points, "dec-nearest", n_nearest=7)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)
    np.testing.assert_array_equal(found.participants, fleet().predict(points, "dec-nearest", n_nearest=7).participants)


@pytest.mark.parametrize("method", ["poe", "gpoe", "bcm", "grbcm", "dec-nn-grbcm", "dec-npae", "full-gp"])
def test_one_agent_has_the_exact_posterior(method: str) -> None:
    x, y = (np.concatenate(parts) for parts in zip(*shards(), strict=True))
    mean, covariance = posterior(x, y, queries())
    found = fg.Fleet([(x, y)], theta=THETA, kernel=KERNEL, normalize=False).joint(queries(), method)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-9)


@pytest.mark.parametrize("name", every_graph(AGENTS))
@pytest.mark.parametrize("rule", ["gpoe", "rbcm", "grbcm"])
def test_along_the_tree_it_is_the_central_twin(rule: str, name: str) -> None:
    f = fleet(every_graph(AGENTS)[name])
    found, twin = f.joint(queries(), f"dec-{rule}"), f.joint(queries(), rule)
    np.testing.assert_allclose(found.mean, twin.mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, twin.covariance, atol=1e-9)


@examples(25)
@given(
    st.sampled_from([m for m in ALL if m not in ("full-gp", "dec-full-gp")]),
    st.sampled_from(["se", "matern12", "matern52", "se(1) * periodic(2) + linear(1)"]),
    st.integers(2, 12),
    st.integers(0, 1000),
)
def test_covariances_are_positive_and_hang_on_no_order(method: str, kernel: str, count: int, seed: int) -> None:
    """Also of equal queries, and of queries in a row that are close together."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0.0, 2.0, (count, 2))
    points[0] = points[-1]
    points[: count // 2, 1] = points[0, 1] + 0.02 * np.arange(count // 2)
    theta = (*THETA,) if kernel in KERNELS else (0.6, 1.0, 1.5, 1.0, 0.7, 0.2)
    f = fg.Fleet(shards(60, 3), theta=theta, kernel=kernel, normalize=False)
    found = f.joint(points, method)
    scale = float(found.variance.max())
    assert (found.covariance == found.covariance.T).all()
    assert np.linalg.eigvalsh(found.covariance)[0] > -1e-9 * scale
    prior = f.kernel.variance(points, Hyperparameters.from_theta(theta))
    assert (found.variance < prior * (1.0 + 1e-6)).all()
    assert np.isfinite(found.sample(3)).all()
    order = rng.permutation(count)
    other = f.joint(points[order], method)
    np.testing.assert_allclose(other.mean, found.mean[order], atol=1e-4 * np.sqrt(scale))
    np.testing.assert_allclose(other.covariance, found.covariance[np.ix_(order, order)], atol=1e-4 * scale)


def test_a_query_that_is_asked_twice_changes_nothing() -> None:
    for method in ("dec-bcm", "dec-rbcm", "dec-nn-grbcm"):
        once, twice = fleet().joint(queries(), method), fleet().joint(queries()[[0, 1, 2, 3, 4, 5, 2]], method)
        np.testing.assert_allclose(twice.mean[:6], once.mean, atol=1e-5)
        np.testing.assert_allclose(twice.covariance[:6, :6], once.covariance, atol=1e-5)
        assert twice.jitter == pytest.approx(1e-9 * THETA[2] ** 2)
        np.testing.assert_allclose(twice.mean[6], twice.mean[2], atol=1e-5)


def test_bayesian_committees_come_closer_to_the_full_gp_by_what_is_asked_together() -> None:
    """Along a line through all agents; mean distances, of five fields."""
    line = np.column_stack([np.linspace(0.05, 1.95, 25), np.ones(25)])
    gaps = np.zeros((2, 2))
    for seed in range(5):
        field = fg.synthetic_field(200, THETA, seed=seed)
        f = fg.Fleet(
            fg.partition(field.inputs, field.observations, agents=5), theta=THETA, kernel="se", normalize=False
        )
        full = f.joint(line, "full-gp").mean
        for row, method in zip(gaps, ("dec-bcm", "dec-rbcm"), strict=True):
            row += [np.abs(found.mean - full).mean() for found in (f.joint(line, method), f.predict(line, method))]
    assert (gaps[:, 0] < 0.8 * gaps[:, 1]).all()


# ---- hosting, and the price --------------------------------------------------------------------------------------


def work(network: Network, method: str, to: int | None = None) -> Joint:
    row, options = prediction_method(method), PredictionOptions(eta=0.3 if "-nn-" in method else 1e-3)
    mine = [shards()[i] for i in network.hosted]
    kernel = KERNELS[kernel_for(method)]
    conditioned = Conditioned(observed(mine), kernel, np.tile(THETA, (len(mine), 1)))
    agreed = row.agree(network, conditioned, options)
    return joint(conditioned, network, Question(row, queries(), options, to=to), agreed)


@pytest.mark.parametrize("method", [m for m in ALL if m.startswith("dec-")])
def test_the_same_bits_rounds_and_messages_however_agents_are_hosted(method: str) -> None:
    graph = every_graph(AGENTS)["geometric"]
    whole = work(fg.InProcess(graph), method)
    for hosting in ([[0, 1], [2, 3, 4]], [[i] for i in range(AGENTS)]):
        loopback = fg.Loopback(graph, hosting)
        for found in loopback.run(lambda network: work(network, method)):
            np.testing.assert_array_equal(found.mean, whole.mean)
            np.testing.assert_array_equal(found.covariance, whole.covariance)
            np.testing.assert_array_equal(found.participants, whole.participants)
            assert (found.rounds, found.jitter) == (whole.rounds, whole.jitter)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_a_committee_adds_up_one_matrix_and_one_vector() -> None:
    size = len(queries())
    for name in ("path", "star"):
        found = fleet(name).joint(queries(), "dec-rbcm")
        sent = found.ledger.total(phase="aggregate", kind="predictions").scalars
        assert sent == 2 * (AGENTS - 1) * (size * (size + 3) // 2 + 1)
        assert found.ledger.kinds == ("predictions",)


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-nearest"])
def test_only_who_asks_is_told(method: str) -> None:
    graph = fg.Graph.path(AGENTS)
    told = fg.Loopback(graph, [[i] for i in range(AGENTS)]).run(lambda network: work(network, method, to=4))
    assert [bool(np.isnan(found.covariance).all()) for found in told] == [True] * 4 + [False]
    whole = work(fg.InProcess(graph), method)
    np.testing.assert_array_equal(told[4].covariance, whole.covariance)
    assert work(fg.InProcess(graph), method, to=4).ledger.bytes < whole.ledger.bytes


# ---- at the front door -------------------------------------------------------------------------------------------


def test_units_noise_and_calibration_are_those_of_predictions() -> None:
    parts = [(x, 40.0 + 7.0 * y) for x, y in shards()]
    f = fg.Fleet(parts, theta=(0.6, 0.5, 9.1, 1.4), kernel=KERNEL, normalize=True, mean="linear")
    point = queries(1)
    for noisy in (False, True):
        one, found = f.predict(point, "dec-rbcm", observed=noisy), f.joint(point, "dec-rbcm", observed=noisy)
        np.testing.assert_allclose(found.mean, one.mean, rtol=1e-9)
        np.testing.assert_allclose(found.variance, one.variance, rtol=1e-9)
    plain = f.joint(queries(), "dec-rbcm")
    np.testing.assert_allclose(
        f.joint(queries(), "dec-rbcm", observed=True).covariance, plain.covariance + 1.4**2 * np.eye(6)
    )
    f.calibrate("dec-rbcm", holdout="rows")
    factor = f.predict(queries(), "dec-rbcm").factor[0]
    assert factor != 1.0
    calibrated = f.joint(queries(), "dec-rbcm")
    np.testing.assert_allclose(calibrated.covariance, factor**2 * plain.covariance, rtol=1e-12)
    np.testing.assert_allclose(calibrated.factor, factor)


def test_draws_have_the_mean_and_the_covariance() -> None:
    f = fleet()
    found, draws = f.joint(queries(4), "dec-grbcm"), f.sample(queries(4), 20_000, "dec-grbcm", seed=5)
    assert draws.shape == (20_000, 4)
    np.testing.assert_array_equal(draws, found.sample(20_000, seed=5))
    assert not np.array_equal(draws[:1], found.sample(1, seed=6))
    errors = np.sqrt(2.0 / 20_000) * np.outer(found.std, found.std)
    assert (np.abs(draws.mean(axis=0) - found.mean) < 5.0 * found.std / np.sqrt(20_000)).all()
    assert (np.abs(np.cov(draws.T) - found.covariance) < 5.0 * errors).all()


def test_bad_calls_have_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    f, points = fleet(), queries()
    with pytest.raises(fg.InputError, match=r"npae has no joint covariance: .*: use dec-summary"):
        f.joint(points, "npae")
    with pytest.raises(fg.InputError, match="at least one query, got none"):
        f.joint(np.zeros((0, 2)), "dec-rbcm")
    with pytest.raises(fg.InputError, match=r"dec-rbcm: expected at most 500 queries at once, got 501: give fewer, or"):
        f.joint(np.zeros((501, 2)), "dec-rbcm")
    with pytest.raises(fg.InputError, match="dec-rbcm has no option eta"):
        f.joint(points, "dec-rbcm", eta=0.1)
    with pytest.raises(fg.InputError, match="agent must lie between 0 and 4, got 5"):
        f.joint(points, agent=5)
    with pytest.raises(fg.InputError, match="n must be a whole number of at least 1, got 0"):
        f.sample(points, 0)
    monkeypatch.setattr("fleetgp.prediction.nearest.MOST_NEAR", 20)
    with pytest.raises(fg.InputError, match=r"at most 20 observations near any of the queries, got \d+: give fewer"):
        f.joint(points, "dec-nearest", n_nearest=15)
    with pytest.warns(fg.FleetGPWarning, match="1 of 2 points are no better known than the prior"):
        f.joint([[1.0, 1.0], [90.0, 90.0]], "dec-rbcm")
    elsewhere = fg.Fleet(shards(), theta=THETA, backend="ray", workers=2, kernel="se", normalize=False)
    with pytest.raises(fg.InputError, match="a joint posterior needs all agents in this process"):
        elsewhere.joint(points)
