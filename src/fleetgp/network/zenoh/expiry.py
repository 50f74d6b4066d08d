"""When the certificates of neighbours expire.

Zenoh closes a link when the certificate of its other end expires, but this is not final. In that last second the
certificate is still valid by its own rules, and a link that is made then has no timer any more: Zenoh starts the timer
before the link is complete, and a timer that fires at once does not find the link. Zenoh reports the common name of a
certificate and not its end. So every agent makes a plain TLS handshake with each of its neighbours, and reads it there.
"""

from __future__ import annotations

import queue
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fleetgp.network.zenoh.session import Security, address_of

#: Seconds for one handshake, and until one that showed nothing, or a certificate that has expired, is repeated.
PATIENCE, AGAIN = 3.0, 60.0
#: OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED.
HAS_EXPIRED = 10


def expiry_of(endpoint: str, name: str, security: Security, seconds: float = PATIENCE) -> float | None:
    """Return when the certificate of an agent expires, in seconds since 1970, or None where a handshake cannot show it.

    A certificate that has already expired is not accepted, and gives 0. Only whoever holds the key of a certificate
    can show it, and it counts only if it is of this authority, for this host and in this name.
    """
    if not endpoint.startswith("tls/"):
        return None
    host, port = address_of(endpoint)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(security.authority)
        context.load_cert_chain(security.certificate, security.key)
        with (
            socket.create_connection((host, port), seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            shown: dict[str, Any] = secure.getpeercert() or {}
            with suppress(OSError):  # an empty message, so that Zenoh hangs up and the handshake counts as complete
                secure.sendall(b"\0\0")
                secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        return 0.0 if error.verify_code == HAS_EXPIRED else None
    except (OSError, ValueError):
        return None
    names = {value for part in shown.get("subject", ()) for key, value in part if key == "commonName"}
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"]))) if names == {name} else None


class Expiries:
    """When the certificates of the neighbours expire, as far as they have shown it. One thread runs `run`.

    endpoints: those of the neighbours, by agent id.  security: None for a fleet without certificates.
    """

    def __init__(self, endpoints: Mapping[int, str], security: Security | None) -> None:
        self._endpoints, self._security = endpoints, security
        self._known: dict[int, float] = {}
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def look(self, j: int) -> None:
        """Look at the certificate of a neighbour that has come; it may have a new one. Does not wait."""
        if self._security is not None:
            self._queue.put(j)

    def expired(self, j: int) -> bool:
        """Whether the last certificate that a neighbour showed has expired."""
        return j in self._known and time.time() >= self._known[j]

    def run(self) -> None:
        """Until `close`."""
        wanted: set[int] = set()
        while True:
            with suppress(queue.Empty):
                j = self._queue.get(timeout=AGAIN)
                if j is None:
                    return
                self._look(j)
                wanted.add(j)
                continue
            for j in wanted:
                if self.expired(j) or j not in self._known:
                    self._look(j)

    def close(self) -> None:
        self._queue.put(None)

    def _look(self, j: int) -> None:
        assert self._security is not None, "nobody looks without certificates"
        shown = expiry_of(self._endpoints[j], self._security.names[j], self._security)
        if shown is not None:
            self._known[j] = shown
