"""Where the output goes: a reader that closes the pipe is no error, nor is a terminal without Unicode."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", [["--help"], ["methods"]])
def test_a_closed_pipe_ends_a_command_quietly(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetgp", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()  # before it has written anything
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read()
    process.wait()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize("words", [["methods"], ["methods", "--json"], ["fit", "Küste.csv", "--out", "m"]])
def test_a_terminal_of_ascii_alone_gets_a_question_mark_for_what_it_cannot_show(words: list[str]) -> None:
    """As in a container without a locale; JSON escapes such characters instead."""
    plain = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    more = ["--inputs", "x", "--target", "y"] if words[0] == "fit" else []
    done = subprocess.run(
        [sys.executable, "-m", "fleetgp", *words, *more], capture_output=True, env={**os.environ, **plain}, check=False
    )
    printed = (done.stdout + done.stderr).decode("ascii")
    assert "Error" not in printed
    if words[-1] == "--json":
        assert json.loads(printed)["training"][0]["use"] == "exact as full-gp: smooth fields, two inputs or so"
        assert any("θ" in row["sends"] for row in json.loads(printed)["training"])
    else:
        assert done.returncode == (2 if more else 0)
        assert "?" in printed
