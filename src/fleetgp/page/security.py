"""Who may use the page: only this machine or, if another address was asked for, those who know the token.

A browser runs the scripts of many sites, and any of them can send requests to this machine. So the name in the Host
header must be one of ours (else a site whose name points here could read the page: DNS rebinding), and whatever
changes something must come from the page itself (Origin).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import time
from collections import deque
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Bytes of a request's body, at most.
LARGEST = 65_536
#: Letters and digits that are not mistaken for each other, and how many a token has: 80 bits.
LETTERS, LENGTH = "23456789abcdefghjkmnpqrstuvwxyz", 16
#: Seconds for which a browser is known, and how many are.
KNOWN_FOR, MOST_KNOWN = 43_200.0, 64
#: Wrong tokens of one address within a minute that are more than mistakes in typing, and how many addresses are kept.
MOST_WRONG, MOST_ADDRESSES = 10, 256
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: What a browser may see before the token was typed.
OPEN = ("/login", "/static/style.css", "/static/login.js", "/static/theme.js", "/static/icon.svg")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("boat")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """A token that can be typed on a phone."""
    drawn = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
    return "-".join(drawn[k : k + 4] for k in range(0, LENGTH, 4))


class AccessRules:
    """The rules of one page. host: where it listens.  token: what must be typed; None if nothing must.

    >>> rules = AccessRules("127.0.0.1", None)
    >>> rules.is_ours("localhost:8765"), rules.is_ours("evil.example:8765"), rules.is_ours("192.168.1.7")
    (True, False, False)
    """

    def __init__(self, host: str, token: str | None, port: int = 0) -> None:
        self.token = token
        self.cookie = f"fleetgp_{port}"
        self._names = {*LOOPBACK} if is_loopback(host) else {*LOOPBACK, host.lower(), socket.gethostname().lower()}
        self._anywhere = not is_loopback(host)
        self._known: dict[str, float] = {}
        self._wrong: dict[str, deque[float]] = {}

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this page. Rebinding needs a name, so addresses will do where others may come."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._anywhere

    @staticmethod
    def same_origin(headers: Headers) -> bool:
        """Whether a request comes from the page itself; one without an origin does not."""
        origin = headers.get("origin", "")
        return origin in {f"{scheme}://{headers.get('host')}" for scheme in ("http", "https")}

    def login(self, typed: str, address: str = "") -> str | None:
        """A name for a browser that has typed the token, or None. address: where it comes from.

        The right token is always accepted: with 80 bits it is not guessed, and wrong ones must lock nobody out.
        """
        now = time.monotonic()
        plain = "".join(typed.lower().replace("-", " ").split())
        if self.token is None:
            return None
        if not hmac.compare_digest(plain.encode(), self.token.replace("-", "").encode()):
            wrong = self._wrong.pop(address, None) or deque(maxlen=MOST_WRONG)
            self._wrong[address] = wrong  # behind all others: the first one is forgotten first
            wrong.append(now)
            while len(self._wrong) > MOST_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]
            return None
        name = secrets.token_urlsafe(32)
        self._known[name] = now + KNOWN_FOR
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return name

    def guesses(self, address: str) -> bool:
        """Whether so many wrong tokens came from an address within a minute that nobody can have mistyped them."""
        wrong = self._wrong.get(address, deque())
        return len(wrong) == MOST_WRONG and time.monotonic() - wrong[0] < 60.0

    def knows(self, headers: Headers) -> bool:
        if self.token is None:
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and self._known.get(cookie.value, 0.0) > time.monotonic()


class AccessMiddleware:
    """Middleware: requests that the rules refuse never reach the application."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refused = self._refusal(scope["method"], scope["path"], Headers(scope=scope))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (refused or self._app)(scope, receive, sent)

    def _refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        rules = self._rules
        if not rules.is_ours(headers.get("host", "")):
            return _error(421, "this page is not served under that name: open the address that `fleetgp watch` printed")
        if method not in ("GET", "HEAD", "POST"):
            return _error(405, f"expected GET or POST, got {method}")
        if method == "POST":
            if not rules.same_origin(headers):
                return _error(403, "expected a request of the page itself, got one of another origin")
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > LARGEST:
                return _error(413, f"expected a request of at most {LARGEST} bytes")
        if not rules.knows(headers) and path not in OPEN:
            return RedirectResponse("/login", 303) if path == "/" else _error(401, "type the token first: see /login")
        return None


def _error(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)
