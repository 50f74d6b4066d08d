"""Who takes part: whatever is lost, late or out of order, parts that are left alone agree on themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent.membership import INCARNATION_LEAP, Gossip, Hello, Membership, Record
from fleetgp.agent.presence import HEARTBEAT
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph
from tests.conftest import examples

EVENTS = ["deliver", "lose", "cut", "heal", "ready", "crash", "restart"]
GRAPHS = [Graph.path(4), Graph.cycle(5), Graph.star(5), Graph.complete(4), Graph.path(2)]


class World:
    """Agents, the links between them, and messages that wait to be delivered, or to be lost."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.agents = [Membership(agent, graph, incarnation=1) for agent in range(graph.agents)]
        self.gossip = [Gossip(me) for me in self.agents]
        self.up: set[tuple[int, int]] = set()
        self.alive = set(range(graph.agents))
        self.mail: list[tuple[int, int, bytes]] = []
        self.incarnations = 1
        self.begun: dict[int, int] = {}
        self.now = 0.0
        self.records_sent = 0
        for a, b in graph.edges.tolist():
            self.link(a, b, up=True)

    def link(self, a: int, b: int, *, up: bool) -> None:
        if up and {a, b} <= self.alive:
            self.up.add((min(a, b), max(a, b)))
        else:
            self.up.discard((min(a, b), max(a, b)))
            self.mail = [m for m in self.mail if {m[0], m[1]} != {a, b}]  # lost with the link
        for agent, other in ((a, b), (b, a)):
            if agent in self.alive:
                if up:
                    self.gossip[agent].opened(other)
                self.agents[agent].call_up(self.linked(agent))
                self.tell(agent)

    def linked(self, agent: int) -> list[int]:
        return [b if a == agent else a for a, b in self.up if agent in (a, b)]

    def tell(self, agent: int, *, beat: bool = False) -> None:
        """As the node does: news to whoever lacks them, and at every beat a hello to everybody."""
        for other in self.linked(agent):
            records = self.gossip[agent].news(other)
            if records or beat:
                self.records_sent += len(records)
                hello = Hello("digest", 1, 1, self.agents[agent].summary, records)
                self.mail.append((agent, other, hello.encode()))
                self.gossip[agent].note_known(other, records)

    def deliver(self, number: int) -> None:
        sender, receiver, data = self.mail.pop(number)
        me, gossip, hello = self.agents[receiver], self.gossip[receiver], Hello.decode(data)
        me.check(hello.records)
        gossip.note_known(sender, hello.records)
        if me.merge(hello.records):
            self.react(receiver)
        gossip.compared(sender, hello.summary, self.now)

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
        self.gossip[agent] = Gossip(self.agents[agent])
        for other in self.graph.neighbours(agent):
            self.link(agent, other, up=True)

    def calm(self, rng: np.random.Generator) -> None:
        """No further faults: every message arrives, everybody says hello twice a second, and gets ready."""
        for _ in range(40):
            self.now += HEARTBEAT
            for agent in self.alive:
                self.tell(agent, beat=True)
            while self.mail:
                self.deliver(int(rng.integers(len(self.mail))))
            for agent in sorted(self.alive):
                self.react(agent)
                self.ready(agent)


@given(
    st.sampled_from(GRAPHS),
    st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(0, 10**6)),
        max_size=60,
    ),
    st.integers(0, 2**32),
)
@examples(150, deadline=None)
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
        elif what == "lose" and world.mail:
            world.mail.pop(number % len(world.mail))
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


@pytest.mark.parametrize("shape", [Graph.cycle, Graph.path, Graph.star])
def test_what_agreeing_costs_is_linear_in_agents_and_in_edges(shape: Callable[[int], Graph]) -> None:
    """Every change crosses every link at most once in each direction; agents change their record a few times each."""
    for agents in (8, 20):
        world = World(shape(agents))
        world.calm(np.random.default_rng(agents))
        assert all(me.agreed for me in world.agents)
        changes = sum(me.own.version + 1 for me in world.agents)
        assert world.records_sent <= 2 * len(world.graph.edges) * changes
        before = world.records_sent
        world.crash(1)
        world.calm(np.random.default_rng(agents))
        changes = sum(me.own.version + 1 for me in world.agents) - changes
        assert world.records_sent - before <= 2 * len(world.graph.edges) * changes
        quiet = world.records_sent
        world.calm(np.random.default_rng(agents))
        assert world.records_sent == quiet


def test_absurd_records_are_refused_and_do_no_lasting_harm() -> None:
    me = Membership(0, Graph.path(3), incarnation=2**40)
    for absurd in (Record(3, 1), Record(2, 1, up=(0,)), Record(1, 2**60), Record(1, 7, 2**63 - 1)):
        with pytest.raises(NetworkError, match=r"a record of agent \d"):
            me.check([absurd])
    # However large a number somebody was given, there is a next one.
    for _ in range(100):
        known = me.of(1)
        rival = Record(1, (2**40 if known is None else known.incarnation) + INCARNATION_LEAP)
        me.check([rival])
        me.merge([rival])
        assert me.of(1) == rival
    assert not me.merge([rival._replace(incarnation=rival.incarnation + INCARNATION_LEAP + 1)])


@given(st.integers(0, 2**59), st.integers(0, 2**43), st.integers(0, 2**43))
def test_whatever_is_said_of_an_agent_the_others_believe_its_answer(began: int, later: int, said: int) -> None:
    """Somebody tells an agent of an earlier self with a large number: it goes beyond, and not out of belief."""
    me, other = Membership(0, Graph.path(2), began), Membership(1, Graph.path(2), began + min(later, 2**40))
    me.merge([other.own])
    other.merge([other.own._replace(incarnation=other.own.incarnation + said, version=9)])
    me.check([other.own])
    me.merge([other.own])
    assert me.of(1) == other.own


def test_a_loss_is_mended_while_others_change_all_the_time() -> None:
    graph = Graph.path(4)
    agents = [Membership(k, graph, 1) for k in range(4)]
    gossips = [Gossip(agent) for agent in agents]

    def hello(a: int, b: int, now: float, *, lost: bool = False) -> None:
        records, summary = gossips[a].news(b), agents[a].summary
        gossips[a].note_known(b, records)
        if not lost:
            gossips[b].note_known(a, records)
            agents[b].merge(records)
            gossips[b].compared(a, summary, now)

    def beat(now: float) -> None:
        for a, b in ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)):
            hello(a, b, now)

    beat(0.0)
    agents[0].declare(7)
    hello(0, 1, 0.0)
    hello(1, 2, 0.0, lost=True)
    for tick in range(1, 20):
        agents[3].declare(100 + tick)
        beat(tick * HEARTBEAT)
    assert agents[2].of(0) == agents[0].own


def test_the_numbers_of_tasks_differ() -> None:
    view = Membership(0, Graph.path(2), 1).view
    assert len({view.epoch(task) for task in range(1000)}) == 1000
    assert all(0 < view.epoch(task) < 2**32 for task in range(10))
