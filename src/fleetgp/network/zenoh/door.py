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
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
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
#: Bytes that are read at once.
CHUNK = 2**16


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


class RefusedError(Exception):
    """A connection that does not get through, and why."""


class Door:
    """Listens on host and port, and passes on to a port on loopback what gets through.

    dropped: what does not, by reason; a handshake that fails has got through, and counts all the same.
    """

    def __init__(self, host: str, port: int, dropped: Counter[str]) -> None:
        self.inner, self.dropped = _free_port(), dropped
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()
        self._silent: OrderedDict[asyncio.Timeout, None] = OrderedDict()  # of connections before their handshake
        self.sides: set[asyncio.StreamWriter] = set()  # of all connections
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="door", daemon=True)
        self._thread.start()
        try:
            self._server = self._do(asyncio.start_server(self._serve, host, port))
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

    # ---- a connection ---------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From its first byte to its last."""
        with suppress(OSError):
            async with self._side(writer):
                try:
                    hello = await self._client_hello(reader)
                    address = str((writer.get_extra_info("peername") or ("?",))[0])
                    await self._pass_on(hello, reader, writer, await self._turn(address, reader))
                except RefusedError as why:
                    self.dropped[str(why)] += 1

    @asynccontextmanager
    async def _side(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        writer.transport.set_write_buffer_limits(high=WAITING)
        self.sides.add(writer)
        try:
            yield
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.sides.discard(writer)

    async def _client_hello(self, reader: asyncio.StreamReader) -> bytes:
        """The first bytes, as soon as the ClientHello in them is whole."""
        hello = b""
        begins: bool | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE) as deadline:
                self._silent[deadline] = None
                if len(self._silent) > MOST_SILENT:
                    longest, _ = self._silent.popitem(last=False)
                    longest.reschedule(0.0)
                try:
                    while (begins := begins_tls(hello)) is None:
                        hello += await _read(reader)
                finally:
                    self._silent.pop(deadline, None)
        if not begins:
            raise RefusedError("no handshake")
        return hello

    async def _turn(self, address: str, reader: asyncio.StreamReader) -> Allowance:
        """Wait until it is an address' turn."""
        until, allowance = time.monotonic() + PATIENCE, self.allowance(address)
        while not allowance.take(time.monotonic()):
            if time.monotonic() >= until:
                raise RefusedError("turned away")
            await asyncio.sleep(TURN)
            _check_there(reader)
        return allowance

    async def _pass_on(
        self, hello: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowance: Allowance
    ) -> None:
        """Both ways until one side ends. What Zenoh sends after the second message, if it is no alert, is a session."""
        try:
            inside_reader, inside = await asyncio.open_connection("127.0.0.1", self.inner)
        except OSError:  # Zenoh does not listen yet, or any more
            allowance.give_back()
            raise
        answered, sent_inside = False, 0

        async def inwards() -> None:
            nonlocal answered
            while data := await reader.read(CHUNK):
                answered = True
                inside.write(data)
                await inside.drain()

        async def outwards() -> None:
            nonlocal sent_inside
            while data := await inside_reader.read(CHUNK):
                writer.write(data)
                if answered and sent_inside <= ALERT_BYTES:
                    sent_inside += len(data)
                    if sent_inside > ALERT_BYTES:
                        allowance.give_back()
                await writer.drain()

        async with self._side(inside):
            try:
                _check_there(reader)
                inside.write(hello)
                ways = [asyncio.create_task(inwards()), asyncio.create_task(outwards())]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            finally:
                if sent_inside <= ALERT_BYTES:
                    self.dropped["failed handshake"] += 1

    # ---- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let nobody in any more, and end what went through; safe to call twice."""
        if not self.loop.is_closed():
            self._do(self._shut())
            self._end()

    async def _shut(self) -> None:
        # A server that closes loses the connections that it has accepted in the same turn: it accepts no more first.
        for listening in self._server.sockets:
            self.loop.remove_reader(listening.fileno())
        while busy := asyncio.all_tasks() - {asyncio.current_task()}:
            for side in self.sides:
                side.transport.abort()
            await asyncio.wait(busy, timeout=TURN)
        self._server.close()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self.loop.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """What comes next; a ConnectionError if the other end hung up."""
    data = await reader.read(CHUNK)
    if not data:
        raise ConnectionResetError
    return data


def _check_there(reader: asyncio.StreamReader) -> None:
    if reader.at_eof() or reader.exception() is not None:
        raise ConnectionResetError


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
