"""The agenda: told to everybody, read by everybody alike, and refused if it is nonsense."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent.agenda import _CODEC, Agenda, Item, Trained, Widths, agree_on_agenda, item_of, parts_of
from fleetgp.agent.description import MOST_STARTS, PREDICTORS, TRAINERS
from fleetgp.agent.requests import MOST_POINTS, Question, TrainRequest
from fleetgp.graph import Graph
from fleetgp.network.loopback import Loopback
from tests.agent.fleets import MODEL
from tests.conftest import examples


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
    question = None if queries is None else Question(np.array(queries), draw(st.sampled_from(PREDICTORS)))
    wish = draw(st.none() | st.builds(TrainRequest, st.booleans(), st.none() | st.sampled_from(TRAINERS)))
    estimates = np.array(rows) if rows else np.zeros((0, 0))
    new, version = draw(st.integers(0, 10**6)), draw(st.integers(0, 2**48 - 1))
    held = tuple(draw(st.lists(st.integers(0, 2**48 - 1), max_size=2)))
    more = draw(st.integers(0, 10**6)), draw(st.integers(0, 2**48 - 1))
    return Item(trained, estimates, draw(st.booleans()), draw(st.booleans()), new, wish, question, version, held, *more)


def assert_same(one: Item, other: Item) -> None:
    for name in ("trained", "chosen", "failed", "new", "wish", "data"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.estimates.reshape(-1), other.estimates.reshape(-1))
    assert (one.question is None) == (other.question is None)
    if one.question is not None and other.question is not None:
        assert one.question.method == other.question.method
        np.testing.assert_array_equal(one.question.queries, other.question.queries)


def told(items: list[Item], before: list[Agenda | None]) -> tuple[list[Agenda], Any]:
    """What three members on a path have of an agenda, each with its own last one; and what was sent for it."""
    fleet = Loopback(Graph.path(3), [[0], [1], [2]])
    agendas = fleet.run(
        lambda network: agree_on_agenda(
            network, items[network.hosted[0]], (4, 5, 9), Widths(100, 2, 4), before[network.hosted[0]]
        )
    )
    return agendas, fleet.ledger


@given(st.lists(an_item(), min_size=3, max_size=3), st.lists(an_item(), min_size=3, max_size=3))
@examples(60, deadline=None)
def test_every_member_has_the_whole_agenda(items: list[Item], later: list[Item]) -> None:
    """The first of a view, and one that adds to it."""
    first, _ = told(items, [None] * 3)
    second, _ = told([later[0], items[1].standing, replace(items[2], new=7)], [*first])
    assert [agenda.members for agenda in (*first, *second)] == [(4, 5, 9)] * 6
    for agenda in first:
        for found, item in zip(agenda.items, items, strict=True):
            assert_same(found, item)
            assert found.agreed == item.agreed
        assert agenda.model == first[0].model
    for agenda in second:
        assert_same(agenda.items[0], later[0])
        assert_same(agenda.items[1], items[1].standing)
        assert_same(agenda.items[2], replace(items[2], new=7))
        assert [item.agreed for item in agenda.items] == [item.agreed for item in items]  # of before this view


def test_nobody_repeats_itself() -> None:
    question = Question(np.zeros((4, 2)), "dec-nn-grbcm")
    items = [Item(MODEL, np.zeros((2, 4)), data=5)] * 3
    first, all_told = told(items, [None] * 3)
    asked = [items[0], replace(items[1], question=question), items[2]]
    second, ledger = told(asked, [*first])
    assert [item.question is not None for item in second[0].items] == [False, True, False]
    assert ledger.total(kind="agenda").messages == 2  # the words of one, over both links
    assert ledger.total(kind="hyperparameters").scalars == 0
    assert ledger.total(kind="agenda").bytes < 2 * 120 < all_told.total(kind="agenda").bytes / 2
    _, nothing = told(items, [*second])
    assert nothing.scalars == 0
    _, news = told([*items[:2], replace(items[2], data=6)], [*second])
    assert 0 < news.total(kind="agenda").bytes < 2 * 40


def test_the_common_model_is_that_of_most_and_the_mean_of_its_holders() -> None:
    other = replace(MODEL, id=5, members=(0, 1, 2, 3), log_theta=(9.0, 9.0, 9.0, 9.0))
    near = replace(MODEL, log_theta=(0.3, -0.2, 0.3, -2.0))
    found = Agenda([Item(MODEL), Item(near), Item(other), Item()], (0, 1, 2, 3)).model
    assert found is not None
    assert found.id == MODEL.id
    np.testing.assert_allclose(found.log_theta, (0.2, -0.2, 0.3, -2.0))
    assert Agenda([Item(), Item()], (0, 1)).model is None


def test_when_to_train() -> None:
    def due(*items: Item, members: tuple[int, ...] = (0, 1, 2), with_members: bool = True, **more: Any) -> Any:
        return Agenda(items, members).training(with_members=with_members, **{"after": 0, **more})

    held = Item(MODEL)
    assert due(Item(rows=3), Item(), Item(rows=2)) == TrainRequest()
    assert due(Item(), Item(), Item()) is None  # nobody has rows
    assert due(held, held, held) is None
    assert due(held, held, members=(0, 1)) == TrainRequest()  # somebody left
    assert due(held, held, members=(0, 1), with_members=False) is None
    assert due(held, held, Item()) == TrainRequest()  # somebody came
    assert due(Item(), Item(), Item(failed=True)) is None
    assert due(held, held, Item(MODEL, wish=TrainRequest(True, "dec-c-gp"))) == TrainRequest(True, "dec-c-gp")
    assert due(held, replace(held, new=3), replace(held, new=4), after=7) == TrainRequest()
    assert due(held, replace(held, new=3), replace(held, new=3), after=7) is None
    whole = Item(replace(MODEL, method="dec-full-gp"))
    assert due(whole, whole, members=(0, 1)) is None  # whoever left is in the model still
    assert due(whole, whole, members=(0, 7)) == TrainRequest()  # somebody came who is not
    assert due(held, held, members=(0, 1), summarized=True) is None  # the groups of whoever left stay
    assert due(held, held, Item(), summarized=True) == TrainRequest()
    assert due(held, held, members=(0, 7), summarized=True) == TrainRequest()


def test_where_to_go_on() -> None:
    early, late = np.zeros((3, 4)), np.full((1, 4), 2.0)
    assert Agenda([Item(), Item()], (0, 1)).starts() is None
    np.testing.assert_array_equal(Agenda([Item(estimates=early), Item()], (0, 1)).starts(), early)
    both = Agenda([Item(estimates=early), Item(estimates=late, chosen=True), Item(MODEL)], (0, 1, 2)).starts()
    assert both is not None
    np.testing.assert_allclose(both, [(2.0 + np.array(MODEL.log_theta)) / 2.0])


# ---- nonsense -----------------------------------------------------------------------------------------------

GOOD = Item(
    MODEL, np.zeros((3, 4)), question=Question(np.zeros((2, 2)), "dec-rbcm"), wish=TrainRequest(True, "dec-c-gp")
)

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
    ("summary", -1),
    ("summary", 2**53),
    ("regrouped", 1),
    ("wish.method", "apx-gp"),
    ("wish.cold", 2),
    ("wish", True),
    ("question.method", "rbcm"),
    ("question.noisy", False),
    ("question", []),
    ("data", -1),
    ("data", 0.5),
    ("agreed", 7),
    ("agreed", [-1]),
    ("agreed", [1] * 9),
    ("rows", -1),
    ("totals", 2**53),
    ("totals", "a"),
    ("more", 1),
]


def as_bytes(record: bytes) -> Any:
    return np.frombuffer(record, dtype=np.uint8)


@pytest.mark.parametrize(("place", "value"), ABSURD, ids=[f"{n}-{place}" for n, (place, _) in enumerate(ABSURD)])
def test_an_item_with_one_absurd_value_is_refused(place: str, value: Any) -> None:
    parts = parts_of(GOOD, Item())
    facts = json.loads(parts["agenda"].tobytes())

    def told() -> Item:
        record = as_bytes(json.dumps(facts).encode())
        return item_of(record, parts["hyperparameters"], parts["queries"], Widths(5, 2, 4), Item())

    assert_same(told(), GOOD)
    *outer, last = place.split(".")
    (facts[outer[0]] if outer else facts)[last] = value
    with pytest.raises(ValueError, match=r"\w"):
        told()


def test_arrays_that_no_item_has_are_refused() -> None:
    record, rows, queries = parts_of(GOOD, Item()).values()

    def refused(*parts: Any) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            item_of(parts[0], parts[1], parts[2], Widths(5, 2, 4), Item())

    for spoilt in (record[:-1], as_bytes(b"7"), as_bytes(b"[]"), as_bytes(b"[" * 5000), record + np.uint8(1)):
        refused(spoilt, rows, queries)
    refused(as_bytes(b" " * 2**16 + record.tobytes()), rows, queries)
    for absurd in (rows[:, :3], rows[:0], np.zeros((1, 9)), rows[0], np.where(rows == 0.3, 800.0, rows), rows * np.nan):
        refused(record, absurd, queries)
    refused(record, np.zeros((MOST_STARTS + 2, 4)), queries)
    for asked in (np.zeros((2, 3)), np.zeros(2), np.zeros((0, 2)), np.zeros((MOST_POINTS + 1, 2)), queries + np.inf):
        refused(record, rows, asked)


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    | st.dictionaries(st.sampled_from([*json.loads(_CODEC.encode(Item())), "x"]), st.integers()).map(json.dumps)
)
@examples(100, deadline=None)
def test_whatever_is_told_is_an_item_or_an_error(told: bytes | str) -> None:
    record = as_bytes(told if isinstance(told, bytes) else told.encode())
    try:
        item = item_of(record, np.zeros((0, 0)), np.zeros((0, 0)), Widths(5, 2, 4), Item())
    except ValueError:
        return
    assert isinstance(item, Item)
