"""The agenda: told to everybody, read by everybody alike, and refused if it is nonsense."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.agent.agenda import Agenda, Item, Trained, agree_on_agenda, item_of, parts_of
from fleetgp.agent.description import MOST_STARTS, PREDICTORS, TRAINERS
from fleetgp.agent.questions import MOST_POINTS, Question, Wish
from fleetgp.agent.records import packed, unpacked
from fleetgp.graph import Graph
from fleetgp.network.loopback import Loopback
from tests.agent.fleets import MODEL


@st.composite
def an_item(draw: st.DrawFn) -> Item:
    number = st.floats(-5.0, 5.0)
    trained = draw(
        st.none()
        | st.builds(
            Trained,
            st.tuples(number, number, number, number),
            st.integers(1, 2**32 - 1),
            st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True).map(lambda ids: tuple(sorted(ids))),
            st.sampled_from(TRAINERS),
            st.sampled_from(["converged", "round limit"]),
            st.integers(0, 5000),
            number,
            st.floats(0.1, 9.0),
        )
    )
    rows = draw(st.lists(st.tuples(number, number, number, number), max_size=3))
    queries = draw(st.none() | st.lists(st.tuples(number, number), min_size=1, max_size=4))
    question = (
        None if queries is None else Question(np.array(queries), draw(st.sampled_from(PREDICTORS)), draw(st.booleans()))
    )
    wish = draw(st.none() | st.builds(Wish, st.booleans(), st.none() | st.sampled_from(TRAINERS)))
    estimates = np.array(rows) if rows else np.zeros((0, 0))
    return Item(
        trained, estimates, draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 10**6)), wish, question
    )


def assert_same(one: Item, other: Item) -> None:
    for name in ("trained", "chosen", "failed", "new", "wish"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.estimates.reshape(-1), other.estimates.reshape(-1))
    assert (one.question is None) == (other.question is None)
    if one.question is not None and other.question is not None:
        assert (one.question.method, one.question.noisy) == (other.question.method, other.question.noisy)
        np.testing.assert_array_equal(one.question.queries, other.question.queries)


@given(st.lists(an_item(), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_member_has_the_whole_agenda(items: list[Item]) -> None:
    fleet = Loopback(Graph.path(3), [[0], [1], [2]])
    agendas = fleet.run(lambda network: agree_on_agenda(network, items[network.hosted[0]], (4, 5, 9), 100, 2))
    for agenda in agendas:
        assert agenda.members == (4, 5, 9)
        for told, item in zip(agenda.items, items, strict=True):
            assert_same(told, item)
        assert agenda.model == agendas[0].model


def test_the_common_model_is_that_of_most_and_the_mean_of_its_holders() -> None:
    other = replace(MODEL, id=5, members=(0, 1, 2, 3), log_theta=(9.0, 9.0, 9.0, 9.0))
    near = replace(MODEL, log_theta=(0.3, -0.2, 0.3, -2.0))
    found = Agenda([Item(MODEL), Item(near), Item(other), Item()], (0, 1, 2, 3)).model
    assert found is not None
    assert found.id == MODEL.id
    np.testing.assert_allclose(found.log_theta, (0.2, -0.2, 0.3, -2.0))
    assert Agenda([Item(), Item()], (0, 1)).model is None


def test_when_to_train() -> None:
    def due(*items: Item, members: tuple[int, ...] = (0, 1, 2), with_members: bool = True, after: int = 0) -> Any:
        return Agenda(items, members).training(with_members=with_members, after=after)

    held = Item(MODEL)
    assert due(Item(), Item(), Item()) == Wish()
    assert due(held, held, held) is None
    assert due(held, held, members=(0, 1)) == Wish()  # somebody left
    assert due(held, held, members=(0, 1), with_members=False) is None
    assert due(held, held, Item()) == Wish()  # somebody came
    assert due(Item(), Item(), Item(failed=True)) is None
    assert due(held, held, Item(MODEL, wish=Wish(True, "dec-c-gp"))) == Wish(True, "dec-c-gp")
    assert due(held, replace(held, new=3), replace(held, new=4), after=7) == Wish()
    assert due(held, replace(held, new=3), replace(held, new=3), after=7) is None


def test_where_to_go_on() -> None:
    early, late = np.zeros((3, 4)), np.full((1, 4), 2.0)
    assert Agenda([Item(), Item()], (0, 1)).starts() is None
    np.testing.assert_array_equal(Agenda([Item(estimates=early), Item()], (0, 1)).starts(), early)
    both = Agenda([Item(estimates=early), Item(estimates=late, chosen=True), Item(MODEL)], (0, 1, 2)).starts()
    assert both is not None
    np.testing.assert_allclose(both, [(2.0 + np.array(MODEL.log_theta)) / 2.0])


# ---- nonsense -----------------------------------------------------------------------------------------------

GOOD = Item(MODEL, np.zeros((3, 4)), question=Question(np.zeros((2, 2)), "dec-rbcm"), wish=Wish(True, "dec-c-gp"))

ABSURD: list[tuple[str, Any]] = [
    ("trained.id", 0),
    ("trained.id", 2**32),
    ("trained.id", 1.5),
    ("trained.members", []),
    ("trained.members", [0, 0]),
    ("trained.members", [1, 0]),
    ("trained.members", [0, 5]),
    ("trained.members", [-1, 0]),
    ("trained.method", "full-gp"),
    ("trained.method", 3),
    ("trained.status", "fine"),
    ("trained.rounds", -1),
    ("trained.rounds", 2**53),
    ("trained.offset", 1e101),
    ("trained.offset", float("nan")),
    ("trained.offset", None),
    ("trained.scale", 0.0),
    ("trained.scale", float("inf")),
    ("trained", 7),
    ("chosen", 1),
    ("failed", "no"),
    ("new", -1),
    ("new", 0.5),
    ("new", 2**53),
    ("wish.method", "apx-gp"),
    ("wish.cold", 2),
    ("wish", True),
    ("question.method", "rbcm"),
    ("question.noisy", None),
    ("question", []),
    ("more", 1),
]


@pytest.mark.parametrize(("place", "value"), ABSURD, ids=[f"{n}-{place}" for n, (place, _) in enumerate(ABSURD)])
def test_an_item_with_one_absurd_value_is_refused(place: str, value: Any) -> None:
    parts = parts_of(GOOD)
    facts = json.loads(unpacked(parts["agenda"]))

    def told() -> Item:
        record = packed(json.dumps(facts).encode())
        return item_of(record, parts["hyperparameters"], parts["queries"], fleet=5, dimension=2)

    assert_same(told(), GOOD)
    *outer, last = place.split(".")
    (facts[outer[0]] if outer else facts)[last] = value
    with pytest.raises(ValueError, match=r"\w"):
        told()


def test_arrays_that_no_item_has_are_refused() -> None:
    record, rows, queries = parts_of(GOOD).values()

    def refused(*parts: Any) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            item_of(parts[0], parts[1], parts[2], fleet=5, dimension=2)

    for spoilt in (record[:-1], record[None], np.array(7.0), record[:0], record + 0.5, record * np.nan, -record):
        refused(spoilt, rows, queries)
    refused(np.where(np.arange(len(record)) == 3, 2.0**48, record), rows, queries)
    refused(packed(b" " * 2**16 + unpacked(record)), rows, queries)
    for absurd in (rows[:, :3], rows[:0], np.zeros((1, 9)), rows[0], np.where(rows == 0.3, 800.0, rows), rows * np.nan):
        refused(record, absurd, queries)
    refused(record, np.zeros((MOST_STARTS + 2, 4)), queries)
    for asked in (np.zeros((2, 3)), np.zeros(2), np.zeros((0, 2)), np.zeros((MOST_POINTS + 1, 2)), queries + np.inf):
        refused(record, rows, asked)


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
@settings(max_examples=100, deadline=None)
def test_whatever_is_told_is_an_item_or_an_error(told: bytes | str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        item_of(packed(told if isinstance(told, bytes) else told.encode()), np.zeros((0, 0)), np.zeros((0, 0)), 5, 2)
