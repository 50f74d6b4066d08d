"""Bad input: one clear error that names the agent, says what was expected, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.data import Shard
from fleetgp.errors import InputError
from tests.conftest import paper_shards

GOOD = (np.zeros((3, 2)) + np.arange(3.0)[:, None], np.zeros(3))


def with_nan(part: int) -> Shard:
    x, y = GOOD[0].copy(), GOOD[1].copy()
    (x if part == 0 else y)[1] = np.nan
    return x, y


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([], "at least one agent"),
        ("text", "agent 0: expected a pair"),
        (42, "list of"),
        ([GOOD, with_nan(0)], r"agent 1: X has NaN or infinite values in 1 of 3 rows \(first: row 1\)"),
        ([GOOD, GOOD, with_nan(1)], "agent 2: y has NaN"),
        ([GOOD, (np.zeros((3, 2)), np.zeros(2))], r"agent 1: X must be \(N, D\) and y \(N,\).*\(3, 2\) and \(2,\)"),
        ([GOOD, (np.zeros(3), np.zeros(3))], "agent 1: X must be"),
        ([GOOD, (np.zeros((3, 2)), np.zeros((3, 1)))], "agent 1: X must be"),
        ([GOOD, (np.zeros((3, 1)), np.zeros(3))], "agent 1: X has 1 columns, but agent 0 has 2"),
        ([(np.zeros((0, 2)), np.zeros(0))] * 2, "no agent has data"),
        ([GOOD, np.zeros((3, 2))], "agent 1: expected a pair"),
        ([GOOD, (GOOD[0], np.full(3, 1e160))], "agent 1: y has values beyond 1e100"),
        ([(np.array([["a", "b"]]), np.zeros(1))], "agent 0: X: expected a numeric array, got text"),
    ],
)
def test_bad_shards(shards: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fg.Fleet(shards, kernel="se", normalize=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "dec-gp"}, "unknown training method 'dec-gp': choose one of dec-full-gp, .*dec-gapx-gp"),
        ({"theta0": [1, 1, 1]}, r"theta0 must be 4 positive numbers \(l_1, l_2, sigma_f, sigma_eps\)"),
        ({"theta0": [1, 1, 1, -1]}, "theta0 must be positive and finite, got sigma_eps = -1"),
        ({"theta0": [[1, 1, 1, 1], [1, 1, 0, 1]]}, "got sigma_f = 0"),
        ({"theta0": [1, 1, 1, np.nan]}, "got sigma_eps = nan"),
        ({"theta0": "start"}, "theta0"),
        ({"engine": "gpu"}, "unknown engine 'gpu': choose one of auto, dense"),
        ({"nested": "adam"}, "choose one of l-bfgs, gradient-descent"),
        ({"rho": -1}, "rho must be a number above 0"),
        ({"kappa": 0}, "kappa must be a number above 0"),
        ({"lipschitz": np.inf}, "lipschitz must be a number above 0"),
        ({"tol": -1}, "tol must be a number of at least 0"),
        ({"theta0": np.empty((0, 4))}, "at least one start"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"nested_iterations": 0}, "nested_iterations must be a whole number"),
        ({"nested_iterations": 2.5}, "nested_iterations must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"rounds": 1.5}, "rounds must be a whole number"),
    ],
)
def test_bad_options_change_nothing(options: dict[str, object], message: str) -> None:
    fleet = fg.Fleet(paper_shards(30, 3), theta=fg.PAPER_THETA, kernel="se", normalize=False)
    with pytest.raises(InputError, match=message):
        fleet.train(**{"method": "dec-apx-gp", **options})  # type: ignore[arg-type]
    assert fleet.last_fit is None
    assert fleet.theta is not None
    assert fleet.theta.tolist() == list(fg.PAPER_THETA)


def test_duplicate_rows_with_zero_noise_name_agent_and_rows() -> None:
    x = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    fleet = fg.Fleet([GOOD, (x, np.array([0.0, 1.0, 0.0]))], kernel="se", normalize=False)
    with pytest.raises(InputError, match=r"agent 1: rows 0 and 2 are duplicates.*positive sigma_eps"):
        fleet.train("dec-apx-gp", theta0=[1, 1, 1, 0])
    with pytest.raises(InputError, match=r"agent 1: rows 0 and 2 are duplicates"):
        fg.Fleet([GOOD, (x, np.array([0.0, 1.0, 0.0]))], theta=[1, 1, 1, 0], kernel="se", normalize=False)


def test_the_callers_arrays_are_copied() -> None:
    x, y = GOOD[0].copy(), GOOD[1].copy()
    fleet = fg.Fleet([(x, y)], kernel="se", normalize=False)
    x[:] = np.nan
    assert np.isfinite(fleet.shards[0][0]).all()


def test_repr_says_what_it_is() -> None:
    text = repr(fg.Fleet(paper_shards(30, 3), graph="cycle", kernel="se", normalize=False))
    assert text == "Fleet(agents=3, points=30, dimension=2, graph=Graph(agents=3, edges=3))"
