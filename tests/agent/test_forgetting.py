"""Rows that leave an agent's data: by age, by number and on request; from its file and from what it was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent.observations import ObservationStore, Sent
from fleetgp.errors import InputError
from fleetgp.model.observations import Observations
from tests.conftest import examples


def opened(folder: Path, file: str | None = None, **options: Any) -> ObservationStore:
    """With days 0 to 7 in a file, and what was sent before."""
    path = folder / "a.csv"
    if file is not None or not path.exists():
        path.write_text(
            file or "day,x,t\n" + "".join(f"{day},0.5,{day + 0.25}\n" for day in range(8)), encoding="utf-8"
        )
    return ObservationStore(path, ["day", "x"], "t", folder / "told.jsonl", **{"time": "day", **options})


def days(data: ObservationStore) -> list[float]:
    result: list[float] = data.shard.inputs[:, 0].tolist()
    return result


def row(day: float, value: float = 1.5) -> list[float]:
    return [day, 0.0, value]


def test_rows_of_the_file_and_sent_rows_are_taken_back_and_stay_away(tmp_path: Path) -> None:
    data = opened(tmp_path)
    data.append([row(8.0), row(9.0, 50.0)], "dive-0")
    data.append([row(10.0)], "dive-1")
    data.append([row(11.0)], "other")
    receipt = data.remove("first", where="t > 40")
    assert (receipt["removed"], receipt["where"], receipt["repeated"]) == (1, "t > 40", False)
    assert data.remove("first", where="t > 40")["repeated"]
    assert data.remove("third", between=[2.0, 3.5])["between"] == ["2", "3.5"]
    assert data.remove("fourth", request="dive")["removed"] == 2
    for again in (data, opened(tmp_path)):
        assert days(again) == [0, 1, 4, 5, 6, 7, 11]
        assert (again.arrived, again.removed, again.forgotten) == (12, 5, 0)
        assert again.receipt("third")["removed"] == 2
    assert "50.0" not in (tmp_path / "told.jsonl").read_text(encoding="utf-8")
    assert data.append([row(10.0)], "dive-1").repeated  # it is known, and does not come back
    assert days(data) == days(opened(tmp_path))


def test_a_row_is_removed_as_often_as_it_is_there(tmp_path: Path) -> None:
    data = opened(tmp_path, "day,x,t\n1,0,1\n2,0,2\n1,0,1\n3,0,3\n", watched=True)
    assert data.remove("twice", where="t == 1")["removed"] == 2
    assert days(data) == [2, 3]
    with (tmp_path / "a.csv").open("a", encoding="utf-8") as file:
        file.write("1,0,1\n4,0,4\n")
    assert data.refresh() == 2
    assert sorted(days(data)) == sorted(days(opened(tmp_path))) == [1, 2, 3, 4]  # a third one is new


def test_a_window_moves_with_the_newest_row(tmp_path: Path) -> None:
    data = opened(tmp_path, window=6.5, watched=True)
    assert data.tidy() == 1
    assert days(data) == [1, 2, 3, 4, 5, 6, 7]
    data.append([row(8.0), row(9.0)], "new")
    for again in (data, opened(tmp_path, window=6.5)):
        assert days(again) == [3, 4, 5, 6, 7, 8, 9]
        assert (again.forgotten, again.removed) == (3, 0)
    data.remove("newest", where="day > 8")  # the window does not move back
    assert days(data) == days(opened(tmp_path, window=6.5)) == [3, 4, 5, 6, 7, 8]
    with (tmp_path / "a.csv").open("a", encoding="utf-8") as file:
        file.write("10,0,4\n")
    data.refresh()
    assert days(data) == days(opened(tmp_path, window=6.5)) == [4, 5, 6, 7, 10, 8]


@pytest.mark.parametrize("time", ["day", None])
def test_the_oldest_rows_beyond_a_number_leave(tmp_path: Path, time: str | None) -> None:
    data = opened(tmp_path, time=time, max_rows=6)
    data.tidy()
    assert days(data) == [2, 3, 4, 5, 6, 7]
    data.append([row(2.5), row(7.0)], "new")
    expected = [4, 5, 6, 7, 2.5, 7] if time is None else [3, 4, 5, 6, 7, 7]
    for again in (data, opened(tmp_path, time=time, max_rows=6)):
        again.tidy()
        assert days(again) == expected


def test_forgetting_by_a_date(tmp_path: Path) -> None:
    file = "day,x,t\n" + "".join(f"2021-01-0{day},0.5,{day}\n" for day in range(1, 9))
    data = opened(tmp_path, file, time=None)
    receipt = data.forget("2021-01-03T12:00", "old")
    assert (receipt["forgotten"], receipt["before"], data.rows, data.forgotten) == (3, "2021-01-03 12:00", 5, 3)
    assert data.forget("2021-01-03T12:00", "old")["repeated"]
    assert days(opened(tmp_path, time=None)) == days(data)
    assert data.forget("2021-01-30", "all")["forgotten"] == 0  # the newest five stay
    with pytest.raises(InputError, match="expected a date"):
        data.forget("soon", "x")


def test_a_row_of_the_future_does_not_push_out_the_others(tmp_path: Path) -> None:
    file = "day,x,t\n" + "".join(f"2021-01-0{day},0.5,{day}\n" for day in range(1, 9))
    data = opened(tmp_path, file, time=None, window="40000 days")
    data.append([row(1e6)], "wrong-clock")
    assert data.rows == 9
    assert opened(tmp_path, time=None, window=1.0).tidy() == 4  # of today: only the newest five are left


def test_a_window_may_end_at_the_clock(tmp_path: Path) -> None:
    file = "day,x,t\n" + "".join(f"2021-01-0{day},0.5,{day}\n" for day in range(1, 9))
    assert opened(tmp_path, file, time=None, window="30 days").tidy() == 0
    data = opened(tmp_path, time=None, window="30 days", by_clock=True)
    assert (data.tidy(), data.rows) == (3, 5)  # the newest five stay


def test_what_cannot_be_asked_for_is_one_clear_error(tmp_path: Path) -> None:
    data = opened(tmp_path)
    for which, message in (
        ({}, "expected a request, a condition or two times"),
        ({"request": "unknown"}, "no rows were sent as the request 'unknown'"),
        ({"where": "depth > 3"}, "expected one of the columns day, x, t"),
        ({"between": [3, 1]}, "expected the earlier time first"),
        ({"between": 3}, "expected two times"),
    ):
        with pytest.raises(InputError, match=message):
            data.remove("r", **which)
    with pytest.raises(InputError, match="there is no receipt 'r'"):
        data.receipt("r")
    with pytest.raises(InputError, match="expected a request of 1 to 64 letters"):
        data.remove("no name", where="t > 3")
    timeless = opened(tmp_path, time=None)
    with pytest.raises(InputError, match="expected an input that is the time, got day, x: name it"):
        timeless.forget(3.0, "x")
    with pytest.raises(InputError, match="window: expected an input that is the time"):
        opened(tmp_path, time=None, window=3.0)
    with pytest.raises(InputError, match="1 of 8 rows would be left, and private"):
        opened(tmp_path, private=True).remove("r", where="t > 1")
    assert data.rows == 8
    data.remove("all", where="t >= 0")
    assert (data.rows, opened(tmp_path).rows, opened(tmp_path).place) == (0, 0, {})


def spread(folder: Path, **options: Any) -> ObservationStore:
    """With 60 rows of a day each, in sent groups of 10, of which some are younger."""
    rows = "".join(f"{number},{number % 10},{number}\n" for number in range(60))
    data = opened(folder, "day,x,t\n" + rows, keep="summary", **options)

    def sent(shard: Observations) -> Sent:
        tens = (shard.values // 10).astype(int)
        groups = tuple(np.flatnonzero(tens == ten) for ten in range(6) if (tens == ten).sum() == 10)
        return Sent(groups, np.ones(2), 100, ())

    data.sent = sent
    return data


def test_forgotten_rows_stay_in_groups_that_are_removed_whole(tmp_path: Path) -> None:
    data = spread(tmp_path)
    receipt = data.forget(40.0, "old")
    assert (receipt["forgotten"], receipt["summarized"], receipt["overdue"], data.rows) == (40, 40, 0, 20)
    assert int(data.stand.kept.counts.sum()) == 40
    again = spread(tmp_path)
    np.testing.assert_array_equal(again.stand.kept.packed, data.stand.kept.packed)
    receipt = again.remove("hour", between=[12.0, 13.0])
    assert (receipt["removed"], receipt["kept_groups"]) == (0, 1)
    assert receipt["kept_rows"] >= 10
    left = 40 - receipt["kept_rows"]
    for store in (again, spread(tmp_path)):
        assert int(store.stand.kept.counts.sum()) == left
        assert store.rows == 20


def test_kept_groups_know_the_requests_of_their_rows(tmp_path: Path) -> None:
    data = spread(tmp_path)
    data.append([[100.0 + k, k % 10, 100.0 + k] for k in range(40)], "dive-3")
    data.append([[200.0 + k, k % 10, 200.0 + k] for k in range(10)], "later-0")
    data.forget(200.0, "old")
    assert data.rows == 10
    receipt = spread(tmp_path).remove("back", request="dive")
    assert receipt["kept_rows"] >= 40
    assert not any("dive-3" in names for names in spread(tmp_path).stand.kept.requests)


WHAT = ["observe", "remove", "where", "grow", "reopen", "forget"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["observe", "remove", "where", "grow", "reopen", "forget"]),
        st.integers(0, 11),
        st.integers(1, 3),
    ),
    max_size=10,
)


@given(STEPS, st.sampled_from([None, 5.0]), st.sampled_from([None, 7]))
@examples(60, deadline=None)
def test_any_order_of_steps_gives_what_remains(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, int]],
    window: float | None,
    max_rows: int | None,
) -> None:
    """Against a list of rows, from which they are taken one by one."""
    folder = tmp_path_factory.mktemp("told")
    options: dict[str, Any] = {"window": window, "max_rows": max_rows, "watched": True}
    with mock.patch("os.fsync"):
        data = opened(folder, **options)
        data.tidy()
        rows = settled([(float(day), "", day + 0.25) for day in range(8)], window, max_rows)
        for number, (what, size, count) in enumerate(steps):
            if what == "observe":
                new = [row(8.0 + size / 2 + k, number + k / 8) for k in range(count)]
                data.append(new, f"r{number}")
                rows += [(time, f"r{number}", value) for time, _, value in new]
            elif what == "grow":
                newest = max(time for time, _, _ in rows) + size / 4
                with (folder / "a.csv").open("a", encoding="utf-8") as file:
                    file.write(f"{newest},1,{number + 0.5}\n")
                data.refresh()
                position = sum(not name for _, name, _ in rows)
                rows.insert(position, (newest, "", number + 0.5))
            elif what == "remove" and any(name != f"r{size}" for _, name, _ in rows):
                if data.journal.knows(f"r{size}"):
                    data.remove(f"x{number}", request=f"r{size}")
                rows = [one for one in rows if one[1] != f"r{size}"]
            elif what == "where" and not all(time < size for time, _, _ in rows):
                data.remove(f"x{number}", where=f"day < {size}")
                rows = [one for one in rows if one[0] >= size]
            elif what == "forget":
                data.forget(float(size), f"x{number}")
                rows = late(rows, size, None)
            elif what == "reopen":
                data = opened(folder, **options)
            rows = settled(rows, window, max_rows)
            data.tidy()
            assert sorted(days(data)) == sorted(time for time, _, _ in rows)
        assert sorted(days(opened(folder, **options))) == sorted(days(data))


Rows = list[tuple[float, str, float]]


def late(rows: Rows, before: float, most: int | None) -> Rows:
    order = sorted(range(len(rows)), key=lambda k: rows[k][0])
    gone = {k for k in order if rows[k][0] < before}
    if most is not None:
        gone |= set(order[: max(0, len(rows) - most)])
    gone -= set(order[-5:])
    return [one for k, one in enumerate(rows) if k not in gone]


def settled(rows: Rows, window: float | None, max_rows: int | None) -> Rows:
    before = -np.inf if window is None else max(time for time, _, _ in rows) - window
    return late(rows, before, max_rows)
