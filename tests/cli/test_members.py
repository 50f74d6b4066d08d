"""fleetgp join and leave where no agent runs: what they write, and what they refuse."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from fleetgp.agent.description import read_description
from fleetgp.operator.launch import fleet_text
from tests.cli.commands import run, wrong

pytest.importorskip("zenoh")

NAMES = ["boat1", "boat2", "boat3"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet with certificates, in a path: nobody listens at its ports."""
    monkeypatch.setattr("fleetgp.operator.members.REACH", 0.1)
    ends = [f"tls/127.0.0.1:{port}" for port in (1, 2, 3)]
    text = fleet_text("bay", NAMES, ends, [f"{name}.csv" for name in NAMES], [(0, 1), (1, 2)])
    path = tmp_path / "fleet.toml"
    path.write_text(text + '\n[tls]\nfolder = "keys"\n', encoding="utf-8")
    run("certs", str(path))
    return path


def join(file: Path, *more: str) -> tuple[str, ...]:
    return ("join", str(file), "--name", "boat4", "--endpoint", "tls/127.0.0.1:4", *more)


def test_a_new_agent_gets_a_folder_that_is_all_it_needs(file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    shown = run(*join(file, "--neighbours", "boat1", "boat3", "--data", "boat4.csv")).stdout
    assert "boat4 is a member of the fleet bay (roster version 1)" in shown
    assert "No agent could be reached" in shown
    assert file.read_bytes() == before
    folder = tmp_path / "boat4"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "fleet.toml",
        "keys/authority.crt",
        "keys/boat4.crt",
        "keys/boat4.key",
        "state/roster.json",
    ]
    assert stat.S_IMODE((folder / "keys" / "boat4.key").stat().st_mode) == 0o600
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere)
    new, own = read_description(elsewhere / "fleet.toml"), read_description(file)
    assert new.digest == own.digest
    assert (new.members, new.graph.neighbours(3)) == ([*NAMES, "boat4"], [0, 2])
    assert (new.data_of(3), own.data_of(3)) == (elsewhere / "boat4.csv", None)
    assert own.described == NAMES
    assert new.credentials("boat4") is not None


def test_a_command_that_is_repeated_changes_nothing(file: Path) -> None:
    more = ("--neighbours", "boat1", "--json")
    assert [json.loads(run(*join(file, *more)).stdout)["roster"] for _ in range(2)] == [1, 1]
    for keep, version in (("--keep-rows", 2), ("--keep-rows", 2), ("--json", 3)):
        told = json.loads(run("leave", str(file), "--name", "boat4", keep, "--json").stdout)
        assert (told["roster"], told["members"], told["kept"]) == (version, NAMES, keep == "--keep-rows")


def test_a_member_gets_another_link(file: Path, tmp_path: Path) -> None:
    run("join", str(file), "--name", "boat1", "--neighbours", "boat3")
    assert read_description(file).graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert not (tmp_path / "boat1").exists(), "it has its folder"
    run("leave", str(file), "--name", "boat2")
    assert (read_description(file).members, read_description(file).left) == (["boat1", "boat3"], ["boat2"])


def test_what_is_refused_changes_nothing(file: Path, tmp_path: Path) -> None:
    files = sorted(tmp_path.rglob("*"))
    assert "give --endpoint" in wrong("join", str(file), "--name", "boat4", "--neighbours", "boat1")
    assert "needs --neighbours" in wrong(*join(file))
    assert "'boat9' is no member" in wrong(*join(file, "--neighbours", "boat9"))
    assert "--via boat9: expected a member" in wrong(*join(file, "--neighbours", "boat1", "--via", "boat9"))
    taken = ("join", str(file), "--name", "boat4", "--endpoint", "tls/127.0.0.1:1", "--neighbours", "boat2")
    assert "has the endpoint of 'boat1'" in wrong(*taken)
    assert "must begin with tls/" in wrong(*taken[:5], "tcp/127.0.0.1:4", *taken[6:])
    assert "cannot be called 'authority'" in wrong(*taken[:3], "authority", *taken[4:])
    assert "there is no agent 'boat9'" in wrong("leave", str(file), "--name", "boat9")
    assert "without boat2 the fleet would be in parts" in wrong("leave", str(file), "--name", "boat2")
    assert "fleetgp join" in wrong("leave", str(file), "--name", "boat2")
    assert sorted(tmp_path.rglob("*")) == files
    (file.parent / "keys" / "operator.key").unlink()
    assert "operator.key: there is no such file" in wrong(*join(file, "--neighbours", "boat1"))


def test_without_the_authoritys_key_the_certificate_is_made_elsewhere(file: Path, tmp_path: Path) -> None:
    (tmp_path / "keys" / "authority.key").rename(tmp_path / "at-home.key")
    shown = run(*join(file, "--neighbours", "boat1")).stdout
    assert "fleetgp certs KEYS --agents boat4 --hosts 127.0.0.1" in " ".join(shown.split())
    assert [path.name for path in (tmp_path / "boat4" / "keys").iterdir()] == ["authority.crt"]
