"""Whether theta still fits: the density of new rows by another route, false alarms, power, and what decides."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data.transforms import Scaling, View
from fleetgp.kernels.expression import as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.training import drift
from fleetgp.training.constraints import Bounds, ParameterConstraints
from fleetgp.training.drift import ALPHA, ALTERNATIVES, BATCH, Drift, alternatives, innovations, judge, score

THETA = np.array([0.3, 0.3, 1.0, 0.3])
(MATERN,) = as_kernels("matern32", 2)


def track(rng: np.random.Generator, rows: int) -> Array:
    """A boat's: rows that are close to each other, so that their errors are correlated."""
    turns = np.cumsum(rng.normal(0.0, 0.4, rows)) + rng.uniform(0.0, 6.0)
    return np.asarray(np.cumsum(0.03 * np.column_stack([np.cos(turns), np.sin(turns)]), axis=0) + rng.uniform(size=2))


def observed(rng: np.random.Generator, inputs: Array, theta: Array, kernel: Kernel = MATERN) -> Array:
    h = Hyperparameters.from_theta(theta)
    covariance = kernel(inputs, None, h) + h.noise**2 * np.eye(len(inputs))
    return np.asarray(np.linalg.cholesky(covariance) @ rng.standard_normal(len(inputs)))


def stream(seed: int, after: Array = THETA, agents: int = 2, old: int = 40, new: int = 60, batch: int = 20) -> Any:
    """The decision after every batch, for agents in one field; the rows of `after` are of another one, elsewhere."""
    rng = np.random.default_rng(seed)
    tracks = np.stack([track(rng, old + new) for _ in range(agents)])
    values = observed(rng, tracks.reshape(-1, 2), THETA).reshape(agents, -1)
    if after is not THETA:
        tracks[:, old:] += 10.0
        values[:, old:] = observed(rng, tracks[:, old:].reshape(-1, 2), after).reshape(agents, -1)
    data = [Observations(*pair) for pair in zip(tracks, values, strict=True)]
    parts, needs = [Drift()] * agents, []
    for start in range(old, old + new, batch):
        for i, own in enumerate(data):
            more = own.rows(slice(start, start + batch))
            parts[i] = score(parts[i], own.rows(slice(start)), more, MATERN, THETA)
        needs.append(judge(parts, agents * (start + batch)))
    return needs


@pytest.mark.parametrize("kernel", ["matern32", "se", "matern52(1) * matern12(2)"])
@pytest.mark.parametrize("known", [False, True])
def test_the_density_is_that_of_all_rows_less_that_of_the_old_ones(kernel: str, known: bool) -> None:
    (own,), rng = as_kernels(kernel, 2), np.random.default_rng(1)
    theta = THETA if own.count(2) == 4 else np.array([0.3, 0.5, 1.0, 0.3])
    inputs, spread = track(rng, 50), rng.uniform(0.1, 0.5, 50) if known else None
    data = Observations(inputs, rng.standard_normal(50), spread)
    h = Hyperparameters.from_theta(theta)
    covariance = own(inputs, None, h) + np.diag(own.noise(data, h))
    whole, first = (
        multivariate_normal(np.zeros(n), covariance[:n, :n]).logpdf(data.values[:n]).item() for n in (50, 30)
    )
    result = innovations(data.rows(slice(30)), data.rows(slice(30, None)), own, theta)
    assert result is not None
    assert result[0] == pytest.approx(whole - first, rel=1e-9)
    cross, inverse = covariance[30:, :30], np.linalg.inv(covariance[:30, :30])
    error = data.values[30:] - cross @ inverse @ data.values[:30]
    square = error @ np.linalg.solve(covariance[30:, 30:] - cross @ inverse @ cross.T, error)
    assert result[1] == pytest.approx(square, rel=1e-9)


def test_the_odds_are_the_mixture_over_alternatives_and_times_of_the_change() -> None:
    rng = np.random.default_rng(2)
    inputs = track(rng, 100)
    data = Observations(inputs, observed(rng, inputs, THETA))
    thetas, cuts = [THETA, *alternatives(MATERN, THETA, 2, Bounds())], [40, 60, 80, 100]
    result, densities = Drift(), []
    for a, b in pairwise(cuts):
        earlier, batch = data.rows(slice(a)), data.rows(slice(a, b))
        result = score(result, earlier, batch, MATERN, THETA)
        densities.append([innovations(earlier, batch, MATERN, theta)[0] for theta in thetas])  # type: ignore[index]
    ratios = np.exp(np.array(densities)[:, 1:] - np.array(densities)[:, :1])
    changed = sum(ratios[j:].prod(axis=0) / ((j + 1) * (j + 2)) for j in range(3))
    assert np.exp(result.log_odds) == pytest.approx(changed.mean() + 0.25, rel=1e-9)
    assert (result.rows, result.batches, len(result.odds)) == (60, 3, len(ALTERNATIVES))


@pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")
@pytest.mark.parametrize("robust", [False, True])
def test_the_order_within_a_batch_does_not_matter(robust: bool) -> None:
    rng = np.random.default_rng(3)
    (X, y), (more, values) = ((track(rng, n), rng.standard_normal(n)) for n in (30, 25))
    fleets = []
    for order in (np.arange(25), rng.permutation(25)):
        fleet = fg.Fleet([(X, y)], robust=robust)
        fleet.train("fact-gp", theta0=THETA, rounds=5)
        fleet.observe(0, more[order], values[order])
        fleets.append(fleet.needs_training())
    assert fleets[0].log_odds == pytest.approx(fleets[1].log_odds, abs=1e-6)
    assert fleets[0].mean_square == pytest.approx(fleets[1].mean_square, rel=1e-6)


def test_a_view_and_units_change_nothing() -> None:
    rng = np.random.default_rng(4)
    inputs = track(rng, 60)
    data = Observations(inputs, observed(rng, inputs, THETA))
    plain = score(Drift(), data.rows(slice(40)), data.rows(slice(40, None)), MATERN, THETA)
    far = data.with_values(7.0 + 5.0 * data.values)
    theta, view = THETA * [1.0, 1.0, 5.0, 5.0], View(Scaling(7.0, 5.0))
    moved = score(Drift(), far.rows(slice(40)), far.rows(slice(40, None)), MATERN, theta, view)
    np.testing.assert_allclose(moved.odds, plain.odds, atol=1e-7)
    assert moved.squares == pytest.approx(plain.squares, rel=1e-7)


def test_a_theta_that_fits_raises_no_alarm_however_often_one_looks() -> None:
    """The bound is 0.1% of streams; 200 would have more than two alarms with a probability of 0.1%."""
    ever = [any(not need.fits for need in stream(seed)) for seed in range(200)]
    assert sum(ever) <= 2


@pytest.mark.parametrize("factors", [[0.5, 0.5, 1.0, 1.0], [1.0, 1.0, 1.0, 2.0], [1.0, 1.0, 2.0, 1.0]])
def test_another_field_is_noticed(factors: list[float]) -> None:
    needs = [stream(100 + seed, THETA * factors, new=120)[-1] for seed in range(10)]
    assert sum(map(bool, needs)) >= 9


def test_the_mean_of_the_odds_is_at_most_one_where_theta_fits() -> None:
    """What the bound on false alarms follows from; the estimate of it needs odds that hardly vary: small batches."""
    rng, sizes = np.random.default_rng(5), []
    for _ in range(400):
        inputs = track(rng, 14)
        data = Observations(inputs, observed(rng, inputs, THETA))
        sizes.append(np.exp(score(Drift(), data.rows(slice(10)), data.rows(slice(10, None)), MATERN, THETA).log_odds))
    assert np.mean(sizes) == pytest.approx(1.0, abs=4.0 * float(np.std(sizes)) / 20.0)


def test_what_training_cannot_reach_is_no_alternative() -> None:
    known = ParameterConstraints.of(MATERN.names(2), {"l_1": (0.25, 0.3)}, fixed={"sigma_f": 1.0})
    box = drift.search_box(known, MATERN.names(2), 0.3, 1)
    changed = alternatives(MATERN, THETA, 2, box)
    np.testing.assert_allclose(changed[:2, 0], [0.25, 0.3])
    np.testing.assert_allclose(changed[:2, 1], [0.2, 0.45])
    assert (changed[:, 2] == 1.0).all()
    assert changed[:, 3].min() == pytest.approx(0.3)


def test_only_the_nearest_rows_of_a_large_agent_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    inputs = np.concatenate([track(rng, 60), 50.0 + track(rng, 60), track(rng, 20)])
    data = Observations(inputs, rng.standard_normal(140))
    monkeypatch.setattr(drift, "EARLIER", 60)
    result = score(Drift(), data.rows(slice(120)), data.rows(slice(120, None)), MATERN, THETA)
    near = score(Drift(), data.rows(slice(60)), data.rows(slice(120, None)), MATERN, THETA)
    assert result == near


def test_no_rows_and_rows_without_a_past() -> None:
    data = Observations(track(np.random.default_rng(7), BATCH + 1), np.zeros(BATCH + 1))
    assert score(Drift(), data, data.rows(slice(0)), MATERN, THETA) == Drift()
    assert score(Drift(), data.rows(slice(0)), data, MATERN, THETA).batches == 2


def test_what_to_do_is_a_sentence() -> None:
    odds = (*(0.0,) * 5, 20.0, 0.0, 0.0)
    part = Drift(50, 1, 100.0, odds)
    assert judge([part], 400).advice.startswith("Train again, from the present theta: the 50 new rows are better pred")
    few = judge([part], 501)
    assert (few.needed, few.fits, few.change) == (False, False, "more noise")
    assert few.advice.endswith("but they are less than 10% of all rows.")
    assert judge([Drift(50, 1, 50.0, (-9.0,) * 8)] * 3, 400).fits
    assert np.exp(-judge([part, Drift(9, 1, 9.0, (-9.0,) * 8)], 400).log_odds) < ALPHA


def test_a_fleet_knows_its_new_rows_wherever_they_are() -> None:
    field = fg.synthetic_field(300, seed=3)
    shards = fg.partition(field.inputs, field.observations, agents=3)
    fleet = fg.Fleet([(X[:60], y[:60]) for X, y in shards])
    with pytest.raises(fg.InputError, match="call train first"):
        fleet.needs_training()
    fleet.train()
    assert not fleet.needs_training()
    assert fleet.needs_training().advice == "No new rows were scored: nothing to do."
    for agent, (X, y) in enumerate(shards):
        fleet.observe(agent, X[60:], 4.0 * y[60:])
    need = fleet.needs_training()
    assert need
    assert (need.new_rows, need.rows) == (120, 300)
    assert need.mean_square > 2.0
    fleet.train(theta0=fleet.theta)
    assert fleet.needs_training().new_rows == 0
