"""The door before a TLS port: strangers who hang up, say nothing or talk nonsense keep nobody out."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent.certificates import make_authority, make_certificate
from fleetgp.network.zenoh.door import HANDSHAKES, MOST_SILENT, PATIENCE, Allowance, Door, begins_tls
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import free_ports
from tests.agent.fleets import describe, running, serving, until

#: More than anything here takes, on any machine: only a hang is longer.
LONG = 60.0


@cache
def client_hello() -> bytes:
    """As a real TLS client begins."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="boat").do_handshake()
    return outgoing.read()


def test_a_real_client_hello_is_known_as_soon_as_it_is_whole() -> None:
    hello = client_hello()
    assert [begins_tls(hello[:length]) for length in range(len(hello))] == [None] * len(hello)
    assert begins_tls(hello) is True
    assert begins_tls(hello + b"more") is True


@given(st.binary(min_size=6, max_size=40))
def test_nothing_else_begins_a_handshake(data: bytes) -> None:
    whole = len(data) >= 5 + int.from_bytes(data[3:5])
    record = data[0] == 22 and data[1] == 3 and 1 <= data[2] <= 4 and data[5] == 1
    assert begins_tls(data) in ((True, False) if record and whole else (None, False))


@given(st.lists(st.floats(0.0, 3.0), max_size=80))
def test_an_allowance_is_never_exceeded(pauses: list[float]) -> None:
    allowance, now, taken = Allowance(5.0, 2.0), 0.0, []
    for pause in pauses:
        now += pause
        if allowance.take(now):
            taken.append(now)
    for first in taken:
        for last in taken:
            within = sum(first <= moment <= last for moment in taken)
            assert last < first or within <= 5.0 + 2.0 * (last - first) + 1e-6


@contextmanager
def a_door(answer: bytes = b"a session that goes on for longer than any alert would" * 3) -> Iterator[tuple[Door, int]]:
    """A door before a server that answers whatever it hears; without an answer it hangs up, as if handshakes failed."""
    (port,) = free_ports(1)
    door = Door("127.0.0.1", port, Counter())
    server = socket.create_server(("127.0.0.1", door.inner))

    def talk(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while data := connection.recv(2**16):
                connection.sendall(answer or data[:1])
                if not answer:
                    return

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            talkers.append(threading.Thread(target=talk, args=(connection,)))
            talkers[-1].start()

    talkers = [threading.Thread(target=serve)]
    talkers[0].start()
    try:
        yield door, port
    finally:
        door.close()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for talker in talkers:
            talker.join(LONG)
        door.close()  # twice does no harm


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LONG, source_address=(source, 0))


def gets_through(port: int, source: str = "127.0.0.1") -> bool:
    with connected(port, source) as connection:
        try:
            connection.sendall(client_hello())
            return bool(connection.recv(10))
        except OSError:
            return False


def test_who_begins_a_handshake_gets_through_byte_for_byte() -> None:
    with a_door() as (_, port), connected(port) as connection:
        hello = client_hello()
        for place in range(0, len(hello), 100):
            connection.sendall(hello[place : place + 100])
        assert connection.recv(9) == b"a session"
        connection.sendall(b"x" * 10)
        assert connection.recv(9)


def test_who_talks_something_else_is_refused_and_never_reaches_the_port() -> None:
    with a_door() as (door, port):
        for _ in range(20):
            with connected(port) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert _is_closed(connection)
        until(lambda: door.dropped["no handshake"] == 20)
        assert gets_through(port)


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_silence_crowds_nobody_out() -> None:
    with a_door() as (door, port):
        silent = [connected(port) for _ in range(MOST_SILENT + 20)]
        until(lambda: door.dropped["no handshake"] >= 20)
        assert gets_through(port)
        for connection in silent:
            connection.close()


def test_a_door_that_closes_hangs_up_on_who_has_just_come_in_too() -> None:
    """Several come while it is busy: it accepts them in the same turn in which it closes."""
    (port,) = free_ports(1)
    door, busy = Door("127.0.0.1", port, Counter()), threading.Event()
    begun = threading.Event()

    def be_busy() -> None:
        begun.set()
        busy.wait(LONG)

    door.loop.call_soon_threadsafe(be_busy)
    assert begun.wait(LONG)
    strangers = [connected(port) for _ in range(5)]
    closing = threading.Thread(target=door.close)
    closing.start()
    until(lambda: len(door.loop._ready) > 0)  # type: ignore[attr-defined]  # closing waits for its turn
    busy.set()
    closing.join(LONG)
    for stranger in strangers:
        assert _is_closed(stranger)
        stranger.close()


def test_whose_handshakes_fail_is_turned_away_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetgp.network.zenoh.door.FAILURES_PER_SECOND_HERE", 0.0)  # however slow this machine is
    with a_door(answer=b"") as (door, port):
        for _ in range(int(HANDSHAKES)):
            with connected(port, "127.0.0.5") as connection:
                connection.sendall(client_hello())
                connection.recv(1)
        until(lambda: door.dropped["failed handshake"] == HANDSHAKES)
        with monkeypatch.context() as patch:
            patch.setattr("fleetgp.network.zenoh.door.PATIENCE", 0.2)
            until(lambda: not gets_through(port, "127.0.0.5") and door.dropped["turned away"] >= 1)
        assert gets_through(port, "127.0.0.6")


def test_handshakes_at_the_same_time_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred that begin together and hang up together: only so many get as far as the port."""
    with a_door(answer=b"") as (door, port):
        door.allowance("127.0.0.5")._rate = 0.0
        strangers = [connected(port, "127.0.0.5") for _ in range(100)]
        for stranger in strangers:
            stranger.sendall(client_hello())
        until(lambda: door.dropped["failed handshake"] == HANDSHAKES)
        for stranger in strangers:
            stranger.close()
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + PATIENCE)
        monkeypatch.setattr("fleetgp.network.zenoh.door.time", later)  # nobody's turn comes within its patience
        until(lambda: not door.sides)
        assert door.dropped["failed handshake"] == HANDSHAKES
        assert gets_through(port, "127.0.0.6")


def test_strangers_who_hang_up_lock_no_operator_out(tmp_path: Path) -> None:
    """Zenoh itself would need a tenth of a second for each, and let nobody in for a minute."""
    make_authority(tmp_path / "certs")
    for name in ("a0", "a1", "operator"):
        make_certificate(tmp_path / "certs", name, hosts=["127.0.0.1"])
    description, _ = describe(tmp_path, 2, tls="certs")
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        port = int(description.agents[0].endpoint.rsplit(":", 1)[1])
        for number in range(400):
            stranger = socket.create_connection(("127.0.0.1", port), timeout=LONG)
            if number % 3 == 0:
                stranger.sendall(b"nonsense")
            stranger.close()
        began = time.monotonic()
        with AgentClient(description, "a0", reach=30.0) as client:
            assert client.request("status", 30.0)["agent"] == "a0"
        assert time.monotonic() - began < LONG


def test_many_operators_at_once_are_all_served(tmp_path: Path) -> None:
    make_authority(tmp_path / "certs")
    for name in ("a0", "operator"):
        make_certificate(tmp_path / "certs", name, hosts=["127.0.0.1"])
    description, _ = describe(tmp_path, 1, tls="certs")
    served: list[str] = []

    def operate() -> None:
        with AgentClient(description, "a0", reach=LONG) as client:
            served.append(client.request("status", LONG)["agent"])

    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        operators = [threading.Thread(target=operate) for _ in range(20)]
        for operator in operators:
            operator.start()
        for operator in operators:
            operator.join(LONG)
    assert served == ["a0"] * 20
