"""A composite kernel with every trainer and predictor: those that share an optimum find it, and twins agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.engines.dense import reference
from fleetgp.kernels.expression import as_kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from tests.conftest import mostly_long

NAMES = ["lon", "day"]
KERNEL = "iso-matern32(lon) * matern12(day) + linear(lon)"
THETA = [0.8, 2.0, 1.0, 0.5, 0.2]
QUERIES = np.random.default_rng(1).uniform(-1.0, 1.0, (7, 2))


def shards() -> list[tuple[np.ndarray, np.ndarray]]:
    """A draw from the model, in three stripes of equal size."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (72, 2))
    x = x[np.argsort(x[:, 0])]
    kernel, h = as_kernel(KERNEL, NAMES), Hyperparameters.from_theta(THETA)
    lower = np.linalg.cholesky(kernel(x, None, h) + h.noise**2 * np.eye(72))
    return list(zip(np.split(x, 3), np.split(lower @ rng.standard_normal(72), 3), strict=True))


def fleet(**options: object) -> fg.Fleet:
    return fg.Fleet(shards(), "path", kernel=KERNEL, inputs=NAMES, **{"normalize": False, **options})  # type: ignore[arg-type]


def optimum(parts: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """The smallest sum of the likelihoods as the formulas read, by another minimizer."""
    kernel = as_kernel(KERNEL, NAMES)

    def total(x: np.ndarray) -> tuple[float, np.ndarray]:
        found = [reference.likelihood(Observations(*part), kernel, x) for part in parts]
        return sum(nll for nll, _ in found), np.sum([gradient for _, gradient in found], axis=0)

    return float(minimize(total, np.log(THETA), jac=True, method="BFGS").fun)


TRAINERS = [name for name in fg.TRAINING_METHODS if name != "dec-full-gp"]


@pytest.mark.parametrize("method", mostly_long(TRAINERS, *(name for name in TRAINERS if "c-gp" not in name)))
def test_every_trainer_finds_its_optimum(method: str) -> None:
    fit = fleet().train(method, theta0=THETA)
    assert fit.status == "converged"
    if "g-" in method or "gapx" in method:  # samples of other agents' rows make it another one
        assert fit.thetas.shape == (3, 5)
        return
    parts = shards()
    whole = [(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]))]
    assert fit.nll == pytest.approx(optimum(whole if method == "full-gp" else parts), abs=2e-3)


def test_dec_full_gp_says_what_it_needs() -> None:
    with pytest.raises(fg.InputError, match="dec-full-gp needs the squared exponential"):
        fleet().train("dec-full-gp")


TWINLESS = ("dec-full-gp", "dec-summary")


@pytest.mark.parametrize("method", [name for name in fg.PREDICTION_METHODS if name not in TWINLESS])
@pytest.mark.parametrize("engine", ["auto", "vecchia"])
def test_every_predictor_agrees_with_its_twin(method: str, engine: str) -> None:
    known = fleet(theta=THETA)
    # With all rows as neighbours dec-nearest is the exact GP.
    how: dict[str, Any] = {"n_nearest": 72} if method == "dec-nearest" else {"engine": engine}
    found = known.predict(QUERIES, method, **how)
    assert (found.variance > 0.0).all()
    twin = method.removeprefix("dec-").removeprefix("nn-").removesuffix("-star")
    if method == "full-gp":
        parts = shards()
        x, y = (np.concatenate(rows) for rows in zip(*parts, strict=True))
        mean, variance = reference.posterior(Observations(x, y), as_kernel(KERNEL, NAMES), np.array(THETA), QUERIES)
    else:
        other = known.predict(QUERIES, {"nearest": "full-gp"}.get(twin, twin), engine="dense")
        mean, variance = other.mean, other.variance
    np.testing.assert_allclose(found.mean, mean, atol=1e-7)
    np.testing.assert_allclose(found.variance, variance, atol=1e-7)
