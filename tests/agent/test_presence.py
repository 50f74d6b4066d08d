"""What an agent does when neighbours come, go, fall silent or talk nonsense: without threads, clocks or links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetgp.agent.logs import Log
from fleetgp.agent.membership import Hello, Record, View
from fleetgp.agent.presence import HEARTBEAT, Presence
from fleetgp.errors import Cancelled
from fleetgp.network.zenoh.network import EpochOverError
from tests.agent.fleets import describe


class Fleet:
    """Presences on a path that tell each other what is new, all at the same times. log: the file of all of them."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.description, _ = describe(folder, agents, round=5)
        self.now, self.file = 0.0, folder / "log"
        self.log = Log("fleet", file=self.file)
        self.all = [
            Presence(self.description, agent, self.log, incarnation=1, now=self.now)
            for agent in range(self.description.graph.agents)
        ]
        for presence in self.all:
            presence.changed.acquire()  # whoever calls it holds its lock

    def __getitem__(self, agent: int) -> Presence:
        return self.all[agent]

    def link_all(self) -> None:
        for presence in self.all:
            for j in presence.membership.neighbours:
                presence.link_up(j, self.now)

    def talk(self, times: int = 6) -> None:
        """Hellos to whoever is linked at both ends, one heartbeat after the other."""
        for _ in range(times):
            self.now += HEARTBEAT
            for presence in self.all:
                for j in presence.neighbours.linked:
                    if self[j].neighbours[presence.agent].linked:
                        hello = presence.hello_to(j)
                        self.hear(j, presence.agent, hello)
                        presence.gossip.note_known(j, hello.records)
            for presence in self.all:
                presence.settle(self.now)

    def hear(self, agent: int, sender: int, hello: Hello) -> str:
        return self[agent].take_hello(sender, Hello.decode(hello.encode()), self.now)

    def begin(self, *agents: int) -> list[View | None]:
        """These declare themselves ready for what they see; the view of each, if it has begun."""
        for _ in range(2):  # a neighbour that was left out says that it is ready, and is then called up
            self.talk()
            for agent in agents:
                self[agent].declare()
            self.talk()
            views = [self[agent].begin() for agent in agents]
            if None not in views:
                break
        return views


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, 3)
    fleet.link_all()
    fleet.talk()
    yield fleet
    fleet.log.close()


class Work:
    """In the place of a network: it remembers why it was cancelled."""

    def __init__(self, epoch: int = 9, waiting_for: frozenset[int] = frozenset()) -> None:
        self.epoch, self.waiting_for = epoch, waiting_for
        self.round = self.exchanging = 4
        self.why: Cancelled | None = None

    def cancel(self, why: Cancelled) -> None:
        self.why = why


def members(view: View | None) -> tuple[int, ...] | None:
    return None if view is None else view.members


def test_a_view_begins_when_all_its_members_are_ready(three: Fleet) -> None:
    assert three.begin(0, 1) == [None, None]
    views = three.begin(0, 1, 2)
    assert [members(view) for view in views] == [(0, 1, 2)] * 3
    assert three[1].running == views[0]


def test_a_link_that_falls_ends_the_view_and_cancels_its_tasks(three: Fleet) -> None:
    three.begin(0, 1, 2)
    outer, inner = Work(), Work(10, frozenset({2}))
    three[1].networks += [outer, inner]  # type: ignore[list-item]
    three[1].link_down(2, three.now)
    three[2].link_down(1, three.now)
    assert three[1].running is None
    assert isinstance(outer.why, EpochOverError)
    assert isinstance(inner.why, EpochOverError)
    assert three.begin(0, 1, 2)[0] == three[1].running
    assert [members(presence.running) for presence in three.all] == [(0, 1), (0, 1), (2,)]
    for agent, j in ((1, 2), (2, 1)):
        three[agent].link_up(j, three.now)
    three.talk()
    assert three[1].running is None  # another view: what was one part of the fleet is whole again
    assert [members(view) for view in three.begin(0, 1, 2)] == [(0, 1, 2)] * 3


def test_a_neighbour_that_is_lost_is_left_out_until_it_is_ready_again(three: Fleet) -> None:
    (view, *_) = three.begin(0, 1, 2)
    assert view is not None
    three[1].neighbours_lost(view, (2,), "nothing came from it", three.now)
    assert three[1].running is None
    assert three[1].neighbours[2].standing == "suspended: nothing came from it"
    assert three[1].membership.own.up == (0,)
    assert three[1].neighbours[0].up
    three[1].neighbours_lost(view, (0,), "late news", three.now)  # the view was over before: nobody is to blame
    assert three[1].neighbours[0].up
    three[2].link_down(1, three.now)  # it notices in its own time
    three[2].link_up(1, three.now)
    assert [members(view) for view in three.begin(0, 1, 2)] == [(0, 1, 2)] * 3


def test_who_is_lost_again_and_again_is_left_out_for_longer(three: Fleet) -> None:
    until = []
    for _ in range(4):
        view = three.begin(0, 1, 2)[1]
        assert members(view) == (0, 1, 2)
        assert view is not None
        three[1].neighbours_lost(view, (2,), "slow", three.now)
        until.append(three[1].neighbours[2].until - three.now)
        three.now += 40.0
    assert until == [0.0, 5.0, 15.0, 35.0]


def test_those_who_send_nonsense_are_left_out_and_not_relayed(three: Fleet) -> None:
    good = three[2].hello_to(1)
    absurd: list[Hello] = [
        replace(good, number=100, records=(Record(0, 2**62, 1),)),
        replace(good, number=100, records=(Record(7, 1),)),
        replace(good, number=100, theta=(0.0,) * 3),
        replace(good, number=100, waiting=frozenset({3})),
    ]
    for hello in absurd:
        assert three.hear(1, 2, hello) == "nonsense"
        assert three[1].neighbours[2].standing.startswith("suspended: it sends nonsense: ")
        assert three[1].membership.of(7) is None
        three[1].neighbours[2].suspended = None
    assert three.hear(1, 2, good) == ""
    assert three.hear(1, 2, good) == "replayed"


def test_another_description_is_refused_once_and_aloud(three: Fleet) -> None:
    stranger = replace(three[2].hello_to(1), digest="f" * 64)
    assert three[1].refuses(2, stranger)
    assert three[1].refuses(2, stranger)
    three[1].settle(three.now)
    assert three[1].neighbours[2].standing.startswith("refused")
    assert three[1].membership.own.up == (0,)
    three.log.close()
    assert three.file.read_text(encoding="utf-8").count('"event": "refused"') == 1


def test_at_the_start_those_who_have_not_come_are_waited_for(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 2)
    alone, connect = fleet[0], fleet.description.timeouts.connect
    assert alone.holding(connect - 0.1)
    assert not alone.holding(connect)
    fleet.link_all()
    fleet.talk(2)
    assert not alone.holding(1.0)  # all are here
    fleet.log.close()


def test_who_withdraws_leaves_the_others_a_view(three: Fleet) -> None:
    three.begin(0, 1, 2)
    three[2].withdraw(True, three.now)
    three.talk()
    assert [members(view) for view in three.begin(0, 1)] == [(0, 1)] * 2
    three[2].withdraw(False, three.now)
    three.talk()
    assert [members(view) for view in three.begin(0, 1, 2)] == [(0, 1, 2)] * 3


def test_what_a_neighbour_says_of_its_waiting_counts_for_a_while_in_whatever_task(three: Fleet) -> None:
    assert three[1].neighbours.waiting_of(2, three.now) is None
    three[2].networks.append(Work(9, frozenset({1})))  # type: ignore[arg-type]
    three.talk(1)
    assert three[1].neighbours.waiting_of(2, three.now) == (9, 4, frozenset({1}))
    assert three[1].neighbours.waiting_of(0, three.now) is None
    assert three[1].neighbours.waiting_of(2, three.now + 4 * HEARTBEAT) is None


def test_an_agent_that_withdrew_sees_who_comes_and_goes_but_not_who_withdraws(tmp_path: Path) -> None:
    """On a path 0 - 1 - 2 - 3."""
    fleet = Fleet(tmp_path, 4)
    fleet.link_all()
    fleet.talk()
    fleet[0].withdraw(True, fleet.now)
    fleet.talk()
    assert fleet[0].company() == {1: (1, True), 2: (1, True), 3: (1, True)}
    fleet[1].withdraw(True, fleet.now)
    fleet.talk()
    assert fleet[0].company() == {2: (1, True), 3: (1, True)}
    fleet[1].withdraw(False, fleet.now)
    fleet.talk()
    assert fleet[0].company() == {1: (1, True), 2: (1, True), 3: (1, True)}
    fleet[2].link_down(3, fleet.now)  # 3 is gone, without a word
    fleet.talk()
    assert fleet[0].company() == {1: (1, True), 2: (1, True), 3: (1, False)}
    fleet.log.close()
