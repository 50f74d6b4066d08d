"""A door before a TLS port: only connections that begin a TLS handshake get through, and nobody gets through too often.

Zenoh's acceptor sleeps for a tenth of a second after every handshake that fails, and lets nobody in meanwhile: twenty
strangers a second who connect and hang up lock everybody out, certificates or not. Behind the door Zenoh listens on
loopback. The door passes bytes on as they are, so that encryption, certificates and access control stay between the
two ends. What it refuses never reaches Zenoh.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Coroutine
from typing import Any

from fleetgp.errors import NetworkError

#: Seconds in which a connection must have sent its ClientHello, and then for which it may wait for its turn.
PATIENCE = 5.0
#: Connections that may wait for that; of more, the one that has waited longest is ended.
MOST_SILENT = 128
#: Handshakes of one address that may be under way, or have failed, and how many more in every second. Agents on this
#: machine share an address, and one with an expired certificate must not lock out the others.
HANDSHAKES, FAILURES_PER_SECOND, FAILURES_PER_SECOND_HERE = 16.0, 0.5, 5.0
#: Seconds between two looks whether it is a connection's turn.
TURN = 0.02
#: Addresses that are remembered.
MOST_ADDRESSES = 1024
#: The server's last word in a handshake that fails is an alert: what is longer is a session.
ALERT_BYTES = 64
#: Bytes that may wait for a slow end before the other one is not read any more.
WAITING = 2**18


class Allowance:
    """So much at once, and so much more in every second.

    >>> allowance = Allowance(2.0, 1.0)
    >>> [allowance.take(0.0), allowance.take(0.0), allowance.take(0.5), allowance.take(1.0)]
    [True, True, False, True]
    """

    def __init__(self, most: float, per_second: float) -> None:
        self._most, self._rate = most, per_second
        self._left, self._at = most, 0.0

    def left(self, now: float) -> float:
        return min(self._most, self._left + self._rate * (now - self._at))

    def take(self, now: float) -> bool:
        self._left, self._at = self.left(now), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        self._left += 1.0


def begins_tls(data: bytes) -> bool | None:
    """Whether a connection begins with a whole ClientHello; None if that is too early to say.

    >>> begins_tls(b""), begins_tls(b"GET / HTTP/1.1"), begins_tls(bytes([22, 3, 1, 0, 4, 1, 0, 0])),
    (None, False, None)
    >>> begins_tls(bytes([22, 3, 1, 0, 4, 1, 0, 0, 0]))
    True
    """
    for place, wanted in enumerate(((22,), (3,), (1, 2, 3, 4))):
        if len(data) > place and data[place] not in wanted:
            return False
    if len(data) < 6:
        return None
    length = int.from_bytes(data[3:5])
    if data[5] != 1 or not 4 <= length <= 2**14:
        return False
    return True if len(data) >= 5 + length else None


class Door:
    """Listens on host and port, and passes on to a port on loopback what gets through.

    dropped: what does not, by reason; a handshake that fails has got through, and counts all the same.
    """

    def __init__(self, host: str, port: int, dropped: Counter[str]) -> None:
        self.inner, self.dropped = _free_port(), dropped
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()
        self.silent: OrderedDict[_Outside, None] = OrderedDict()
        self.sides: set[_Side] = set()  # of all connections
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="door", daemon=True)
        self._thread.start()
        try:
            self._server = self._do(self.loop.create_server(lambda: _Outside(self), host, port))
        except OSError as error:
            self._end()
            taken = "the port is taken; does this agent run already?" if error.errno == 98 else error.strerror
            raise NetworkError(f"no session on {host}:{port}: {taken}") from error

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10.0)

    def allowance(self, address: str) -> Allowance:
        """Of an address, for handshakes; those that succeed are given back."""
        if address not in self._allowances:
            here = address.startswith("127.") or address == "::1"
            self._allowances[address] = Allowance(HANDSHAKES, FAILURES_PER_SECOND_HERE if here else FAILURES_PER_SECOND)
            while len(self._allowances) > MOST_ADDRESSES:
                self._allowances.popitem(last=False)
        self._allowances.move_to_end(address)
        return self._allowances[address]

    def close(self) -> None:
        """Let nobody in any more, and end what went through; safe to call twice."""
        if not self.loop.is_closed():
            self._do(self._shut())
            self._end()

    async def _shut(self) -> None:
        # A server that closes loses the connections that it has accepted in the same turn: it accepts no more first.
        for listening in self._server.sockets:
            self.loop.remove_reader(listening.fileno())
        while busy := asyncio.all_tasks() - {asyncio.current_task()}:  # that accept, or dial
            self._hang_up()
            await asyncio.wait(busy)
        self._server.close()
        while self.sides:
            self._hang_up()
            await asyncio.sleep(0.0)

    def _hang_up(self) -> None:
        for side in self.sides:
            side.transport.abort()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self.loop.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Side(asyncio.Protocol):
    """One side of a connection that is passed on; what it receives goes to the other."""

    transport: asyncio.Transport
    other: _Side | None = None

    def __init__(self, door: Door) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._door.sides.add(self)
        transport.set_write_buffer_limits(high=WAITING)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()
        self._door.sides.discard(self)


class _Inside(_Side):
    """Towards Zenoh. What it sends after its partner's second message begins a session, if it is no alert."""

    _heard = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if isinstance(self.other, _Outside) and self.other.answered and self._heard <= ALERT_BYTES:
            self._heard += len(data)
            if self._heard > ALERT_BYTES:
                self.other.succeeded()


class _Outside(_Side):
    """Towards whoever connected: silent until its ClientHello is whole, then passed on when it is its address' turn."""

    def __init__(self, door: Door) -> None:
        super().__init__(door)
        self._first = b""
        self.answered = self._pending = False
        self._timer: asyncio.TimerHandle | None = None
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        door = self._door
        self._address = str((transport.get_extra_info("peername") or ("?",))[0])
        door.silent[self] = None
        self._timer = door.loop.call_later(PATIENCE, self._refuse, "no handshake")
        if len(door.silent) > MOST_SILENT:
            next(iter(door.silent))._refuse("no handshake")

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.answered = True
            super().data_received(data)
            return
        self._first += data
        begins = begins_tls(self._first)
        if begins is False:
            self._refuse("no handshake")
        elif begins and self._dialling is None:
            self._dialling = self._door.loop.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        self.transport.pause_reading()
        self._stop_timer()
        until, allowance = time.monotonic() + PATIENCE, self._door.allowance(self._address)
        while not (taken := allowance.take(time.monotonic())) and time.monotonic() < until:
            await asyncio.sleep(TURN)
            if self.transport.is_closing():
                return
        if not taken:
            self._refuse("turned away")
            return
        self._spoke()
        try:
            _, inside = await self._door.loop.create_connection(
                lambda: _Inside(self._door), "127.0.0.1", self._door.inner
            )
        except OSError:  # Zenoh does not listen yet, or any more
            allowance.give_back()
            self.transport.abort()
            return
        self._pending = True
        if self.transport.is_closing():
            self._failed()
            inside.transport.abort()
            return
        self.other, inside.other = inside, self
        inside.transport.write(self._first)
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._spoke()
        if self._pending:
            self._failed()
        super().connection_lost(exc)

    def succeeded(self) -> None:
        self._pending = False
        self._door.allowance(self._address).give_back()

    def _failed(self) -> None:
        self._pending = False
        self._door.dropped["failed handshake"] += 1

    def _refuse(self, why: str) -> None:
        self._spoke()
        self._door.dropped[why] += 1
        self.transport.abort()

    def _spoke(self) -> None:
        """It waits no more: it has begun a handshake, or is gone."""
        self._stop_timer()
        self._door.silent.pop(self, None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
