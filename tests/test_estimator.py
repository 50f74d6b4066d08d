"""FleetGPRegressor: a well-behaved estimator of scikit-learn, and the same model as its GaussianProcessRegressor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import fleetgp as fg
from fleetgp import estimator as module
from fleetgp.arrays import Array
from fleetgp.estimator import FleetGPRegressor

#: A noise of 0.3 that is known.
WHITE = sk.WhiteKernel(0.09, "fixed")
THETA: dict[str, Any] = {"normalize": False, "fixed": {"length": 1.0, "signal": 1.2, "noise": 0.1}}


def wave(rows: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 5.0, (rows, 2))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(rows)


def exact(model: FleetGPRegressor, X: Array, y: Array) -> GaussianProcessRegressor:
    """scikit-learn's GP at the hyperparameters that the model has learned, with y as it is."""
    *lengths, signal, noise = model.theta_
    kernel = sk.ConstantKernel(signal**2) * sk.Matern(lengths, nu=1.5)
    return GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None).fit(X, y - y.mean())


def checks() -> Iterator[Any]:
    """All of scikit-learn's; those that give the same data in another form, and train most, in long runs."""
    for estimator, check in estimator_checks_generator(FleetGPRegressor()):
        name, given = check.func.__name__, check.keywords
        if name == "check_array_api_input":
            continue  # for estimators that take the arrays of other libraries, which this one turns into NumPy's
        again = name == "check_regressors_train" and given
        yield pytest.param(
            estimator,
            check,
            id=name + "".join(f"-{key}={value}" for key, value in given.items()),
            marks=[pytest.mark.long] if again else [],
        )


# Random data of a few rows make it warn of bounds, of the floor of the noise and of points far away.
@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_finds_nothing_wrong(estimator: FleetGPRegressor, check: Callable[[object], None]) -> None:
    check(estimator)


# ---- the same model ---------------------------------------------------------------------------------------------


def field() -> tuple[Array, Array]:
    made = fg.synthetic_field(200, seed=3)
    return made.inputs, made.observations


def friedman() -> tuple[Array, Array]:
    X, y = make_friedman1(160, n_features=5, noise=0.5, random_state=1)
    return X, y


def diabetes() -> tuple[Array, Array]:
    X, y = load_diabetes(return_X_y=True)
    return X[:200, [2, 3, 8]], y[:200]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::fleetgp.FleetGPWarning")
@pytest.mark.parametrize("data", [field, friedman, diabetes])
def test_one_line_replaces_the_gaussian_process_regressor(data: Callable[[], tuple[Array, Array]]) -> None:
    X, y = data()
    half = len(X) // 2
    matern = sk.ConstantKernel() * sk.Matern(np.ones(X.shape[1]), nu=1.5) + sk.WhiteKernel()
    scores = [
        make_pipeline(StandardScaler(), model).fit(X[:half], y[:half]).score(X[half:], y[half:])
        for model in (GaussianProcessRegressor(matern, normalize_y=True), FleetGPRegressor())
    ]
    assert scores[0] > 0.25  # there is something to learn
    assert abs(scores[1] - scores[0]) < 0.02


def test_the_answers_of_one_agent_are_those_of_the_exact_gp() -> None:
    X, y = wave(80)
    points = wave(12, seed=1)[0]
    model = FleetGPRegressor(observed=False).fit(X, y)
    mean, covariance = exact(model, X, y).predict(points, return_cov=True)
    ours, std = model.predict(points, return_std=True)
    assert model.n_agents_ == 1
    assert model.status_ == "converged"
    np.testing.assert_allclose(ours, mean + y.mean(), atol=1e-7)
    np.testing.assert_allclose(std, np.sqrt(np.diagonal(covariance)), rtol=1e-5)
    jointly, found = model.predict(points, return_cov=True)
    np.testing.assert_allclose(jointly, ours, atol=1e-9)
    np.testing.assert_allclose(found, covariance, atol=1e-8)
    assert (found == found.T).all()


def test_deviations_are_of_observations_as_with_a_white_kernel_or_of_f_as_with_alpha() -> None:
    """With scikit-learn's GP at the same hyperparameters; and they cover what they say they do."""
    (X, y), (points, seen) = wave(80), wave(400, seed=1)
    model = FleetGPRegressor(kernel="matern32", normalize=True).fit(X, y)
    *lengths, signal, noise = model.theta_
    field = sk.ConstantKernel(signal**2) * sk.Matern(lengths, nu=1.5)
    white = GaussianProcessRegressor(field + sk.WhiteKernel(noise**2), optimizer=None).fit(X, y - y.mean())
    latent = exact(model, X, y)
    for noisy, other in ((True, white), (False, latent)):
        model.set_params(observed=noisy)
        mean, std = model.predict(points, return_std=True)
        np.testing.assert_allclose(std, other.predict(points, return_std=True)[1], rtol=1e-5)
        covariance = model.predict(points[:5], return_cov=True)[1]
        np.testing.assert_allclose(covariance, other.predict(points[:5], return_cov=True)[1], atol=1e-8)
        covered = (np.abs(seen - mean) < 1.96 * std).mean()
        assert (covered > 0.9) == noisy


def test_the_marginal_likelihood_is_scikit_learns() -> None:
    """At theta and elsewhere, and its gradient by differences; of several agents it is the sum."""
    X, y = wave(40)
    model = FleetGPRegressor(kernel="matern32", normalize=True).fit(X, y)
    other = model.theta_ * [1.5, 0.8, 1.2, 2.0]
    for theta in (None, other):
        *lengths, signal, noise = model.theta_ if theta is None else theta
        kernel = sk.ConstantKernel(signal**2) * sk.Matern(lengths, nu=1.5) + sk.WhiteKernel(noise**2)
        peer = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y - y.mean())
        expected = peer.log_marginal_likelihood(peer.kernel_.theta)
        assert model.log_marginal_likelihood(theta) == pytest.approx(expected, rel=1e-7)
    _, gradient = model.log_marginal_likelihood(other, eval_gradient=True)
    for d in range(4):
        up, down = (model.log_marginal_likelihood(other * np.exp(e * (np.arange(4) == d))) for e in (1e-4, -1e-4))
        assert gradient[d] == pytest.approx((up - down) / 2e-4, rel=1e-4, abs=1e-4)
    two = FleetGPRegressor(kernel="matern32", **THETA).fit(X, y, agents=np.arange(40) % 2)
    parts = [FleetGPRegressor(kernel="matern32", **THETA).fit(X[k::2], y[k::2]) for k in (0, 1)]
    assert two.log_marginal_likelihood() == pytest.approx(sum(part.log_marginal_likelihood() for part in parts))


@pytest.mark.parametrize(
    "shape",
    [
        sk.RBF([2.0, 3.0], "fixed"),
        sk.RBF(2.0, "fixed"),
        sk.Matern([2.0, 3.0], "fixed", nu=0.5),
        sk.Matern(2.0, "fixed", nu=1.5),
        sk.Matern([2.0, 3.0], "fixed", nu=2.5),
        sk.RationalQuadratic(2.0, 1.5, "fixed", "fixed"),
    ],
)
@pytest.mark.parametrize("columns", [None, ["lon", "lat"]])
def test_kernels_of_scikit_learn_are_taken(shape: sk.Kernel, columns: list[str] | None) -> None:
    """With fixed values the answers are scikit-learn's; a variance without a ConstantKernel is 1."""
    X, y = wave(30)
    if columns is not None:
        X = pd.DataFrame(X, columns=columns)
    for kernel in (sk.ConstantKernel(1.7, "fixed") * shape + WHITE, shape + WHITE):
        peer = GaussianProcessRegressor(kernel, alpha=0.0).fit(X, y)
        model = FleetGPRegressor(kernel, normalize=False).fit(X, y)
        ours, theirs = (one.predict(X[:7], return_std=True) for one in (model, peer))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_what_scikit_learn_has_and_this_has_not_is_refused_with_its_equivalent() -> None:
    X, y = wave(10)
    for kernel in (
        sk.DotProduct(),
        sk.Matern(nu=1.0),
        sk.RBF() + sk.RBF(),
        sk.WhiteKernel(),
        2.0 * sk.RBF() * sk.RBF(),
    ):
        with pytest.raises(fg.InputError, match="has no equivalent"):
            FleetGPRegressor(kernel).fit(X, y)
    with pytest.raises(fg.InputError, match="expected 1 or 2 length-scales"):
        FleetGPRegressor(sk.RBF([1.0, 1.0, 1.0])).fit(X, y)
    regressor: Any = FleetGPRegressor
    for keyword in ("alpha", "normalize_y", "optimizer", "n_restarts_optimizer", "copy_X_train", "n_targets", "n_jobs"):
        with pytest.raises(fg.InputError, match=f"has no parameter '{keyword}': "):
            regressor(**{keyword: None})
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        regressor(colour=1)


@pytest.mark.parametrize("given", [{"mean": "linear"}, {"kernel": "se", "predictor": "full-gp"}, {"engine": "dense"}])
def test_covariances_belong_to_the_same_model_as_deviations(given: dict[str, Any]) -> None:
    X, y = wave(50)
    points = wave(6, seed=1)[0]
    model = FleetGPRegressor(**{**given, "fixed": {"noise": 0.1, "signal": 1.0, "length": 2.0}}).fit(X, y)
    mean, std = model.predict(points, return_std=True)
    jointly, covariance = model.predict(points, return_cov=True)
    np.testing.assert_allclose(jointly, mean, atol=1e-7)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), std, rtol=1e-5)


def test_samples_have_the_mean_and_covariance_of_the_posterior() -> None:
    X, y = wave(25)
    model = FleetGPRegressor(**THETA).fit(X, y)
    points = wave(4, seed=2)[0]
    mean, covariance = model.predict(points, return_cov=True)
    draws = model.sample_y(points, n_samples=20_000, random_state=1)
    assert draws.shape == (4, 20_000)
    # Five standard errors of a mean, and of a covariance (at most sqrt(2) sd_i sd_j / sqrt(n)).
    std = np.sqrt(np.diagonal(covariance))
    assert (np.abs(draws.mean(axis=1) - mean) < 5.0 * std / np.sqrt(20_000)).all()
    assert (np.abs(np.cov(draws) - covariance) < 5.0 * np.sqrt(2.0 / 20_000) * np.outer(std, std)).all()
    np.testing.assert_array_equal(draws, model.sample_y(points, 20_000, random_state=1))
    assert not np.array_equal(draws[:, :1], model.sample_y(points, 1, random_state=2))


def test_several_agents_predict_nearly_as_well_as_one() -> None:
    X, y = wave(240)
    given: dict[str, Any] = {"normalize": True, "fixed": {"length": 2.0, "signal": 2.0, "noise": 0.1}}
    scores = [FleetGPRegressor(n_agents=n, **given).fit(X[:160], y[:160]).score(X[160:], y[160:]) for n in (1, 4)]
    assert scores[0] > 0.95
    assert abs(scores[1] - scores[0]) < 0.02


def test_many_rows_are_split_over_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (module.ONE_AGENT, module.ROWS) == (1500, 1000)  # what is documented
    monkeypatch.setattr(module, "ONE_AGENT", 15)
    monkeypatch.setattr(module, "ROWS", 10)
    X, y = wave(21)
    for rows, agents in ((15, 1), (16, 2), (21, 3)):
        model = FleetGPRegressor(**THETA).fit(X[:rows], y[:rows])
        assert (model.n_agents_, model.agents_.tolist()) == (agents, list(range(agents)))
        assert sum(len(own) for _, own in model.fleet_.shards) == rows


# ---- in scikit-learn's tools ------------------------------------------------------------------------------------


def test_it_is_searched_over_and_cross_validated() -> None:
    X, y = wave(60)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FleetGPRegressor(**THETA)),
        {"fleetgpregressor__kernel": ["se", "matern12"], "fleetgpregressor__n_agents": [1, 2]},
        cv=2,
    ).fit(X, y)
    found = search.cv_results_["mean_test_score"]
    assert found.shape == (4,)
    assert np.isfinite(found).all()
    assert len(set(found.round(6))) == 4  # each parameter makes a difference
    assert search.score(X, y) > 0.9
    labels = np.array(["a", "b", "c"] * 20)
    scores = cross_val_score(FleetGPRegressor(**THETA), X, y, cv=3, params={"agents": labels})
    assert scores.shape == (3,)
    assert (scores > 0.7).all()


def test_parameters_are_kept_as_they_are() -> None:
    given: dict[str, Any] = {"kernel": ["se", "matern32"], "bounds": {"noise": (0.1, None)}, "random_state": None}
    model = FleetGPRegressor(**given)
    copy = clone(model)
    for name, value in given.items():
        assert model.get_params()[name] is value
        assert copy.get_params()[name] == value
    assert copy.set_params(n_agents=3).n_agents == 3
    assert not hasattr(model, "n_agents_")


def test_data_frames_are_known_by_their_columns() -> None:
    X, y = wave(40)
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    model = FleetGPRegressor(
        "matern32(lon) + linear(lat)", normalize=False, fixed={"noise": 0.1}, bounds={"length": (0.5, 4.0)}
    ).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["lon", "lat"]
    assert any("lon" in name for name in model.theta_names_)
    assert len(model.theta_) == len(model.theta_names_)
    assert model.score(frame, y) > 0.9
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[["lat", "lon"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"lat": "latitude"}))


# ---- agents -----------------------------------------------------------------------------------------------------


def test_labels_say_whose_the_rows_are() -> None:
    X, y = wave(30)
    labels = np.array(["west", "east", "north"])[np.minimum(np.arange(30) % 4, 2)]
    model = FleetGPRegressor(**THETA).fit(X, y, agents=labels)
    assert model.agents_.tolist() == ["west", "east", "north"]
    for number, (name, (own, _)) in enumerate(zip(model.agents_, model.fleet_.shards, strict=True)):
        np.testing.assert_array_equal(own, X[labels == name])
        answer = model.fleet_.predict(X[:3], "dec-summary", agent=number).mean
        np.testing.assert_array_equal(model.predict(X[:3], agent=name), answer)
        np.testing.assert_array_equal(model.predict(X[:3], agent=number), answer)
    numbered = FleetGPRegressor(**THETA).fit(X, y, agents=np.arange(30) % 2 + 1)
    assert numbered.agents_.tolist() == [1, 2]
    assert numbered.predict(X[:1], agent=2).shape == (1,)
    with pytest.raises(fg.InputError, match="expected one of 1, 2, got 0"):  # a number is a label here
        numbered.predict(X[:1], agent=0)


@pytest.mark.parametrize("predictor", ["dec-summary", "dec-nn-grbcm", "dec-rbcm", "full-gp", "dec-nearest"])
def test_several_agents_have_covariances_and_samples_by_the_predictor(predictor: str) -> None:
    X, y = wave(40)
    model = FleetGPRegressor(n_agents=3, predictor=predictor, observed=False, **THETA).fit(X, y)
    points = wave(5, seed=1)[0]
    mean, covariance = model.predict(points, return_cov=True)
    found = model.fleet_.joint(points, predictor)
    np.testing.assert_array_equal(mean, found.mean)
    np.testing.assert_array_equal(covariance, found.covariance)
    draws = model.sample_y(points, 4000, random_state=1)
    std = np.sqrt(np.diagonal(covariance))
    assert (np.abs(np.cov(draws) - covariance) < 5.0 * np.sqrt(2.0 / 4000) * np.outer(std, std)).all()


@pytest.mark.parametrize("labelled", [True, False])
def test_rows_that_come_later_count_as_those_that_came_first(labelled: bool) -> None:
    X, y = wave(36)
    points = wave(5, seed=4)[0]
    labels = np.array(["a", "b"])[(X[:, 0] > 2.5).astype(int)] if labelled else None
    part: Callable[[slice], Any] = lambda rows: None if labels is None else labels[rows]  # noqa: E731
    whole = FleetGPRegressor(predictor="dec-rbcm", **THETA).fit(X, y, agents=labels)
    grown = FleetGPRegressor(predictor="dec-rbcm", **THETA)
    for rows in (slice(0, 20), slice(20, 21), slice(21, 36)):
        assert grown.partial_fit(X[rows], y[rows], agents=part(rows)) is grown
        grown.predict(points)
    order = [grown.agents_.tolist().index(name) for name in whole.agents_.tolist()]
    assert [len(whole.fleet_.shards[i][1]) for i in range(len(order))] == [
        len(grown.fleet_.shards[i][1]) for i in order
    ]
    for one, other in zip(grown.predict(points, True), whole.predict(points, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def test_rows_without_a_label_go_to_the_nearest_agent() -> None:
    X = np.array([[0.0, 0.0], [1.0, 100.0], [9.0, 0.0], [10.0, 100.0]])
    model = FleetGPRegressor(n_agents=2, partition="stripes", **THETA).fit(X, [0.0, 1.0, 2.0, 3.0])
    model.partial_fit([[8.5, 90.0], [0.5, 10.0], [9.5, 10.0]], [4.0, 5.0, 6.0])
    assert [y.tolist() for _, y in model.fleet_.shards] == [[0.0, 1.0, 5.0], [2.0, 3.0, 4.0, 6.0]]


def test_new_rows_need_known_labels() -> None:
    X, y = wave(20)
    model = FleetGPRegressor(**THETA).fit(X, y, agents=["a", "b"] * 10)
    with pytest.raises(fg.InputError, match="expected agents, a label for each row"):
        model.partial_fit(X, y)
    with pytest.raises(fg.InputError, match="expected one of a, b, got 'c'"):
        model.partial_fit(X[:2], y[:2], agents=["a", "c"])
    assert [len(own) for _, own in model.fleet_.shards] == [10, 10]  # all or nothing


# ---- data that tell little, and calls that are wrong ------------------------------------------------------------


def test_observations_that_are_all_the_same_are_told_of() -> None:
    X, y = wave(30)
    model = FleetGPRegressor()
    with pytest.warns(fg.FleetGPWarning, match="y has one value only, 3: there is nothing to train on"):
        model.fit(X[:5], np.full(5, 3.0))
    assert model.status_ == "untrained"
    np.testing.assert_allclose(model.predict(X[:5]), 3.0)
    mean, covariance = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(mean, 3.0)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), model.predict(X[:5], return_std=True)[1])
    model.partial_fit(X, y)
    assert model.status_ == "converged"
    assert model.score(X, y) > 0.9


def test_inputs_without_effect_are_named_and_the_model_is_kept() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 3))
    y = X[:, 0] + 0.2 * rng.standard_normal(20)
    with pytest.warns(fg.FleetGPWarning, match=r"does not depend on l_2"):
        model = FleetGPRegressor(kernel="matern32", normalize=True).fit(X, y)
    assert model.status_ == "converged"
    assert model.score(X, y) > 0.9
    own = FleetGPRegressor(bounds={"length": (0.1, 20.0)})
    with pytest.warns(fg.FleetGPWarning, match="bound"):
        own.fit(X, y)
    assert own.theta_[:3].max() <= 20.0 * (1 + 1e-9)


def test_wrong_calls_have_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = wave(12)
    with pytest.raises(NotFittedError):
        FleetGPRegressor().predict(X)
    model = FleetGPRegressor(**THETA).fit(X, y)
    with pytest.raises(fg.InputError, match="one of return_std and return_cov, got both"):
        model.predict(X, return_std=True, return_cov=True)
    with pytest.raises(fg.InputError, match="n_samples must be a whole number of at least 1, got 0"):
        model.sample_y(X, 0)
    with pytest.raises(fg.InputError, match="one label for each of the 12 rows"):
        FleetGPRegressor().fit(X, y, agents=["a", "b"])
    with pytest.raises(fg.InputError, match="n_agents must be a whole number of at least 1, got '3'"):
        FleetGPRegressor(n_agents="3").fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(fg.InputError, match="n_agents: expected at most one agent for each of the 12 rows, got 13"):
        FleetGPRegressor(n_agents=13).fit(X, y)
    with pytest.raises(fg.InputError, match="random_state must be a whole number of at least 0, got -1"):
        FleetGPRegressor(random_state=-1).fit(X, y)
    with pytest.raises(fg.InputError, match="bounds: expected a dictionary"):
        FleetGPRegressor(bounds=[1, 2]).fit(X, y)  # type: ignore[arg-type]
    monkeypatch.setattr("fleetgp.prediction.methods.MOST_JOINT", 11)
    with pytest.raises(fg.InputError, match="dec-summary: expected at most 11 queries at once, got 12: give fewer"):
        model.sample_y(X)
    with pytest.raises(fg.InputError, match="dec-npae has no joint covariance"):
        FleetGPRegressor(n_agents=2, predictor="dec-npae", **THETA).fit(X, y).sample_y(X)


def test_what_has_not_converged_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = wave(30)
    train = fg.Fleet.train
    monkeypatch.setattr(fg.Fleet, "train", lambda fleet, *given, **more: train(fleet, *given, rounds=1, **more))
    with pytest.warns(ConvergenceWarning, match="dec-fact-gp ended by round limit"):
        model = FleetGPRegressor().fit(X, y)
    assert model.status_ == "round limit"


def test_the_package_does_without_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fleetgp as fg\n"
        "from fleetgp import *\n"
        "assert 'FleetGPRegressor' in dir(fg)\n"
        "try: fg.FleetGPRegressor\n"
        "except fg.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip().endswith('pip install "fleetgp[sklearn]"')
