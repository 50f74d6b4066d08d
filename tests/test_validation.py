"""Arrays as callers give them: what NumPy would swallow without a word is right, or one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import fleetgp as fg
from fleetgp.data import partition_by_label
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.io import read_observations
from fleetgp.validation import as_numbers, check_number
from tests.conftest import paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

THETA = list(fg.PAPER_THETA)


def fleet() -> fg.Fleet:
    return fg.Fleet(paper_shards(60, 3), theta=THETA, kernel="se", normalize=False)


def x_and_y(n: int = 12) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    return rng.uniform(0, 2, (n, 2)), rng.standard_normal(n)


def masked(array: Any, row: int) -> Any:
    mask = np.zeros(np.shape(array), dtype=bool)
    mask[row] = True
    return np.ma.masked_array(array, mask)


#: name -> what takes an array in the place of another of 12 rows or of theta's length.
ROWS: dict[str, Callable[[Any], Any]] = {
    "X": lambda a: fg.Fleet([(a, x_and_y()[1])], kernel="se", normalize=False),
    "queries": lambda a: fleet().predict(a, "rbcm"),
    "partition X": lambda a: fg.partition(a, x_and_y()[1], agents=2),
    "partition_by_label X": lambda a: partition_by_label(a, x_and_y()[1], ["a", "b"] * 6),
    "synthetic inputs": lambda a: fg.synthetic_field(inputs=a, seed=1),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "y": lambda a: fg.Fleet([(x_and_y()[0], a)], kernel="se", normalize=False),
    "partition y": lambda a: fg.partition(x_and_y()[0], a, agents=2),
    "partition_by_label y": lambda a: partition_by_label(x_and_y()[0], a, ["a", "b"] * 6),
}
THETAS: dict[str, Callable[[Any], Any]] = {
    "theta": lambda a: fg.Fleet(paper_shards(60, 3), theta=a, kernel="se", normalize=False),
    "theta of predict": lambda a: fleet().predict([[0.1, 0.2]], "rbcm", theta=a),
    "theta0": lambda a: fleet().train("fact-gp", theta0=a, rounds=2),
    "theta of a field": lambda a: fg.synthetic_field(10, a, seed=1),
}
DOORS = [
    *(pytest.param(door, x_and_y()[0], id=name) for name, door in ROWS.items()),
    *(pytest.param(door, x_and_y()[1], id=name) for name, door in VALUES.items()),
    *(pytest.param(door, np.array(THETA), id=name) for name, door in THETAS.items()),
    pytest.param(
        lambda a: fg.Fleet(paper_shards(60, 3), a, theta=THETA, kernel="se", normalize=False),
        np.ones((3, 3)) - np.eye(3),
        id="adjacency",
    ),
]


@pytest.mark.parametrize(("door", "array"), DOORS)
def test_masked_values_are_refused_at_every_door_and_an_empty_mask_is_none(door: Any, array: Any) -> None:
    with pytest.raises(InputError, match=rf"masked values in 1 of {len(array)} rows \(first: row 2\): remove or fill"):
        door(masked(array, 2))
    door(np.ma.masked_array(array, np.zeros(array.shape, dtype=bool)))
    door(np.ma.masked_array(array))


@pytest.mark.parametrize(("door", "array"), DOORS)
def test_what_is_not_real_numbers_is_refused_at_every_door(door: Any, array: Any) -> None:
    for wrong, said in (
        (array + 1j, "complex numbers"),
        (array.astype(str), "text"),
        ((array * 10).astype("datetime64[s]"), "times"),
        ((array * 10).astype("timedelta64[ns]"), "spans of time"),
        (array.astype(object) * pd.NA, "missing values"),
        (np.where(array > 0, None, None), "missing values"),
    ):
        with pytest.raises(InputError, match=f"(?s){said}"):
            door(wrong)


@pytest.mark.parametrize("unit", ["D", "h", "s", "ns"])
def test_times_are_refused_whatever_their_unit(unit: str) -> None:
    days = np.arange("2021-01-01", "2021-01-13", dtype="datetime64[D]").astype(f"datetime64[{unit}]")
    with pytest.raises(InputError, match=r"agent 0: X: expected a numeric array, got times: give hours or days since"):
        fg.Fleet([(days[:, None], np.arange(12.0))], kernel="se", normalize=False)
    with pytest.raises(InputError, match="Timestamp"):
        fg.Fleet(
            [(pd.DataFrame({"day": days, "depth": np.arange(12.0)}), np.arange(12.0))], kernel="se", normalize=False
        )


def test_true_and_false_are_no_numbers() -> None:
    x, y = x_and_y()
    with pytest.raises(InputError, match=r"agent 0: y: expected a numeric array, got true and false"):
        fg.Fleet([(x, y > 0)], kernel="se", normalize=False)


def test_graphs_of_true_and_false_are_welcome() -> None:
    matrix = np.eye(3) == 0
    for given in (matrix, matrix.tolist(), matrix.astype(int), pd.DataFrame(matrix)):
        assert fg.Fleet(paper_shards(60, 3), given, kernel="se", normalize=False).graph == fg.Graph.complete(3)


def test_masks_inside_lists_and_missing_values_of_pandas_and_xarray() -> None:
    x, y = x_and_y()
    rows = [np.ma.masked_array(row, [False, number == 3]) for number, row in enumerate(x)]
    with pytest.raises(InputError, match=r"queries has masked values in 1 of 12 rows \(first: row 3\)"):
        fleet().predict(rows)
    with pytest.raises(InputError, match=r"masked values in 1 of 2 rows \(first: row 1\)"):
        fleet().predict([[0.1, 0.2], [0.3, np.ma.masked]])
    assert as_numbers([1, 2.5], "y").tolist() == [1.0, 2.5]
    nullable = pd.Series(y, dtype="Float64")
    assert np.array_equal(fg.Fleet([(x, nullable)], kernel="se", normalize=False).shards[0][1], y)
    nullable[5] = pd.NA
    with pytest.raises(InputError, match=r"in 1 of 12 rows \(first: row 5\)"):
        fg.Fleet([(x, nullable)], kernel="se", normalize=False)
    array = xr.DataArray(y, dims="point")
    assert np.array_equal(fg.Fleet([(x, array)], kernel="se", normalize=False).shards[0][1], y)
    with pytest.raises(InputError, match=r"agent 0: y has NaN or infinite values in 1 of 12 rows \(first: row 7\)"):
        fg.Fleet([(x, array.where(array.point != 7))], kernel="se", normalize=False)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.float16, object])
def test_other_types_of_numbers_mean_the_same(dtype: Any) -> None:
    x, y = np.arange(24).reshape(12, 2), np.arange(12)
    expected = fg.Fleet([(x.astype(float), y.astype(float))], theta=THETA, kernel="se", normalize=False).predict(
        x[:2].astype(float), "rbcm"
    )
    found = fg.Fleet([(x.astype(dtype), y.astype(dtype))], theta=THETA, kernel="se", normalize=False).predict(
        x[:2].astype(dtype), "rbcm"
    )
    assert np.array_equal(found.mean, expected.mean)
    assert np.array_equal(found.variance, expected.variance)


@pytest.mark.parametrize("method", ["full-gp", "dec-summary", "dec-nn-grbcm", "dec-rbcm", "npae", "poe"])
@pytest.mark.parametrize("far", [1e5, 1e12, 1e60, -1e99])
def test_far_queries_get_the_prior(method: str, far: float) -> None:
    with pytest.warns(FleetGPWarning, match="no better known"):
        found = fleet().predict([[far, 0.0]], method)
    assert found.mean[0] == pytest.approx(0.0, abs=1e-9)
    assert found.variance[0] == pytest.approx(1.3**2 / (3 if method == "poe" else 1))


def test_queries_that_overflow_are_one_clear_error() -> None:
    with pytest.raises(InputError, match=r"queries has values beyond 1e100 in 1 of 1 rows.*other units"):
        fleet().predict([[1e308, 0.0]])
    with pytest.raises(InputError, match=r"agent 0: X has values beyond 1e100"):
        fg.Fleet([(np.array([[1e200], [0.0]]), np.zeros(2))], kernel="se", normalize=False)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: fg.Fleet(paper_shards(60, 3), normalize="yes", kernel="se"),  # type: ignore[arg-type]
            "normalize: expected True or False, got 'yes'",
        ),
        (lambda: fg.Fleet(paper_shards(60, 3), seed=-1, kernel="se", normalize=False), "seed must be a whole number"),
        (lambda: fg.Fleet(paper_shards(60, 3), seed=1.5, kernel="se", normalize=False), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: fleet().predict([[0, 0]], observed="no"), "observed: expected True or False, got 'no'"),  # type: ignore[arg-type]
        (lambda: fleet().predict([[0, 0]], agent=True), "agent must lie between 0 and 2, got True"),
        (lambda: fg.partition(*x_and_y(), agents=2.0), "agents must be a whole number"),  # type: ignore[call-overload]
        (lambda: fg.partition(*x_and_y(), agents=True), "agents must be a whole number"),
        (lambda: fg.partition(*x_and_y(), agents=2, axis="lon"), "axis must name one of the 2 .* got 'lon'"),  # type: ignore[call-overload]
        (lambda: fg.partition(*x_and_y(), agents=2, axis=1.0), "axis must name one of the 2"),  # type: ignore[call-overload]
        (lambda: fg.partition(x_and_y()[0] * np.nan, x_and_y()[1], agents=2, by="kmeans"), "X has NaN"),
        (lambda: fg.partition(x_and_y()[0], x_and_y()[1] * np.inf, agents=2), "y has NaN or infinite"),
        (lambda: fleet().predict([[0, 0]], theta=[1, 1, 1e200, 1]), "between 1e-100 and 1e100, got sigma_f = 1e.200"),
        (lambda: fleet().predict([[0, 0]], theta=[1e-300, 1, 1, 1]), "between 1e-100 and 1e100, got l_1 = 1e-300"),
        (lambda: read_observations("t.csv", inputs="lon", target="y"), "inputs: expected a list of names, got 'lon'"),
        (lambda: fg.synthetic_field(10, box=(2.0, 0.0)), "low < high"),
        (lambda: fg.synthetic_field(-1), "n must be a whole number"),
        (lambda: fg.synthetic_field(10, [1.0, 1.0]), "at least one length-scale"),
        (lambda: partition_by_label(*x_and_y(), ["a"] * 11 + [np.nan]), r"labels: 1 are missing \(first: row 11\)"),
        (lambda: partition_by_label(*x_and_y(), ["a"] * 11 + [pd.NA]), r"labels: 1 are missing \(first: row 11\)"),
    ],
)
def test_wrong_options_are_one_clear_error(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_labels_are_stripped() -> None:
    with pytest.warns(fg.FleetGPWarning, match="' Ada ' and 'Ada' differ by blanks at the ends only"):
        names, shards = partition_by_label([[0.0], [1.0], [2.0]], [1, 2, 3], ["Ada", " Ada ", "Bo ü"])
    assert names == ["Ada", "Bo ü"]
    assert shards[0][1].tolist() == [1.0, 2.0]


def test_nothing_that_a_caller_holds_changes_a_fleet() -> None:
    x, y = x_and_y()
    theta = np.array(THETA)
    fleet = fg.Fleet([(x, y)], theta=theta, kernel="se", normalize=False)
    query = np.array([[0.5, 0.5]])
    first = fleet.predict(query, "rbcm")
    kept = first.mean.copy()
    x[:], y[:], theta[:], query[:] = 9.0, 9.0, 9.0, 0.5
    first.means[:], first.variances[:] = 9.0, 9.0
    assert np.array_equal(fleet.predict(query, "rbcm").mean, kept)
    places = np.random.default_rng(1).uniform(0, 2, (5, 2))
    field = fg.synthetic_field(inputs=places, seed=1)
    places[:] = 0.0
    assert field.inputs.all()


def test_hyperparameters_that_are_set_after_training_count() -> None:
    fleet = fg.Fleet(paper_shards(60, 3), kernel="se", normalize=False)
    fleet.train("fact-gp", theta0=THETA, rounds=3)
    fleet.theta = np.array(THETA)
    expected = fleet.predict([[0.5, 0.5]], "rbcm", theta=THETA)
    assert np.array_equal(fleet.predict([[0.5, 0.5]], "rbcm").mean, expected.mean)


def test_eta_is_a_share() -> None:
    for eta in (1.5, -0.1, np.nan):
        with pytest.raises(InputError, match="eta must be a number of at least 0 and at most 1, got"):
            fleet().predict([[1.0, 1.0]], "dec-nn-grbcm", eta=eta)


@pytest.mark.parametrize("value", [True, None, "1", np.nan, np.inf, -np.inf, 10**400, 1j, np.complex128(1), [0.5]])
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="tol must be a number of at least 0 and at most 1, got"):
        check_number("tol", value, least=0.0, most=1.0)


@pytest.mark.parametrize(
    ("value", "above", "least"), [(0.5, True, True), (1, True, True), (0, False, True), (1.1, False, False)]
)
def test_bounds_of_numbers(value: float, above: bool, least: bool) -> None:
    for sound, bound in ((above, {"above": 0.0}), (least, {"least": 0.0})):
        if sound:
            check_number("eta", np.float32(value), **bound, most=1.0)
        else:
            with pytest.raises(InputError, match=f"(above|of at least) 0 and at most 1, got {value}"):
                check_number("eta", value, **bound, most=1.0)
