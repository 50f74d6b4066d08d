from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.errors import InputError
from fleetgp.model.hyperparameters import LOG_RANGE, Hyperparameters, check_theta, names, sound_log_theta


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=8))
def test_log_vector_round_trip(theta: list[float]) -> None:
    h = Hyperparameters.from_log(Hyperparameters.from_theta(theta).log)
    assert np.allclose(h.theta, theta, rtol=1e-12)
    assert len(names(len(theta) - 2)) == len(theta)


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        ([1.0, 1.0, 1.0], r"4 positive numbers \(l_1, l_2, sigma_f, sigma_eps\).*shape \(3,\)"),
        ([1.0, -1.0, 1.0, 1.0], "got l_2 = -1"),
        ([1.0, 1.0, np.nan, 1.0], "got sigma_f = nan"),
        ([1.0, 1.0, 1.0, np.inf], "got sigma_eps = inf"),
        ("abcd", "expected a numeric array, got text"),
    ],
)
def test_bad_theta_says_what_was_expected(theta: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_theta(theta, 2)


@pytest.mark.parametrize(
    ("values", "sound"),
    [
        ([0.0, 1.0, -LOG_RANGE, LOG_RANGE], True),
        (np.zeros((3, 4)), True),
        ([0.0, 0.0, 0.0, 1.001 * LOG_RANGE], False),
        ([0.0, 0.0, 0.0, -800.0], False),
        ([0.0, 0.0, 0.0, np.nan], False),
        ([0.0, 0.0, 0.0, np.inf], False),
        ([0.0, 0.0, 0.0, 10**400], False),
        ([0.0, 0.0, 0.0], False),
        (np.zeros((2, 2, 4)), False),
        (0.0, False),
        ([[0.0] * 4, [0.0] * 3], False),
        ({"a": 1}, False),
        (None, False),
        ("four", False),
    ],
)
def test_sound_hyperparameters_are_finite_and_in_range(values: object, sound: bool) -> None:
    assert sound_log_theta(values, 4) is sound


def test_the_range_holds_the_largest_data_and_its_squares() -> None:
    assert np.log(1e100) < LOG_RANGE
    assert np.isfinite(np.exp(2.0 * LOG_RANGE))
    assert np.exp(-2.0 * LOG_RANGE) > 0.0
