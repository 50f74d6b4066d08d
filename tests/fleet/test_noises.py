"""Noise that differs, at the front door: what comes in, what is predicted, what is kept in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import partition_by_label
from fleetgp.errors import InputError
from fleetgp.prediction import PREDICTION_METHODS
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model

THETA = [0.6, 0.8, 1.2, 0.1, 0.4]
RNG = np.random.default_rng(8)
X = RNG.uniform(0.0, 1.0, (80, 2))
S = RNG.choice([0.0, 0.5], 80, p=[0.6, 0.4])
Y = np.sin(4.0 * X[:, 0]) + np.cos(5.0 * X[:, 1]) + np.where(np.arange(80) < 40, 0.1, 0.4) * RNG.standard_normal(80)
Y = Y + S * RNG.standard_normal(80)
SHARDS = [(X[:40], Y[:40], S[:40]), (X[40:], Y[40:], S[40:])]
QUERIES = RNG.uniform(0.1, 0.9, (6, 2))


def se(one: Array, other: Array) -> Array:
    return np.asarray(1.44 * np.exp(-(((one[:, None] - other) / THETA[:2]) ** 2).sum(axis=2)))


def exact(x: Array, y: Array, noise: Array, queries: Array) -> tuple[Array, Array]:
    """Mean and variance of f by NumPy. noise: the variances of the observations."""
    weights = np.linalg.solve(se(x, x) + np.diag(noise), se(x, queries))
    return weights.T @ y, 1.44 - (weights * se(x, queries)).sum(axis=0)


NOISE = S**2 + np.where(np.arange(80) < 40, 0.1, 0.4) ** 2


def fleet(**how: Any) -> fg.Fleet:
    return fg.Fleet(SHARDS, "path", theta=THETA, noise="agents", **{"kernel": "se", "normalize": False, **how})


def test_a_fleet_is_as_wide_as_its_inputs() -> None:
    found = fleet()
    assert (found.dimension, found.names) == (2, ("l_1", "l_2", "sigma_f", "sigma_eps_0", "sigma_eps_1"))
    assert [[part.shape for part in shard] for shard in found.shards] == [[(40, 2), (40,), (40,)]] * 2
    np.testing.assert_array_equal(found.shards[1][0], X[40:])
    assert "dimension=2" in repr(found)
    with pytest.raises(InputError, match=r"queries: expected shape \(T, 2\), got \(6, 4\)"):
        found.predict(found.data[0].packed[:6])
    quarters = fg.partition(X, Y, agents=4)
    shared = fg.Fleet(quarters, noise=["good", "cheap", "good", "cheap"], kernel="se", normalize=False)
    assert shared.names[-2:] == ("sigma_eps_good", "sigma_eps_cheap")
    shared.kernel = "matern12"
    assert shared.names[-2:] == ("sigma_eps_good", "sigma_eps_cheap")


def test_the_exact_gp_is_that_of_numpy() -> None:
    mean, variance = exact(X, Y, NOISE, QUERIES)
    for method in ("full-gp", "dec-nearest"):
        options: dict[str, Any] = {"n_nearest": 80} if method == "dec-nearest" else {}
        found = fleet().predict(QUERIES, method, **options)
        np.testing.assert_allclose(found.mean, mean, atol=1e-9)
        np.testing.assert_allclose(found.variance, variance, atol=1e-9)
    for engine in ("dense", "vecchia"):
        alone = fg.Fleet(SHARDS[:1], theta=[*THETA[:3], 0.1], kernel="se", normalize=False).predict(
            QUERIES, "dec-poe", engine=engine
        )
        np.testing.assert_allclose(alone.mean, exact(X[:40], Y[:40], NOISE[:40], QUERIES)[0], atol=1e-8)


@pytest.mark.parametrize("method", ["npae", "dec-npae", "dec-nn-npae"])
def test_npae_sends_vectors_and_no_inputs(method: str) -> None:
    """Against the conditional expectation given the agents' means, by NumPy."""
    options: dict[str, Any] = {"eta": 0.0} if "nn" in method else {}
    found = fleet().predict(QUERIES, method, **options)
    assert "inputs" not in found.ledger.by_kind()
    halves = [slice(0, 40), slice(40, 80)]
    weights = [np.linalg.solve(se(X[own], X[own]) + np.diag(NOISE[own]), se(X[own], QUERIES)) for own in halves]
    means = np.stack([w.T @ Y[own] for w, own in zip(weights, halves, strict=True)])
    known = np.stack([(w * se(X[own], QUERIES)).sum(axis=0) for w, own in zip(weights, halves, strict=True)])
    between = np.einsum("nt,nm,mt->t", weights[0], se(X[:40], X[40:]), weights[1])
    for t, k in enumerate(known.T):
        covariance = np.array([[k[0], between[t]], [between[t], k[1]]])
        answer = np.linalg.solve(covariance, np.column_stack([means[:, t], k]))
        assert found.mean[t] == pytest.approx(k @ answer[:, 0], abs=1e-6)
        assert found.variance[t] == pytest.approx(1.44 - k @ answer[:, 1], abs=1e-6)


def test_a_new_observation_has_the_noise_of_whoever_makes_it() -> None:
    found = fleet()
    for normalize in (False, True):
        found = fleet(normalize=normalize)
        for agent, sigma in enumerate(THETA[3:]):
            told = [found.predict(QUERIES, "dec-rbcm", agent=agent, observed=noisy).variance for noisy in (False, True)]
            np.testing.assert_allclose(told[1] - told[0], sigma**2, rtol=1e-9)


@pytest.mark.parametrize("method", [name for name in PREDICTION_METHODS if name != "dec-full-gp"])
def test_every_predictor_takes_it(method: str) -> None:
    """One agent with all data is exact, whatever the method; the deviations matter."""
    shards = [(X, Y, S)]
    found = fg.Fleet(shards, theta=[*THETA[:3], 0.3], normalize=False, kernel="se").predict(QUERIES, method)
    mean, _ = exact(X, Y, S**2 + 0.09, QUERIES)
    if method != "dec-nearest":
        np.testing.assert_allclose(
            found.mean, mean, atol=2e-2 if "rbcm" in method else 1e-6
        )  # which mixes in the prior
    other = fg.Fleet([(X, Y)], theta=[*THETA[:3], 0.3], kernel="se", normalize=False).predict(QUERIES, method)
    assert np.abs(other.mean - found.mean).max() > 1e-2
    several = fleet(robust=True).predict(QUERIES, method)
    assert np.isfinite(several.means).all()
    assert np.abs(several.mean - mean).max() < 0.5


def test_units_do_not_matter() -> None:
    """Observations and deviations in other units, inputs elsewhere: theta in these, and the same predictions."""
    start = [*THETA[:3], 0.2, 0.2]
    settings: dict[str, Any] = {"kernel": "se", "normalize": True, "mean": "linear", "coordinates": "scaled"}
    one = fg.Fleet(SHARDS, noise="agents", **settings)
    other = fg.Fleet(
        [(10.0 * x + 50.0, 7.0 * y - 3.0, 7.0 * s) for x, y, s in SHARDS],
        noise="agents",
        **settings,
    )
    units = np.array([10.0, 10.0, 7.0, 7.0, 7.0])
    first, second = one.train(theta0=start, tol=1e-8), other.train(theta0=start * units, tol=1e-8)
    np.testing.assert_allclose(second.theta, first.theta * units, rtol=1e-5)
    a, b = (
        one.predict(QUERIES, "dec-rbcm", observed=True),
        other.predict(10.0 * QUERIES + 50.0, "dec-rbcm", observed=True),
    )
    np.testing.assert_allclose(b.mean, 7.0 * a.mean - 3.0, rtol=1e-6)
    np.testing.assert_allclose(b.variances, 49.0 * a.variances, rtol=1e-5)


@pytest.mark.parametrize("robust", [False, True])
def test_observe_is_as_if_it_had_been_there(robust: bool) -> None:
    whole = fleet(robust=robust)
    grown = fg.Fleet(
        [tuple(part[:30] for part in shard) for shard in SHARDS],
        theta=THETA,
        noise="agents",
        robust=robust,
        kernel="se",
        normalize=False,
    )
    before = grown.predict(QUERIES, "dec-rbcm").mean
    for agent, (x, y, s) in enumerate(SHARDS):
        grown.observe(agent, x[30:], y[30:], s[30:])
    for method in ("dec-rbcm", "dec-grbcm"):
        expected, found = (each.predict(QUERIES, method) for each in (whole, grown))
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
        np.testing.assert_allclose(found.variance, expected.variance, atol=1e-10)
    assert np.abs(before - expected.mean).max() > 1e-3
    with pytest.raises(InputError, match="agent 0: expected known deviations s, as before, got none"):
        grown.observe(0, X[:1], Y[:1])
    with pytest.raises(InputError, match="agent 0: expected no known deviations s, got some"):
        fg.Fleet([(X, Y)], robust=True, kernel="se", normalize=False).observe(0, X[:1] + 0.1, Y[:1], S[:1])


def test_outliers_have_little_to_say_in_a_prediction() -> None:
    y = Y.copy()
    y[5] += 30.0
    shards = [(X[:40], y[:40]), (X[40:], y[40:])]
    here = X[5:6]
    plain, robust = (
        fg.Fleet(shards, theta=THETA[:4], robust=how, kernel="se", normalize=False).predict(here, "dec-rbcm")
        for how in (False, True)
    )
    clean = fg.Fleet([(X[:40], Y[:40]), (X[40:], Y[40:])], theta=THETA[:4], kernel="se", normalize=False).predict(
        here, "dec-rbcm"
    )
    assert abs(plain.mean[0] - clean.mean[0]) > 3.0
    assert abs(robust.mean[0] - clean.mean[0]) < 0.5


def test_calibration_knows_the_known_deviations() -> None:
    """Rows of an honest model need no factor, however their noise differs: their own deviation is added."""
    rng = np.random.default_rng(4)
    x = rng.uniform(0.0, 3.0, (400, 1))
    s = rng.choice([0.0, 2.0], 400)
    f = np.linalg.cholesky(np.exp(-((x - x.T) ** 2)) + 1e-9 * np.eye(400)) @ rng.standard_normal(400)
    y = f + np.sqrt(0.01 + s**2) * rng.standard_normal(400)
    found = fg.Fleet(
        fg.partition(x, y, s, agents=2, by="random"), theta=[1.0, 1.0, 0.1], kernel="se", normalize=False
    ).calibrate("dec-rbcm", holdout="rows")
    assert found.knots[0].factor == pytest.approx(1.0, abs=0.12)
    assert found.knots[0].before == pytest.approx(0.95, abs=0.03)


def test_partitions_take_the_deviations_along() -> None:
    for shards in (fg.partition(X, Y, S, agents=3), partition_by_label(X, Y, ["a", "b"] * 40, S)[1]):
        rows = {tuple(row) for x, y, s in shards for row in np.column_stack([x, y, s]).tolist()}
        assert rows == {tuple(row) for row in np.column_stack([X, Y, S]).tolist()}
    with pytest.raises(InputError, match="s: expected a standard deviation for each of 80 rows"):
        fg.partition(X, Y, S[:3], agents=2)


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ([SHARDS[0], SHARDS[1][:2]], {}, r"agent 1: expected \(X, y, s\) with known deviations s, as other agents have"),
    ([(X, Y, S[:3])], {}, "agent 0: s: expected a standard deviation for each of 80 rows"),
    ([(X, Y, S - 1.0)], {}, "agent 0: s: expected standard deviations of at least 0, got -1"),
    ([(X, Y, np.where(S > 0, np.nan, S))], {}, "agent 0: s has NaN or infinite values"),
    ([(X, Y)], {"noise": "sensors"}, "noise: expected None .* got 'sensors'"),
    ([(X, Y)], {"noise": ["a", "b"]}, "the name of the noise of each of the 1 agents"),
    ([(X, Y)], {"noise": 3}, "noise: expected None"),
    ([(X, Y)], {"robust": "yes"}, "robust: expected True or False, got 'yes'"),
]


@pytest.mark.parametrize(("shards", "how", "match"), BAD)
def test_what_is_wrong_is_said(shards: Any, how: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        fg.Fleet(shards, **{"kernel": "se", "normalize": False, **how})


def test_a_trainer_goes_in_no_turns() -> None:
    with pytest.raises(InputError, match="trainer: expected a fleet without robust"):
        fleet(robust=True).trainer("dec-apx-gp")


def test_data_frames_keep_their_columns() -> None:
    frames = [(pd.DataFrame(x, columns=["lon", "lat"]), pd.Series(y), pd.Series(s)) for x, y, s in SHARDS]
    found = fg.Fleet(frames, theta=THETA, noise="agents", kernel="se", normalize=False)
    assert found.names[:2] == ("l_lon", "l_lat")
    np.testing.assert_array_equal(found.predict(QUERIES).mean, fleet().predict(QUERIES).mean)


def test_a_folder_keeps_it(tmp_path: Path) -> None:
    made = fg.Fleet(SHARDS, kernel="matern32", noise=["a", "b"], robust=True, normalize=True)
    fit = made.train(theta0=[*THETA[:3], 0.2, 0.2], tol=1e-4)
    folder = save_model(Model(made, ("a", "b"), ("lon", "lat"), "sst"), tmp_path / "m")
    again = load_model(folder).fleet
    assert again.names == ("l_lon", "l_lat", "sigma_f", "sigma_eps_a", "sigma_eps_b")
    assert again.last_fit is not None
    assert np.array_equal(again.last_fit.outliers, fit.outliers)
    assert again.last_fit.noises == 2
    for (x, y, s), (old_x, old_y, old_s) in zip(again.shards, made.shards, strict=True):
        assert np.array_equal(s, old_s)
        assert np.array_equal(x, old_x)
        assert np.array_equal(y, old_y)
    one, other = (each.predict(QUERIES, "dec-rbcm", observed=True, agent=1) for each in (made, again))
    assert np.array_equal(one.variance, other.variance)
    facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert facts["version"] == 3
    # A folder from before knows nothing of noise.
    plain = save_model(
        Model(fg.Fleet([(X, Y)], theta=THETA[:4], kernel="se", normalize=False), ("a",), ("lon", "lat"), "sst"),
        tmp_path / "old",
    )
    facts = json.loads((plain / "model.json").read_text(encoding="utf-8"))
    assert facts["version"] == 1
    for name in ("noise", "robust", "deviations"):
        del facts[name]
    (plain / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    assert not load_model(plain).fleet.noise_model.differs
