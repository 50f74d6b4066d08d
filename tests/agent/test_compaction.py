"""Rows that leave the journal, and the file that is written again without them: at any byte of a crash."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent import journal as module
from fleetgp.agent.journal import Journal
from fleetgp.agent.journal_lines import Departure
from fleetgp.errors import InputError, StorageError
from tests.agent.stores import failing, journal
from tests.conftest import examples


def opened(folder: Path) -> Journal:
    return Journal(folder / "told.jsonl", ("x", "y", "t"), 1e100)


def filled(folder: Path) -> Journal:
    """Five rows of three requests."""
    data = opened(folder)
    for number, count in enumerate((2, 1, 2)):
        data.append(np.array([[10.0 * number + k, 0.5, -1.0] for k in range(count)]), f"r{number}")
    return data


def leaving(data: Journal, which: list[float], **facts: Any) -> Departure:
    return Departure(sent=data.sent(np.isin(data.rows[:, 0], which)), **facts)


def times_of(data: Journal) -> list[float]:
    times: list[float] = data.rows[:, 0].tolist()
    return times


def state_of(data: Journal) -> list[Any]:
    """All that counts."""
    left = sorted(zip(data.keys.tolist(), data.times.tolist(), strict=True))
    facts = data.horizon, data.gone, data.removed, data.kept, dict(data.receipts), dict(data._requests)
    return [data.rows.tolist(), data.sent(np.ones(len(data.rows), dtype=bool)), left, *facts]


FACTS: dict[str, Any] = {
    "keys": np.array([2**63 + 1, 7], dtype=np.uint64),
    "times": np.array([3.0, 11.5]),
    "removed": 2,
    "kept": {"groups": [[1.5, {"deep": [2]}]]},
    "receipt": {"rows": 2, "text": 'a "quoted" {"request": 1}'},
}


def test_what_leaves_is_gone_after_a_restart_and_stays_gone_when_the_file_is_compacted(tmp_path: Path) -> None:
    data = filled(tmp_path)
    assert data.sent(np.array([True, False, True, True, True])) == (("r0", 0, 1), ("r1", 0, 1), ("r2", 0, 2))
    assert data.leave(leaving(data, [0.0, 10.0], request="bad", **FACTS))
    assert not data.leave(leaving(data, [20.0], request="bad"))  # the same request again
    assert data.leave(leaving(data, [1.0], horizon=5.0))
    for again in (data, opened(tmp_path)):
        assert times_of(again) == [20.0, 21.0]
        assert (again.gone, again.removed, again.horizon) == (3, 2, 5.0)
        assert (again.keys.tolist(), again.times.tolist()) == ([7], [11.5])  # the other is before the horizon
        assert (again.kept, again.receipts) == (FACTS["kept"], {"bad": FACTS["receipt"]})
    before = state_of(data)
    data.compact()
    assert b'"r1", "columns"' not in (tmp_path / "told.jsonl").read_bytes()
    for again in (data, opened(tmp_path)):
        assert state_of(again) == before
        assert (again.problem, again.damaged) == ("", 0)
    assert not data.append(np.array([[10.0, 0.5, -1.0]]), "r1")  # its row has left, its name has not
    with pytest.raises(InputError, match="was used for other rows"):
        data.append(np.array([[0.0, 0.5, -1.0]]), "r0")
    data.append(np.array([[4.0, 0.0, 0.0], [22.0, 0.0, 0.0]]), "late")  # the horizon is of the data file alone
    assert times_of(opened(tmp_path)) == times_of(data) == [20.0, 21.0, 4.0, 22.0]
    data.leave(leaving(data, [21.0, 22.0]))
    data.compact()
    assert times_of(opened(tmp_path)) == times_of(data) == [20.0, 4.0]
    assert data.gone == opened(tmp_path).gone == 5


def test_rows_are_found_by_the_name_of_their_request_or_of_its_parts(tmp_path: Path) -> None:
    data = opened(tmp_path)
    for number, name in enumerate(("a-0", "a-1", "a-b", "b", "c.d", "dive", "dive-7")):
        data.append(np.full((2, 3), float(number)), name)
    data.compact()
    for again in (data, opened(tmp_path)):
        assert again.requests_of("a") == {"a-0", "a-1"}
        assert again.rows[again.of_requests({"a-0", "a-1"}), 0].tolist() == [0.0, 0.0, 1.0, 1.0]
        assert again.requests_of("dive") == {"dive"}, "what was sent under exactly this name"
        assert not again.requests_of("c-d")
        assert again.requests_of("c-d", ["c-d-3"]) == {"c-d-3"}
    data.leave(Departure(sent=data.sent(np.isin(data.rows[:, 0], [3.0]))))
    data.compact()
    again = opened(tmp_path)
    assert again.requests_of("b") == {"b"}
    assert not again.of_requests({"b"}).any()


def test_a_disk_that_fills_up_after_any_byte_changes_nothing(tmp_path: Path) -> None:
    """While rows leave, and while the file is compacted; a kill leaves the file as it was, too."""
    path, mark = tmp_path / "told.jsonl", tmp_path / "told.acknowledged"
    data = filled(tmp_path)
    before, noted, first = path.read_bytes(), mark.read_bytes(), state_of(data)
    with mock.patch("os.fsync"):
        data.leave(leaving(data, [0.0, 10.0], request="bad", **FACTS))
        second, longer = state_of(data), path.read_bytes()
        line = longer[len(before) :]
        for after in range(len(line)):
            path.write_bytes(before)
            mark.write_bytes(noted)
            data = opened(tmp_path)
            with failing(after=after), pytest.raises(OSError, match="No space left"):
                data.leave(leaving(data, [0.0, 10.0], request="bad", **FACTS))
            assert state_of(data) == first
            assert path.read_bytes() == before
            path.write_bytes(before + line[:after])  # as after a kill before the truncation
            mark.write_bytes(noted)
            again = opened(tmp_path)
            assert (state_of(again), again.problem, again.damaged) == (first, "", 0)
        path.write_bytes(longer)
        data = opened(tmp_path)
        data.compact()
        shorter = path.read_bytes()
        for after in range(0, len(shorter), 3):
            path.write_bytes(longer)
            data = opened(tmp_path)
            with failing(after=after), pytest.raises(OSError, match="No space left"):
                data.compact()
            assert path.read_bytes() == longer
            assert state_of(data) == state_of(opened(tmp_path)) == second
            assert (opened(tmp_path).problem, [p.name for p in tmp_path.glob(".*")]) == ("", [])
        data.compact()
        assert (path.read_bytes(), state_of(data), state_of(opened(tmp_path))) == (shorter, second, second)


class Killed(BaseException):
    pass


def killing(calls: int) -> Any:
    """End the process before its n-th call of the system that changes a file."""
    left = [calls]

    def guarded(call: Any) -> Any:
        def instead(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return call(*arguments, **more)

        return instead

    names = ("write", "pwrite", "fsync", "ftruncate", "rename", "replace")
    return mock.patch.multiple("os", **{name: guarded(getattr(os, name)) for name in names})


def test_a_kill_between_any_two_steps_of_a_compaction_loses_nothing(tmp_path: Path) -> None:
    path, mark = tmp_path / "told.jsonl", tmp_path / "told.acknowledged"
    data = filled(tmp_path)
    data.leave(leaving(data, [0.0, 10.0], request="bad", **FACTS))
    expected, longer, noted = state_of(data), path.read_bytes(), mark.read_bytes()
    seen = set()
    for calls in range(20):
        path.write_bytes(longer)
        mark.write_bytes(noted)
        data = opened(tmp_path)
        ended = False
        with killing(calls):
            try:
                data.compact()
                ended = True
            except Killed:
                pass
        again = opened(tmp_path)
        assert (state_of(again), again.problem, again.damaged) == (expected, "", 0)
        again.append(np.array([[30.0, 1.0, 1.0]]), "next")
        assert times_of(opened(tmp_path)) == [*times_of(data), 30.0]
        seen.add(path.read_bytes()[:6])
        if ended:
            break
    assert ended
    assert len(seen) == 2  # before the renaming and after it


@given(st.data())
@examples(100, deadline=None)
def test_one_spoilt_byte_of_a_compacted_file_brings_nothing_back(
    tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("told")
    with mock.patch("os.fsync"):
        data = filled(folder)
        data.leave(leaving(data, [0.0, 10.0], request="bad", **FACTS))
        data.compact()
    content = bytearray((folder / "told.jsonl").read_bytes())
    place = draw.draw(st.integers(0, len(content) - 2))
    content[place] = draw.draw(st.sampled_from([byte for byte in range(256) if byte != content[place]]))
    (folder / "told.jsonl").write_bytes(content)
    again = opened(folder)
    assert again.damaged >= 1
    assert set(times_of(again)) < {1.0, 20.0, 21.0} or times_of(again) == [1.0, 20.0, 21.0]
    assert (again.keys.tolist(), again.removed, again.kept) == ([2**63 + 1, 7], 2, FACTS["kept"])
    assert again.receipts == {"bad": FACTS["receipt"]}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("forget"), st.integers(0, 12)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("fail"), st.integers(0, 300)),
    ),
    max_size=12,
)


@given(STEPS)
@examples(100, deadline=None)
def test_after_any_sequence_of_steps_there_is_what_counts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("told")
    data, expected, clock = opened(folder), list[float](), 0
    for number, (what, size) in enumerate(steps):
        if what == "append":
            times = [float(clock + k) for k in range(size)]
            clock += size - 1
            data.append(np.array([[time, float(number), 0.0] for time in times]), f"r{number}")
            expected += times
        elif what == "leave":
            rows = np.arange(len(data.rows)) % 6 == size
            expected = [time for time, leaves in zip(expected, rows, strict=True) if not leaves]
            data.leave(Departure(sent=data.sent(rows)))
        elif what == "forget":
            data.leave(Departure(sent=data.sent(data.rows[:, 0] < size), horizon=float(size)))
            expected = [time for time in expected if time >= size]
        elif what == "fail":
            with failing(after=size), suppress(OSError):
                data.compact()
        elif what == "compact":
            data.compact()
        else:
            data = opened(folder)
        assert times_of(data) == expected
    assert times_of(opened(folder)) == expected


def test_the_file_and_the_names_do_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN", 20)
    sizes, names = [], []
    with mock.patch("os.fsync"):
        data = opened(tmp_path)
        for number in range(600):
            data.append(np.full((10, 3), float(number)), f"request-{number}")
            data.leave(Departure(sent=data.sent(data.rows[:, 0] < number - 30), horizon=float(number - 30)))
            if data.wasteful:
                data.compact()
            sizes.append(data.size)
            names.append(len(data._requests))
    assert max(sizes[300:]) <= 1.05 * max(sizes[:300])
    assert max(names[300:]) <= 1.05 * max(names[:300])
    assert (len(data.rows), data.gone) == (310, 5690)
    again = opened(tmp_path)
    assert state_of(again) == state_of(data)
    assert not again.append(np.full((10, 3), 575.0), "request-575")


def test_other_columns_than_those_of_removed_rows_are_an_error(tmp_path: Path) -> None:
    data = filled(tmp_path)
    data.leave(Departure(keys=FACTS["keys"], times=FACTS["times"]))
    with pytest.raises(InputError, match="expected rows with x, t, got other columns"):
        Journal(tmp_path / "told.jsonl", ("x", "t"), 1e100)


def test_a_file_that_was_compacted_by_another_process_is_not_written_to(tmp_path: Path) -> None:
    data = journal(tmp_path)
    data.append(np.zeros((1, 3)), "first")
    opened(tmp_path).compact()
    with pytest.raises(StorageError, match="somebody else changed the file"):
        data.append(np.ones((1, 3)), "second")
