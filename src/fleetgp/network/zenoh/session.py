"""Zenoh sessions: how they are set up, and who may say what in them. Needs the extra "fleet"."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError, NetworkError
from fleetgp.network.edges import Edge

#: The common name of whoever may ask agents, and tell them to train or to stop.
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
        rules: list[dict[str, Any]] = []
        subjects: list[dict[str, Any]] = []
        policies: list[dict[str, Any]] = []

        def allow(name: str, label: str, allowed: Sequence[tuple[str, str, str]]) -> None:
            for number, (flow, message, key) in enumerate(allowed):
                rules.append(
                    {
                        "id": f"{label} {number}",
                        "permission": "allow",
                        "flows": [flow],
                        "messages": [message],
                        "key_exprs": [key],
                    }
                )
            subjects.append({"id": label, "cert_common_names": [name]})
            policies.append({"rules": [f"{label} {number}" for number in range(len(allowed))], "subjects": [label]})

        prefix = prefix_of(run)
        for own, neighbour in edges:
            # From a neighbour: its own messages to us, and that it listens to what is sent to it. To it: the converse.
            allow(
                self.names[neighbour],
                f"{own}-{neighbour}",
                (
                    ("ingress", "put", f"{prefix}/{own}/{neighbour}/*"),
                    ("ingress", "declare_subscriber", f"{prefix}/{neighbour}/{own}/*"),
                    ("egress", "put", f"{prefix}/{neighbour}/{own}/*"),
                    ("egress", "declare_subscriber", f"{prefix}/{own}/{neighbour}/*"),
                ),
            )
        for own in hosted:
            key = f"{prefix}/{own}/{OPERATOR}/*"
            allow(
                OPERATOR,
                f"{own}-{OPERATOR}",
                (("ingress", "query", key), ("egress", "reply", key), ("egress", "declare_queryable", key)),
            )
        # Any certificate of the fleet's authority: an agent that is not in this file has no other way to be noticed.
        everyone = {"flows": ["ingress", "egress"], "messages": ["put", "declare_subscriber"]}
        rules.append({"id": "introduction", "permission": "allow", **everyone, "key_exprs": [introduction_key(run)]})
        subjects.append({"id": "everyone"})
        policies.append({"rules": ["introduction"], "subjects": ["everyone"]})
        return {
            "enabled": True,
            "default_permission": "deny",
            "rules": rules,
            "subjects": subjects,
            "policies": policies,
        }


def prefix_of(run: int) -> str:
    return f"fleetgp/{run:016x}"


def introduction_key(run: int) -> str:
    """Where agents introduce themselves to all that they are connected with, whatever ids these have."""
    return f"{prefix_of(run)}/introduction"


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
            "endpoints": sorted(set(connect)),
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


def open_session(settings: Mapping[str, Any], failed: str) -> Any:
    try:
        import zenoh
    except ImportError as error:
        raise InputError('this network needs Eclipse Zenoh: pip install "fleetgp[fleet]"') from error
    zenoh.try_init_log_from_env()  # type: ignore[no-untyped-call]  # RUST_LOG=zenoh=debug shows what the links do
    try:
        return zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))
    except zenoh.ZError as error:
        told = re.split(r" at /|\. at ", str(error))[0]  # without the lines of the library's source
        hint = ": the port is taken; does this agent run already?" if "os error 98" in told else f": {told}"
        raise NetworkError(f"{failed}{hint}") from error
