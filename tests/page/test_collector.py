"""From what agents tell to a picture of the fleet: pure, bounded, and never lost for words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.page.collector import ESTIMATES, EVENTS, QUESTIONS, Collector, CounterSum
from fleetgp.page.events import PAGE_MAP, Contact, link_state, parts_of, presence_of
from fleetgp.page.server import changes
from tests.page.fakes import FakeFleet, applied, facts_of, status

WORDS = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(
        st.integers(0, 3) | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=2),
        lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
        max_leaves=10,
    ),
)


@given(WORDS, WORDS)
def test_a_patch_makes_one_picture_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, changes(before, after)) == after
    assert changes(before, before) == {}


def pair(a: str = "up", b: str = "up", *, at: float = 100.0) -> dict[str, Contact]:
    """Two neighbours: what each says of the other."""
    return {
        "boat1": Contact(status("boat1", {"boat2": a}), at, "", at),
        "boat2": Contact(status("boat2", {"boat1": b}), at, "", at),
    }


@pytest.mark.parametrize(
    ("links", "state"),
    [
        (("up", "up"), "up"),
        (("up", "down"), "down"),
        (("silent", "up"), "frozen"),
        (("suspended: it missed a deadline", "up"), "frozen"),
        (("refused: another description", "down"), "refused"),
    ],
)
def test_a_link_is_what_both_ends_say(links: tuple[str, str], state: str) -> None:
    contacts = pair(*links)
    assert link_state("boat1", "boat2", contacts, {"boat1": "there", "boat2": "there"}) == state


def test_a_link_to_who_is_away() -> None:
    contacts = pair()
    for presence, state in (("gone", "missing"), ("silent", "frozen"), ("unheard", "up"), ("unknown", "up")):
        assert link_state("boat1", "boat2", contacts, {"boat1": "there", "boat2": presence}) == state  # type: ignore[dict-item]
    assert link_state("boat1", "boat2", contacts, {"boat1": "unknown", "boat2": "unknown"}) == "unknown"


def test_neighbours_are_believed_once_they_would_have_noticed() -> None:
    contacts = pair()
    contacts["boat2"] = replace(contacts["boat2"], trouble="gone", since=100.0)
    assert presence_of("boat2", contacts, ["boat1"], 105.0, 5.0) == "gone"
    assert presence_of("boat2", contacts, ["boat1"], 111.0, 5.0) == "unheard"
    contacts["boat1"] = replace(contacts["boat1"], state=status("boat1", {"boat2": "down"}))
    assert presence_of("boat2", contacts, ["boat1"], 111.0, 5.0) == "gone"


@given(st.integers(1, 12), st.data())
def test_parts_are_connected_components(agents: int, data: st.DataObject) -> None:
    """Against networkx."""
    import networkx

    names = [f"a{k}" for k in range(agents)]
    edges = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=15))
    graph = networkx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(edges)
    found = parts_of(names, edges)
    assert {frozenset(part) for part in found} == {frozenset(part) for part in networkx.connected_components(graph)}
    assert [len(part) for part in found] == sorted((len(part) for part in found), reverse=True)


def test_who_goes_and_comes_is_told_once() -> None:
    fleet = FakeFleet(4)
    fleet.tell()
    first = fleet.picture()[1]
    assert (first["sentence"], first["tone"], first["events"]) == ("All 4 boats are there.", "good", {})
    fleet.contacts["boat2"] = replace(fleet.contacts["boat2"], trouble="gone", since=fleet.now)
    for _ in range(5):
        fleet.tell()
    fleet.contacts["boat2"] = replace(fleet.contacts["boat2"], trouble="")
    fleet.tell()
    told = [event["words"] for event in fleet.picture()[1]["events"].values()]
    assert told == [
        "boat2 is gone.",
        "The fleet is in 2 parts: boat0 and boat1; boat3.",
        "boat2 is back.",
        "The fleet is whole again.",
    ]


def test_an_agent_that_the_running_agents_do_not_have_is_not_missed() -> None:
    """The page was opened with the file from before boat3 was taken out of the fleet."""
    fleet = FakeFleet(4)
    fleet.tell()
    fleet.contacts["boat3"] = replace(fleet.contacts["boat3"], trouble="gone", since=fleet.now)
    for names, headline in (
        (["boat0", "boat1", "boat2", "boat3"], "3 of 4 boats are there. boat3 has been gone for"),
        (["boat0", "boat1", "boat2"], "All 3 boats are there."),
    ):
        for boat in ("boat0", "boat1", "boat2"):
            contacts = fleet.contacts[boat]
            fleet.contacts[boat] = replace(contacts, state={**contacts.state, "agents": names})
        fleet.tell(10.0)
        picture = fleet.picture()[1]
        assert picture["sentence"].startswith(headline)
        assert list(picture["agents"]) == names
    fleet.contacts["boat3"] = replace(fleet.contacts["boat3"], trouble="")
    fleet.tell()
    assert len(fleet.picture()[1]["agents"]) == 4


def test_the_headline_has_the_same_word_as_the_table() -> None:
    """The table shows an agent's presence as it is."""
    fleet = FakeFleet(6)
    for name, trouble in (("boat1", "gone"), ("boat4", "silent"), ("boat5", "silent")):
        fleet.contacts[name] = replace(fleet.contacts[name], trouble=trouble, since=fleet.now)  # type: ignore[arg-type]
    fleet.tell(10.0)
    picture = fleet.picture()[1]
    assert picture["sentence"].startswith(
        "3 of 6 boats are there. boat1 has been gone for 10 s. boat4 and boat5 are silent."
    )
    presence = {name: agent["presence"] for name, agent in picture["agents"].items()}
    assert (presence["boat1"], presence["boat4"], presence["boat5"]) == ("gone", "silent", "silent")


def test_what_happened_before_the_page_was_opened_is_shown_once() -> None:
    """From the logs of two agents, the second of which is heard later and tells much of the same."""
    both, alone = ["boat1", "boat2"], ["boat1"]
    lines: list[tuple[float, dict[str, Any]]] = [
        (10.0, {"event": "started"}),
        (11.0, {"event": "view", "members": alone, "missing": ["boat2"]}),
        (20.0, {"event": "view", "members": both, "missing": []}),
        (21.0, {"event": "training", "members": both}),
        (25.0, {"event": "trained", "status": "converged"}),
        (40.0, {"event": "observed", "rows": 1}),
        (200.0, {"event": "observed", "rows": 7}),
    ]
    told: list[dict[str, Any]] = [{"number": k, "time": time, **line} for k, (time, line) in enumerate(lines, 1)]
    late = [{**line, "time": line["time"] + 0.5} for line in told if line["event"] != "observed" and line["number"] > 2]
    collector, contacts = Collector(facts_of(both, [("boat1", "boat2")])), pair()
    first = replace(contacts["boat1"], state={**contacts["boat1"].state, "events": told})
    second = replace(contacts["boat2"], state={**contacts["boat2"].state, "events": late})
    collector.take({"boat1": first, "boat2": Contact(since=100.0)}, 100.0)
    for _ in range(2):
        picture = collector.take({"boat1": first, "boat2": second}, 101.0)
    past = {(event["t"], event["words"]) for event in picture["events"].values() if event["t"] < 100.0}
    assert past == {
        (10.0, "boat1 was started."),
        (11.0, "boat1 works without boat2."),
        (20.0, "All boats are there."),
        (21.0, "The fleet has begun to learn."),
        (25.0, "There is a new model, learned by boat1 and boat2."),
        (40.0, "boat1 has 1 new measurement."),
    }
    assert [event["words"] for event in picture["events"].values() if event["t"] >= 100.0] == ["boat2 is there."]
    assert len({event["words"] for event in picture["events"].values()}) == len(picture["events"])


def test_agents_of_an_older_version_are_shown_as_far_as_they_tell() -> None:
    old = {"agent": "boat1", "phase": "serving", "neighbours": {"boat2": "up"}, "theta": {}, "trained": None}
    contacts = {"boat1": Contact(old, 100.0, "", 90.0), "boat2": Contact({}, 0.0, "unknown", 90.0)}
    picture = Collector(facts_of(["boat1", "boat2"], [("boat1", "boat2")])).take(contacts, 101.0)
    assert picture["agents"]["boat1"]["words"] == "is ready"
    assert "place" not in picture["agents"]["boat1"]
    assert picture["sentence"].startswith("All 1 boat is there.")
    nothing = dict.fromkeys(("boat1", "boat2"), Contact())
    assert Collector(facts_of(["boat1", "boat2"], [])).take(nothing, 1.0)["sentence"] == "Looking for the boats ..."


def test_why_an_agent_cannot_be_reached_is_in_its_row_and_in_what_happened() -> None:
    collector, contacts = Collector(facts_of(["boat1", "boat2"], [("boat1", "boat2")])), pair()
    collector.take(contacts, 100.0)
    why = "it runs, but does not accept the certificate operator.crt"
    for now in (101.0, 102.0):
        lost = replace(contacts["boat2"], trouble="gone", since=100.5, why=why)
        picture = collector.take({**contacts, "boat2": lost}, now)
    assert picture["agents"]["boat2"]["why"] == why
    assert "why" not in picture["agents"]["boat1"]
    told = [event["words"] for event in picture["events"].values()]
    assert told.count(f"boat2 cannot be reached: {why}.") == 1
    never = collector.take({**contacts, "boat2": Contact({}, 0.0, "gone", 100.0, why)}, 103.0)
    assert never["agents"]["boat2"]["why"] == why


def test_whatever_happens_a_picture_is_plain_and_bounded() -> None:
    """Two thousand pictures in which everything changes: JSON without None, no longer than at the limits."""
    fleet = FakeFleet(6)
    sizes = []
    for number in range(2_000):
        name = f"boat{number % 6}"
        line = {"number": number, "time": 1.0, "event": "answered", "queries": 1, "took_part": [name], "missing": []}
        theta = {"l_x": 1.0 + number, "l_y": 0.3, "sigma_f": 1.0, "sigma_eps": 0.1}
        state = {**fleet.contacts[name].state, "theta": theta, "rows": number, "events": [line], "disagreement": 0.1}
        fleet.contacts[name] = replace(fleet.contacts[name], state=state, trouble="gone" if number % 3 else "")
        fleet.tell()
        sizes.append(len(json.dumps(fleet.picture()[1], allow_nan=False)))
    picture = fleet.picture()[1]
    assert [len(picture[key]) for key in ("series", "events", "questions")] == [ESTIMATES, EVENTS, QUESTIONS]
    assert max(sizes[1_500:]) < 1.1 * max(sizes[500:1_500])
    assert applied({}, picture) == picture, "no None in it: a patch could not tell it from what is not there"


def test_questions_of_people_are_shown_and_maps_are_not() -> None:
    def line(number: int, asker: str) -> dict[str, Any]:
        return {
            "number": number,
            "time": 5.0,
            "event": "answered",
            "asker": asker,
            "queries": 9,
            "took_part": ["boat1"],
        }

    collector, contacts = Collector(facts_of(["boat1", "boat2"], [("boat1", "boat2")])), pair()
    for began, lines in (
        (1.0, [line(1, ""), line(2, PAGE_MAP)]),
        (1.0, [line(2, ""), line(3, "")]),
        (2.0, [line(1, "")]),
    ):
        state = {**contacts["boat1"].state, "began": began, "events": lines}
        picture = collector.take({**contacts, "boat1": replace(contacts["boat1"], state=state)}, 100.0)
    assert [q["points"] for q in picture["questions"].values()] == [9, 9, 9], "1, 3, and 1 of the agent's second life"


def test_counters_go_on_when_an_agent_starts_again() -> None:
    counted = CounterSum()
    for name, value in (("a", 10), ("a", 30), ("b", 5), ("a", 3), ("a", 8)):
        counted.take(name, value)
    assert counted.total == 30 + 5 + 8


def test_learning_is_told_as_it_runs() -> None:
    fleet = FakeFleet(2)
    fleet.tell()
    for number in range(3):
        for name, contacts in fleet.contacts.items():
            state = {**contacts.state, "phase": "training", "round": number, "disagreement": 0.5**number}
            fleet.contacts[name] = replace(contacts, state=state)
        fleet.tell()
    picture = fleet.picture()[1]
    assert (picture["model"]["learning"], picture["model"]["round"], picture["tone"]) == (True, 2, "busy")
    assert picture["sentence"] == "All 2 boats are there. They are learning, round 2."
    assert [entry["spread"] for entry in picture["series"].values()] == [0.0, 1.0, 0.5, 0.25]
    assert list(picture["events"].values())[-1]["words"] == "The fleet has begun to learn."


@given(st.lists(st.lists(st.sampled_from(["", "gone", "silent", "unknown"]), min_size=4, max_size=4), max_size=6))
def test_whoever_comes_and_goes_there_is_a_picture(turns: list[list[Any]]) -> None:
    """Also when nobody is left: what was learned stays in sight."""
    fleet = FakeFleet(4)
    fleet.tell()
    model = fleet.picture()[1]["model"]
    for troubles in [*turns, ["gone"] * 4]:
        for name, trouble in zip(fleet.facts.names, troubles, strict=True):
            fleet.contacts[name] = replace(fleet.contacts[name], trouble=trouble)
        fleet.tell()
    picture = fleet.picture()[1]
    assert picture["sentence"] == "None of the 4 boats answers."
    assert (picture["model"]["theta"], picture["parts"], picture["tone"]) == (model["theta"], [], "bad")
