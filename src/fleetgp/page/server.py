"""The page's server: a few files, a stream of changes, and a few things that viewers may do.

Every request has a deadline. A browser sends a request in one piece; a client that holds many connections open without
completing a request (slow loris) loses them after a fraction of a second, one that holds few after some seconds.

The stream has the changes between two pictures as JSON merge patches (RFC 7396). A page can be saved as one HTML file
that needs nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetgp.errors import FleetGPError, InputError, NetworkError
from fleetgp.page.security import KNOWN_FOR, AccessMiddleware, AccessRules, is_loopback, new_token
from fleetgp.page.source import PageSource

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


def changes(before: Any, after: Any) -> Any:
    """The patch that makes `after` of `before`. Values that are None count as not there; lists are sent whole.

    >>> changes({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "d": 4}})
    {'b': {'d': 4}, 'a': None}
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = {}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif before[key] != value:
            patch[key] = changes(before[key], value)
    patch.update({key: None for key in before if key not in after})
    return patch


IMPORT = re.compile(r'^import .*? from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) )", re.MULTILINE)


FOLDER = files("fleetgp.page") / "static"
#: The files that may be had, by how they end.
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
STATIC = frozenset(entry.name for entry in FOLDER.iterdir() if entry.name.rsplit(".", 1)[-1] in TYPES)


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def bundled(name: str = "app.js", done: set[str] | None = None) -> str:
    """A module with all that it imports, each once, as one script."""
    done = set() if done is None else done
    done.add(name)
    text = _read(name)
    before = "".join(bundled(other, done) for other in IMPORT.findall(text) if other not in done)
    return before + EXPORT.sub("", IMPORT.sub("", text))


def saved_page(source: PageSource) -> str:
    """The page with its present picture, map and rows inside; it sends no request."""
    _, picture = source.picture()
    content: dict[str, Any] = {"picture": picture, "rows": source.rows()}
    data = source.field(picture.get("map", {}).get("version", -1))
    if data is not None:
        content["field"] = base64.b64encode(data).decode()
    script = f'"use strict";(() => {{\n{_read("theme.js")}\n{bundled()}\n}})();'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    # "<" could end the element that the JSON stands in.
    document = json.dumps(content, allow_nan=False).replace("<", "\\u003c")
    page = re.sub(r"\s*<script .*?</script>|\s*<link .*?>", "", _read("index.html"))
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    head = f"{meta}\n<style>\n{_read('style.css')}</style>\n</head>"
    tail = f'<script type="application/json" id="saved">{document}</script>\n<script>{script}</script>\n</body>'
    return page.replace("</head>", head, 1).replace("</body>", tail, 1)


#: The port, where none was asked for and it is free.
PORT = 8765
#: Streams, and connections in all, that are served at once.
STREAMS, CONNECTIONS = 24, 400
#: Seconds between two checks for changes, and after which a silent stream sends a sign of life.
LOOK, ALIVE = 0.1, 5.0

Endpoint = Callable[[Request], Awaitable[Response]]


class PageServer:
    """Serves one source until it is closed. address: what a browser opens.  token: to be typed there, if any.

    host: where it listens; beyond this machine only with a token.  port: 0 for any that is free; None: the usual one,
    or any if it is taken.  guarded: a token on this machine, too.
    """

    def __init__(
        self, source: PageSource, host: str = "127.0.0.1", port: int | None = None, *, guarded: bool = False
    ) -> None:
        self._source = source
        self._socket = _listen(host, port)
        bound = self._socket.getsockname()[1]
        self.token = new_token() if guarded or not is_loopback(host) else None
        self._rules = AccessRules(host, self.token, bound)
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        self.address = f"http://[{shown}]:{bound}/" if ":" in shown else f"http://{shown}:{bound}/"
        self._ending, self._streams = threading.Event(), 0
        config = uvicorn.Config(
            AccessMiddleware(self._app(), self._rules),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=TimedProtocol,
            ws="none",
            loop="asyncio",
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True, name="page")

    def start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + 10.0
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise NetworkError(f"the page cannot be served at {self.address}")
            time.sleep(0.01)

    def wait(self) -> None:
        """Until it ends by itself, which it does not: Ctrl-C interrupts this."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """Safe to call twice."""
        self._ending.set()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._socket.close()

    def __enter__(self) -> PageServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- routes ---------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        source = self._source
        return Starlette(
            routes=[
                Route("/", _file("index.html")),
                Route("/static/{name}", self._static),
                Route("/stream", self._stream),
                Route("/field/{version:int}", self._field),
                Route("/rows", self._rows),
                Route("/save", self._save),
                Route("/login", _file("login.html"), methods=["GET"]),
                Route("/login", self._login, methods=["POST"]),
                Route("/ask", _doing(source.ask), methods=["POST"]),
                Route("/choose", _doing(source.choose), methods=["POST"]),
                Route("/renew", _doing(lambda _: source.renew()), methods=["POST"]),
                Route("/train", _doing(lambda given: _confirmed(given) and source.train()), methods=["POST"]),
            ]
        )

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return JSONResponse({"error": f"there is no {name[:80]!r} here"}, 404)
        return await _file(name)(request)

    async def _stream(self, request: Request) -> Response:
        if self._streams >= STREAMS:
            return JSONResponse({"error": f"{STREAMS} pages are open already: close one"}, 503)
        self._streams += 1  # at once: nothing else runs between the check and this

        def ended() -> None:
            self._streams -= 1

        return _Stream(self._changes(), ended)

    async def _changes(self) -> AsyncIterator[str]:
        """First the whole picture, then what changes in it."""
        version, shown = self._source.picture()
        yield _event("whole", shown)
        sent = time.monotonic()
        while not self._ending.is_set():
            await asyncio.sleep(LOOK)
            now, picture = self._source.picture()
            if now != version:
                patch = changes(shown, picture)
                version, shown = now, picture
                # A picture in which only the time has changed is sent now and then, as a sign of life.
                if set(patch) - {"now"} or time.monotonic() - sent > ALIVE / 5:
                    yield _event("patch", patch)
                    sent = time.monotonic()
            elif time.monotonic() - sent > ALIVE:
                yield ": nothing new\n\n"
                sent = time.monotonic()

    async def _field(self, request: Request) -> Response:
        data = self._source.field(request.path_params["version"])
        if data is None:
            return JSONResponse({"error": "that map is not shown any more"}, 404)
        return Response(data, media_type="application/octet-stream")

    async def _rows(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._source.rows))

    async def _save(self, request: Request) -> Response:
        page = await run_in_threadpool(saved_page, self._source)
        name = f"fleet-{time.strftime('%Y-%m-%d-%H%M')}.html"
        return HTMLResponse(page, headers={"Content-Disposition": f'attachment; filename="{name}"'})

    async def _login(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        address = request.client.host if request.client else ""
        known = self._rules.login(form.get("token", [""])[0], address)
        if known is None:
            if self._rules.guesses(address):
                why = "too many wrong tokens from this address: copy the one that `fleetgp watch` printed"
                return JSONResponse({"error": why}, 429, {"Connection": "close"})
            return RedirectResponse("/login?again", 303)
        response = RedirectResponse("/", 303)
        response.set_cookie(self._rules.cookie, known, max_age=int(KNOWN_FOR), httponly=True, samesite="strict")
        return response


class _Stream(StreamingResponse):
    """A stream that reports its end, also when it ends before its first byte."""

    def __init__(self, content: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def _file(name: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        return Response((FOLDER / name).read_bytes(), media_type=TYPES[name.rsplit(".", 1)[-1]])

    return answer


def _doing(work: Callable[[dict[str, Any]], Any]) -> Endpoint:
    """One JSON document in, one out, or one clear error."""

    async def answer(request: Request) -> Response:
        try:
            given = json.loads(await request.body() or b"{}")
            if not isinstance(given, dict):
                raise InputError("expected a JSON object")
            return JSONResponse(await run_in_threadpool(work, given) or {})
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": f"expected a request in JSON: {error}"}, 400)
        except FleetGPError as error:
            return JSONResponse({"error": str(error)}, 400 if isinstance(error, InputError) else 503)

    return answer


def _confirmed(given: dict[str, Any]) -> bool:
    if given.get("confirm") is not True:
        raise InputError("expected a confirmation: training takes the time of the whole fleet")
    return True


def _event(name: str, content: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(content, allow_nan=False)}\n\n"


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, attempt), family=family, backlog=64)
        except OSError as error:
            why = error.strerror
    raise InputError(f"no page can be served at {host}, port {port}: {why}; --port 0 takes any that is free")
