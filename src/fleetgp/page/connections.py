"""Connections of the page: a deadline for every request, so that nobody keeps others out by sending half of one.

A browser sends a request in one piece. A client that holds many connections open without completing a request (slow
loris) loses them after a fraction of a second, one that holds few after some seconds. One that opens new ones all the
time loses its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds in which a connection must be used, and in which a request must be complete after its first byte.
COMPLETE = 5.0
#: The same where one address, or all together, have more connections than this that wait for a request.
SOON = 0.25
MOST_OF_ADDRESS, MOST_OF_ALL = 16, 64
#: Connections that may wait for a request at any time, of one address and of all: of more, the one that has waited
#: longest is closed. A whole request waits no longer than it takes to arrive, so that it passes those who hold theirs.
LIMIT_OF_ADDRESS, LIMIT_OF_ALL = 150, 300
#: Seconds for which a client may read nothing of its answer.
STALLED = 20.0


class TimedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with deadlines. waiting: whether the next request is not complete yet."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadlines: list[asyncio.TimerHandle] = []
        self._stalled: asyncio.TimerHandle | None = None
        self._begun = False
        self._since = 0.0

    @property
    def waiting(self) -> bool:
        return bool(self._deadlines)

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadlines()
        waiting = [one for one in self.connections if isinstance(one, TimedProtocol) and one.waiting]
        own = [one for one in waiting if one.address == self.address]
        for held, limit in ((own, LIMIT_OF_ADDRESS), (waiting, LIMIT_OF_ALL)):
            if len(held) > limit:
                oldest = min(held, key=lambda one: one._since)
                oldest._drop_deadlines()
                oldest.transport.abort()
                return

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._drop_deadlines()
            self._begun = True
        super().data_received(data)
        self._set_deadlines()

    def on_response_complete(self) -> None:
        self._begun = False
        super().on_response_complete()
        self._set_deadlines()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadlines()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _set_deadlines(self) -> None:
        """For the request that is on its way, if there are none yet: more bytes of it do not move them."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._drop_deadlines()
        elif not self._deadlines:
            self._since = self.loop.time()
            self._deadlines = [
                self.loop.call_later(COMPLETE, self.transport.close),
                self.loop.call_later(SOON, self._make_room),
            ]

    def _drop_deadlines(self) -> None:
        for timer in self._deadlines:
            timer.cancel()
        self._deadlines = []

    def _make_room(self) -> None:
        waiting = [one.address for one in self.connections if isinstance(one, TimedProtocol) and one.waiting]
        if len(waiting) > MOST_OF_ALL or waiting.count(self.address) > MOST_OF_ADDRESS:
            self._drop_deadlines()
            self.transport.close()
