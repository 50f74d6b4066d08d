"""Nothing of the page can be used from elsewhere unless it was asked for: by real requests."""

from __future__ import annotations

import http.client
import json
import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")

from fleetgp.page import security
from fleetgp.page import server as connections
from fleetgp.page.server import CONNECTIONS, STATIC, STREAMS, PageServer
from tests.page.fakes import FakeFleet

#: Seconds after which only a hang has not ended.
LONG = 60.0
STREAM = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: The headers of a login, whose body follows.
LOGIN = "POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: {}\r\n\r\n"


class Client:
    """Requests as a browser, or somebody else, would send them."""

    def __init__(self, server: PageServer) -> None:
        self.port = urlsplit(server.address).port or 0
        self.origin = f"http://127.0.0.1:{self.port}"

    def __call__(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            data = body if isinstance(body, str) else None if body is None else json.dumps(body)
            connection.request(method, path, data, named)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def post(self, path: str, body: object, **headers: str) -> int:
        return self("POST", path, body, **{"Origin": self.origin, **headers})[0]


@pytest.fixture(scope="module")
def fleet() -> FakeFleet:
    source = FakeFleet(4)
    source.draw((10, 10))
    source.tell()
    return source


@pytest.fixture(scope="module")
def local(fleet: FakeFleet) -> Iterator[Client]:
    with PageServer(fleet, port=0) as server:
        assert server.token is None
        yield Client(server)


@pytest.fixture(scope="module")
def remote(fleet: FakeFleet) -> Iterator[tuple[Client, str]]:
    """As from another machine: on all addresses of this one."""
    with PageServer(fleet, "0.0.0.0", 0) as server:
        assert server.token is not None
        yield Client(server), server.token


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "192.168.1.7", "", "[::1", "127.0.0.1.evil.example"],
)
def test_a_name_that_is_not_ours_is_refused(local: Client, host: str) -> None:
    """DNS rebinding: a site whose name points to this machine must not read the page."""
    for path in ("/", "/stream", "/field/1", "/static/app.js", "/save"):
        status, _, body = local("GET", path, Host=host)
        assert (status, b"not served under that name" in body) == (421, True)


def test_our_own_names_are_served(local: Client) -> None:
    for host in (f"127.0.0.1:{local.port}", "localhost", "LOCALHOST:99", "[::1]:8765"):
        assert local("GET", "/", Host=host)[0] == 200


@pytest.mark.parametrize("path", ["/ask", "/choose", "/renew", "/train", "/login"])
def test_what_changes_something_must_come_from_the_page_itself(local: Client, fleet: FakeFleet, path: str) -> None:
    before = (len(fleet.asked), fleet.chosen, fleet.renewed, fleet.trained)
    body = {"point": [0.5, 0.5], "confirm": True, "method": "dec-rbcm"}
    for origin in (
        "http://evil.example",
        "null",
        f"http://localhost:{local.port}",
        "http://127.0.0.1",
        f"{local.origin}.evil.example",
    ):
        assert local.post(path, body, Origin=origin) == 403
    assert local("POST", path, body)[0] == 403, "none at all"
    assert local("GET", path)[0] == (200 if path == "/login" else 405)
    assert (len(fleet.asked), fleet.chosen, fleet.renewed, fleet.trained) == before


def test_the_page_itself_may(local: Client, fleet: FakeFleet) -> None:
    status, _, body = local("POST", "/ask", {"point": [0.25, 0.5]}, Origin=local.origin)
    assert (status, json.loads(body)["mean"]) == (200, 0.75)
    assert local.post("/choose", {"agent": "boat1", "method": "dec-rbcm"}) == 200
    assert (fleet.chosen.agent, fleet.chosen.method) == ("boat1", "dec-rbcm")
    assert local.post("/choose", {"agent": "", "method": "dec-nn-grbcm"}) == 200
    before = fleet.trained
    assert local.post("/train", {}) == 400, "not without a confirmation"
    assert fleet.trained == before
    assert local.post("/train", {"confirm": True}) == 200
    assert fleet.trained == before + 1


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[1]",
        '{"point": "x"}',
        '{"point": [1]}',
        '{"point": [1, NaN]}',
        '{"point": [1e999, 0]}',
        '{"point": [true]}',
        "[" * 5_000,
    ],
)
def test_nonsense_gets_one_clear_error(local: Client, body: str) -> None:
    status, _, told = local("POST", "/ask", body, Origin=local.origin)
    assert (status, json.loads(told)["error"].startswith("expected")) == (400, True)
    assert local.post("/choose", {"agent": "nobody"}) == 400
    assert local.post("/choose", {"method": {"a": 1}}) == 400


def test_sizes_and_ways_are_limited(local: Client) -> None:
    assert local.post("/ask", " " * (security.LARGEST + 1)) == 413
    assert local.post("/ask", "{}", Content_Length="-1") in (400, 413)
    assert local("POST", "/ask", None, Origin=local.origin, Transfer_Encoding="chunked")[0] in (400, 413)
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert local(method, "/")[0] == 405
    for path in (
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/none.js",
        "/field/99",
    ):
        assert local("GET", path)[0] == 404


def test_a_browser_is_told_to_be_strict(local: Client) -> None:
    for path in ("/", "/static/app.js", "/field/1", "/nowhere"):
        _, headers, _ = local("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["cross-origin-resource-policy"]) == (
            "nosniff",
            "same-origin",
        )
        assert not any(name.startswith("access-control-") for name in headers)
    for name in ("index.html", "login.html"):
        text = local("GET", f"/static/{name}")[2].decode()
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|https?://", text), (
            "no inline script, nothing from elsewhere"
        )


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Raw:
    """One connection, as bytes. address: the client's own."""

    def __init__(self, port: int, sent: str, address: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), LONG, (address, 0))
        self.send(sent)

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def status(self) -> int:
        """Of the answer, whose headers are read; 0 if the connection is closed without one."""
        self.headers = b""
        with suppress(ConnectionError):
            while b"\r\n\r\n" not in self.headers and (read := self.socket.recv(4096)):
                self.headers += read
        return int(self.headers.split()[1]) if self.headers else 0


@contextmanager
def held() -> Iterator[list[Raw]]:
    """Connections that are closed at the end, whatever happens."""
    opened: list[Raw] = []
    try:
        yield opened
    finally:
        for one in opened:
            one.socket.close()


def test_only_so_many_streams_are_served_however_many_ask_at_once(fleet: FakeFleet) -> None:
    with PageServer(fleet, port=0) as server, held() as streams:
        client = Client(server)
        for _ in range(60):
            streams.append(Raw(client.port, STREAM))
        assert Counter(one.status() for one in streams) == {200: STREAMS, 503: 60 - STREAMS}
        for one in streams:
            one.socket.close()
        deadline = time.monotonic() + LONG
        again = 503
        while again == 503:
            assert time.monotonic() < deadline, "streams that have ended make room for others"
            streams.append(Raw(client.port, STREAM))
            again = streams[-1].status()
        assert again == 200


#: Nothing, half of the headers, half of a body.
HALVES = ["", "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", LOGIN.format(9) + "tok"]
NAMES = ["nothing", "headers", "body"]


@pytest.mark.parametrize("half", HALVES, ids=NAMES)
def test_half_requests_keep_nobody_out(fleet: FakeFleet, half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are held, however long, and one that was slow is served once it is complete."""
    monkeypatch.setattr(connections, "COMPLETE", LONG)
    monkeypatch.setattr(connections, "SOON", LONG)
    with PageServer(fleet, port=0) as server, held() as opened:
        client = Client(server)
        opened += [Raw(client.port, half) for _ in range(110)]
        assert [client("GET", path)[0] for path in ("/", "/static/app.js")] == [200, 200]
        opened[0].send(STREAM if not half else "1\r\n\r\n" if half.startswith("GET") else "en=abc")
        assert opened[0].status() in (200, 303)


@pytest.mark.parametrize("half", HALVES, ids=NAMES)
def test_half_requests_are_closed(fleet: FakeFleet, half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "COMPLETE", 0.1)
    with PageServer(fleet, port=0) as server, held() as opened:
        opened += [Raw(Client(server).port, half) for _ in range(3)]
        assert {one.status() for one in opened} == {0}


def test_a_request_that_trickles_is_closed(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "COMPLETE", 0.3)
    with PageServer(fleet, port=0) as server, held() as opened:
        slow = Raw(Client(server).port, HALVES[1])
        opened.append(slow)
        slow.socket.settimeout(0.05)
        closed, deadline = False, time.monotonic() + LONG
        while not closed:
            assert time.monotonic() < deadline, "more bytes do not move the deadline"
            try:
                slow.send("x")
                closed = slow.socket.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True


def test_a_client_that_reads_nothing_is_closed(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED", 0.1)
    with PageServer(fleet, port=0) as server, held() as opened:
        opened.append(Raw(Client(server).port, "GET /static/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000))
        assert opened[0].socket.recv(1) == b"H"
        until(lambda: not server._server.server_state.connections)


def test_an_address_that_holds_many_half_requests_loses_them_first(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but a few; whoever is slow at another address has time."""
    monkeypatch.setattr(connections, "COMPLETE", LONG)
    monkeypatch.setattr(connections, "SOON", 0.1)
    with PageServer(fleet, port=0) as server, held() as opened, selectors.DefaultSelector() as selector:
        port, more = Client(server).port, 20
        patient = Raw(port, HALVES[1])
        opened += [patient, *(Raw(port, HALVES[1], "127.0.0.2") for _ in range(connections.MOST_OF_ADDRESS + more))]
        for one in opened:
            selector.register(one.socket, selectors.EVENT_READ)
        closed: set[int] = set()
        deadline = time.monotonic() + LONG
        while len(closed) < more:
            assert time.monotonic() < deadline
            for key, _ in selector.select(1.0):
                closed.add(key.fd)
                selector.unregister(key.fileobj)
        assert patient.socket.fileno() not in closed
        patient.send("1\r\n\r\n")
        assert patient.status() == 200


@pytest.mark.parametrize("source", ["127.0.0.2", "127.0.0.1"], ids=["elsewhere", "same address"])
def test_who_opens_half_requests_all_the_time_keeps_nobody_out(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Far more than the page has connections, none of which ends by itself: each new one costs the oldest."""
    monkeypatch.setattr(connections, "COMPLETE", LONG)
    monkeypatch.setattr(connections, "SOON", LONG)
    with PageServer(fleet, "0.0.0.0", port=0) as server, held() as opened:
        client = Client(server)
        for number in range(3 * CONNECTIONS // 2):
            opened.append(Raw(client.port, HALVES[1], source))
            if number % 100 == 99:
                assert client("GET", "/login")[0] == 200
        until(lambda: len(server._server.server_state.connections) <= connections.LIMIT_OF_ADDRESS)
        assert server.token is not None
        token = f"token={server.token}"
        let_in = Raw(client.port, LOGIN.format(len(token)) + token, source)
        opened.append(let_in)
        assert let_in.status() == 303
        assert b"set-cookie" in let_in.headers.lower()


def test_another_address_needs_the_token(remote: tuple[Client, str]) -> None:
    client, token = remote
    status, headers, _ = client("GET", "/")
    assert (status, headers["location"]) == (303, "/login")
    for path in ("/stream", "/field/1", "/rows", "/save", "/static/app.js", "/static/index.html"):
        status, _, body = client("GET", path)
        assert (status, b"token" in body, token.encode() in body) == (401, True, False)
    assert client.post("/ask", {"point": [0.5, 0.5]}) == 401
    assert client.post("/train", {"confirm": True}) == 401
    for cookie in (
        f"fleetgp_{client.port}={token}",
        f"fleetgp_{client.port}=",
        "x",
        f"fleetgp_{client.port}=" + "a" * 43,
    ):
        assert client("GET", "/stream", Cookie=cookie)[0] == 401
    assert client("GET", "/", Host="evil.example")[0] == 421, "names are refused here, too"
    assert client("GET", "/", Host="10.1.2.3:99")[0] == 303, "addresses are not: rebinding needs a name"


def test_the_token_opens_the_page_and_is_nowhere_in_it(remote: tuple[Client, str]) -> None:
    client, token = remote
    assert len(token.replace("-", "")) == security.LENGTH
    status, headers, _ = client("POST", "/login", "token=wrong", Origin=client.origin)
    assert (status, headers["location"], "set-cookie" in headers) == (303, "/login?again", False)
    status, headers, _ = client("POST", "/login", f"token=+{token.upper()}+", Origin=client.origin)
    cookie = headers["set-cookie"]
    assert (status, headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    session = cookie.split(";")[0]
    plain = token.replace("-", "")
    for path in ("/", "/login", "/save", "/rows", "/field/1", *(f"/static/{name}" for name in STATIC)):
        status, headers, body = client("GET", path, Cookie=session)
        assert status == 200
        told = body.decode("utf-8", "replace") + json.dumps(headers)
        assert not any(secret in told for secret in (token, plain, session.split("=")[1]))
    assert client.post("/renew", {}, Cookie=session) == 200
    assert client.post("/renew", {}, Cookie=session, Origin="http://evil.example") == 403


def test_wrong_tokens_lock_nobody_out(fleet: FakeFleet) -> None:
    """By real requests from two addresses: the one that guesses is refused, the right token never is."""
    with PageServer(fleet, "0.0.0.0", 0) as server, held() as opened:
        client = Client(server)

        def login(token: str, address: str) -> int:
            opened.append(Raw(client.port, LOGIN.format(len(token) + 6) + f"token={token}", address))
            return opened[-1].status()

        tries = [login("wrong", "127.0.0.2") for _ in range(security.MOST_WRONG + 5)]
        assert tries == [303] * (security.MOST_WRONG - 1) + [429] * 6
        assert login("wrong", "127.0.0.1") == 303, "another address has a count of its own"
        assert server.token is not None
        assert [login(server.token, address) for address in ("127.0.0.1", "127.0.0.2")] == [303, 303]
        with_cookie = [b"set-cookie" in one.headers.lower() for one in opened[-2:]]
        assert with_cookie == [True, True], "both are let in"


def test_wrong_tokens_are_counted_for_few_addresses() -> None:
    door = security.AccessRules("0.0.0.0", "abcd-efgh-jkmn-pqrs")
    for number in range(3 * security.MOST_ADDRESSES):
        assert door.login("wrong", f"10.0.{number // 256}.{number % 256}") is None
    assert len(door._wrong) == security.MOST_ADDRESSES
    assert door.login("ABCD efgh jkmn pqrs") is not None


def test_browsers_that_are_known_are_few_and_forgotten() -> None:
    door = security.AccessRules("0.0.0.0", "abcd")
    names = [door.login("abcd") or "" for _ in range(security.MOST_KNOWN + 5)]
    from starlette.datastructures import Headers

    known = [door.knows(Headers({"cookie": f"{door.cookie}={name}"})) for name in names]
    assert known == [False] * 5 + [True] * security.MOST_KNOWN
    assert len(set(names)) == len(names)


def test_tokens_differ() -> None:
    tokens = {security.new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert all(set(token) <= {*security.LETTERS, "-"} for token in tokens)
