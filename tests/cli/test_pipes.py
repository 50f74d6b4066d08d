"""A reader that wants no more, such as `head`, is no error."""

from __future__ import annotations

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
