"""A training is few calls deep: eight functions from `Fleet.train` to where the engines evaluate likelihoods."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

import fleetgp as fg
from tests.conftest import paper_shards

MOST = 8


def frames_before(file: str, function: str, work: Any) -> list[str]:
    """The functions of the package on the stack where `work` first calls a function, the outermost first."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        code, above = frame.f_code, frame.f_back
        if event != "call" or seen or code.co_name != function or not code.co_filename.endswith(file):
            return
        while above is not None:
            if "/fleetgp/" in above.f_code.co_filename:
                seen.insert(0, above.f_code.co_qualname)
            above = above.f_back

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp"])
def test_the_first_likelihood_is_eight_frames_away(method: str) -> None:
    fleet = fg.Fleet(paper_shards(60, 3), kernel="se")
    frames = frames_before("engines/expert.py", "evaluate", lambda: fleet.train(method, rounds=1, tol=0))
    assert frames[0] == "Fleet.train"
    assert len(frames) <= MOST, " -> ".join(frames)
