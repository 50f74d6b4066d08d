"""Zenoh sessions: how they are set up, who may say what in them, and when the certificates of neighbours expire.

Needs the extra "fleet". Zenoh closes a link when the certificate of its other end expires, but this is not final. In
that last second the certificate is still valid by its own rules, and a link that is made then has no timer any more:
Zenoh starts the timer before the link is complete, and a timer that fires at once does not find the link. Zenoh reports
the common name of a certificate and not its end. So every agent makes a plain TLS handshake with each of its
neighbours, and reads it there.
"""

from __future__ import annotations

import json
import queue
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError, NetworkError
from fleetgp.network.edges import Edge

#: The common name of those who may ask agents, and have them train or stop.
OPERATOR = "operator"


@dataclass(frozen=True)
class Security:
    """Mutual TLS, and who may say what: TLS keeps strangers out, access control binds a certificate to its agent.

    names: every agent's name, by id; the common name of its certificate.
    """

    authority: Path
    certificate: Path
    key: Path
    names: Sequence[str]

    @property
    def tls(self) -> dict[str, Any]:
        return {
            "root_ca_certificate": str(self.authority),
            "listen_certificate": str(self.certificate),
            "listen_private_key": str(self.key),
            "connect_certificate": str(self.certificate),
            "connect_private_key": str(self.key),
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
        }

    def access(self, hosted: Sequence[int], edges: Sequence[Edge], run: int) -> dict[str, Any]:
        """Zenoh's access control for an end with these agents and edges (own, neighbour): all else is denied."""
        prefix = prefix_of(run)
        allowed: list[tuple[str, str, tuple[tuple[str, str, str], ...]]] = []  # label, name in the certificate, rules
        for own, neighbour in edges:
            # From a neighbour: its own messages to us, and that it listens to what is sent to it. To it: the converse.
            here, there = f"{prefix}/{own}/{neighbour}/*", f"{prefix}/{neighbour}/{own}/*"
            rules_of_edge = (
                ("ingress", "put", here),
                ("ingress", "declare_subscriber", there),
                ("egress", "put", there),
                ("egress", "declare_subscriber", here),
            )
            allowed.append((f"{own}-{neighbour}", self.names[neighbour], rules_of_edge))
        for own in hosted:
            key = f"{prefix}/{own}/{OPERATOR}/*"
            asked = (("ingress", "query", key), ("egress", "reply", key), ("egress", "declare_queryable", key))
            allowed.append((f"{own}-{OPERATOR}", OPERATOR, asked))
        # Any certificate of the fleet's authority: an agent that is not in this file has no other way to be noticed.
        # Rosters go the same way: whoever brings one, the operator's signature counts.
        keys = {"introduction": introduction_key(run), "roster": roster_key(run)}
        both, messages = ["ingress", "egress"], ["put", "declare_subscriber"]
        rules = [_rule(label, both, messages, key) for label, key in keys.items()]
        subjects: list[dict[str, Any]] = [{"id": "everyone"}]
        policies = [{"rules": list(keys), "subjects": ["everyone"]}]
        for label, name, of_label in allowed:
            own_rules = [
                _rule(f"{label} {k}", [flow], [message], key) for k, (flow, message, key) in enumerate(of_label)
            ]
            rules += own_rules
            subjects.append({"id": label, "cert_common_names": [name]})
            policies.append({"rules": [rule["id"] for rule in own_rules], "subjects": [label]})
        tables = {"rules": rules, "subjects": subjects, "policies": policies}
        return {"enabled": True, "default_permission": "deny", **tables}


def _rule(id: str, flows: list[str], messages: list[str], key: str) -> dict[str, Any]:
    return {"id": id, "permission": "allow", "flows": flows, "messages": messages, "key_exprs": [key]}


def prefix_of(run: int) -> str:
    return f"fleetgp/{run:016x}"


def introduction_key(run: int) -> str:
    """Where agents introduce themselves to all that they are connected with, whatever ids these have."""
    return f"{prefix_of(run)}/introduction"


def roster_key(run: int) -> str:
    """Where agents send the fleet's roster to all that they are connected with and that hold an older one."""
    return f"{prefix_of(run)}/roster"


def is_local(endpoint: str) -> bool:
    return re.match(r"^\w+/(127\.\d+\.\d+\.\d+|localhost|\[::1\]):", endpoint) is not None


def address_of(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint.

    >>> address_of("tls/10.0.0.3:7447"), address_of("tls/[::1]:7447")
    (('10.0.0.3', 7447), ('::1', 7447))
    """
    host, port = endpoint.split("/", 1)[1].rsplit(":", 1)
    return host.strip("[]"), int(port)


def peer_settings(listen: str, connect: Sequence[str], lease: float) -> dict[str, Any]:
    return {
        "mode": "peer",
        "listen": {"endpoints": [listen]},
        "connect": {
            "endpoints": list(connect),
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {"period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 1.5},
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "shared_memory": {"enabled": False},
            "link": {
                "tx": {
                    "lease": round(1000 * lease),
                    # Microseconds: longer, and one dead edge holds up the healthy ones.
                    "queue": {"congestion_control": {"block": {"wait_before_close": 500_000}}},
                }
            },
        },
    }


def client_settings(endpoint: str, security: Security | None, reach: float = 3.0) -> dict[str, Any]:
    """Settings of a session with one agent, tried once. reach: seconds to reach it."""
    settings: dict[str, Any] = {
        "mode": "client",
        "connect": {"endpoints": [endpoint], "timeout_ms": 0, "exit_on_failure": True},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {"shared_memory": {"enabled": False}, "unicast": {"open_timeout": round(1000 * reach)}},
    }
    if security is not None:
        settings["transport"]["link"] = {"tls": security.tls}
    return settings


def open_session(settings: Mapping[str, Any], failed: str) -> Any:
    try:
        import zenoh
    except ImportError as error:
        raise InputError('this network needs Eclipse Zenoh: pip install "fleetgp[fleet]"') from error
    zenoh.try_init_log_from_env()  # type: ignore[no-untyped-call]  # RUST_LOG=zenoh=debug shows what the links do
    try:
        return zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))
    except zenoh.ZError as error:
        reason = re.split(r" at /|\. at ", str(error))[0]  # without the lines of the library's source
        if "os error 98" in reason:
            reason = "the port is taken; does this agent run already?"
        raise NetworkError(f"{failed}: {reason}") from error


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
