"""What an agent was told: on disk when acknowledged, nowhere when refused, once however often it is sent."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.agent.disk.journal import Journal
from fleetgp.agent.disk.observations import ObservationStore
from fleetgp.agent.disk.recorder import WAITING, Recorder
from fleetgp.agent.logs import Log
from fleetgp.agent.threads import Threads
from fleetgp.errors import InputError, NetworkError, StorageError
from tests.disks import tiny_disk

Rows = list[list[float]]


def store(folder: Path, inputs: tuple[str, ...] = ("x", "y"), **options: Any) -> ObservationStore:
    if not (folder / "a.csv").exists():
        (folder / "a.csv").write_text("x,y,t\n1,2,3\n")
    return ObservationStore(folder / "a.csv", inputs, "t", folder / "told.jsonl", **options)


def journal(folder: Path) -> Journal:
    return Journal(folder / "told.jsonl", ("x", "y", "t"), 1e100)


def told(data: ObservationStore) -> Rows:
    """All rows but the first, which is that of the file."""
    rows: Rows = np.column_stack(data.shard)[1:].tolist()
    return rows


@contextmanager
def failing(*, after: int | None = None, fsync: bool = False, truncate: bool = False) -> Iterator[None]:
    """A disk that takes so many bytes and then is full; whose fsync or truncate fails."""
    left = after
    write = os.write

    def full(file: int, data: Any) -> int:
        nonlocal left
        assert left is not None
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, bytes(data)[: min(left, 7)])  # and never takes all that it is given
        left -= count
        return count

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with (
        mock.patch("os.write", full if after is not None else write),
        mock.patch("os.fsync", broken if fsync else os.fsync),
        mock.patch("os.ftruncate", broken if truncate else os.ftruncate),
    ):
        yield


# ---- kept, or not at all --------------------------------------------------------------------------------------


def test_rows_that_were_acknowledged_are_there_after_a_crash(tmp_path: Path) -> None:
    data = store(tmp_path)
    assert data.append([[7, 8, 9.5]]) == (1, False)
    with (tmp_path / "told.jsonl").open("a") as file:
        file.write('{"request": "abc", "rows": [[1.0, 2.')  # the crash
    again = store(tmp_path)
    np.testing.assert_array_equal(again.shard[0], [[1, 2], [7, 8]])
    np.testing.assert_array_equal(again.shard[1], [3, 9.5])
    again.append([[0, 0, 1], [0, 1, 1]])
    assert store(tmp_path).rows == 4
    for wrong in ([], [[1, 2]], [[1, 2, float("nan")]], [["a", 1, 2]], None, [[1, 2, 1e200]]):
        with pytest.raises(InputError, match=r"expected|beyond"):
            again.append(wrong)
    assert store(tmp_path).rows == 4
    np.testing.assert_array_equal(store(tmp_path, ("y", "x")).shard[0][1], [8, 7])  # rows know their columns
    assert [p.name for p in tmp_path.iterdir() if "told" in p.name] == ["told.jsonl"]


def test_lines_of_older_versions_are_still_read(tmp_path: Path) -> None:
    (tmp_path / "told.jsonl").write_text('{"x": 1.0, "y": 2.0, "t": 3.0}\n{"t": 6.0, "x": 4.0, "y": 5}\n')
    data = store(tmp_path)
    data.append([[7, 8, 9]])
    assert told(store(tmp_path)) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert store(tmp_path).journal.damaged == 0


def test_rows_of_another_fleet_are_an_error_not_damage(tmp_path: Path) -> None:
    store(tmp_path).append([[7, 8, 9]])
    (tmp_path / "b.csv").write_text("z,t\n1,2\n")
    with pytest.raises(InputError, match=r"told\.jsonl, line 1: expected rows with z, t, got other columns: move"):
        ObservationStore(tmp_path / "b.csv", ["z"], "t", tmp_path / "told.jsonl")
    (tmp_path / "told.jsonl").write_text('{"x": 1.0, "y": 2.0}\n')
    with pytest.raises(InputError, match=r"told\.jsonl, line 1: expected rows with x, y, t"):
        store(tmp_path)


def test_a_disk_that_fills_up_after_any_byte_keeps_nothing_of_a_refused_batch(tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    data = journal(tmp_path)
    data.append(np.array([[1.5, 2.5, 3.5]]), "first")
    before = path.read_bytes()
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


# ---- damage -----------------------------------------------------------------------------------------------------


def test_what_an_older_version_left_of_a_full_disk_is_mended(tmp_path: Path) -> None:
    """Refused fragments stood between acknowledged rows, and on one line with them."""
    path = tmp_path / "told.jsonl"
    fragments = '{"x": 1.0, "y": 2.0, "t": 3.0}\n{"x": 6.0, "y"\n{"x": 7.0, "y": 1{"x": 4.0, "y": 5.0, "t": 6.0}\n'
    path.write_text(fragments)
    data = store(tmp_path)
    assert told(data) == [[1, 2, 3], [4, 5, 6]]
    assert data.journal.damaged == 2
    assert data.journal.aside == tmp_path / "told.damaged-1.jsonl"
    assert data.journal.aside.read_text() == fragments
    data.append([[7, 8, 9]])
    again = store(tmp_path)
    assert (told(again), again.journal.damaged) == ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 0)
    path.write_text(path.read_text() + "nonsense\n")
    assert store(tmp_path).journal.aside == tmp_path / "told.damaged-2.jsonl"
    assert (tmp_path / "told.damaged-1.jsonl").read_text() == fragments


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
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "told.jsonl"]
    data.append([[2, 2, 2]])
    assert told(store(tmp_path)) == [[1, 1, 1], [2, 2, 2]]


# ---- what is no file ----------------------------------------------------------------------------------------------


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
    path.write_text("")
    with (
        mock.patch("os.open", side_effect=PermissionError(errno.EACCES, "Permission denied")),
        pytest.raises(StorageError, match=r"told\.jsonl: it cannot be read and written: Permission denied"),
    ):
        store(tmp_path)


def test_only_the_owner_may_read_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / "a" / "told.jsonl"
    (tmp_path / "a.csv").write_text("x,t\n1,2\n")
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


# ---- requests -------------------------------------------------------------------------------------------------------


def test_a_request_counts_once(tmp_path: Path) -> None:
    data = store(tmp_path)
    assert data.append([[1, 1, 1], [2, 2, 2]], "a-0") == (2, False)
    assert data.append([[1, 1, 1], [2, 2, 2]], "a-0") == (2, True)
    again = store(tmp_path)
    assert again.append([[1, 1, 1], [2, 2, 2]], "a-0") == (2, True)
    assert again.append([[1, 1, 1], [2, 2, 2]], "a-1") == (2, False)
    assert again.append([[1, 1, 1]]) == again.append([[1, 1, 1]]) == (1, False)  # without a name they are others
    with pytest.raises(InputError, match="request 'a-0' was used for other rows: expected the same 2 rows again"):
        again.append([[1, 1, 1], [2, 2, 3]], "a-0")
    for wrong in ("", "a b", "a\n", "ü", "x" * 65, 7, ["a"], "../x"):
        with pytest.raises(InputError, match="expected a request of 1 to 64 letters"):
            again.append([[1, 1, 1]], wrong)  # type: ignore[arg-type]
    assert told(store(tmp_path)) == [[1, 1, 1], [2, 2, 2]] * 2 + [[1, 1, 1]] * 2


def test_whoever_reads_while_rows_come_sees_whole_batches(tmp_path: Path) -> None:
    data = store(tmp_path)
    done = threading.Event()
    seen: list[Rows] = []

    def read() -> None:
        while not done.is_set():
            seen.append(told(data))

    reader = threading.Thread(target=read)
    reader.start()
    batches = [[[float(number), float(k), 0.0] for k in range(3)] for number in range(40)]
    for number, rows in enumerate(batches):
        data.append(rows, f"r{number}")
    done.set()
    reader.join(20.0)
    whole = [row for rows in batches for row in rows]
    assert told(data) == whole
    assert all(len(rows) % 3 == 0 and rows == whole[: len(rows)] for rows in seen)


def test_a_slow_disk_holds_up_only_those_who_tell_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = store(tmp_path)
    disk, writing = threading.Event(), threading.Event()
    real = ObservationStore.append

    def slow(self: ObservationStore, rows: Any, request: Any = None) -> Any:
        writing.set()
        assert disk.wait(20.0)
        return real(self, rows, request)

    monkeypatch.setattr(ObservationStore, "append", slow)
    log = Log("a", file=tmp_path / "a.log")
    woken = threading.Semaphore(0)
    recorder, threads = Recorder("a", data, log, woken.release), Threads(log)
    threads.start("recorder", recorder.work, wake=recorder.close)
    answers: list[dict[str, Any]] = []
    told_all = threading.Semaphore(0)

    def reply(answer: dict[str, Any]) -> None:
        answers.append(answer)
        told_all.release()
        raise RuntimeError("the asker is gone")

    recorder.put([[0, 0, 0]], "r", reply)
    assert writing.wait(20.0)
    for number in range(WAITING):  # none of these waits
        recorder.put([[0, 0, 0]] if number % 2 else "nonsense", "r", reply)
    with pytest.raises(NetworkError, match=f"a has {WAITING} requests to write down before this one"):
        recorder.put([[0, 0, 0]], "s", reply)
    assert (answers, data.rows) == ([], 1)
    disk.set()
    assert all(told_all.acquire(timeout=20.0) for _ in range(1 + WAITING))
    assert threads.close(20.0) == []
    log.close()
    assert answers[0] == {"answer": {"rows": 1, "repeated": False, "in_all": 2}}
    assert answers[1]["wrong"]
    assert answers[2] == {"answer": {"rows": 1, "repeated": True, "in_all": 2}}
    assert woken.acquire(blocking=False)
    assert not woken.acquire(blocking=False)  # only new rows wake the agent
    assert "nobody there to answer" in (tmp_path / "a.log").read_text()


def test_an_agent_whose_disk_is_full_says_so_and_goes_on(tmp_path: Path) -> None:
    log = Log("a", file=tmp_path / "a.log")
    answers: list[dict[str, Any]] = []
    told_all = threading.Semaphore(0)

    def reply(answer: dict[str, Any]) -> None:
        answers.append(answer)
        told_all.release()

    recorder, threads = Recorder("a", store(tmp_path), log, lambda: None), Threads(log)
    threads.start("recorder", recorder.work, wake=recorder.close)
    with failing(after=3):
        # The log goes by the same os.write: what it loses is told when there is room again.
        recorder.put([[1, 2, 3]], "r", reply)
        assert told_all.acquire(timeout=20.0)
    recorder.put([[1, 2, 3]], "r", reply)
    assert told_all.acquire(timeout=20.0)
    assert threads.close(20.0) == []
    log.close()
    assert "a cannot keep these rows, and has kept none of them" in answers[0]["error"]
    assert "No space left on device" in answers[0]["error"]
    assert "wrong" not in answers[0]
    assert answers[1]["answer"]["rows"] == 1


# ---- the file that may grow ---------------------------------------------------------------------------------------


def test_a_watched_file_grows_by_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y,t\n1,2,3\n")
    data = store(tmp_path, watched=True)
    assert data.refresh() == 0
    with file.open("a") as stream:
        stream.write("4,5,6\n7,8,1")
    assert data.refresh() == 1  # a line is being written
    assert data.refresh() == 0
    with file.open("a") as stream:
        stream.write("9\n")
    assert data.refresh() == 1
    assert data.shard[1].tolist() == [3, 6, 19]
    assert store(tmp_path, watched=True).rows == 3
    with file.open("a") as stream:
        stream.write("7,oops,9\n")
    with pytest.raises(InputError, match="must hold numbers"):
        data.refresh()
    assert data.rows == 3


def test_a_line_written_between_two_looks_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it would be another number."""
    file = tmp_path / "a.csv"
    file.write_text("x,y,t\n1,2,3\n")
    data, read = store(tmp_path, watched=True), Path.read_bytes

    def read_and_write(self: Path) -> bytes:
        found = read(self)
        if self == file:
            with file.open("a") as stream:
                stream.write("4,5,67")  # of 67.8
        return found

    with file.open("a") as stream:
        stream.write("2,2,2\n")
    monkeypatch.setattr(Path, "read_bytes", read_and_write)
    assert data.refresh() == 1
    monkeypatch.undo()
    with file.open("a") as stream:
        stream.write(".8\n")
    assert data.refresh() == 1
    assert data.shard[1].tolist() == [3, 2, 67.8]
