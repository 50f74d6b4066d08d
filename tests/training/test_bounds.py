"""Bounds, priors and fixed values: every trainer ends at the optimum of the bounded problem, and says so."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.engines.expert import Expert
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from fleetgp.training import TrainingOptions, train, training_method
from fleetgp.training.constraints import Bounds, ParameterConstraints, Prior, minimize_in_box
from fleetgp.training.newton import Newton, Search, Sum
from fleetgp.training.objective import Objective
from fleetgp.training.problem import sampled
from tests.conftest import mostly_long
from tests.shared import observed
from tests.training.problems import CONVERGED_TO, parts_of

NAMES = ("l_1", "l_2", "sigma_f", "sigma_eps")
START = [1.0, 1.0, 1.0, 0.3]

#: What is given, and who must end at a bound.
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "lower": ({"bounds": {"l_1": (2.5, None)}}, ("l_1",)),
    "upper": ({"bounds": {"l_2": (None, 0.6)}}, ("l_2",)),
    "two": ({"bounds": {"l_1": (2.5, 9.0), "signal": (None, 0.7)}}, ("l_1", "sigma_f")),
    "fixed": ({"fixed": {"noise": 0.35}}, ()),
    "prior": ({"priors": {"noise": (0.6, 1.15), "length": (2.0, 1.2)}}, ()),
    "all": (
        {"bounds": {"length": (0.7, 1.2)}, "fixed": {"signal": 1.5}, "priors": {"noise": (0.6, 1.15)}},
        ("l_1",),
    ),
}


@cache
def noisy_shards() -> tuple[Shard, ...]:
    """60 points of a smooth function of two inputs, with noise, at three agents."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 2, (60, 2))
    y = np.sin(2 * x[:, 0]) + np.cos(3 * x[:, 1]) * x[:, 0] + 0.2 * rng.standard_normal(60)
    return tuple(fg.partition(x, y, agents=3))


@cache
def expected(method: str, case: str) -> Array:
    """log theta by SciPy, on densities written out, with none of our gradients, bounds or priors."""
    given = CASES[case][0]
    low, high, penalties = [-5.0] * 4, [5.0] * 4, []
    index = {"l_1": [0], "l_2": [1], "length": [0, 1], "signal": [2], "noise": [3]}
    for name, (lower, upper) in given.get("bounds", {}).items():
        for p in index[name]:
            low[p], high[p] = np.log(lower or 1e-2), np.log(upper or 1e2)
    for name, value in given.get("fixed", {}).items():
        for p in index[name]:
            low[p] = high[p] = np.log(value)
    for name, (median, factor) in given.get("priors", {}).items():
        penalties += [(p, np.log(median), np.log(factor)) for p in index[name]]
    parts = parts_of(noisy_shards(), method)

    def posterior(log_theta: Array) -> float:
        *scales, signal, noise = np.exp(log_theta)
        total = sum(0.5 * ((log_theta[p] - centre) / width) ** 2 for p, centre, width in penalties)
        for x, y in parts:
            distance = (((x[:, None] - x) / scales) ** 2).sum(axis=2)
            lower = np.linalg.cholesky(signal**2 * np.exp(-distance) + noise**2 * np.eye(len(y)))
            total += 0.5 * float((np.linalg.solve(lower, y) ** 2).sum()) + float(np.log(np.diagonal(lower)).sum())
        return float(total)

    start = np.clip(np.log(START), low, high)
    options = {"ftol": 1e-14, "gtol": 1e-6}
    box = list(zip(low, high, strict=True))
    return np.asarray(minimize(posterior, start, method="L-BFGS-B", jac="3-point", bounds=box, options=options).x)


def beyond(method: str, case: str) -> bool:
    """What only repeats a proof: dec-fact-gp has every case, others two, and nested solvers, which are slow, one."""
    return method != "dec-fact-gp" and case not in (("lower",) if "c-gp" in method else ("two", "prior"))


# ---- where it ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "case"),
    [
        pytest.param(method, case, marks=[pytest.mark.long] if beyond(method, case) else [])
        for method in fg.TRAINING_METHODS
        for case in CASES
    ],
)
def test_every_method_ends_at_the_bounded_optimum_and_says_so(method: str, case: str) -> None:
    given, ends = CASES[case]
    fleet = fg.Fleet(noisy_shards(), kernel="se", normalize=False)
    if ends:
        with pytest.warns(fg.FleetGPWarning, match=f"{ends[0]} stands at its .* bound"):
            fit = fleet.train(method, theta0=START, **given)
    else:
        fit = fleet.train(method, theta0=START, **given)
    assert fit.status == "converged"
    assert fit.at_bounds == ends
    found = np.log(fit.thetas)
    np.testing.assert_allclose(found, np.tile(expected(CONVERGED_TO[method], case), (3, 1)), atol=2e-3)


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[pytest.mark.long] if "c-gp" in m or "gapx" in m else []) for m in fg.TRAINING_METHODS],
)
def test_bounds_that_nobody_reaches_change_nothing(method: str) -> None:
    """And they say so: nothing is at a bound, and no agent sends more."""
    wide = {"length": (1e-3, 1e3), "signal": (1e-3, 1e3), "noise": (1e-3, 1e3)}
    free, boxed = (
        fg.Fleet(noisy_shards(), kernel="se", normalize=False).train(
            method, theta0=START, bounds=bounds, noise_floor=0.0
        )
        for bounds in (None, wide)
    )
    assert (boxed.status, boxed.at_bounds) == ("converged", ())
    np.testing.assert_allclose(np.log(boxed.thetas), np.log(free.thetas), atol=1e-3)
    if "c-gp" not in method:  # its nested minimizations are in other coordinates
        assert boxed.rounds == free.rounds
        assert boxed.ledger.as_dict() == free.ledger.as_dict()


@pytest.mark.parametrize(
    "method", mostly_long(["dec-full-gp", "dec-fact-gp", "full-gp", "c-gp", "dec-apx-gp"], "dec-full-gp", "dec-fact-gp")
)
def test_what_is_given_is_in_the_units_of_the_data(method: str) -> None:
    """In kelvin the field is 50 times as large, and far from 0: with normalize the same field is found."""
    fits = []
    for scale, offset in ((1.0, 0.0), (50.0, 280.0)):
        shards = [(x, offset + scale * y) for x, y in noisy_shards()]
        given: dict[str, Any] = {
            "bounds": {"sigma_f": (None, 0.7 * scale), "l_1": (2.0, None)},
            "priors": {"sigma_eps": (0.6 * scale, 1.1)},
        }
        with pytest.warns(fg.FleetGPWarning, match="sigma_f stands at its upper bound"):
            fits.append(
                fg.Fleet(shards, normalize=True, kernel="se").train(method, theta0=[1, 1, scale, 0.3 * scale], **given)
            )
        assert fits[-1].theta[2] == pytest.approx(0.7 * scale, rel=1e-3)
        assert fits[-1].at_bounds == fits[0].at_bounds
    np.testing.assert_allclose(fits[1].theta, fits[0].theta * [1, 1, 50, 50], rtol=2e-3)
    assert fits[1].penalty == pytest.approx(fits[0].penalty, abs=0.05)
    assert fits[1].penalty > 0.5


def test_the_likelihood_is_told_without_the_penalty_which_is_told_apart() -> None:
    given: dict[str, Any] = {"priors": {"noise": (0.6, 1.15), "l_2": (3.0, 2.0)}}
    for method in ("full-gp", "dec-full-gp", "fact-gp", "dec-fact-gp", "dec-apx-gp"):
        fit = fg.Fleet(noisy_shards(), kernel="se", normalize=False).train(method, theta0=START, tol=1e-6, **given)
        x = np.log(fit.theta)
        penalty = 0.5 * ((x[3] - np.log(0.6)) / np.log(1.15)) ** 2 + 0.5 * ((x[1] - np.log(3.0)) / np.log(2.0)) ** 2
        assert fit.penalty == pytest.approx(penalty, rel=1e-9)
        experts = [
            Expert(Observations(*part), KERNELS["se"], 0, "dense")
            for part in parts_of(noisy_shards(), CONVERGED_TO[method])
        ]
        assert fit.nll == pytest.approx(float(Objective(experts)(np.tile(x, (len(experts), 1))).nll.sum()), rel=1e-4)
        assert fit.starts[0].nll == fit.nll
    assert fg.Fleet(noisy_shards(), kernel="se", normalize=False).train("fact-gp", theta0=START).penalty == 0.0


@pytest.mark.parametrize(
    "method",
    mostly_long(
        ["dec-fact-gp", "dec-g-fact-gp", "dec-apx-gp", "dec-gapx-gp", "dec-c-gp"], "dec-g-fact-gp", "dec-apx-gp"
    ),
)
def test_same_bits_however_the_agents_are_hosted(method: str) -> None:
    shards = noisy_shards()
    known = ParameterConstraints.of(NAMES, {"l_1": (2.5, 9.0), "signal": (None, 0.7)}, {"noise": (0.6, 1.15)})
    options = TrainingOptions(starts=np.log([START]), rounds=25, known=known)

    def work(network: Network) -> fg.Fit:
        mine = [shards[i] for i in network.hosted]
        return train(training_method(method), observed(mine), network, KERNELS["se"], options)

    whole = work(fg.InProcess(fg.Graph.path(3)))
    assert whole.at_bounds == ("l_1", "sigma_f")
    for hosting in ([[0], [1], [2]], [[0, 2], [1]]):
        loopback = fg.Loopback(fg.Graph.path(3), hosting, timeout=120)
        for group, fit in zip(hosting, loopback.run(work), strict=True):
            assert np.array_equal(fit.history, whole.history[:, group])
            assert np.array_equal(fit.nlls, whole.nlls[group])
            assert (fit.status, fit.rounds, fit.at_bounds) == (whole.status, whole.rounds, whole.at_bounds)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


@pytest.mark.parametrize("method", ["dec-full-gp", "dec-fact-gp", "fact-gp", "apx-gp", "dec-apx-gp"])
def test_the_length_scale_of_an_input_without_influence_ends_at_its_bound(method: str) -> None:
    """Without one it goes on for as long as there is a slope."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 2, (60, 2))
    shards = fg.partition(x, 100.0 * (x[:, 0] > 1.0) + np.sin(9 * x[:, 0]), agents=3)
    with pytest.warns(fg.FleetGPWarning, match="l_2 stands at its upper bound, 40"):
        fit = fg.Fleet(shards, kernel="se", normalize=False).train(
            method, theta0=[1, 1, 50, 5], bounds={"l_2": (None, 40.0)}
        )
    assert (fit.status, fit.at_bounds) == ("converged", ("l_2",))
    if method == "dec-fact-gp":
        with pytest.warns(fg.FleetGPWarning, match="the likelihood does not depend on l_2"):
            free = fg.Fleet(shards, kernel="se", normalize=False).train(method, theta0=[1, 1, 50, 5])
        assert free.theta[1] > 100.0


def test_a_bound_farther_away_than_a_minimum_is_sought_is_no_divergence() -> None:
    """A line that falls for ever: it ends at the bound, however far that is; and without one it diverges."""
    for lowest, status in ((-40.0, "converged"), (-np.inf, "diverged")):
        newton = Newton(np.zeros(2), Bounds(np.array([lowest, -1.0]), np.full(2, np.inf)), 1e-6)
        search = Search.at(np.zeros(2))
        for _ in range(60):
            x = search.x
            value = float(30.0 * x[0] + 5.0 * (x[1] - 0.5) ** 2)
            found = Sum(value, abs(value), np.array([30.0, 10.0 * (x[1] - 0.5)]), np.diag([1.0, 10.0]))
            search = newton.decide(search, found)
            if search.residual <= 1e-6 or np.isnan(search.residual):
                break
        assert ("diverged" if np.isnan(search.residual) else "converged") == status
        if status == "converged":
            np.testing.assert_allclose(search.x, [-40.0, 0.5], atol=1e-6)


# ---- starts, floors, steps ------------------------------------------------------------------------------


def test_all_fixed_is_a_training_too() -> None:
    fixed = {"l_1": 1.0, "l_2": 0.7, "signal": 1.2, "noise": 0.3}
    for method in fg.TRAINING_METHODS:
        fit = fg.Fleet(noisy_shards(), normalize=True, kernel="se").train(method, fixed=fixed)
        assert (fit.status, fit.at_bounds, len(fit.starts)) == ("converged", (), 1), method
        np.testing.assert_allclose(fit.thetas, np.tile(list(fixed.values()), (3, 1)), rtol=1e-12)


def test_starts_beyond_a_bound_begin_at_it() -> None:
    fleet = fg.Fleet(noisy_shards(), kernel="se", normalize=False)
    given: dict[str, Any] = {"bounds": {"l_1": (0.5, 2.0)}, "fixed": {"noise": 0.25}}
    theta0 = np.array([[9.0, 1, 1, 1], [0.1, 1, 1, 1], [1.0, 1, 1, 1]])
    fit = fleet.train("fact-gp", theta0=theta0, **given)
    np.testing.assert_allclose([start.theta0[[0, 3]] for start in fit.starts], [[2, 0.25], [0.5, 0.25], [1, 0.25]])
    trainer = fleet.trainer("dec-apx-gp", theta0=theta0, **given)
    np.testing.assert_allclose(trainer.theta0[:, [0, 3]], [[2, 0.25], [0.5, 0.25], [1, 0.25]])
    state = trainer.start()
    for _ in range(5):
        state, info = trainer.step(state)
        assert (info.thetas[:, 0] <= 2.0 + 1e-12).all()
        np.testing.assert_allclose(info.thetas[:, 3], 0.25)


def test_own_bounds_of_the_noise_take_the_place_of_its_floor() -> None:
    def trained(**given: Any) -> fg.Fit:
        return fg.Fleet(noisy_shards(), kernel="se", normalize=False).train(
            "dec-fact-gp", theta0=START, rounds=1, tol=0, **given
        )

    floor = trained().noise_floor
    assert floor > 0.0
    assert trained(bounds={"l_1": (0.1, 3.0)}).noise_floor == floor
    assert trained(bounds={"noise": (None, 3.0)}).noise_floor == floor
    instead: tuple[dict[str, Any], ...] = ({"bounds": {"noise": (1e-6, 1.0)}}, {"fixed": {"noise": floor / 9}})
    for own in instead:
        fit = trained(**own)
        assert (fit.noise_floor, bool(fit.at_floor.any()), fit.at_bounds) == (0.0, False, ()), own
    with pytest.warns(fg.FleetGPWarning, match="sigma_eps stands at its upper bound"):
        fit = trained(bounds={"noise": (0, floor / 2)})
    assert (fit.noise_floor, bool(fit.at_floor.any()), fit.at_bounds) == (0.0, False, ("sigma_eps",))
    assert "floor" not in trained(fixed={"noise": 0.1}).ledger.by_phase(), "nobody has to ask for the deviation"


def test_model_folders_keep_it_and_older_ones_can_be_read(tmp_path: Path) -> None:
    fleet = fg.Fleet(noisy_shards(), kernel="se", normalize=False)
    with pytest.warns(fg.FleetGPWarning, match="l_1 stands at its lower bound, 2.5, sigma_f stands at its upper"):
        fit = fleet.train("dec-fact-gp", theta0=START, **CASES["two"][0], priors={"noise": (0.3, 2.0)})
    folder = save_model(Model(fleet, ("a", "b", "c"), ("u", "v"), "w"), tmp_path / "model")
    again = load_model(folder).fleet.last_fit
    assert again is not None
    assert (again.at_bounds, again.known.names) == (("l_u", "sigma_f"), ("l_u", "l_v", "sigma_f", "sigma_eps"))
    assert (again.known.lower, again.known.upper, again.penalty) == (fit.known.lower, fit.known.upper, fit.penalty)
    facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    known = facts["training"].pop("known")
    (folder / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    older = load_model(folder).fleet.last_fit
    assert older is not None
    assert (older.at_bounds, older.penalty) == ((), 0.0)
    known["bounds"]["l_w"] = [1.0, 2.0]
    (folder / "model.json").write_text(
        json.dumps(facts | {"training": facts["training"] | {"known": known}}), encoding="utf-8"
    )
    with pytest.raises(fg.InputError, match=r"the model is damaged: .* unknown hyperparameter in bounds 'l_w'"):
        load_model(folder)


# ---- the pieces -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 8), loose=st.floats(-3.0, 3.0))
def test_the_minimum_in_a_box_has_the_marks_of_one(seed: int, width: int, loose: float) -> None:
    """Inside nothing is left of the slope, and at an end it pushes outward: convex problems have no other minimum."""
    rng = np.random.default_rng(seed)
    square = rng.standard_normal((width, width))
    system = square @ square.T + 10.0**-loose * np.eye(width)
    gradient = 3.0 * rng.standard_normal(width)
    low, high = -rng.exponential(size=width), rng.exponential(size=width)
    fixed, opened = rng.random(width) < 0.1, rng.random(width) < 0.2
    low[fixed], high[fixed] = 0.0, 0.0
    low[opened & ~fixed] = -np.inf
    move = minimize_in_box(system, gradient, low, high)
    slope = gradient + system @ move
    tiny = 1e-9 * (np.abs(gradient) + np.abs(system) @ np.abs(move)).max()
    assert ((low <= move) & (move <= high)).all()
    assert (np.abs(slope[(low < move) & (move < high)]) <= tiny).all()
    assert (slope[(move == low) & (low < high)] >= -tiny).all()
    assert (slope[(move == high) & (low < high)] <= tiny).all()
    x = rng.standard_normal(width)
    box = Bounds(x + low, x + high)
    batch = box.best_move(np.stack([x, x]), np.stack([system, system]), np.stack([gradient, gradient]))
    np.testing.assert_allclose(batch, [move, move], atol=1e-6 * (1.0 + np.abs(move).max()))


def test_a_penalty_has_its_own_gradient_and_each_agent_its_share() -> None:
    x, step = np.array([[0.3, -1.0, 0.2, -2.0], [0.1, 0.4, 0.0, -1.0]]), 1e-6
    prior = Prior(np.array([0.1, 0.0, -0.4, -2.5]), np.array([2.0, 0.0, 7.0, 40.0]))
    columns = [(prior.penalty(x + step * e) - prior.penalty(x - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(np.stack(columns, axis=1), prior.gradient(x), atol=1e-7)
    experts = [Expert(Observations(*shard), KERNELS["se"], i, "dense") for i, shard in enumerate(noisy_shards()[:2])]
    plain, with_prior = Objective(experts)(x), Objective(experts, prior, 0.5)(x)
    np.testing.assert_allclose(with_prior.nll - plain.nll, 0.5 * prior.penalty(x), rtol=1e-10)
    np.testing.assert_allclose(with_prior.gradient - plain.gradient, 0.5 * prior.gradient(x), atol=1e-9)
    np.testing.assert_allclose(with_prior.likelihood, plain.nll, rtol=1e-14)
    only = Objective(experts, prior, 0.5).renewed(plain, x, np.array([False, True]))
    assert (only.nll[0], only.penalty[0], only.nll[1]) == (plain.nll[0], 0.0, with_prior.nll[1])
    assert np.array_equal(only.gradient[0], plain.gradient[0])
    assert Objective(experts, prior, 0.5)(x[1:], np.array([1])).nll == with_prior.nll[1]
    assert np.array_equal(sampled(Objective(experts, prior, 0.5), 0, 0)(x).nll, with_prior.nll), "so few are all"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bounds": {"l_lon": (1, 2)}}, "unknown hyperparameter in bounds 'l_lon': choose one of l_1, l_2, sigma_f, "),
        ({"bounds": {"l_1": (2, 1)}}, "bounds: l_1: expected the lowest value first, got 2 and 1"),
        ({"bounds": {"l_1": (2, 2)}}, "bounds: l_1: expected two different numbers, got 2 twice: use fixed"),
        ({"bounds": {"l_1": 2}}, r"bounds: l_1: expected two numbers, .* got 2"),
        ({"bounds": {"l_1": "12"}}, r"bounds: l_1: expected two numbers, .* got '12'"),
        ({"bounds": {"l_1": (-1, 2)}}, "bounds: l_1 must be a number of at least 1e-100 and at most 1e"),
        ({"bounds": [1, 2]}, "bounds: expected a dictionary with the names of hyperparameters"),
        ({"priors": {"noise": (0.1, 1.0)}}, "priors: noise: the factor must be a number above 1"),
        ({"priors": {"noise": (0.0, 2.0)}}, "priors: noise must be a number of at least 1e-100"),
        ({"priors": {"noise": (1.0, 2.0)}, "fixed": {"sigma_eps": 0.1}}, "priors: noise has a fixed value"),
        ({"fixed": {"noise": 0.1, "sigma_eps": 0.1}}, "fixed: noise and sigma_eps are the same hyperparameter"),
        ({"fixed": {"noise": 3.0}, "bounds": {"noise": (0.1, 1.0)}}, "fixed: sigma_eps = 3 is outside of its bounds"),
        ({"fixed": {"noise": "x"}}, "fixed: noise must be a number"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(fg.InputError, match=said):
        fg.Fleet(noisy_shards(), kernel="se", normalize=False).train("dec-fact-gp", **given)


def test_a_name_of_its_own_goes_before_a_word() -> None:
    known = ParameterConstraints.of(NAMES, {"l_2": (1, 2), "length": (3, None)}, {"length": (5, 2)}, {"l_2": 1.5})
    assert known.lower == (3.0, 1.5, 0.0, 0.0)
    assert known.factor == (2.0, np.inf, np.inf, np.inf)
    assert ParameterConstraints.of(NAMES, **known.as_dict()) == known
