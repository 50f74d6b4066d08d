"""fg.Outputs: several targets of the same boats, and what a user sees of them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from tests.conftest import paper_shards

AGENTS = 3
QUERIES = np.array([[0.4, 1.1], [1.7, 0.2]])


def shards() -> list[tuple[Any, Any]]:
    """Temperatures, and salinities in every second row or so."""
    rng, found = np.random.default_rng(0), []
    for x, y in paper_shards(90, AGENTS):
        salinity = np.where(rng.uniform(size=len(y)) < 0.6, 35.0 - 0.1 * y, np.nan)
        found.append((x, np.column_stack([15.0 + y, salinity])))
    return found


def sea(**options: Any) -> fg.Outputs:
    how: dict[str, Any] = {"targets": ["t", "s"], "normalize": True, "kernel": "matern32", **options}
    return fg.Outputs(shards(), **{"kernel": "se", "normalize": False, **how})


def test_one_target_is_a_fleet_to_the_last_bit() -> None:
    given = [(x, y[:, :1]) for x, y in shards()]
    model: dict[str, Any] = {"normalize": True, "coordinates": "scaled", "mean": "constant", "graph": "places"}
    outputs = fg.Outputs(given, targets=["t"], **{"kernel": "se", "normalize": False, **model})
    fleet = fg.Fleet([(x, y[:, 0]) for x, y in given], **{"kernel": "se", "normalize": False, **model})
    how: dict[str, Any] = {"bounds": {"length": (0.05, 3.0)}, "priors": {"noise": (0.2, 3)}}
    (fit,), alone = outputs.train("dec-fact-gp", **how).values(), fleet.train("dec-fact-gp", **how)
    assert np.array_equal(fit.history, alone.history)
    assert (fit.nll, fit.mean, fit.coordinates, fit.known) == (alone.nll, alone.mean, alone.coordinates, alone.known)
    assert outputs.names == ("l_1", "l_2", "t.sigma_f", "t.sigma_eps")
    assert np.array_equal(outputs.predict(QUERIES)["t"].mean, fleet.predict(QUERIES).mean)


def test_rows_count_for_what_was_observed_and_each_output_is_an_ordinary_fleet(tmp_path: Path) -> None:
    outputs = sea()
    counts = [int((~np.isnan(y[:, 1])).sum()) for _, y in shards()]
    assert [len(y) for _, y in outputs.fleets["s"].shards] == counts
    assert not np.isnan(np.concatenate([y for _, y in outputs.fleets["s"].shards])).any()
    fits = outputs.train()
    assert [fit.used.tolist() for fit in fits.values()] == [[30] * 3, counts]
    assert fits["t"].kernel == "matern32"
    found = outputs.predict(QUERIES, "dec-nn-rbcm", observed=True)
    for target, fleet in outputs.fleets.items():
        assert fleet.last_fit is fits[target]
        fg.save_model(fg.Model(fleet, ("a", "b", "c"), ("x", "y"), target), tmp_path / target)
        again = fg.load_model(tmp_path / target).fleet.predict(QUERIES, "dec-nn-rbcm", observed=True)
        assert np.array_equal(again.mean, found[target].mean)
        assert np.array_equal(again.variance, found[target].variance)
    outputs.fleets["s"].observe(0, QUERIES, [35.0, 35.1])
    more = outputs.train(theta0=np.r_[fits["t"].theta, fits["s"].theta[2:]])
    assert more["s"].used.tolist() == [counts[0] + 2, *counts[1:]], "also of rows that came later"


def test_what_is_known_of_one_or_all_outputs() -> None:
    outputs = sea(inputs=["lon", "lat"])
    known: dict[str, Any] = {"fixed": {"l_lat": 0.4, "s.sigma_eps": 0.05}, "bounds": {"signal": (None, 50.0)}}
    fits = outputs.train(**known, priors={"t.sigma_f": (1.0, 2.0)}, tol=1e-3)
    assert [fit.theta[1] for fit in fits.values()] == pytest.approx([0.4, 0.4])
    assert fits["s"].theta[-1] == pytest.approx(0.05)
    assert fits["t"].known.as_dict()["priors"] == {"sigma_f": [1.0, 2.0]}
    assert fits["s"].known.as_dict() == {
        "bounds": {"sigma_f": [None, pytest.approx(50.0)]},
        "priors": {},
        "fixed": {"l_lat": pytest.approx(0.4), "sigma_eps": pytest.approx(0.05)},
    }
    with pytest.raises(fg.InputError, match=re.escape("choose one of l_lon, l_lat, t.sigma_f, t.sigma_eps, s.sigma_f")):
        outputs.train(bounds={"sigma_f": (1, 2)})
    with pytest.warns(fg.FleetGPWarning, match=r"^s: sigma_f stands at its lower bound"):
        outputs.train(bounds={"s.sigma_f": (9.0, None)}, tol=1e-3)


def test_an_interrupted_training_leaves_its_estimates_to_every_fleet() -> None:
    def stop(progress: Any) -> None:
        if progress.round == 2:
            raise KeyboardInterrupt

    outputs = sea()
    with pytest.raises(KeyboardInterrupt):
        outputs.train(progress=stop)
    thetas = [fleet.theta for fleet in outputs.fleets.values()]
    assert all(theta is not None and theta.shape == (4,) for theta in thetas)
    assert thetas[0] is not None
    assert thetas[1] is not None
    assert np.array_equal(thetas[0][:2], thetas[1][:2])
    assert not np.array_equal(thetas[0][2:], thetas[1][2:])


def test_data_frames_by_the_names_of_their_columns() -> None:
    frames = [
        (pd.DataFrame(x, columns=["lon", "lat"]), pd.DataFrame(y[:, ::-1], columns=["s", "t"])) for x, y in shards()
    ]
    outputs = fg.Outputs(frames, targets=["t", "s"], normalize=True, kernel="matern32")
    plain = sea()
    for target in ("t", "s"):
        for (x, y), (same_x, same_y) in zip(outputs.fleets[target].shards, plain.fleets[target].shards, strict=True):
            assert np.array_equal(x, same_x)
            assert np.array_equal(y, same_y)
    assert fg.Outputs(frames, kernel="se", normalize=False).targets == ("s", "t")
    assert outputs.names[:2] == ("l_lon", "l_lat")


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        (
            lambda x, y: (x, y[:, 0]),
            {},
            "agent 0: expected Y of shape (N, 2), a column for each of t, s, got the shape",
        ),
        (lambda x, y: (x, y[:-1]), {}, "agent 0: X must be (N, D) and y (N,)"),
        (lambda x, y: (x, np.full_like(y, np.nan)), {}, "agent 0 has no observation of t"),
        (lambda x, y: (x, np.where(y > 15.0, np.inf, y)), {}, "agent 0: Y has NaN or infinite values"),
        (lambda x, y: (x, y), {"targets": None}, "targets: expected the names of the columns of Y, got none"),
        (lambda x, y: (x, y), {"targets": ["t", "t"]}, "targets: expected different names, got t, t"),
        (lambda x, y: (x, y), {"kernel": "auto"}, "kernel: expected one for all outputs, got 'auto'"),
        (lambda x, y: x + y.sum(), {}, "agent 0: expected a pair (X, Y), got ndarray"),
    ],
)
def test_one_clear_error(change: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(fg.InputError, match=re.escape(told)):
        fg.Outputs(
            [change(x, y) for x, y in shards()],
            **{"kernel": "se", "normalize": False, "targets": ["t", "s"], **options},
        )


def test_moments_are_of_one_output() -> None:
    with pytest.raises(fg.InputError, match="dec-full-gp trains one output at a time: expected another method"):
        sea(kernel="se").train("dec-full-gp")


def noisy_sea() -> list[tuple[Array, Array, Array]]:
    """With known standard deviations, which say nothing where nothing was observed."""
    rng = np.random.default_rng(4)
    return [(x, y, np.where(np.isnan(y), np.nan, rng.choice([0.0, 0.5], y.shape))) for x, y in shards()]


def test_known_deviations_of_each_target() -> None:
    """Against the sum of the targets' likelihoods by NumPy."""
    given = noisy_sea()
    outputs = fg.Outputs(given, targets=["t", "s"], kernel="se", normalize=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is cut short on purpose, and the salinities are far from zero
        fits = outputs.train("fact-gp", theta0=[1.0, 1.0, 15.0, 0.3, 30.0, 0.3], rounds=5)

    def nll(target: int, theta: Array) -> float:
        total = 0.0
        for x, y, s in given:
            rows = ~np.isnan(y[:, target])
            own, seen = x[rows], y[rows, target]
            apart = (((own[:, None] - own) / theta[:2]) ** 2).sum(axis=2)
            c = theta[2] ** 2 * np.exp(-apart) + np.diag(s[rows, target] ** 2 + theta[3] ** 2)
            total += 0.5 * float(seen @ np.linalg.solve(c, seen) + np.linalg.slogdet(c).logabsdet)
        return total

    for target, fit in enumerate(fits.values()):
        assert fit.nll == pytest.approx(nll(target, fit.theta), rel=1e-6)
    alone = fg.Fleet([outputs.fleets["s"].shards[i] for i in range(AGENTS)], kernel="se", normalize=False)
    assert alone.noise_model.known
    assert all(np.isfinite(s).all() for _, _, s in alone.shards)


@pytest.mark.parametrize("method", ["fact-gp", "full-gp"])
def test_every_agent_has_a_noise_of_each_target(method: str) -> None:
    """Against the sum of the targets' likelihoods by NumPy."""
    outputs = fg.Outputs(noisy_sea(), targets=["t", "s"], kernel="se", normalize=False, noise="agents")
    assert outputs.names[2:6] == ("t.sigma_f", "t.sigma_eps_0", "t.sigma_eps_1", "t.sigma_eps_2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is cut short on purpose, and the salinities are far from zero
        fits = outputs.train(method, theta0=[1.0, 1.0, 15.0, 0.2, 0.3, 0.4, 30.0, 0.2, 0.3, 0.4], rounds=5)

    def nll(target: int, theta: Array) -> float:
        parts: list[tuple[Any, ...]] = []
        for (x, y, s), sigma in zip(noisy_sea(), theta[3:], strict=True):
            rows = ~np.isnan(y[:, target])
            parts.append((x[rows], y[rows, target], s[rows, target] ** 2 + sigma**2))
        if method == "full-gp":
            parts = [tuple(np.concatenate(own) for own in zip(*parts, strict=True))]
        total = 0.0
        for x, y, variance in parts:
            apart = (((x[:, None] - x) / theta[:2]) ** 2).sum(axis=2)
            c = theta[2] ** 2 * np.exp(-apart) + np.diag(variance)
            total += 0.5 * float(y @ np.linalg.solve(c, y) + np.linalg.slogdet(c).logabsdet)
        return total

    for target, fit in enumerate(fits.values()):
        assert fit.nll == pytest.approx(nll(target, fit.theta), rel=1e-6)


def test_outliers_of_one_target_are_those_of_a_fleet(tmp_path: Path) -> None:
    given = [(x, y[:, :1], s[:, :1]) for x, y, s in noisy_sea()]
    given[1][1][4] += 9.0
    model: dict[str, Any] = {"kernel": "se", "normalize": True, "noise": "agents", "robust": True, "mean": "constant"}
    outputs = fg.Outputs(given, targets=["t"], **model)
    fleet = fg.Fleet([(x, y[:, 0], s[:, 0]) for x, y, s in given], **model)
    (fit,), alone = outputs.train("dec-fact-gp").values(), fleet.train("dec-fact-gp")
    assert np.array_equal(fit.history, alone.history)
    assert fit.outliers.tolist() == alone.outliers.tolist()
    assert fit.outliers[1] > 0
    assert np.array_equal(outputs.predict(QUERIES)["t"].mean, fleet.predict(QUERIES).mean)
    place = fg.save_model(fg.Model(outputs.fleets["t"], ["a", "b", "c"], ["x", "z"], "t"), tmp_path / "model")
    assert np.array_equal(fg.load_model(place).fleet.predict(QUERIES).mean, fleet.predict(QUERIES).mean)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: -s, "agent 0: S: expected standard deviations of at least 0 wherever t was observed, got -"),
        (lambda s: np.full_like(s, np.nan), "agent 0: S: expected standard deviations of at least 0 wherever t was"),
        (lambda s: s[:, 0], "agent 0: expected S of shape (N, 2), a column for each of t, s, got the shape"),
        (lambda s: s[:-1], "agent 0: S: expected a standard deviation for each of 30 rows of Y"),
    ],
)
def test_one_clear_error_of_known_deviations(change: Any, told: str) -> None:
    given = [(x, y, change(s)) for x, y, s in noisy_sea()]
    with pytest.raises(fg.InputError, match=re.escape(told)):
        fg.Outputs(given, targets=["t", "s"], kernel="se", normalize=False)
