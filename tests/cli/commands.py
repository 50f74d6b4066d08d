"""Commands in this process, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetgp.cli.app import app
from fleetgp.progress import Progress, Remembering

FIT = ["--inputs", "lon", "lat", "--target", "sst", "--agent-column", "boat"]
SST = ["--inputs", "lon", "lat", "--target", "sst"]
QUICK = ["--tol", "1e-2", "--rounds", "3", "--training", "dec-apx-gp"]


def truth(lon: Any, lat: Any) -> Any:
    return 15.0 + np.sin(2 * np.asarray(lon)) + np.cos(3 * np.asarray(lat))


def run(*arguments: str, code: int = 0) -> Any:
    """The command in this process; stdout and stderr apart."""
    found = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert found.exit_code == code, found.output
    return found


def wrong(*arguments: str) -> Any:
    """What a refused command says: one line, and no traceback."""
    found = run(*arguments, code=2)
    assert "Traceback" not in found.output
    lines = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, found.stderr
    return lines[0]


def said(result: Any) -> str:
    """What went to stderr, whatever the terminal's width."""
    return " ".join(result.stderr.split())


def interrupted_at(monkeypatch: pytest.MonkeyPatch, round_: int) -> None:
    hear = Remembering.__call__

    def hear_and_stop(self: Remembering, progress: Progress) -> None:
        hear(self, progress)
        if progress.round == round_:
            raise KeyboardInterrupt

    monkeypatch.setattr(Remembering, "__call__", hear_and_stop)
