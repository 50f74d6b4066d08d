"""What an agent was told: on disk when acknowledged, nowhere when refused, and mended when damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.agent.observations import ObservationStore
from fleetgp.errors import InputError, StorageError
from tests.agent.stores import failing, journal, store, told
from tests.disks import tiny_disk


def test_rows_that_were_acknowledged_are_there_after_a_crash(tmp_path: Path) -> None:
    data = store(tmp_path)
    assert data.append([[7, 8, 9.5]]) == (1, False)
    with (tmp_path / "told.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"request": "abc", "rows": [[1.0, 2.')  # the crash
    again = store(tmp_path)
    np.testing.assert_array_equal(again.shard.inputs, [[1, 2], [7, 8]])
    np.testing.assert_array_equal(again.shard.values, [3, 9.5])
    again.append([[0, 0, 1], [0, 1, 1]])
    assert store(tmp_path).rows == 4
    for wrong in ([], [[1, 2]], [[1, 2, float("nan")]], [["a", 1, 2]], None, [[1, 2, 1e200]]):
        with pytest.raises(InputError, match=r"expected|beyond"):
            again.append(wrong)
    assert store(tmp_path).rows == 4
    np.testing.assert_array_equal(store(tmp_path, ("y", "x")).shard.inputs[1], [8, 7])  # rows know their columns
    assert [p.name for p in tmp_path.iterdir() if "told" in p.name and p.suffix != ".acknowledged"] == ["told.jsonl"]


def test_lines_of_older_versions_are_still_read(tmp_path: Path) -> None:
    (tmp_path / "told.jsonl").write_text(
        '{"x": 1.0, "y": 2.0, "t": 3.0}\n{"t": 6.0, "x": 4.0, "y": 5}\n', encoding="utf-8"
    )
    data = store(tmp_path)
    data.append([[7, 8, 9]])
    assert told(store(tmp_path)) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert store(tmp_path).journal.damaged == 0


def test_rows_of_another_fleet_are_an_error_not_damage(tmp_path: Path) -> None:
    store(tmp_path).append([[7, 8, 9]])
    (tmp_path / "b.csv").write_text("z,t\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"told\.jsonl, line 1: expected rows with z, t, got other columns: move"):
        ObservationStore(tmp_path / "b.csv", ["z"], "t", tmp_path / "told.jsonl")
    (tmp_path / "told.jsonl").write_text('{"x": 1.0, "y": 2.0}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"told\.jsonl, line 1: expected rows with x, y, t"):
        store(tmp_path)


def test_a_disk_that_fills_up_after_any_byte_keeps_nothing_of_a_refused_batch(tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    data = journal(tmp_path)
    data.append(np.array([[1.5, 2.5, 3.5]]), "first")
    before, noted = path.read_bytes(), (tmp_path / "told.acknowledged").read_bytes()
    batch = np.array([[4.25, 5.25, 6.25], [7.0, 8.0, 9.0]])
    with mock.patch("os.fsync"):  # what is tried here is no power cut, and there are many
        data.append(batch, "second")
        line = path.read_bytes()[len(before) :]
        for after in range(len(line)):
            path.write_bytes(before)
            data = journal(tmp_path)
            with failing(after=after), pytest.raises(OSError, match="No space left") as error:
                data.append(batch, "second")
            assert error.value.errno == errno.ENOSPC
            assert path.read_bytes() == before
            assert data.append(batch, "second")
            assert path.read_bytes() == before + line
            path.write_bytes(before + line[:after])  # as after a kill before the truncation
            (tmp_path / "told.acknowledged").write_bytes(noted)
            assert journal(tmp_path).rows.tolist() == [[1.5, 2.5, 3.5]]
            assert path.read_bytes() == before


FAULTS = st.one_of(
    st.just({}),
    st.builds(lambda after, truncate: {"after": after, "truncate": truncate}, st.integers(0, 130), st.booleans()),
    st.just({"fsync": True}),
    st.just({"fsync": True, "truncate": True}),
)


@given(st.lists(st.tuples(FAULTS, st.integers(1, 3), st.booleans(), st.booleans()), max_size=8))
@settings(max_examples=150, deadline=None)
def test_after_any_sequence_of_failures_there_is_exactly_what_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, Any], int, bool, bool]]
) -> None:
    """Full disks, fsync and truncate that fail, requests sent again, processes that end and come back."""
    folder = tmp_path_factory.mktemp("told")
    data, kept = journal(folder), list[list[float]]()
    for number, (fault, size, again, reopen) in enumerate(steps):
        rows = [[number + 0.5, float(k), -1.25] for k in range(size)]
        with failing(**fault):
            try:
                data.append(np.array(rows), f"request-{number}")
                kept += rows
            except OSError:
                assert fault
        if again:
            data.append(np.array(rows), f"request-{number}")
            kept += [row for row in rows if row not in kept]
        assert data.rows.tolist() == kept
        if reopen:
            data = journal(folder)
            assert data.rows.tolist() == kept
    data.append(np.array([[9.0, 9.0, 9.0]]), "last")
    assert journal(folder).rows.tolist() == [*kept, [9.0, 9.0, 9.0]]
    assert journal(folder).damaged == 0


def test_a_real_full_disk(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        data, kept, refusals = journal(disk), list[list[float]](), list[int | None]()
        for number in range(60):
            rows = [[number + 1 / 3, k / 7, 0.1] for k in range(50)]
            try:
                data.append(np.array(rows), f"r{number}")
                kept += rows
            except OSError as error:
                refusals.append(error.errno)
                assert journal(disk).rows.tolist() == kept
        assert kept
        assert len(refusals) > 10
        assert set(refusals) == {errno.ENOSPC}
        assert journal(disk).rows.tolist() == data.rows.tolist() == kept


def test_what_an_older_version_left_of_a_full_disk_is_mended(tmp_path: Path) -> None:
    """Refused fragments stood between acknowledged rows, and on one line with them."""
    path = tmp_path / "told.jsonl"
    fragments = '{"x": 1.0, "y": 2.0, "t": 3.0}\n{"x": 6.0, "y"\n{"x": 7.0, "y": 1{"x": 4.0, "y": 5.0, "t": 6.0}\n'
    path.write_text(fragments, encoding="utf-8")
    data = store(tmp_path)
    assert told(data) == [[1, 2, 3], [4, 5, 6]]
    assert data.journal.damaged == 2
    assert data.journal.aside == tmp_path / "told.damaged-1.jsonl"
    assert data.journal.aside.read_text(encoding="utf-8") == fragments
    data.append([[7, 8, 9]])
    again = store(tmp_path)
    assert (told(again), again.journal.damaged) == ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 0)
    path.write_text(path.read_text(encoding="utf-8") + "nonsense\n", encoding="utf-8")
    assert store(tmp_path).journal.aside == tmp_path / "told.damaged-2.jsonl"
    assert (tmp_path / "told.damaged-1.jsonl").read_text(encoding="utf-8") == fragments


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_one_spoilt_byte_costs_one_batch_at_most(tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("told")
    batches = [[[number + 0.5, 1.0, 2.0], [number + 0.25, 3.0, 4.0]] for number in range(4)]
    data = journal(folder)
    with mock.patch("os.fsync"):
        for number, rows in enumerate(batches):
            data.append(np.array(rows), f"r{number}")
    content = bytearray((folder / "told.jsonl").read_bytes())
    place = draw.draw(st.integers(0, len(content) - 2))
    line = content[:place].count(b"\n")
    if content[place] == ord("\n"):
        line = -1  # two sound batches on one line
    content[place] = draw.draw(st.sampled_from([byte for byte in range(256) if byte != content[place]]))
    (folder / "told.jsonl").write_bytes(content)
    again = journal(folder)
    assert again.rows.tolist() == [row for number, rows in enumerate(batches) if number != line for row in rows]
    assert again.damaged >= 1
    for number, rows in enumerate(batches):  # told again, nothing is there twice
        again.append(np.array(rows), f"r{number}")
    assert sorted(journal(folder).rows.tolist()) == sorted(row for rows in batches for row in rows)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe{}",
        b'{"x": Infinity, "y": 1.0, "t": 1.0}',
        b'{"x": 1e200, "y": 1.0, "t": 1.0}',
        b"[" * 100_000,
        b'{"x": ' + b"9" * 5000 + b', "y": 1, "t": 2}',
        b'{"x": "1", "y": 1, "t": 2}',
        b'{"x": null, "y": 1, "t": 2}',
        b'{"request": 7, "columns": 3, "rows": [[1]], "check": "00000000"}',
        b'{"x": 1.0, "y": 2.0}',
        b"17",
    ],
    ids=range(10),
)
def test_an_unreadable_line_is_left_out_and_counted(tmp_path: Path, line: bytes) -> None:
    store(tmp_path).append([[1, 1, 1]])
    path = tmp_path / "told.jsonl"
    whole = path.read_bytes()
    path.write_bytes(line + b"\n" + whole)
    data = store(tmp_path)
    assert (told(data), data.journal.damaged) == ([[1, 1, 1]], 1)
    assert path.read_bytes() == whole


def test_damage_on_a_full_disk_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    store(tmp_path).append([[1, 1, 1]])
    spoilt = b"spoilt\n" + path.read_bytes()
    path.write_bytes(spoilt)
    with failing(after=5):
        data = store(tmp_path)
    assert (told(data), data.journal.damaged, data.journal.aside) == ([[1, 1, 1]], 1, None)
    assert path.read_bytes() == spoilt
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "told.acknowledged", "told.jsonl"]
    data.append([[2, 2, 2]])
    assert told(store(tmp_path)) == [[1, 1, 1], [2, 2, 2]]


def test_what_is_no_file_of_ones_own_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    path.mkdir()
    with pytest.raises(StorageError, match=r"told\.jsonl: expected a file, got a folder"):
        store(tmp_path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(StorageError, match=r"told\.jsonl: expected a file, got a device or a pipe"):
        store(tmp_path)
    path.unlink()
    path.write_text("", encoding="utf-8")
    with (
        mock.patch("os.open", side_effect=PermissionError(errno.EACCES, "Permission denied")),
        pytest.raises(StorageError, match=r"told\.jsonl: it cannot be read and written: Permission denied"),
    ):
        store(tmp_path)


def test_only_the_owner_may_read_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / "a" / "told.jsonl"
    (tmp_path / "a.csv").write_text("x,t\n1,2\n", encoding="utf-8")
    ObservationStore(tmp_path / "a.csv", ["x"], "t", path).append([[1, 2]])
    assert [p.stat().st_mode & 0o777 for p in (path, path.parent, path.parent.parent)] == [0o600, 0o700, 0o700]
    path.chmod(0o644)
    ObservationStore(tmp_path / "a.csv", ["x"], "t", path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_somebody_else_changed_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    data, other = store(tmp_path), store(tmp_path)
    data.append([[1, 1, 1]])
    with pytest.raises(StorageError, match="somebody else changed the file"):
        other.append([[2, 2, 2]])
    path.unlink()
    with pytest.raises(StorageError, match=r"expected .* bytes, as this agent left it, got 0"):
        data.append([[3, 3, 3]])
    assert told(data) == [[1, 1, 1]]


def test_two_processes_do_not_write_at_once(tmp_path: Path) -> None:
    import fcntl

    data = store(tmp_path)
    data.append([[1, 1, 1]])
    with (tmp_path / "told.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for attempt in (lambda: data.append([[2, 2, 2]]), lambda: store(tmp_path)):
            with pytest.raises(StorageError, match="another process is writing to it"):
                attempt()
    data.append([[2, 2, 2]])
    assert told(store(tmp_path)) == [[1, 1, 1], [2, 2, 2]]


def test_a_new_file_is_there_after_a_crash_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name stands in the folder, which has to be written as well; once, and before anything is acknowledged."""
    synced: list[tuple[Path, bytes]] = []

    def sync(folder: Path) -> None:
        synced.append((folder, (folder / "told.jsonl").read_bytes()))

    monkeypatch.setattr("fleetgp.agent.journal.sync_folder", sync)
    kept = journal(tmp_path)
    kept.append(np.array([[1.0, 2.0, 3.0]]), "first")
    assert [folder for folder, _ in synced] == [tmp_path]
    assert synced[0][1].endswith(b"\n")  # the whole batch was in the file by then
    kept.append(np.array([[4.0, 5.0, 6.0]]), "second")
    assert len(synced) == 1


def test_a_folder_that_cannot_be_synced_refuses_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    kept = journal(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("fleetgp.agent.journal.sync_folder", broken)
        with pytest.raises(OSError, match="Input/output error"):
            kept.append(np.array([[1.0, 2.0, 3.0]]), "first")
    assert (len(kept.rows), (tmp_path / "told.jsonl").read_bytes()) == (0, b"")
    assert kept.append(np.array([[1.0, 2.0, 3.0]]), "first")
    assert journal(tmp_path).rows.tolist() == [[1.0, 2.0, 3.0]]


def test_a_file_that_lost_its_end_says_how_many_acknowledged_rows_are_missing(tmp_path: Path) -> None:
    first = journal(tmp_path)
    for number, count in enumerate((2, 1, 3)):
        first.append(np.full((count, 3), float(number)), f"request-{number}")
    path, mark = tmp_path / "told.jsonl", tmp_path / "told.acknowledged"
    data, noted = path.read_bytes(), mark.read_bytes()
    ends = [place for place, byte in enumerate(data) if byte == ord("\n")]
    for cut in (0, 1, *(end + shift for end in ends for shift in (-9, -1, 0, 1) if end + shift < len(data))):
        for left in tmp_path.glob("told*"):
            left.unlink()
        path.write_bytes(data[:cut])
        mark.write_bytes(noted)
        again = journal(tmp_path)
        kept = sum(count for count, end in zip((2, 1, 3), ends, strict=True) if end <= cut)
        assert (len(again.rows), again.missing_rows, again.missing_bytes) == (kept, 6 - kept, len(data) - cut)
        assert f"{6 - kept} acknowledged rows ({len(data) - cut} bytes) are missing" in again.problem
        torn = cut > 0 and data[cut - 1] != ord("\n")
        assert (again.aside is not None) == torn
        if again.aside is not None:
            assert again.aside.read_bytes() == data[:cut]
        again.append(np.ones((1, 3)), "another")
        assert (len(journal(tmp_path).rows), journal(tmp_path).problem) == (kept + 1, "")


def test_an_append_that_a_crash_cut_short_is_no_loss(tmp_path: Path) -> None:
    journal(tmp_path).append(np.zeros((2, 3)), "first")
    path, mark = tmp_path / "told.jsonl", tmp_path / "told.acknowledged"
    before, noted = path.read_bytes(), mark.read_bytes()
    journal(tmp_path).append(np.ones((3, 3)), "second")
    data = path.read_bytes()
    for cut in (len(before), len(before) + 1, len(data) - 9, len(data) - 1, len(data)):
        path.write_bytes(data[:cut])
        mark.write_bytes(noted)  # it is written after the rows
        again = journal(tmp_path)
        assert (len(again.rows), again.problem, again.damaged, again.aside) == (2 + 3 * (cut == len(data)), "", 0, None)
