"""The codec: numbers come back to the last bit, and nothing comes out that a record's types do not allow."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetgp.agent.records import Codec, Count, Ids, IdSet, LogTheta, Matrix, Strict, Value, Whole
from fleetgp.model.hyperparameters import LOG_RANGE


@dataclass(frozen=True)
class Inner(Strict):
    ids: Ids = ()
    among: IdSet = frozenset()


@dataclass(frozen=True)
class Outer(Strict):
    name: str
    count: Count = 0
    number: Whole = 0
    value: Value = 0.0
    log_theta: LogTheta = ()
    rows: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    inner: Inner | None = None


CODEC = Codec(Outer, 2000)
GOOD = Outer("a", 1, 2, 0.1, (-2.5, 1e-300), np.array([[1 / 3, 5e-324]]), Inner((0, 7), frozenset({3, 1})))


@given(st.floats(-1e100, 1e100), st.lists(st.floats(-LOG_RANGE, LOG_RANGE), max_size=4), st.integers(0, 2**63 - 1))
def test_numbers_come_back_to_the_last_bit(value: float, logs: list[float], number: int) -> None:
    rows = np.array([logs]) if logs else np.zeros((0, 0))
    told = CODEC.decode(CODEC.encode(Outer("x", 3, number, value, tuple(logs), rows)))
    assert (told.value.hex(), told.number) == (value.hex(), number)
    assert [x.hex() for x in told.log_theta] == [x.hex() for x in logs]
    assert told.rows.tobytes() == rows.tobytes()


def test_a_record_has_one_form() -> None:
    data = CODEC.encode(GOOD)
    assert json.loads(data)["inner"] == {"ids": [0, 7], "among": [1, 3]}
    assert CODEC.encode(CODEC.decode(data)) == data
    assert CODEC.of_facts(CODEC.facts_of(GOOD)).inner == GOOD.inner


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("name", None),
        ("name", 1),
        ("count", -1),
        ("count", 2**53),
        ("count", 1.0),
        ("count", True),
        ("count", "1"),
        ("number", 2**63),
        ("value", float("nan")),
        ("value", float("-inf")),
        ("value", 1.1e100),
        ("value", "0.1"),
        ("value", True),
        ("value", 10**400),
        ("log_theta", [LOG_RANGE * 1.001]),
        ("log_theta", [None]),
        ("log_theta", 0.5),
        ("rows", [[1.0], [1.0, 2.0]]),
        ("rows", [1.0]),
        ("rows", [[float("nan")]]),
        ("rows", [["1"]]),
        ("rows", "ab"),
        ("inner", {"ids": [7, 0], "among": []}),
        ("inner", {"ids": [0, 0], "among": []}),
        ("inner", {"ids": [0], "among": [1, 1]}),
        ("inner", {"ids": [0]}),
        ("inner", [[0], [1]]),
        ("more", 1),
    ],
)
def test_what_the_types_do_not_allow_is_refused(place: str, value: Any) -> None:
    facts = CODEC.facts_of(GOOD)
    with pytest.raises(ValueError, match=r"\w"):
        CODEC.decode(json.dumps({**facts, place: value}).encode())


def test_what_is_missing_or_too_long_is_refused() -> None:
    facts = CODEC.facts_of(GOOD)
    for name in facts:
        with pytest.raises(ValueError, match=r"\w"):
            CODEC.of_facts({other: value for other, value in facts.items() if other != name})
    with pytest.raises(ValueError, match="expected at most 2000 bytes, got 2001"):
        CODEC.decode(CODEC.encode(GOOD).ljust(2001))
    assert CODEC.decode(CODEC.encode(GOOD).ljust(2000)).name == "a"


def test_a_list_that_is_wrong_everywhere_is_refused_at_its_first_place() -> None:
    """Whoever sends nonsense must not buy more work than honest records do: one error, not thousands."""
    for name, value in (("log_theta", [True] * 100), ("rows", [[True] * 10] * 10)):
        facts = json.loads(CODEC.encode(GOOD)) | {name: value}
        with pytest.raises(ValueError, match=name) as refused:
            CODEC.decode(json.dumps(facts).encode())
        cause = refused.value.__cause__
        assert isinstance(cause, ValidationError)
        assert cause.error_count() == 1
