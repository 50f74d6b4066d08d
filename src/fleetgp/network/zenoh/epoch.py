"""Agents in processes of their own: rounds over `Links`.

Zenoh's "reliable" ends with a link, so the authority on whether a neighbour takes part is the round's own deadline. On
links that lose one packet in five single frames vanish although the link stays up: where two neighbours wait for each
other, they send again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from fleetgp.errors import NetworkError
from fleetgp.graph import Topology
from fleetgp.network.frames import Edge, FrameNetwork
from fleetgp.network.wire import Frame, encode
from fleetgp.network.zenoh.links import Links

#: A neighbour that says it waits itself is given this many deadlines, then it counts as lost all the same.
PATIENCE = 4
#: Frames that are kept for each neighbour, in case it lacks one; and of those beyond the last two, how many bytes.
KEPT_FRAMES, KEPT_BYTES = 8, 2**22
#: Frames of later rounds that may wait, for each neighbour.
AHEAD = 64
#: Seconds after which an agent that waits looks whether a neighbour waits for it in turn, and sends again.
AGAIN = 1.0


class NeighbourLostError(NetworkError):
    """A round's deadline passed without a word from some neighbours."""

    def __init__(self, round: int, neighbours: Iterable[int], seconds: float) -> None:
        self.neighbours = tuple(sorted(neighbours))
        names = ", ".join(map(str, self.neighbours))
        super().__init__(f"round {round}: nothing came from agent {names} within {seconds:g} s")


class ZenohNetwork(FrameNetwork):
    """The rounds of one epoch, for the agents hosted here.

    members: the ids by which the links know the topology's agents 0, 1, ...; without it these are the ids.
    epoch: tells these rounds' frames from those of other work over the same links; all agents must give the same.
    timeout: seconds that a round may take.
    word(neighbour): what a neighbour said last of its own waiting, in this epoch: (round, for whom); None if it does
        not wait. Who waits is not lost yet; and if it waits for us, it gets the frame of that round again.
    waiting_for, exchanging: the neighbours that the hosted agents wait for at the moment, and in which round.
    """

    def __init__(
        self,
        links: Links,
        topology: Topology,
        hosted: Sequence[int],
        *,
        members: Sequence[int] | None = None,
        epoch: int = 0,
        timeout: float = 10.0,
        word: Callable[[int], tuple[int, frozenset[int]] | None] = lambda _: None,
    ) -> None:
        super().__init__(topology, hosted)
        self.epoch, self.timeout = epoch, timeout
        self.waiting_for: frozenset[int] = frozenset()
        self.exchanging = 0
        self._links = links
        self._members = tuple(range(topology.agents)) if members is None else tuple(members)
        self._word = word
        self._sent: dict[Edge, list[tuple[int, bytes]]] = {}
        self._known = {
            (sender, receiver)
            for receiver, sender in topology.union.directed.tolist()
            if receiver in self._position and sender not in self._position
        }
        self._early: dict[tuple[int, Edge], Frame] = {}
        self._mail = links.claim(epoch)

    def _swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        self._mail.check()
        received: dict[Edge, Frame] = {}
        self.exchanging = round
        for frame in frames:
            edge = (frame.sender, frame.receiver)
            if frame.receiver in self._position:
                received[edge] = frame
            else:
                stamped = Frame(*edge, frame.round, frame.parts, frame.phase, self._links.run, self.epoch)
                link = (self._members[frame.sender], self._members[frame.receiver])
                data = encode(stamped)
                self._keep(link, round, data)
                self._links.send(*link, data)
        missing = {edge for edge in expected if edge not in received and (round, edge) not in self._early}
        if missing:
            self._wait_for(missing, round)
            self.waiting_for = frozenset()
        for edge in expected:
            if edge not in received:
                received[edge] = self._early.pop((round, edge))
        for late in [key for key in self._early if key[0] <= round]:
            del self._early[late]
        return {edge: received[edge] for edge in expected}

    def _wait_for(self, missing: set[Edge], round: int) -> None:
        began = time.monotonic()
        deadline, last = began + self.timeout, began + PATIENCE * self.timeout
        again = began + AGAIN
        while missing:
            self.waiting_for = frozenset(self._members[sender] for sender, _ in missing)
            item = self._mail.get(min(deadline, again) - time.monotonic())
            now = time.monotonic()
            if now >= again:
                self._send_again(missing)
                again = now + AGAIN
            if now >= deadline:
                blamed = {neighbour for neighbour in self.waiting_for if self._word(neighbour) is None}
                if blamed or now >= last:
                    raise NeighbourLostError(round, blamed or self.waiting_for, now - began)
                deadline = min(last, now + AGAIN)
            if item is None:
                continue
            edge, frame, size = item
            self._links.consumed(self.epoch, edge[0], size)
            if self._accepted(edge, frame, round):
                self._early[frame.round, (frame.sender, frame.receiver)] = frame
                if frame.round == round:
                    missing.discard((frame.sender, frame.receiver))

    def _send_again(self, missing: set[Edge]) -> None:
        """To neighbours who wait for us while we wait for them: what we sent did not arrive."""
        for sender, receiver in missing:
            neighbour, own = self._members[sender], self._members[receiver]
            round, waiting_for = self._word(neighbour) or (-1, frozenset())
            if own in waiting_for:
                self.send_again(own, neighbour, round)

    def send_again(self, own: int, neighbour: int, round: int) -> None:
        """A frame of this epoch, to a neighbour that lacks it; from any thread."""
        for number, data in list(self._sent.get((own, neighbour), ())):
            if number == round:
                self._links.resent += 1
                self._links.send(own, neighbour, data)

    def _keep(self, link: Edge, round: int, data: bytes) -> None:
        frames = self._sent.setdefault(link, [])
        frames.append((round, data))
        while len(frames) > KEPT_FRAMES or (len(frames) > 2 and sum(len(kept) for _, kept in frames[:-2]) > KEPT_BYTES):
            frames.pop(0)

    def _accepted(self, link: Edge, frame: Frame, round: int) -> bool:
        """Whether a frame that came over a link (sender, receiver) is one that may come now; else it is counted."""
        edge = (frame.sender, frame.receiver)
        if edge not in self._known or link != (self._members[frame.sender], self._members[frame.receiver]):
            self._links.drop("impostor")
        elif frame.round < round:
            self._links.drop("late")
        elif (frame.round, edge) in self._early:
            self._links.drop("replayed")
        elif frame.round > round and sum(early == edge for _, early in self._early) >= AHEAD:
            self._links.drop("flooded")
        else:
            return True
        return False

    def interrupt(self, why: str) -> None:
        """End the epoch, from any thread: whoever waits in a round gets an EpochOverError."""
        self._mail.close(why)

    def close(self) -> None:
        """Give up the epoch: its frames come late from now on."""
        self._links.retire(self.epoch, self._sent)

    def __enter__(self) -> ZenohNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
