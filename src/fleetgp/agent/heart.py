"""The thread beside the work: it hears links and neighbours, and tells neighbours that this agent is alive.

Whatever the working thread computes, and for however long, the heart beats: a neighbour that hears nothing would take
the agent for lost.
"""

from __future__ import annotations

import time

from fleetgp.agent.description import Description
from fleetgp.agent.membership import Hello, Introduction, longest
from fleetgp.agent.presence import HEARTBEAT, Presence
from fleetgp.agent.threads import Action, Inbox
from fleetgp.errors import NetworkError
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.session import Expiries, Security

#: Seconds for which news are gathered before they are told: many changes at once make one message.
GATHER = 0.03
#: Hellos of one neighbour, and events of one link, that may wait; the rest is refused.
HELLOS, EVENTS = 16, 8
#: Introductions that may wait, of all senders together: they are not bound to one.
INTRODUCTIONS = 4
#: Seconds between two introductions of an agent that misses a neighbour: at first, and at most.
INTRODUCE, RARELY = 2.0, 60.0


class Heart:
    """Links to the neighbours, and the loop that serves them.

    Public methods may be called from any thread and do not wait. All others run on the thread that calls `run`, and
    hold the presence's lock.
    """

    def __init__(self, presence: Presence) -> None:
        self._presence, self._agent = presence, presence.agent
        self._inbox = Inbox()
        self._closed = False
        self._silence = max(2.0 * HEARTBEAT, presence.description.timeouts.lease)
        self._introduce_at, self._pause = time.monotonic() + INTRODUCE, INTRODUCE
        self.links = self._open_links(presence.description)

    def _open_links(self, description: Description) -> Links:
        agent, neighbours = self._agent, self._presence.membership.neighbours
        own = description.credentials(description.names[agent])
        security = None if own is None else Security(own.authority, own.certificate, own.key, description.names)
        endpoints = {j: description.agents[j].endpoint for j in neighbours}
        self.expiries = Expiries(endpoints, security)
        return Links(
            [(agent, j) for j in neighbours],
            hosted=[agent],
            listen=description.agents[agent].endpoint,
            endpoints=endpoints,
            run=description.run,
            lease=description.timeouts.lease,
            security=security,
            longest_hello=longest(description.graph.agents, len(description.graph.edges), len(description.parameters)),
            changed=lambda _, j, up: self.link_changed(j, up),
            hello=lambda _, j, data: self.hello_arrived(j, data),
            early=lambda _: self.wake(),
            introduced=self.introduction_arrived,
        )

    # ---- from any thread ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may have changed: whoever waits for that looks, and what is new is told."""
        self._inbox.put(self._presence.changed.notify_all, source="wake", most=1)

    def post(self, action: Action) -> None:
        """Have something done by the heart's thread."""
        self._inbox.put(action)

    def wake_others(self) -> None:
        """Tell neighbours that have not begun it what this agent works on."""
        self._inbox.put(self._greet_idle, source="greet", most=1)

    def close(self) -> None:
        """End `run`."""
        self._closed = True
        self.wake()

    def link_changed(self, j: int, up: bool) -> None:
        self._inbox.put(lambda: self._note_link(j, up), source=("link", j), most=EVENTS)

    def hello_arrived(self, j: int, data: bytes) -> None:
        try:
            hello = Hello.decode(data)
        except NetworkError:
            self.links.drop("malformed")
            return
        if not self._inbox.put(lambda: self._hear(j, hello), source=("hello", j), most=HELLOS):
            self.links.drop("flooded")

    def introduction_arrived(self, data: bytes) -> None:
        try:
            stranger = Introduction.decode(data)
        except NetworkError:
            self.links.drop("malformed")
            return
        if not self._inbox.put(lambda: self._meet(stranger), source="introduction", most=INTRODUCTIONS):
            self.links.drop("flooded")

    # ---- on the heart's thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `close`."""
        beat = spread = time.monotonic()
        while not self._closed:
            due = min(beat, spread) if self._presence.news else beat
            action = self._inbox.get(due - time.monotonic())
            while action is not None:
                self._do(action)
                action = self._inbox.get(0.0) if time.monotonic() < beat else None
            self._do(self._settle)
            if time.monotonic() >= beat:
                self._do(self._beat)
                beat = time.monotonic() + HEARTBEAT
            if self._presence.news and time.monotonic() >= spread:
                self._do(self._tell)
                spread = time.monotonic() + GATHER

    def _do(self, action: Action) -> None:
        try:
            with self._presence.changed:
                action()
        except Exception as error:  # whatever a neighbour sends, the agent goes on
            self._presence.log.error("control", error=f"{type(error).__name__}: {error}")

    def _settle(self) -> None:
        self._presence.settle(time.monotonic())

    def _beat(self) -> None:
        for j, neighbour in self._presence.neighbours.items():
            self._presence.note_expired(j, self.expiries.expired(j))
            up, now = self.links.up(self._agent, j), time.monotonic()
            known = neighbour.greeted or neighbour.refused or neighbour.expired
            silent = not known and now - neighbour.since > self._silence
            if up != neighbour.linked:
                self._note_link(j, up)
            elif up and silent:
                # It listens, but is not heard: after a reconnection Zenoh may leave one end without the other's word.
                self._presence.log.warn("link renewed", neighbour=self._presence.description.names[j])
                neighbour.since = now
                self.links.renew(self._agent, j)
        self._settle()
        for j in self._presence.neighbours.linked:
            self._greet(j)
        self._introduce_if_alone()

    def _introduce_if_alone(self) -> None:
        """A neighbour that does not listen may be gone, or have a description without this agent: it is told then."""
        neighbours, now = self._presence.neighbours, time.monotonic()
        if all(neighbour.linked for _, neighbour in neighbours.items()):
            self._introduce_at, self._pause = now + INTRODUCE, INTRODUCE
        elif now >= self._introduce_at:
            self._pause = min(2.0 * self._pause, RARELY)
            self._introduce_at = now + self._pause
            self.links.introduce(self._presence.introduction().encode())

    def _meet(self, stranger: Introduction) -> None:
        """Answer an introduction, once: the other end has to log it too, and cannot know who listens here."""
        if self._presence.introduced(stranger):
            self.links.introduce(self._presence.introduction().encode())

    def _note_link(self, j: int, up: bool) -> None:
        if up == self._presence.neighbours[j].linked:
            return
        if up:
            self.expiries.look(j)
            self._presence.note_expired(j, self.expiries.expired(j))
            self._presence.link_up(j, time.monotonic())
            self._greet(j)
        else:
            self._presence.link_down(j, time.monotonic())

    def _hear(self, j: int, hello: Hello) -> None:
        self._presence.note_expired(j, self.expiries.expired(j))
        if self._presence.neighbours[j].expired:
            self.links.drop("expired")
            return
        if self._presence.refuses(j, hello):
            return
        if not self.links.up(self._agent, j):
            return  # a last word of a link that is down
        self._note_link(j, True)
        reason = self._presence.heard(j, hello, time.monotonic())
        if reason:
            self.links.drop(reason)
        elif self._agent in hello.waiting:
            self._send_again(j, hello)

    def _send_again(self, j: int, hello: Hello) -> None:
        """To a neighbour that waits for us in a task that is over here, or interrupted: what we sent did not arrive."""
        network = self._presence.network
        if network is None or hello.epoch != network.epoch:  # else the task under way looks after that itself
            self.links.send_again(self._agent, j, hello.epoch, hello.round)

    def _tell(self) -> None:
        self._presence.news = False
        for j in self._presence.neighbours.linked:
            if self._presence.gossip.news(j):
                self._greet(j)

    def _greet_idle(self) -> None:
        network, neighbours = self._presence.network, self._presence.neighbours
        for j in neighbours.linked:
            if network is not None and neighbours[j].hello.epoch != network.epoch:
                self._greet(j)

    def _greet(self, j: int) -> None:
        if self._presence.neighbours[j].expired:
            return
        hello = self._presence.hello_to(j)
        self.links.greet(self._agent, j, hello.encode())
        self._presence.gossip.told(j, hello.records)
