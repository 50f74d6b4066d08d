"""A part of the configurations still answers as it is stored: rounds and bytes exactly, results to 1e-6."""

from __future__ import annotations

import json

import pytest

from tests.same.registry import run
from tests.same.stored import CHOSEN, FILE, different, kept, read

STORED = read()

pytestmark = pytest.mark.usefixtures("uncompiled")  # compiling takes longer than all of this


def test_what_is_stored_is_what_is_chosen() -> None:
    assert list(STORED) == list(CHOSEN)
    assert FILE.stat().st_size <= 150_000


@pytest.mark.parametrize("name", CHOSEN)
def test_answers_are_the_same(name: str) -> None:
    assert different(STORED[name], json.loads(json.dumps(kept(run(name))))) == []
