"""A day of data for a fleet whose rows expire and whose members come and go: the short form of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgp.options import Keep
from tests.soak import EVENTS, Season

pytest.importorskip("zenoh")


# Python leaves a TLS socket open whose other end hangs up before the handshake, as an agent does that begins again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("keep", ["nothing", pytest.param("summary", marks=pytest.mark.long)])
def test_every_answer_of_a_day_is_the_simulators(tmp_path: Path, keep: Keep) -> None:
    season = Season(tmp_path, ticks=36, seconds=0.0, keep=keep)
    season.run()
    assert season.answers > len(EVENTS)
