"""Scores of fleets and cross-validation, against closed forms and fleets that never saw the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import inv
from scipy.stats import norm

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.files import ResumableCache
from fleetgp.fleet import cross_validation
from fleetgp.fleet.cross_validation import Fold
from fleetgp.metrics import score
from fleetgp.progress import Progress
from tests.conftest import paper_shards

THETA = fg.PAPER_THETA


def small(agents: int = 3, n: int = 60, **settings: Any) -> fg.Fleet:
    return fg.Fleet(paper_shards(n, agents), **{"kernel": "se", "normalize": False, "theta": THETA, **settings})


def covariance(x: Array) -> Array:
    """Of observations, from the formula of the paper's kernel alone."""
    apart = (x[:, None] - x[None]) / np.array(THETA[:2])
    return np.asarray(THETA[2] ** 2 * np.exp(-(apart**2).sum(axis=-1)) + THETA[3] ** 2 * np.eye(len(x)))


# ---- scores -----------------------------------------------------------------------------------------------------


def test_scores_of_a_fleet_are_those_of_its_prediction() -> None:
    fleet, unseen = small(), fg.synthetic_field(40, seed=5)
    found = fleet.score(unseen.inputs, unseen.observations, "dec-rbcm", level=0.8)
    told = fleet.predict(unseen.inputs, "dec-rbcm", observed=True)
    trained = np.concatenate([y for _, y in fleet.shards])
    expected = score((told.mean, told.variance), unseen.observations, trained=trained, level=0.8)
    assert found.numbers == pytest.approx(expected.numbers, rel=1e-12)
    assert len(found.answers) == 3
    assert found.answers[1].numbers == found.numbers
    assert found.rows_of == ()
    assert fleet.score(unseen.inputs, unseen.observations, "dec-rbcm", agent=1).answers == ()


def test_agents_that_have_not_agreed_have_scores_of_their_own() -> None:
    fleet, unseen = small(), fg.synthetic_field(20, seed=5)
    found = fleet.score(unseen.inputs, unseen.observations, "dec-rbcm", consensus="average", rounds=1)
    told = fleet.predict(unseen.inputs, "dec-rbcm", observed=True, consensus="average", rounds=1)
    for agent, own in enumerate(found.answers):
        assert own.rmse == pytest.approx(np.sqrt(np.mean((told.means[agent] - unseen.observations) ** 2)), rel=1e-12)
    assert len({own.rmse for own in found.answers}) == 3


def test_rows_that_belong_to_agents() -> None:
    fleet, unseen = small(), fg.synthetic_field(20, seed=5)
    halves = [
        (unseen.inputs[:12], unseen.observations[:12], np.full(12, 0.5)),
        (np.zeros((0, 2)), np.zeros(0), np.zeros(0)),
        (unseen.inputs[12:], unseen.observations[12:], np.zeros(8)),
    ]
    found = fleet.score(halves, method="dec-rbcm")
    told = fleet.predict(unseen.inputs, "dec-rbcm", observed=True)
    mean, variance = told.mean[:12], told.variance[:12] + 0.25
    first, nobody, last = found.rows_of
    assert nobody is None
    assert first is not None
    assert last is not None
    assert first.crps == pytest.approx(score((mean, variance), unseen.observations[:12]).crps, rel=1e-12)
    assert (first.rows, last.rows, found.rows) == (12, 8, 20)


def test_frames_are_taken_by_name() -> None:
    fleet = small(inputs=["lon", "lat"])
    unseen = fg.synthetic_field(20, seed=5)
    frame = pd.DataFrame({"lat": unseen.inputs[:, 1], "name": "p", "lon": unseen.inputs[:, 0]})
    found = fleet.score(frame, pd.Series(unseen.observations), "dec-rbcm")
    assert found == fleet.score(unseen.inputs, unseen.observations, "dec-rbcm")


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nan": (lambda f: f.score(np.zeros((2, 2)), [0.0, np.nan]), r"^y has NaN or infinite values in 1 of 2 rows"),
    "shapes": (lambda f: f.score(np.zeros((2, 2)), np.zeros(3)), r"^X must be \(N, D\) and y \(N,\)"),
    "observed": (lambda f: f.score(np.zeros((2, 2)), np.zeros(2), observed=False), "score has no option 'observed'"),
    "shards": (lambda f: f.score([(np.zeros((2, 2)), np.zeros(2))]), r"\(X_i, y_i\) for each of 3 agents"),
    "deviations": (lambda f: f.score(np.zeros((2, 2)), np.zeros(2), s=[-1.0, 0.0]), "^s: expected standard deviations"),
    "by": (lambda f: f.cross_validate(split="rows"), "unknown split 'rows': choose one of random, agent, block"),
    "folds": (lambda f: f.cross_validate(1), "folds must be a whole number of at least 2, got 1"),
    "too many": (lambda f: f.cross_validate(4, split="agent"), "expected at most 3 folds, one for each agent, got 4"),
    "one agent": (
        lambda _: small(1).cross_validate(split="agent"),
        "folds must be a whole number of at least 2, got 1",
    ),
    "cells": (lambda f: f.cross_validate(cells=20), 'cells are of split="block", got split="random"'),
    "few cells": (lambda f: f.cross_validate(split="block", cells=5), "cells must be a whole number of at least 10"),
    "method": (lambda f: f.cross_validate(method="kriging"), "unknown prediction method 'kriging'"),
    "level": (lambda f: f.cross_validate(level=2.0), "level must lie between 0 and 1, got 2.0"),
    "agent": (lambda f: f.cross_validate(agent=1), "cross_validate has no option 'agent'"),
    "train": (lambda f: f.cross_validate(train="yes"), "train: expected True or False, got 'yes'"),
    "no theta": (lambda _: small(theta=None).cross_validate(train=False), "give train=True, or train it first"),
    "noise": (
        lambda _: small(theta=None, noise="agents").cross_validate(split="agent"),
        "agent 0 has no rows left in a fold, and no other agent has the noise '0'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_are_one_clear_error(name: str) -> None:
    call, told = BAD[name]
    with pytest.raises(InputError, match=told):
        call(small())


# ---- cross-validation -------------------------------------------------------------------------------------------


def test_leaving_each_row_out_has_a_closed_form() -> None:
    """y_n - (C^-1 y)_n / (C^-1)_nn and 1 / (C^-1)_nn (Rasmussen and Williams, 5.12)."""
    fleet = small(1, n=25)
    ((x, y),) = fleet.shards
    found = fleet.cross_validate(25, method="full-gp", train=False)
    precision = inv(covariance(x))
    assert found.variances[0] == pytest.approx(1.0 / np.diag(precision), rel=1e-6)
    assert found.means[0] == pytest.approx(y - precision @ y / np.diag(precision), rel=1e-6, abs=1e-6)
    density = -0.5 * (np.log(2 * np.pi * found.variances[0]) + (y - found.means[0]) ** 2 / found.variances[0])
    assert found.scores.nlpd == pytest.approx(-density.mean(), rel=1e-9)
    # The trivial model of each row is that of the others.
    others = [np.delete(y, n) for n in range(25)]
    trivial = [norm.logpdf(value, rest.mean(), rest.std()) for rest, value in zip(others, y, strict=True)]
    assert found.scores.msll == pytest.approx(np.mean(trivial) - density.mean(), rel=1e-9)


@pytest.mark.parametrize("graph", ["path", "star"])
def test_leaving_agents_out_is_the_gp_of_the_others(graph: str) -> None:
    fleet = small(graph=graph)
    found = fleet.cross_validate(split="agent", method="full-gp", train=False)
    assert [fold.relays for fold in found.folds] == [(0,), (1,), (2,)]
    for agent, (x, y) in enumerate(fleet.shards):
        rest = [shard for other, shard in enumerate(fleet.shards) if other != agent]
        inputs, seen = np.concatenate([r[0] for r in rest]), np.concatenate([r[1] for r in rest])
        whole = covariance(np.concatenate([inputs, x]))
        cross, own = whole[len(seen) :, : len(seen)], whole[len(seen) :, len(seen) :]
        solved = np.linalg.solve(whole[: len(seen), : len(seen)], np.column_stack([seen, cross.T]))
        assert found.means[agent] == pytest.approx(cross @ solved[:, 0], rel=1e-6, abs=1e-6)
        assert found.variances[agent] == pytest.approx(np.diag(own - cross @ solved[:, 1:]), rel=1e-6)
        own_scores = found.scores.rows_of[agent]
        assert own_scores is not None
        assert own_scores.rows == len(y)


def test_nobody_observes_a_hidden_block() -> None:
    """Rows are in the fold of the nearest of random points in the box, whoever has them."""
    fleet = small(n=240)
    found = fleet.cross_validate(4, split="block", method="dec-rbcm", train=False, cells=12, seed=7)
    x = np.concatenate([x for x, _ in fleet.shards])
    centres = x.min(axis=0) + np.random.default_rng(7).random((12, 2)) * np.ptp(x, axis=0)
    width = np.ptp(x, axis=0)
    nearest = np.argmin((((x[:, None] - centres[None]) / width) ** 2).sum(axis=-1), axis=1)
    assert np.array_equal(np.concatenate(found.fold_of), nearest % 4)
    assert found.scores.rows == 240
    assert found.prior_only == sum(fold.prior_only for fold in found.folds)


NAMED = {"inputs": ["lon", "lat"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "normalize": {"normalize": True, "theta": (1.2, 0.3, 1.3, 0.1)},
    "linear mean": {"mean": "linear", "coordinates": "scaled", "theta": (1.2, 0.3, 1.3, 0.1)},
    "kilometres": {**NAMED, "coordinates": "kilometres", "theta": (130.0, 30.0, 1.3, 0.1)},
    "sphere": {**NAMED, "coordinates": "sphere", "kernel": "iso-matern32(lon, lat)", "theta": (60.0, 1.3, 0.1)},
    "composite": {**NAMED, "kernel": "matern32(lon) * se(lat) + linear(lon)", "theta": (1.2, 0.3, 1.3, 0.5, 0.1)},
    "noises": {"noise": ["good", "cheap", "good"], "theta": (1.2, 0.3, 1.3, 0.1, 0.4)},
    "robust": {"robust": True, "theta": (1.2, 0.3, 1.3, 0.1)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_hidden_rows_are_predicted_as_by_a_fleet_that_never_had_them(name: str) -> None:
    settings = SETTINGS[name]
    fleet = small(**settings)
    found = fleet.cross_validate(3, method="dec-rbcm", train=False, seed=2)
    for number in range(3):
        rest = [(x[own != number], y[own != number]) for (x, y), own in zip(fleet.shards, found.fold_of, strict=True)]
        other = fg.Fleet(rest, **{"kernel": "se", "normalize": False, **settings})
        for agent, (x, _) in enumerate(fleet.shards):
            mine = found.fold_of[agent] == number
            told = other.predict(x[mine], "dec-rbcm", observed=True)
            assert found.means[agent][mine] == pytest.approx(told.means[agent], rel=1e-9, abs=1e-9)
            assert found.variances[agent][mine] == pytest.approx(told.variances[agent], rel=1e-9)


def test_groups_of_noise_may_change_their_order_when_an_agent_is_left_out() -> None:
    fleet = small(4, noise=["good", "cheap", "cheap", "good"], theta=(1.2, 0.3, 1.3, 0.1, 0.4))
    found = fleet.cross_validate(split="agent", method="dec-rbcm", train=False)
    assert [fold.theta["sigma_eps_cheap"] for fold in found.folds] == [0.4] * 4
    assert list(found.folds[0].theta)[-2:] == ["sigma_eps_cheap", "sigma_eps_good"]
    # Far from all others only the prior and the agent's own noise are left.
    shards = [(x + 100.0 * (agent == 0), y) for agent, (x, y) in enumerate(fleet.shards)]
    away = fg.Fleet(
        shards, noise=["good", "cheap", "cheap", "good"], theta=(1.2, 0.3, 1.3, 0.1, 0.4), kernel="se", normalize=False
    )
    first = away.cross_validate(split="agent", method="dec-rbcm", train=False)
    assert first.variances[0] == pytest.approx(np.full(15, 1.3**2 + 0.1**2), rel=1e-9)
    assert first.folds[0].prior_only == 15


def test_known_deviations_are_in_the_variances() -> None:
    shards = [(x, y, np.full(len(y), 0.5)) for x, y in paper_shards(60, 3)]
    fleet = fg.Fleet(shards, theta=THETA, kernel="se", normalize=False)
    found = fleet.cross_validate(3, method="dec-rbcm", train=False)
    rest = [tuple(part[own != 0] for part in shard) for shard, own in zip(shards, found.fold_of, strict=True)]
    mine = found.fold_of[1] == 0
    told = fg.Fleet(rest, theta=THETA, kernel="se", normalize=False).predict(
        shards[1][0][mine], "dec-rbcm", observed=True
    )
    assert found.variances[1][mine] == pytest.approx(told.variance + 0.25, rel=1e-9)


def test_every_fold_is_trained_without_its_rows() -> None:
    fleet = small(2, n=80, theta=None)
    before = fleet.train("dec-fact-gp", theta0=THETA, fixed={"noise": 0.12})
    how: dict[str, Any] = {"method": "dec-apx-gp", "theta0": THETA, "rounds": 5, "tol": 0.0}
    found = fleet.cross_validate(2, method="dec-rbcm", train=how)
    assert fleet.last_fit is before
    for number, fold in enumerate(found.folds):
        rest = [(x[own != number], y[own != number]) for (x, y), own in zip(fleet.shards, found.fold_of, strict=True)]
        fit = fg.Fleet(rest, kernel="se", normalize=False).train(**how)
        assert list(fold.theta.values()) == pytest.approx(fit.theta.tolist(), rel=1e-9)
        assert fold.training == fit.status
        assert fold.bytes > fit.ledger.bytes
    as_before = fleet.cross_validate(2, method="dec-rbcm", train=True)
    assert [fold.theta["sigma_eps"] for fold in as_before.folds] == pytest.approx([0.12] * 2), "fixed, as in the fit"


def test_several_kernels_are_chosen_from_in_every_fold() -> None:
    fleet = small(2, n=80, theta=None, kernel=["se", "matern12"])
    found = fleet.cross_validate(2, train={"tol": 1e-2})
    assert found.scores.rows == 80
    assert fleet.theta is None


def test_finished_folds_are_kept_and_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, told = small(), list[Progress]()
    kept = ResumableCache(tmp_path / "parts", {})
    asked: dict[str, Any] = {"method": "dec-rbcm", "train": False}
    real = cross_validation.predict_fold

    def two_only(fleet: fg.Fleet, data: Any, fold_of: Any, number: int, *how: Any) -> Fold:
        if number == 2:
            raise KeyboardInterrupt
        return real(fleet, data, fold_of, number, *how)

    def counted(fleet: fg.Fleet, data: Any, fold_of: Any, number: int, *how: Any) -> Fold:
        computed.append(number)
        return real(fleet, data, fold_of, number, *how)

    computed: list[int] = []
    monkeypatch.setattr(cross_validation, "predict_fold", two_only)
    with pytest.raises(KeyboardInterrupt):
        fleet.cross_validate(4, kept=kept, **asked)
    monkeypatch.setattr(cross_validation, "predict_fold", counted)
    found = fleet.cross_validate(4, kept=kept, progress=told.append, **asked)
    assert computed == [2, 3]
    assert [(p.round, p.rounds, p.unit) for p in told] == [(n, 4, "fold") for n in range(5)]
    monkeypatch.undo()
    again = fleet.cross_validate(4, **asked)
    assert again.scores == found.scores
    assert again.folds[0].theta == found.folds[0].theta


def test_a_table_of_it() -> None:
    found = small().cross_validate(2, method="dec-rbcm", train=False)
    frame = found.to_frame(["Ada", "Bo", "Cy"])
    assert frame.index.tolist() == ["all", "fold 0", "fold 1", "rows of Ada", "rows of Bo", "rows of Cy"]
    assert frame["rows"].tolist() == [60, 30, 30, 20, 20, 20]
    assert "CrossValidation(split='random', method='dec-rbcm', folds=2" in repr(found)


def test_rows_in_files_are_loaded(tmp_path: Path) -> None:
    for agent, (x, y) in enumerate(paper_shards(60, 3)):
        pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], "sst": y}).to_csv(tmp_path / f"{agent}.csv", index=False)
    fleet = fg.Fleet.from_files(
        str(tmp_path / "*.csv"), inputs=["lon", "lat"], target="sst", kernel="se", normalize=False
    )
    fleet.theta = np.array(THETA)
    found = fleet.cross_validate(3, method="dec-rbcm", train=False)
    expected = small(inputs=["lon", "lat"]).cross_validate(3, method="dec-rbcm", train=False)
    assert found.scores.numbers == pytest.approx(expected.scores.numbers, rel=1e-6)
    assert fleet.score([[0.5, 0.5], [0.6, 0.5]], [0.1, 0.2], "dec-rbcm").rows == 2
