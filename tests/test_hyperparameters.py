from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.errors import InputError
from fleetgp.hyperparameters import Hyperparameters, check_theta, names


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=8))
def test_log_vector_round_trip(theta: list[float]) -> None:
    h = Hyperparameters.from_log(Hyperparameters.from_theta(theta).log)
    assert np.allclose(h.theta, theta, rtol=1e-12)
    assert len(names(len(theta) - 2)) == len(theta)


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        ([1.0, 1.0, 1.0], r"4 positive numbers \(l_1, l_2, sigma_f, sigma_eps\).*shape \(3,\)"),
        ([1.0, -1.0, 1.0, 1.0], "l_2 is -1"),
        ([1.0, 1.0, np.nan, 1.0], "sigma_f is nan"),
        ([1.0, 1.0, 1.0, np.inf], "sigma_eps is inf"),
        ("abcd", "expected a numeric array, got text"),
    ],
)
def test_bad_theta_says_what_was_expected(theta: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_theta(theta, 2)
