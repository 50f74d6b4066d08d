"""Who takes part: whatever is lost, late or out of order, parts that are left alone agree on themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.agent.hello import Hello
from fleetgp.agent.membership import Membership, Record, decode_records, encode_records
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph

GRAPHS = [Graph.path(4), Graph.cycle(5), Graph.star(5), Graph.complete(4), Graph.path(2)]


class World:
    """Agents, the links between them, and messages that wait to be delivered."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.agents = [Membership(agent, graph, incarnation=1) for agent in range(graph.agents)]
        self.up: set[tuple[int, int]] = set()
        self.alive = set(range(graph.agents))
        self.mail: list[tuple[int, int, list[dict[str, object]]]] = []
        self.incarnations = 1
        self.begun: dict[int, int] = {}
        for a, b in graph.edges.tolist():
            self.link(a, b, up=True)

    def link(self, a: int, b: int, *, up: bool) -> None:
        if up and {a, b} <= self.alive:
            self.up.add((min(a, b), max(a, b)))
        else:
            self.up.discard((min(a, b), max(a, b)))
            self.mail = [m for m in self.mail if {m[0], m[1]} != {a, b}]  # lost with the link
        for agent in (a, b):
            if agent in self.alive:
                self.agents[agent].call_up(self.linked(agent))
                self.tell(agent)

    def linked(self, agent: int) -> list[int]:
        return [b if a == agent else a for a, b in self.up if agent in (a, b)]

    def tell(self, agent: int) -> None:
        records = encode_records(self.agents[agent].records)
        self.mail += [(agent, other, records) for other in self.linked(agent)]

    def deliver(self, number: int) -> None:
        _, receiver, records = self.mail.pop(number)
        if self.agents[receiver].merge(decode_records(json.loads(json.dumps(records)))):
            self.react(receiver)

    def react(self, agent: int) -> None:
        """As the node does: what had begun and is over is given up; what is news is told."""
        me = self.agents[agent]
        if self.begun.get(agent) not in (None, me.view.id):
            me.give_up()
            del self.begun[agent]
        self.tell(agent)

    def ready(self, agent: int) -> None:
        me = self.agents[agent]
        if agent in self.alive and agent not in self.begun:
            if me.declare(me.view.id):
                self.tell(agent)
            if me.agreed:
                self.begun[agent] = me.view.id

    def crash(self, agent: int) -> None:
        for a, b in list(self.up):
            if agent in (a, b):
                self.link(a, b, up=False)
        self.alive.discard(agent)
        self.begun.pop(agent, None)

    def restart(self, agent: int) -> None:
        self.incarnations += 1
        self.alive.add(agent)
        self.agents[agent] = Membership(agent, self.graph, incarnation=self.incarnations)
        for other in self.graph.neighbours(agent):
            self.link(agent, other, up=True)

    def calm(self, rng: np.random.Generator) -> None:
        """No further faults: every message arrives, and everybody gets ready."""
        for agent in self.alive:
            self.tell(agent)
        for _ in range(20):
            while self.mail:
                self.deliver(int(rng.integers(len(self.mail))))
            for agent in sorted(self.alive):
                self.react(agent)
                self.ready(agent)


@given(
    st.sampled_from(GRAPHS),
    st.lists(
        st.tuples(st.sampled_from(["deliver", "cut", "heal", "ready", "crash", "restart"]), st.integers(0, 10**6)),
        max_size=60,
    ),
    st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_parts_that_are_left_alone_agree_on_exactly_themselves(
    graph: Graph, events: list[tuple[str, int]], seed: int
) -> None:
    world = World(graph)
    views: dict[int, tuple[int, ...]] = {}
    for what, number in events:
        a, b = graph.edges[number % len(graph.edges)].tolist()
        agent = number % graph.agents
        if what == "deliver" and world.mail:
            world.deliver(number % len(world.mail))
        elif what == "cut":
            world.link(a, b, up=False)
        elif what == "heal":
            world.link(a, b, up=True)
        elif what == "ready":
            world.ready(agent)
        elif what == "crash" and agent in world.alive and len(world.alive) > 1:
            world.crash(agent)
        elif what == "restart" and agent not in world.alive:
            world.restart(agent)
        for me in world.agents:  # one number never stands for two memberships
            assert views.setdefault(me.view.id, me.view.members) == me.view.members
    world.calm(np.random.default_rng(seed))
    left = Graph(graph.agents, sorted(world.up), connected=False)
    for part in left.components:
        members = [agent for agent in part if agent in world.alive]
        for agent in members:
            me = world.agents[agent]
            assert me.view.members == tuple(members)
            assert me.view.edges == tuple((a, b) for a, b in sorted(world.up) if a in part)
            assert me.agreed
            assert world.begun[agent] == me.view.id
            assert me.summary == world.agents[members[0]].summary


def test_a_view_that_was_given_up_never_comes_back() -> None:
    one, two = Membership(0, Graph.path(2), 1), Membership(1, Graph.path(2), 1)
    one.call_up([1])
    two.call_up([0])
    one.merge(two.records)
    first = one.view.id
    one.give_up()
    assert one.view.members == (0, 1)
    assert one.view.id != first
    one.call_up([])
    one.call_up([1])
    assert one.view.id != first


def test_an_earlier_self_does_not_speak_for_the_present_one() -> None:
    """A restarted agent whose clock went back hears of its own old record, and goes beyond it."""
    me = Membership(0, Graph.path(2), incarnation=5)
    assert me.merge([Record(0, incarnation=90, version=4, up=(1,), view=77)])
    assert me.own.incarnation == 91
    assert me.own.up == ()
    assert not me.merge([Record(0, incarnation=90, version=4)])


def test_links_that_the_fleet_does_not_have_do_not_count() -> None:
    me = Membership(0, Graph.path(3), incarnation=1)
    me.call_up([1, 2])
    me.merge([Record(2, 1, 1, up=(0,)), Record(9, 1, 1, up=(0,))])
    assert me.view.members == (0,)


def junk() -> Iterator[object]:
    good = encode_records([Record(1, 2, 3, (0,), 4, 5)])[0]
    yield from (None, 7, "x", {}, [1], [{}], [{**good, "agent": -1}], [{**good, "view": 1.5}], [{**good, "up": 3}])
    yield from ([{**good, "up": ["a"]}], [{**good, "more": 1}], [{**good, "version": True}], [{**good, "view": 2**70}])


@pytest.mark.parametrize("items", list(junk()))
def test_junk_is_no_record(items: object) -> None:
    with pytest.raises(NetworkError):
        decode_records(items)


def test_the_numbers_of_tasks_differ() -> None:
    view = Membership(0, Graph.path(2), 1).view
    assert len({view.epoch(task) for task in range(1000)}) == 1000
    assert all(0 < view.epoch(task) < 2**32 for task in range(10))


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_whatever_comes_is_a_hello_or_an_error(data: bytes) -> None:
    with pytest.raises(NetworkError):
        Hello.decode(data)


@given(
    st.sampled_from(["digest", "summary", "records", "epoch", "round", "waiting", "theta"]),
    st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text() | st.floats()) | st.just({}),
)
def test_a_hello_with_one_wrong_part_is_refused(part: str, value: object) -> None:
    facts = json.loads(Hello("d", 1, (Record(0, 1),), 2, 3, frozenset({1}), (0.5,)).encode())
    assert Hello.decode(json.dumps(facts).encode()).waiting == {1}
    sound = (part == "digest" and isinstance(value, str)) or value == []
    if part == "theta" and isinstance(value, list):
        sound = all(isinstance(item, float) for item in value)
    facts[part] = value
    if not sound:
        with pytest.raises(NetworkError):
            Hello.decode(json.dumps(facts).encode())
