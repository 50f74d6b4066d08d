"""Hellos: what neighbours tell each other, within limits of length and range, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetgp.agent.membership import LARGEST_AGE, MOST_BYTES, Hello, Record, longest
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph
from fleetgp.model.hyperparameters import LOG_RANGE


def junk() -> Iterator[object]:
    good = [1, 2, 3, [0], 4, 5]
    yield from (None, 7, "x", {}, [1], [[]], [good[:-1]], [[*good, 0]], [{}], [{"agent": 1, "incarnation": 2}])
    for place, value in (
        (0, -1),
        (5, 1.5),
        (3, 3),
        (3, ["a"]),
        (2, True),
        (5, 2**70),
        (1, None),
        (3, [[0]]),
        (3, [2, 0]),
    ):
        yield [[*good[:place], value, *good[place + 1 :]]]


@pytest.mark.parametrize("items", list(junk()))
def test_junk_is_no_record(items: object) -> None:
    facts = json.loads(Hello("d", 8, 9, 1, (Record(1, 2, 3, (0,), 4, 5),)).encode())
    assert Hello.decode(json.dumps(facts).encode()).records == (Record(1, 2, 3, (0,), 4, 5),)
    with pytest.raises(NetworkError, match="not a hello: "):
        Hello.decode(json.dumps({**facts, "records": items}).encode())


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_whatever_comes_is_a_hello_or_an_error(data: bytes) -> None:
    with pytest.raises(NetworkError):
        Hello.decode(data)


@given(
    st.sampled_from(["digest", "started", "number", "summary", "records", "epoch", "round", "waiting", "theta"]),
    st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text() | st.floats()) | st.just({}),
)
def test_a_hello_with_one_wrong_part_is_refused(part: str, value: object) -> None:
    facts = json.loads(Hello("d", 8, 9, 1, (Record(0, 1),), 2, 3, frozenset({1}), (0.5,)).encode())
    assert Hello.decode(json.dumps(facts).encode()).waiting == {1}
    sound = (part == "digest" and isinstance(value, str)) or value == []
    if part == "theta" and isinstance(value, list):
        sound = all(isinstance(item, float) and abs(item) <= LOG_RANGE for item in value)
    facts[part] = value
    if not sound:
        with pytest.raises(NetworkError):
            Hello.decode(json.dumps(facts).encode())


@example(200, 1, False)
@example(200, 1, True)
@example(1, 1000, False)
@given(st.integers(1, 60), st.integers(1, 30), st.booleans())
def test_the_longest_hello_of_a_fleet_is_within_its_length(agents: int, dimension: int, complete: bool) -> None:
    """Every number as long as it can be: no honest hello is taken for junk, and what is taken is in proportion."""
    graph = Graph.complete(agents) if complete else Graph.path(agents)
    age = LARGEST_AGE - 1
    records = tuple(
        Record(agent, age, age, tuple(graph.neighbours(agent)), 2**63 - 1, 2**48 - 1) for agent in range(agents)
    )
    theta = (-249.12345678901234,) * (dimension + 2)
    largest = 2**63 - 1
    waiting = frozenset(range(agents))
    hello = Hello("f" * 64, largest, largest, 2**48 - 1, records, 2**32 - 1, 2**32 - 1, waiting, theta)
    size = len(hello.encode())
    assert Hello.decode(hello.encode()) == hello
    assert size <= longest(agents, len(graph.edges), dimension) <= 8 * size + 2**12


@pytest.mark.parametrize("name", ["started", "number", "summary", "epoch", "round"])
def test_numbers_of_a_hello_have_63_bits(name: str) -> None:
    facts = json.loads(Hello().encode())
    assert getattr(Hello.decode(json.dumps(facts | {name: 2**63 - 1}).encode()), name) == 2**63 - 1
    for value in (-1, 2**63):
        with pytest.raises(NetworkError, match=f"not a hello: {name}"):
            Hello.decode(json.dumps(facts | {name: value}).encode())


def test_hyperparameters_of_a_hello_are_in_range() -> None:
    assert Hello.decode(Hello(theta=(LOG_RANGE, -LOG_RANGE)).encode()).theta == (LOG_RANGE, -LOG_RANGE)
    for value in (np.nextafter(LOG_RANGE, 999.0).item(), -1e300, float("inf"), float("nan")):
        with pytest.raises(NetworkError, match="not a hello: "):
            Hello.decode(json.dumps(json.loads(Hello(theta=(0.5,)).encode()) | {"theta": [value]}).encode())


def test_a_hello_that_is_too_long_is_not_read() -> None:
    assert longest(1000, 1000 * 999 // 2, 1000) <= MOST_BYTES  # of a thousand agents, all linked
    with pytest.raises(NetworkError, match=f"not a hello: expected at most {MOST_BYTES} bytes"):
        Hello.decode(b" " * (MOST_BYTES + 1))


def test_hellos_of_the_first_protocol_are_understood() -> None:
    """Whoever speaks another protocol has another digest: it must be heard to be refused."""
    told = b'{"digest":"ab","started":5,"number":6,"summary":7,"records":[[1,2,0,[0,2],0,9]],"epoch":3,"round":4,'
    told += b'"waiting":[1,2],"theta":[0.5,-2.5e-05,1e-16]}'
    hello = Hello("ab", 5, 6, 7, (Record(1, 2, 0, (0, 2), 0, 9),), 3, 4, frozenset({1, 2}), (0.5, -2.5e-05, 1e-16))
    assert Hello.decode(told) == hello
    assert json.loads(hello.encode()) == json.loads(told)
