"""A verification passes on sound fleets of all kinds, and each check fails on a fleet that was broken for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.advice import Check
from fleetgp.engines.expert import Expert
from fleetgp.fleet import ConditionedFleet
from fleetgp.prediction import committee
from fleetgp.training import Fit
from tests.conftest import paper_shards

THETA = (1.2, 0.3, 1.3, 0.1)
LOST = "dec-rbcm"


@cache
def trained() -> Fit:
    return fg.Fleet(paper_shards(300, 3), "path", normalize=True, kernel="se").train("dec-fact-gp")


def sound(**changes: Any) -> fg.Fleet:
    """A trained fleet; changes: to what it was trained to."""
    fleet = fg.Fleet(paper_shards(300, 3), "path", normalize=True, kernel="se")
    fleet.adopt(replace(trained(), **changes))
    return fleet


def failing(fleet: fg.Fleet, **options: Any) -> set[str]:
    return {check.name for check in fg.verify(fleet, **{"methods": [LOST], **options}).failed}


# ---- sound fleets --------------------------------------------------------------------------------------------------


def test_a_sound_fleet_passes_with_every_method() -> None:
    found = fg.verify(sound(), methods=fg.PREDICTION_METHODS)
    beside = {check.name for check in found.failed if "intervals" not in check.name}
    assert beside == set()
    kept = {check.name for check in found.checks if "grbcm" in check.name and "intervals" in check.name}
    assert not kept & {check.name for check in found.failed}


@pytest.mark.parametrize(
    "method",
    [*(m for m in fg.TRAINING_METHODS if m[:4] == "dec-" and m != "dec-c-gp"), "full-gp", "fact-gp", "g-fact-gp"],
)
def test_every_training_passes(method: str) -> None:
    fleet = fg.Fleet(paper_shards(160, 2), "path", kernel="se", normalize=False)
    fleet.train(method, theta0=THETA)
    assert failing(fleet) == set()


def warm_sea(agents: int = 2) -> list[tuple[Any, Any]]:
    """Longitudes and latitudes, with a slope and some noise."""
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.uniform(-71, -70, 200), rng.uniform(40, 41, 200)])
    y = 15 + 3 * x[:, 1] + np.sin(9 * x[:, 0]) + 0.1 * rng.standard_normal(200)
    return [(x[i::agents], y[i::agents]) for i in range(agents)]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ({"normalize": True, "mean": "linear", "coordinates": "scaled"}, {}),
        ({"normalize": True, "coordinates": "kilometres", "kernel": "matern32"}, {}),
        ({"normalize": True, "mean": "constant", "noise": "agents"}, {}),
        ({"normalize": True, "kernel": "matern32(lon) * se(lat)"}, {"priors": {"noise": (0.1, 2)}}),
        ({"normalize": True, "robust": True, "kernel": "matern52"}, {"fixed": {"signal": 5.0}}),
        ({"normalize": True, "coordinates": "sphere", "kernel": "iso-matern32(lon, lat)"}, {}),
    ],
)
def test_models_of_all_kinds_pass(model: dict[str, Any], options: dict[str, Any]) -> None:
    fleet = fg.Fleet(warm_sea(), "path", inputs=["lon", "lat"], **{"kernel": "se", "normalize": False, **model})
    fleet.train("dec-fact-gp", **options)
    assert failing(fleet) == set()


def test_known_deviations_are_in_the_intervals() -> None:
    """Half the rows are ten times as noisy, and the fleet knows it."""
    rng = np.random.default_rng(3)
    shards = []
    for x, y in paper_shards(400, 2):
        s = np.where(rng.random(len(y)) < 0.5, 1.0, 0.01)
        shards.append((x, y + s * rng.standard_normal(len(y)), s))
    assert failing(fg.Fleet(shards, "path", theta=THETA, kernel="se", normalize=False), hold=0.4) == set()


def test_a_given_theta_has_no_training_to_check() -> None:
    found = fg.verify(fg.Fleet(paper_shards(120, 2), theta=THETA, kernel="se", normalize=False), methods=[LOST])
    assert found["training converged"].verdict == "not applicable"
    assert found["gradients match differences"].verdict == "passed"
    assert found.passed


def test_large_fleets_are_sampled_and_say_so() -> None:
    rng = np.random.default_rng(1)
    shards = [(x := rng.uniform(0, 1, (500, 1)), np.sin(6 * x[:, 0])) for _ in range(16)]
    fleet = fg.Fleet(shards, theta=[0.3, 1.0, 0.1], kernel="matern32", normalize=False)
    found = fg.verify(fleet, methods=[LOST])
    assert "a random sample of 2,992 of the 8,000 rows" in found.sampled[0]
    assert (
        "all 120 rows"
        in fg.verify(fg.Fleet(paper_shards(120, 2), theta=THETA, kernel="se", normalize=False), methods=[LOST]).sampled[
            0
        ]
    )


def test_nothing_of_the_fleet_is_changed() -> None:
    fleet = sound()
    before, theta = fleet.predict([[0.5, 0.5]], LOST), np.array(fleet.theta)
    fg.verify(fleet, methods=[LOST])
    after = fleet.predict([[0.5, 0.5]], LOST)
    assert np.array_equal(before.mean, after.mean)
    assert np.array_equal(theta, np.array(fleet.theta))
    assert fleet.last_fit is not None
    assert fleet.last_fit.ledger.as_dict() == trained().ledger.as_dict()


# ---- broken fleets -------------------------------------------------------------------------------------------------


def with_wrong_theta(agent: int | slice, factor: float) -> fg.Fleet:
    thetas = trained().thetas.copy()
    thetas[agent] *= factor
    return sound(thetas=thetas)


def tampered() -> fg.Fleet:
    """Whose training sent a row."""
    ledger = fg.Ledger.from_dict(trained().ledger.as_dict())
    ledger.record("training", "observations", slice(0, 1), 1, 20)
    return sound(ledger=ledger)


def grown() -> fg.Fleet:
    fleet = sound()
    fleet.observe(0, [[0.3, 0.4], [1.1, 1.3]], [5.0, -5.0])
    return fleet


def at_a_bound() -> fg.Fleet:
    fleet = fg.Fleet(paper_shards(120, 2), "path", kernel="se", normalize=False)
    with pytest.warns(fg.FleetGPWarning, match="bound"):
        fleet.train(theta0=THETA, bounds={"noise": (0.5, None)})
    return fleet


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("training converged", lambda: sound(status="round limit")),
        ("agents agree on theta", lambda: with_wrong_theta(1, 1.1)),
        ("theta is stationary", lambda: with_wrong_theta(1, 1.5)),
        ("theta is stationary", lambda: with_wrong_theta(slice(None), 1.2)),
        ("theta is stationary", grown),
        ("likelihood is the same again", grown),
        ("likelihood is the same again", lambda: sound(nll=trained().nll + 0.1)),
        ("theta is not at a bound", at_a_bound),
        ("training sent only what it may", tampered),
    ],
)
def test_a_broken_training_fails(name: str, broken: Callable[[], fg.Fleet]) -> None:
    assert name in failing(broken())


def test_each_check_of_a_training_fails_alone() -> None:
    assert failing(tampered()) == {"training sent only what it may"}
    assert failing(sound(nll=trained().nll + 0.1)) == {"likelihood is the same again"}
    assert failing(sound(status="round limit")) == {"training converged"}


def test_a_wrong_gradient_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thousandth."""
    evaluate = Expert.evaluate

    def off(self: Expert, log_theta: Any) -> Any:
        found = evaluate(self, log_theta)
        return replace(found, gradient=1.001 * found.gradient)

    monkeypatch.setattr(Expert, "evaluate", off)
    assert failing(sound()) == {"gradients match differences"}


def test_a_wrong_engine_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Expert.evaluate

    def off(self: Expert, log_theta: Any) -> Any:
        found = evaluate(self, log_theta)
        return replace(found, nll=found.nll + 0.01)

    monkeypatch.setattr(Expert, "evaluate", off)
    assert failing(sound()) == {"engine dense agrees with the formulas"}


def altered(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Every answer of a conditioned fleet is another."""
    predict = ConditionedFleet.predict

    def off(self: ConditionedFleet, *given: Any, **options: Any) -> Any:
        return change(predict(self, *given, **options))

    monkeypatch.setattr(ConditionedFleet, "predict", off)


def test_agents_with_different_answers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, lambda found: replace(found, means=found.means + 1e-6 * np.eye(3)[2][:, None]))
    assert failing(sound()) == {f"{LOST}: agents agree"}


@pytest.mark.parametrize("factor", [-1.0, 1e6])
def test_impossible_variances_fail(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    altered(monkeypatch, lambda found: replace(found, field_variances=factor * found.field_variances))
    with np.errstate(invalid="ignore"):
        assert f"{LOST}: variances lie between 0 and the prior" in failing(sound())


def test_a_method_that_differs_from_its_twin_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = committee._finish
    monkeypatch.setattr(committee, "_finish", lambda *given: finish(*given) * (1.0 + 1e-4))
    assert failing(sound()) == {f"{LOST}: equals its central twin"}


def test_an_answer_that_is_another_one_each_time_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    finish, rng = committee._finish, np.random.default_rng(0)
    monkeypatch.setattr(committee, "_finish", lambda *given: finish(*given) * (1.0 + 1e-9 * rng.standard_normal()))
    assert failing(sound()) == {f"{LOST}: the same again"}


def test_an_answer_that_sends_rows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    predict = committee.Committee.predict

    def leaking(self: Any, query: Any) -> Any:
        query.network.collect({"inputs": [np.ones((1, 2))] * query.network.agents})
        return predict(self, query)

    monkeypatch.setattr(committee.Committee, "predict", leaking)
    assert failing(sound()) == {f"{LOST}: sent only what it may"}


@pytest.mark.parametrize(("noise", "word"), [(0.01, "too sure of itself"), (1.0, "too cautious")])
def test_wrong_noise_is_seen_in_the_intervals(noise: float, word: str) -> None:
    fleet = fg.Fleet(paper_shards(400, 2), theta=(*THETA[:3], noise), kernel="se", normalize=False)
    found = fg.verify(fleet, methods=[LOST], hold=0.3)
    assert {check.name for check in found.failed} >= {f"{LOST}: 50 % intervals", f"{LOST}: 80 % intervals"}
    assert all(word in check.meaning and "calibrate" in check.meaning for check in found.failed)
    assert str(found).splitlines()[-1].startswith(f"{len(found.failed)} of {len(found.checks)} checks failed, ")


def test_a_calibration_is_in_the_intervals() -> None:
    """Of a fleet that is too sure of itself until it is calibrated."""
    fleet = fg.Fleet(paper_shards(400, 2), theta=(*THETA[:3], 0.02), kernel="se", normalize=False)
    assert failing(fleet, hold=0.3)
    fleet.calibrate(LOST, holdout="rows", level=0.8)
    found = fg.verify(fleet, hold=0.3)
    assert found[f"{LOST}: 80 % intervals"].verdict == "passed"


# ---- what it tells -------------------------------------------------------------------------------------------------


def test_it_can_be_printed_and_written() -> None:
    found = fg.verify(tampered(), methods=[LOST])
    text = str(found)
    assert "dec-fact-gp may send statistics, and sent observations." in text
    assert text.splitlines()[0].split() == ["check", "verdict", "measured", "at", "most"]
    assert json.loads(json.dumps(found.facts))["passed"] is False
    frame = found.to_frame()
    assert list(frame.columns) == ["name", "verdict", "measured", "limit", "meaning"]
    assert len(frame) == len(found.checks)
    assert not found.passed
    with pytest.raises(fg.InputError, match="unknown check 'unknown': choose one of training converged"):
        found["unknown"]


def test_what_is_no_number_fails() -> None:
    assert Check.of("x", np.nan, 1.0, "").verdict == "failed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fg.verify([1]), "verify: expected a Fleet, got list"),  # type: ignore[arg-type]
        (
            lambda: fg.verify(fg.Fleet(paper_shards(20, 2), kernel="se", normalize=False)),
            "the fleet has no hyperparameters yet",
        ),
        (lambda: fg.verify(sound(), hold=0.9), "hold must be a number of at least 0 and at most 0.5"),
        (lambda: fg.verify(sound(), seed=-1), "seed must be a whole number"),
        (lambda: fg.verify(sound(), methods="dec-rbcm"), "methods: expected a list of prediction methods"),
        (lambda: fg.verify(sound(), methods=["dec-best"]), "unknown prediction method 'dec-best'"),
    ],
)
def test_bad_calls(call: Callable[[], object], message: str) -> None:
    with pytest.raises(fg.InputError, match=message):
        call()


def test_what_was_found_is_told_in_words() -> None:
    found = fg.verify(sound(), methods=[LOST])
    idle = sum(check.verdict == "not applicable" for check in found.checks)
    rest = f", {idle} not applicable" if idle else ""
    *_, last = str(found).splitlines()
    assert last == f"All {len(found.checks) - idle} checks passed{rest}."
    one = found[f"{LOST}: 80 % intervals"]
    assert one.measured is not None
    shares = [f"{100 * (0.8 + sign * one.measured):.0f} % of" for sign in (-1, 1)]
    assert any(f"80 % intervals: {share} " in str(found) for share in shares)
    assert "hidden rows lie inside" in str(found)
    assert "calibrate" not in one.meaning
