"""Synthetic fields are draws of the stated GP."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters


def test_draws_have_the_kernels_covariance() -> None:
    """Over many seeds the empirical covariance at fixed places is k of the field, and noise of what is left."""
    places = np.random.default_rng(5).uniform(0, 2, (6, 2))
    theta = (0.9, 0.4, 1.3, 0.5)
    fields = [fg.synthetic_field(theta=theta, seed=s, inputs=places) for s in range(1000)]
    truth, observed = (np.array([getattr(f, name) for f in fields]).T for name in ("truth", "observations"))
    k = KERNELS["se"](places, places, Hyperparameters.from_theta(theta))
    assert np.allclose(np.cov(truth), k, atol=4 * 1.3**2 * np.sqrt(2 / 1000))
    assert np.allclose(np.cov(observed - truth), 0.25 * np.eye(6), atol=4 * 0.25 * np.sqrt(2 / 1000))
    assert np.allclose(np.cov(truth, observed - truth)[:6, 6:], 0.0, atol=4 * 1.3 * 0.5 * np.sqrt(1 / 1000))


def test_features_reproduce_the_kernel_to_rounding() -> None:
    from fleetgp.data.synthetic import _feature_count, _square_root
    from fleetgp.engines.basis import polynomials

    x = np.linspace(-1, 1, 200)
    for ratio in (0.3, 2.0, 7.0, 40.0):
        root = _square_root(ratio, _feature_count(ratio))
        features = polynomials(x, len(root)).T @ root
        exact = np.exp(-(((x[:, None] - x) * ratio / 2) ** 2))
        assert np.abs(features @ features.T - exact).max() < 1e-13


def test_the_same_field_at_other_places() -> None:
    grid = fg.synthetic_field(100, seed=3, inputs="grid")
    again = fg.synthetic_field(seed=3, inputs=grid.inputs[::-1].copy())
    assert np.allclose(grid.truth[::-1], again.truth, atol=1e-12)
    assert not np.allclose(grid.truth, fg.synthetic_field(100, seed=4, inputs="grid").truth)


def test_the_field_is_the_same_on_every_processor() -> None:
    """Eigenvectors differ between processors by their signs: these numbers are of all of them (make test-cpus)."""
    places = np.array([[0.3, 0.4], [1.1, 0.2], [1.9, 1.7]])
    assert fg.synthetic_field(3, seed=4, inputs=places).truth == pytest.approx(
        [-0.568662047, 0.963537618, -1.598862634], rel=1e-6
    )


@pytest.mark.parametrize("dimension", [1, 3])
def test_other_dimensions(dimension: int) -> None:
    field = fg.synthetic_field(50, [1.0] * dimension + [1.0, 0.1], seed=1)
    assert field.inputs.shape == (50, dimension)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"theta": (1.0, 1.0, 1.0, -1.0)}, "got sigma_eps = -1"),
        ({"theta": (1e-5, 1e-5, 1.0, 0.1)}, "use longer length-scales"),
        ({"n": 50, "inputs": "grid"}, "use 49"),
        ({"inputs": "spiral"}, "choose one of uniform, grid"),
        ({"inputs": np.full((3, 2), 9.0)}, "give a larger box"),
        ({"inputs": np.zeros((3, 1))}, r"shape \(N, 2\)"),
    ],
)
def test_bad_requests(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fg.synthetic_field(**arguments)  # type: ignore[arg-type]
