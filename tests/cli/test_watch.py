"""fleetgp watch and demo --page: they print an address, serve it, and end well."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("starlette")

from fleetgp.operator.launch import write_example
from tests.cli.commands import wrong


def served(*arguments: str, ending: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
    """(exit code, stdout, what the page's address gave) of a command that is ended as soon as it serves."""
    command = [sys.executable, "-m", "fleetgp", *arguments, "--no-open", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found, line + process.communicate()[1]
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(found.group()).port, timeout=60)
    connection.request("GET", "/stream")
    told = connection.getresponse().readline().decode() + connection.sock.makefile("r").readline()
    process.send_signal(ending)  # while a browser still listens
    rest, errors = process.communicate(timeout=120)
    connection.close()
    assert errors == ""
    return process.returncode, line + rest, told


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_page_is_served_until_ctrl_c_and_saved(tmp_path: Path, ending: signal.Signals) -> None:
    """Also where no agent is there yet."""
    write_example(tmp_path / "fleet.toml", boats=2)
    out = tmp_path / "page.html"
    code, said, told = served("watch", str(tmp_path / "fleet.toml"), "--save", str(out), ending=ending)
    assert (code, told.startswith("event: whole")) == (0, True)
    assert "The page is saved in" in said
    assert '"name": "boats"' in out.read_text(encoding="utf-8")


def test_the_demo_has_a_page() -> None:
    code, _, told = served("demo", "--page", "--points", "100")
    assert (code, told.startswith("event: whole")) == (0, True)


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    file = str(tmp_path / "fleet.toml")
    write_example(tmp_path / "fleet.toml", boats=2)
    for given, why in (
        (["--share", "0"], "expected --share above 0 and up to 1, got 0"),
        (["--save", f"{file}/x.html"], "fleet.toml"),
        (["--host", "256.1.1.1", "--port", "0"], "no page can be served at 256.1.1.1"),
    ):
        assert why in wrong("watch", file, "--no-open", *given)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = wrong("watch", file, "--no-open", "--port", port)
        assert f"no page can be served at 127.0.0.1, port {port}" in told


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_example(tmp_path / "fleet.toml", boats=2)
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert 'pip install "fleetgp[page]"' in wrong("watch", str(tmp_path / "fleet.toml"), "--no-open")
