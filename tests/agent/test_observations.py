"""The data of an agent: a file that may grow, and rows that count once however often they are sent."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fleetgp.errors import InputError
from tests.agent.stores import Rows, store, told


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
    batches = [[[float(number), float(k), 0.0] for k in range(3)] for number in range(12)]
    for number, rows in enumerate(batches):
        data.append(rows, f"r{number}")
    done.set()
    reader.join(20.0)
    whole = [row for rows in batches for row in rows]
    assert told(data) == whole
    assert all(len(rows) % 3 == 0 and rows == whole[: len(rows)] for rows in seen)


def test_a_watched_file_grows_by_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y,t\n1,2,3\n", encoding="utf-8")
    data = store(tmp_path, watched=True)
    assert data.refresh() == 0
    with file.open("a", encoding="utf-8") as stream:
        stream.write("4,5,6\n7,8,1")
    assert data.refresh() == 1  # a line is being written
    assert data.refresh() == 0
    with file.open("a", encoding="utf-8") as stream:
        stream.write("9\n")
    assert data.refresh() == 1
    assert data.shard.values.tolist() == [3, 6, 19]
    assert store(tmp_path, watched=True).rows == 3
    with file.open("a", encoding="utf-8") as stream:
        stream.write("7,oops,9\n")
    with pytest.raises(InputError, match="must hold numbers"):
        data.refresh()
    assert data.rows == 3


def test_a_line_written_between_two_looks_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it would be another number."""
    file = tmp_path / "a.csv"
    file.write_text("x,y,t\n1,2,3\n", encoding="utf-8")
    data, read = store(tmp_path, watched=True), Path.read_bytes

    def read_and_write(self: Path) -> bytes:
        found = read(self)
        if self == file:
            with file.open("a", encoding="utf-8") as stream:
                stream.write("4,5,67")  # of 67.8
        return found

    with file.open("a", encoding="utf-8") as stream:
        stream.write("2,2,2\n")
    monkeypatch.setattr(Path, "read_bytes", read_and_write)
    assert data.refresh() == 1
    monkeypatch.undo()
    with file.open("a", encoding="utf-8") as stream:
        stream.write(".8\n")
    assert data.refresh() == 1
    assert data.shard.values.tolist() == [3, 2, 67.8]
