"""What an agent must not forget: it comes back as it was, or is left aside with a word."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent.agenda import Trained
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.memory import LARGEST_FILE, Checkpoint, Memory
from fleetgp.errors import InputError, StorageError
from fleetgp.files import check_folder, own_folder
from fleetgp.model.hyperparameters import LOG_RANGE
from fleetgp.operator.launch import fleet_text, free_ports
from tests.conftest import examples

MODEL = Trained((0.1, -0.2, 0.3, -2.0), 77, (0, 1, 2), "dec-apx-gp", "converged", 40, 11.5, 2.5)
KEPT = Checkpoint(MODEL, 40, np.array([[0.1, 1 / 3, 2.0, -7.0]]), True, 30)


def describe(folder: Path, agents: int = 3, ports: bool = False) -> Description:
    names = [f"a{k}" for k in range(agents)]
    numbers = free_ports(agents) if ports else range(7001, 7001 + agents)
    ends = [f"tcp/127.0.0.1:{port}" for port in numbers]
    edges = [(k, k + 1) for k in range(agents - 1)]
    (folder / "a.csv").write_text("x,y,temperature\n1,2,3\n2,3,4\n", encoding="utf-8")
    (folder / "fleet.toml").write_text(fleet_text("kept", names, ends, ["a.csv"] * agents, edges), encoding="utf-8")
    return read_description(folder / "fleet.toml")


def saved(folder: Path) -> tuple[Path, Description, dict[str, Any]]:
    path, description = folder / "checkpoint.json", describe(folder)
    KEPT.save(path, description)
    return path, description, json.loads(path.read_text(encoding="utf-8"))


ABSURD: list[tuple[str, Any]] = [
    ("trained.log_theta", [800.0, 0.0, 0.0, 0.0]),
    ("trained.log_theta", [-800.0, 0.0, 0.0, 0.0]),
    ("trained.log_theta", [float("nan"), 0.0, 0.0, 0.0]),
    ("trained.log_theta", [1.01 * LOG_RANGE, 0.0, 0.0, 0.0]),
    ("trained.log_theta", [0.0, 0.0, 0.0]),
    ("trained.log_theta", [[0.0, 0.0, 0.0, 0.0]]),
    ("trained.log_theta", "abcd"),
    ("trained.id", "77"),
    ("trained.id", 0),
    ("trained.id", 2**53),
    ("trained.id", 1.5),
    ("trained.id", True),
    ("trained.members", ["a0", "a1", "a1"]),
    ("trained.members", []),
    ("trained.members", "a0"),
    ("trained.members", [0, 1]),
    ("trained.members", [["a0"]]),
    ("trained.method", "full-gp"),
    ("trained.method", ["dec-apx-gp"]),
    ("trained.status", "fine"),
    ("trained.rounds", -1),
    ("trained.rounds", 1e300),
    ("trained.rounds", "40"),
    ("trained.offset", float("inf")),
    ("trained.offset", -1e200),
    ("trained.offset", None),
    ("trained.offset", 10**400),
    ("trained.scale", 0.0),
    ("trained.scale", -2.5),
    ("trained.scale", float("nan")),
    ("trained.scale", 1e-300),
    ("trained.more", 1),
    ("trained", []),
    ("trained", 7),
    ("rows", float("inf")),
    ("rows", -1),
    ("rows", 40.0),
    ("rows", 10**30),
    ("rows", None),
    ("round", float("nan")),
    ("round", 10**30),
    ("chosen", 1),
    ("chosen", "yes"),
    ("estimates", [[0.0, 0.0, 0.0, 800.0]]),
    ("estimates", [[0.0, 0.0, 0.0]]),
    ("estimates", [0.0, 0.0, 0.0, 0.0, 0.0]),
    ("estimates", [[0.0, 0.0, 0.0, None]]),
    ("estimates", [[[0.0, 0.0, 0.0, 0.0]]]),
    ("estimates", [0.0, 0.0, 0.0, 0.0]),
    ("estimates", 3),
    ("estimates", {}),
    ("version", 99),
    ("model", "another"),
]


@pytest.mark.parametrize(("place", "value"), ABSURD, ids=[f"{n}-{place}" for n, (place, _) in enumerate(ABSURD)])
def test_absurd_values_are_not_served(tmp_path: Path, place: str, value: Any) -> None:
    path, description, facts = saved(tmp_path)
    *outer, last = place.split(".")
    (facts[outer[0]] if outer else facts)[last] = value
    path.write_text(json.dumps(facts), encoding="utf-8")
    assert Checkpoint.load(path, description) is None


@pytest.mark.parametrize("gone", ["trained", "rows", "estimates", "chosen", "round", "version", "model"])
def test_what_is_missing_is_not_made_up(tmp_path: Path, gone: str) -> None:
    path, description, facts = saved(tmp_path)
    del facts[gone]
    path.write_text(json.dumps(facts), encoding="utf-8")
    assert Checkpoint.load(path, description) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"[]", b"null", b"[" * 100_000, b'{"rows": ' + b"9" * 5000 + b"}", b"7", b'"text"'],
    ids=range(8),
)
def test_what_is_no_checkpoint_is_none(tmp_path: Path, content: bytes) -> None:
    path, description, _ = saved(tmp_path)
    path.write_bytes(content)
    assert Checkpoint.load(path, description) is None


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path, description, _ = saved(tmp_path)
    with path.open("ab") as file:
        file.truncate(LARGEST_FILE * 100_000)  # a hole: no bytes on disk
    assert Checkpoint.load(path, description) is None


@given(st.data())
@examples(200, deadline=None)
def test_spoilt_bytes_raise_nothing_and_serve_nothing_absurd(
    tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    path, description, _ = saved(tmp_path_factory.mktemp("kept"))
    content = bytearray(path.read_bytes())
    for _ in range(draw.draw(st.integers(1, 4))):
        content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
    path.write_bytes(content)
    found = Checkpoint.load(path, description)
    if found is not None:
        assert (np.abs(found.estimates) <= LOG_RANGE).all()
        assert found.trained is None or (np.abs(found.trained.log_theta) <= LOG_RANGE).all()


def test_what_is_no_file_is_one_clear_error(tmp_path: Path) -> None:
    path, description, _ = saved(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match=r"checkpoint\.json: expected a file, got a folder"):
        Checkpoint.load(path, description)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="expected a file, got a folder, a device or a pipe"):
        Checkpoint.load(path, description)
    with (
        mock.patch("os.open", side_effect=PermissionError(errno.EACCES, "Permission denied")),
        pytest.raises(StorageError, match=r"checkpoint\.json: it cannot be read: Permission denied"),
    ):
        Checkpoint.load(path, description)


def test_only_the_owner_may_read_a_checkpoint(tmp_path: Path) -> None:
    path, description = tmp_path / "state" / "a0" / "checkpoint.json", describe(tmp_path)
    KEPT.save(path, description)
    assert [p.stat().st_mode & 0o777 for p in (path, path.parent, path.parent.parent)] == [0o600, 0o700, 0o700]


# ---- at the start of an agent -----------------------------------------------------------------------------------


def start(folder: Path, description: Description) -> list[dict[str, Any]]:
    """Start an agent and end it: what it logged."""
    log = Log("a0", file=folder / "a0.log")
    try:
        agent = Agent(description, "a0", log)
        agent.close()
    finally:
        log.close()
    return [json.loads(line) for line in (folder / "a0.log").read_text(encoding="utf-8").splitlines()]


def test_an_agent_leaves_an_absurd_checkpoint_aside_and_starts(tmp_path: Path) -> None:
    description = describe(tmp_path, 1, ports=True)
    path = tmp_path / "state" / "a0" / "checkpoint.json"
    Checkpoint(Trained((800.0, 0.0, 0.0, 0.0), 7, (0,), "dec-apx-gp", "converged", 4), 2).save(path, description)
    content = path.read_bytes()
    lines = start(tmp_path, description)
    assert [line["event"] for line in lines] == ["checkpoint left aside", "started"]
    assert (path.exists(), path.with_name("checkpoint.old.json").read_bytes()) == (False, content)


def test_an_agent_tightens_what_an_older_version_left_open(tmp_path: Path) -> None:
    description = describe(tmp_path, 1, ports=True)
    folder = tmp_path / "state" / "a0"
    folder.mkdir(parents=True, mode=0o755)
    for name in ("observed.jsonl", "agent.log", "checkpoint.old.json"):
        (folder / name).write_text("", encoding="utf-8")
        (folder / name).chmod(0o644)
    (folder / "link").symlink_to(tmp_path / "fleet.toml")
    (tmp_path / "fleet.toml").chmod(0o644)
    start(tmp_path, description)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir() if not p.is_symlink()} == {0o600}
    assert (tmp_path / "fleet.toml").stat().st_mode & 0o777 == 0o644


def test_damaged_rows_are_told_loudly_and_the_agent_starts(tmp_path: Path) -> None:
    description = describe(tmp_path, 1, ports=True)
    folder = tmp_path / "state" / "a0"
    folder.mkdir(parents=True)
    (folder / "observed.jsonl").write_text(
        '{"x": 1.0, "y"\n{"x": 1.0, "y": 2.0, "temperature": 3.0}\n', encoding="utf-8"
    )
    lines = start(tmp_path, description)
    (damaged,) = [line for line in lines if line["event"] == "observed rows damaged"]
    assert (damaged["level"], damaged["unreadable_lines"], damaged["rows_kept"]) == ("error", 1, 1)
    assert Path(damaged["copy"]).read_text(encoding="utf-8").startswith('{"x": 1.0, "y"\n')
    assert lines[-1]["rows"] == 3


@pytest.mark.parametrize("name", ["observed.jsonl", "checkpoint.json"])
def test_a_folder_in_place_of_a_file_is_one_error_at_the_start(tmp_path: Path, name: str) -> None:
    description = describe(tmp_path, 1, ports=True)
    (tmp_path / "state" / "a0" / name).mkdir(parents=True)
    with pytest.raises(StorageError, match=f"{name}: expected a file, got a folder"):
        start(tmp_path, description)


def test_a_state_folder_that_cannot_be_written_to_is_one_error_at_the_start(tmp_path: Path) -> None:
    text = (describe(tmp_path, 1).folder / "fleet.toml").read_text(encoding="utf-8")
    for place in ("/proc/fleetgp", "a.csv/state"):
        (tmp_path / "fleet.toml").write_text(text.replace('state = "state"', f'state = "{place}"'), encoding="utf-8")
        with pytest.raises(InputError, match=r"cannot be written|expected a folder, got a file"):
            start(tmp_path, read_description(tmp_path / "fleet.toml"))


def test_a_full_disk_is_no_reason_not_to_start(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "a0"
    folder.mkdir(parents=True)
    with mock.patch("os.open", side_effect=OSError(errno.ENOSPC, "No space left on device")):
        own_folder(folder)
        with pytest.raises(InputError, match=r"cannot be written: No space left on device"):
            check_folder(folder)
    with (
        mock.patch("os.open", side_effect=OSError(errno.EROFS, "Read-only file system")),
        pytest.raises(InputError, match=r"cannot be written: Read-only file system"),
    ):
        own_folder(folder)


def test_an_agent_without_room_for_checkpoints_complains_once(tmp_path: Path) -> None:
    description = describe(tmp_path, 1)
    log = Log("a0", file=tmp_path / "a0.log")
    memory = Memory(tmp_path / "checkpoint.json", description, log)
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch.object(Checkpoint, "save", side_effect=full):
        for _ in range(3):
            memory.save()
    memory.save()
    with mock.patch.object(Checkpoint, "save", side_effect=full):
        memory.save()
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines()]
    assert [line["error"] for line in lines if line["event"] == "no checkpoint"] == [str(full)] * 2
