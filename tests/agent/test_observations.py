"""The data of an agent: a file that may grow, and rows that count once however often they are sent."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from fleetgp.agent.observations import ObservationStore, plain_csv
from fleetgp.errors import InputError
from fleetgp.io.tables import read_columns
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


PLAIN = ["1,ada,2,3", " 1,ada, 2 ,3", "+1,bo,.5,5.", "-0.0,bo,1,2", "00,a,1,2", "123456789012345,a,2,3", "1,,2,3\r"]
OTHERS = [
    "1e5,a,2,3",
    "-0,a,1,2",
    "1,a,2,nan",
    "1,a,2,",
    "1,a,2",
    "1,a,2,3,4",
    '"1",a,2,3',
    "1_0,a,2,3",
    "NA,a,1,2",
    "1,a,2,3\n",
]
OTHERS += [
    "1234567890123456,a,2,3",
    "0x10,a,2,3",
    "inf,a,1,2",
    "True,a,1,2",
    "1,a,2,3#",
    "1 2,a,3,4",
    "1,a,2,3\n\n4,a,5,6",
]


def test_plain_numbers_are_the_same_bits_without_pandas(tmp_path: Path) -> None:
    file, rng = tmp_path / "a.csv", np.random.default_rng(1)
    rows = [
        f"{a:.{d}f},ada,{b:.{d}f},{c:.0f}.5" for d in range(10) for a, b, c in rng.normal(size=(9, 3)) * 10.0 ** (6 - d)
    ]
    for text in ("\n".join(rows), *PLAIN):
        file.write_text(f"x,boat,y,t\n{text}\n", encoding="utf-8")
        found, expected = plain_csv(file, ["y", "x", "t"]), read_columns(file, ["y", "x", "t"])
        assert found is not None, text
        for name, values in found.columns.items():
            assert values.tobytes() == expected.columns[name].astype(float).tobytes(), (text, name)


@pytest.mark.parametrize("text", ["", "x,boat,y,y,t\n1,a,2,2,3", *(f"x,boat,y,t\n{row}\n" for row in OTHERS)])
def test_all_other_files_are_left_to_pandas(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    assert plain_csv(tmp_path / "a.csv", ["x", "y", "t"]) is None
    assert plain_csv(tmp_path / "b.csv", ["x"]) is None
    assert plain_csv(tmp_path / "a.npz", ["x"]) is None


@pytest.mark.parametrize("text", [None, "", "x,y,t\n"], ids=["no file", "an empty file", "a header"])
@pytest.mark.parametrize("watched", [False, True])
def test_an_agent_may_start_without_rows(text: str | None, watched: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    data = ObservationStore(file, ("x", "y"), "t", tmp_path / "told.jsonl", watched=watched)
    assert (data.rows, data.place, data.shard.inputs.shape) == (0, {}, (0, 2))
    data.append([[4.0, 5.0, 6.0]])
    file.write_text("x,y,t\n1,2,3\n", encoding="utf-8")
    assert (data.refresh(), data.rows, data.place["low"]) == (1, 2, [1.0, 2.0])


def test_an_agent_may_have_no_file_at_all(tmp_path: Path) -> None:
    data = ObservationStore(None, ("x", "y"), "t", tmp_path / "told.jsonl", watched=True)
    assert (data.rows, data.refresh()) == (0, 0)
    assert data.append([[1.0, 2.0, 3.0]]) == (1, False)
    assert data.shard.values.tolist() == [3.0]


def test_private_rows_do_not_begin_with_a_few(tmp_path: Path) -> None:
    """Whether they are sent, or appended to a watched file."""
    file = tmp_path / "a.csv"
    data = ObservationStore(file, ("x", "y"), "t", tmp_path / "told.jsonl", watched=True, private=True)
    with pytest.raises(InputError, match="needs at least 5 rows of an agent that has any, got 2"):
        data.append([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for rows, known in ((4, 0), (5, 5)):
        file.write_text("x,y,t\n" + "1,2,3\n" * rows, encoding="utf-8")
        data.refresh()
        assert data.rows == known
    assert data.append([[4.0, 5.0, 6.0]]).rows == 1
