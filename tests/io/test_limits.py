"""Files that would take a reader for ever: each is refused at once, with one clear error."""

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp import InputError
from fleetgp.agent.description import MAX_KEYS, read_description
from fleetgp.io.formats import FORMATS, LONGEST_START, MOST_COLUMNS, Columns, read_table
from fleetgp.io.survey import chunks
from fleetgp.io.tables import read_observations


@pytest.mark.parametrize("ending", FORMATS)
def test_a_pipe_is_refused_and_never_opened(tmp_path: Path, ending: str) -> None:
    pipe = tmp_path / f"pipe{ending}"
    os.mkfifo(pipe)  # nobody writes to it: opening it would wait for ever
    with pytest.raises(InputError, match=r"expected a (regular file, got a pipe|folder, as Zarr is one)"):
        read_observations(pipe, inputs=["a"], target="b")


def test_sockets_devices_and_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.csv")
        Path("device.csv").symlink_to("/dev/zero")
        Path("folder.csv").mkdir()
        for name, got in (("socket.csv", "socket"), ("device.csv", "device"), ("folder.csv", "folder")):
            with pytest.raises(InputError, match=f"expected a .*file, got .*{got}"):
                read_table(name)


def test_tables_of_too_many_columns_are_refused_before_they_are_read(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(MOST_COLUMNS + 1)]
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="at most 10,000 columns, got at least 10,001"):
        read_table(wide)
    row = ",".join(["1"] * (10 * MOST_COLUMNS))
    quoted = '"a\n""b""",c\n'
    refused = r"expected at most 10,000 columns, got at least 10,001|Expected \d fields|EOF inside string"
    for start in ("\n", "  \n\n", '"', "", "a,b\n", "a,b\n\n", quoted, "a,b\n1,2\n"):
        wide.write_text(start + row + "\n" + row + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=refused):
            read_table(wide)
        with pytest.raises(InputError, match=refused):
            list(chunks(wide, Columns(("a",), "b"), 10))
    wide.write_text('a,b\n"' + "x" * LONGEST_START + '",2\n', encoding="utf-8")
    with pytest.raises(InputError, match="characters in its header and its first row"):
        read_table(wide)
    arrays = tmp_path / "wide.npz"
    columns: dict[str, Any] = {name: np.zeros(1) for name in names}
    np.savez(arrays, **columns)
    with pytest.raises(InputError, match="at most 10,000 columns, got 10,001"):
        read_table(arrays)


def test_a_description_of_too_many_keys_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    for line in ("a.b.k{} = 1", "[a.k{}]", "k{} = 1"):
        file.write_text("\n".join(line.format(number) for number in range(MAX_KEYS + 1)), encoding="utf-8")
        with pytest.raises(InputError, match="at most 20,000 keys, got 20,001"):
            read_description(file)
