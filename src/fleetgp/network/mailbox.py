"""Where frames arrive for the agents of one host, until their round comes."""

from __future__ import annotations

import queue
from collections.abc import Callable

from fleetgp.errors import NeighbourLostError
from fleetgp.network.edges import Edge
from fleetgp.network.wire import Frame, decode


class Mailbox:
    """Any thread puts frames in, one takes them out, round after round.

    A frame that comes twice counts once, and one of a round that is over not at all.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._early: dict[tuple[int, Edge], Frame] = {}

    def put(self, data: bytes) -> None:
        self._arrived.put(data)

    def wake(self) -> None:
        """Let whoever waits call `waiting` once more."""
        self._arrived.put(None)

    def take(
        self, expected: list[Edge], round: int, timeout: float, waiting: Callable[[frozenset[int]], None]
    ) -> dict[Edge, Frame]:
        """A round's frame of each (sender, receiver); a NeighbourLostError if nothing comes for so many seconds.

        waiting: told before each wait whom it is for; it raises if there is to be none.
        """
        missing = {edge for edge in expected if (round, edge) not in self._early}
        while missing:
            senders = frozenset(sender for sender, _ in missing)
            waiting(senders)
            try:
                data = self._arrived.get(timeout=timeout)
            except queue.Empty:
                raise NeighbourLostError(round, senders, timeout) from None
            if data is None:
                continue
            frame = decode(data)
            if frame.round >= round:
                self._early[frame.round, (frame.sender, frame.receiver)] = frame
            if frame.round == round:
                missing.discard((frame.sender, frame.receiver))
        found = {edge: self._early[round, edge] for edge in expected}
        for over in [key for key in self._early if key[0] <= round]:
            del self._early[over]
        return found
