"""What is probably not meant: found in files and in what an agent is told, and not found where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.agent.observations import ObservationStore
from fleetgp.arrays import Array
from fleetgp.data.suspicions import FILLS, Tally, is_any_of
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.io.tables import read_observations

# ---- what an agent is told ------------------------------------------------------------------------------------


def store(folder: Path, **options: Any) -> ObservationStore:
    lines = "".join(f"{0.1 * n},{15 + 0.2 * n}\n" for n in range(20))
    (folder / "a.csv").write_text(f"x,sst\n{lines}", encoding="utf-8")
    return ObservationStore(folder / "a.csv", ["x"], "sst", folder / "told.jsonl", **options)


@pytest.mark.parametrize(("row", "column"), [([0.5, -9999.0], "sst"), ([-9999.0, 16.0], "x")])
def test_one_row_with_a_fill_value_is_judged_by_what_the_agent_has(
    row: list[float], column: str, tmp_path: Path
) -> None:
    data = store(tmp_path)
    with pytest.raises(
        InputError, match=rf"column '{column}' has the value -9999 once.*fill = \[-9999.0\] in the agent's"
    ):
        data.append([row])
    assert data.rows == 20
    assert store(tmp_path, fill=[]).append([row]).rows == 1  # insisted
    assert store(tmp_path).append([[0.4, 17.0]]).rows == 1  # what is there already does not stand in the way of others


def test_the_advice_for_agents_names_no_option(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        store(tmp_path).append([[0.5, -9999.0]])
    assert "--" not in str(refused.value)
    for text in (
        "x,sst\n1,15\n2,16\n3,-9999\n", "x;sst\n1;2\n", "x,sst\n1,\n", 'x,sst\n1,"2,5"\n',
        "x,sst\n1,2\n".encode("utf-16"), "x,sst,ü\n1,2,3\n".encode("latin-1"),
    ):  # fmt: skip
        (tmp_path / "b.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(InputError, match=r"b\.csv") as refused:
            ObservationStore(tmp_path / "b.csv", ["x"], "sst", tmp_path / "b.jsonl")
        assert "--" not in str(refused.value)


def test_named_fill_values_are_gaps_in_what_an_agent_is_told(tmp_path: Path) -> None:
    rows = [[0.5, -9999.0], [0.6, 16.0]]
    with pytest.raises(InputError, match=r"1 of 2 rows have a gap \(first: row 1, column 'sst'"):
        store(tmp_path, fill=[-9999.0]).append(rows)
    dropping = store(tmp_path, fill=[-9999.0], missing="drop")
    assert dropping.append(rows, "a") == (1, False)
    assert dropping.append(rows, "a") == (1, True)
    with pytest.raises(InputError, match="1 of 1 rows have a gap"):
        dropping.append(rows[:1])
    assert dropping.rows == 21


def test_a_request_that_was_taken_is_acknowledged_again_whatever_became_of_the_file(tmp_path: Path) -> None:
    assert store(tmp_path, fill=[]).append([[0.5, -9999.0]], "a") == (1, False)
    assert store(tmp_path).append([[0.5, -9999.0]], "a") == (1, True)


def test_an_agent_that_really_measures_such_values_may_be_told_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,sst\n0,80\n1,90\n", encoding="utf-8")
    data = ObservationStore(tmp_path / "a.csv", ["x"], "sst", tmp_path / "told.jsonl")
    assert data.append([[2, 99.0]]).rows == 1


# ---- values that come often, far from all others --------------------------------------------------------------


def with_gaps(low: float, high: float, gap: float, count: int) -> Array:
    values = np.random.default_rng(1).uniform(low, high, 160)
    values[:count] = gap
    return values


@pytest.mark.parametrize(
    ("low", "high", "gap", "count"), [(6, 25, -99.9, 5), (12, 18, 99.0, 5), (280, 297, 0.0, 40), (6, 25, 999.9, 3)]
)
def test_a_fill_value_of_modest_size_is_found_in_the_target(
    low: float, high: float, gap: float, count: int, tmp_path: Path
) -> None:
    values = with_gaps(low, high, gap, count)
    assert Tally.of(values[:, None]).fill_value(0, repeated=True) == (gap, count)
    places = np.random.default_rng(2).random(160)
    np.savez(tmp_path / "t.npz", x=places, t=values)
    with pytest.raises(InputError, match=rf"column 't' has the value {gap:g} {count} times, far from all others"):
        read_observations(tmp_path / "t.npz", inputs=["x"], target="t")
    assert len(read_observations(tmp_path / "t.npz", inputs=["x"], target="t", fill=[]).observations) == 160
    with pytest.warns(FleetGPWarning, match=rf"y has the value {gap:g} {count} times"):
        fg.Fleet([(places[:, None], values)], kernel="se", normalize=False)


def test_a_mooring_far_from_a_ship_is_no_fill_value(tmp_path: Path) -> None:
    ship = np.random.default_rng(3).uniform(-60.0, -59.0, 100)
    np.savez(tmp_path / "t.npz", x=np.append(ship, np.full(20, -80.0)), t=np.sin(np.arange(120.0)))
    assert len(read_observations(tmp_path / "t.npz", inputs=["x"], target="t").observations) == 120


@given(st.lists(st.floats(-1e6, 1e6), unique=True, max_size=60))
def test_values_that_come_once_are_no_fill_values_unless_they_are_known_ones(values: list[float]) -> None:
    array = np.array(values)
    found = Tally.of(array[:, None]).fill_value(0, repeated=True)
    assert found is None or bool(is_any_of(np.array(found[0]), FILLS))


@given(st.lists(st.floats(0.01, 90.0), min_size=1, max_size=60), st.integers(0, 200), st.floats(0.01, 70.0))
def test_rain_with_many_dry_days_is_left_alone(rain: list[float], dry: int, some: float) -> None:
    """Nothing lies five ranges below values of which the largest is 1.2 times the smallest, or more."""
    values = np.array([*rain, some, 1.25 * some] + [0.0] * dry)
    low_end = Tally.of(values[:, None]).fill_value(0, repeated=True)
    assert low_end is None or low_end[0] > 0.0


@pytest.mark.parametrize("seed", range(5))
def test_heavy_tails_counts_and_rounded_values_are_left_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for values in (
        np.round(rng.lognormal(0.0, 2.0, 300), 1), rng.poisson(0.7, 300).astype(float), rng.standard_cauchy(300),
        rng.geometric(0.05, 300).astype(float), np.round(rng.normal(15.0, 3.0, 300), 1),
        np.append(np.zeros(200), rng.exponential(8.0, 100)), np.array([0.0] * 50 + [1.0] * 9 + [7.0] * 3),
    ):  # fmt: skip
        assert Tally.of(values[~is_any_of(values, FILLS)][:, None]).fill_value(0, repeated=True) is None
