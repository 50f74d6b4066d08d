"""Agents in processes of their own, over Eclipse Zenoh in peer mode. Needs the extra "fleet".

Links exist along the graph's edges only: no scouting, no gossip, so that nobody is introduced to anybody. A message
is a frame (`wire`) on the key fleetgp/RUN/RECEIVER/SENDER. Zenoh's "reliable" ends with a link, so the authority on
whether a neighbour takes part is the round's own deadline.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError, NetworkError
from fleetgp.graph import Topology
from fleetgp.network.frames import Edge, FrameNetwork
from fleetgp.network.wire import Frame, decode, encode

#: Bytes that may wait to be read: what comes beyond is dropped and counted.
WAITING = 512 * 2**20


class NeighbourLostError(NetworkError):
    """A round's deadline passed without a word from some neighbours."""

    def __init__(self, round: int, neighbours: Iterable[int], seconds: float) -> None:
        self.neighbours = tuple(sorted(neighbours))
        names = ", ".join(map(str, self.neighbours))
        super().__init__(f"round {round}: nothing came from agent {names} within {seconds:g} s")


@dataclass(frozen=True)
class Security:
    """Mutual TLS, and who may say what: TLS keeps strangers out, access control binds a certificate to its agent.

    names: every agent's name, by id; the common name of its certificate.
    """

    authority: Path
    certificate: Path
    key: Path
    names: Sequence[str]

    def settings(self, edges: Sequence[Edge], run: int) -> dict[str, Any]:
        """Zenoh's settings for an end with these edges (own agent, neighbour)."""
        tls = {
            "root_ca_certificate": str(self.authority),
            "listen_certificate": str(self.certificate),
            "listen_private_key": str(self.key),
            "connect_certificate": str(self.certificate),
            "connect_private_key": str(self.key),
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
        }
        prefix = f"fleetgp/{run:016x}"
        rules, subjects, policies = [], [], []
        for own, neighbour in edges:
            label = f"{own}-{neighbour}"
            # From a neighbour: its own messages to us, and that it listens to what is sent to it. To it: the converse.
            allowed = {
                "heard": ("ingress", "put", f"{prefix}/{own}/{neighbour}"),
                "listens": ("ingress", "declare_subscriber", f"{prefix}/{neighbour}/*"),
                "said": ("egress", "put", f"{prefix}/{neighbour}/{own}"),
                "listening": ("egress", "declare_subscriber", f"{prefix}/{own}/*"),
            }
            for what, (flow, message, key) in allowed.items():
                rules.append(
                    {
                        "id": f"{what} {label}",
                        "permission": "allow",
                        "flows": [flow],
                        "messages": [message],
                        "key_exprs": [key],
                    }
                )
            subjects.append({"id": label, "cert_common_names": [self.names[neighbour]]})
            policies.append({"rules": [f"{what} {label}" for what in allowed], "subjects": [label]})
        control = {
            "enabled": True,
            "default_permission": "deny",
            "rules": rules,
            "subjects": subjects,
            "policies": policies,
        }
        return {"tls": tls, "access_control": control}


class ZenohNetwork(FrameNetwork):
    """One end of a fleet: the agents hosted here, one Zenoh session, and links to their neighbours.

    listen: this end's endpoint, like "tcp/127.0.0.1:7447".  endpoints: those of the neighbours, by agent id.
    run, epoch: tell this run's frames from those of another; all agents must give the same.
    timeout: seconds that a round may take; connect_timeout: that finding the neighbours may take.
    security: mutual TLS and access control, where the endpoints are tls/... or quic/...; anywhere but on loopback.
    dropped: frames that were refused, by reason; they never stop a round.
    """

    def __init__(
        self,
        topology: Topology,
        hosted: Sequence[int],
        *,
        listen: str,
        endpoints: Mapping[int, str],
        run: int = 0,
        epoch: int = 0,
        timeout: float = 10.0,
        connect_timeout: float = 30.0,
        security: Security | None = None,
    ) -> None:
        super().__init__(topology, hosted)
        self.run, self.epoch, self.timeout = run, epoch, timeout
        self.dropped: Counter[str] = Counter()
        self._edges = [
            (int(receiver), int(sender))
            for receiver, sender in topology.union.directed.tolist()
            if receiver in self._position and sender not in self._position
        ]
        self._known = {(sender, receiver) for receiver, sender in self._edges}
        self._mail: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._waiting = 0
        self._early: dict[tuple[int, Edge], Frame] = {}
        self._closed = threading.Event()
        missing = sorted({sender for _, sender in self._edges} - set(endpoints))
        if missing:
            raise InputError(f"endpoints must name every neighbour, but those of {missing} are missing")
        if security is None and not all(_is_local(end) for end in (listen, *(endpoints[s] for _, s in self._edges))):
            raise InputError("outside of this machine agents need certificates: give security, and tls/ endpoints")
        settings = {} if security is None else security.settings(self._edges, run)
        self._session = _open(listen, [endpoints[sender] for _, sender in self._edges], settings)
        try:
            self._publishers = self._declare()
            self._wait_for_neighbours(connect_timeout)
        except BaseException:
            self.close()
            raise

    # ---- transport ------------------------------------------------------------------------------------

    def _swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        received: dict[Edge, Frame] = {}
        for frame in frames:
            edge = (frame.sender, frame.receiver)
            if frame.receiver in self._position:
                received[edge] = frame
            else:
                stamped = Frame(*edge, frame.round, frame.parts, frame.phase, self.run, self.epoch)
                self._publishers[edge].put(encode(stamped))
        missing = {edge for edge in expected if edge not in received and (round, edge) not in self._early}
        deadline = time.monotonic() + self.timeout
        while missing:
            left = deadline - time.monotonic()
            try:
                key, data = self._mail.get(timeout=max(left, 0.0))
            except queue.Empty:
                raise NeighbourLostError(round, {sender for sender, _ in missing}, self.timeout) from None
            self._waiting -= len(data)
            found = self._accepted(key, data, round)
            if found is not None:
                self._early[found.round, (found.sender, found.receiver)] = found
                if found.round == round:
                    missing.discard((found.sender, found.receiver))
        for edge in expected:
            if edge not in received:
                received[edge] = self._early.pop((round, edge))
        for late in [key for key in self._early if key[0] <= round]:
            del self._early[late]
        return {edge: received[edge] for edge in expected}

    def _accepted(self, key: str, data: bytes, round: int) -> Frame | None:
        """The frame, if it is one of this run that a neighbour may send now; else it is counted."""
        try:
            frame = decode(data)
        except NetworkError:
            self.dropped["malformed"] += 1
            return None
        refused = self._refused(frame, key, round)
        if refused is not None:
            self.dropped[refused] += 1
            return None
        return frame

    def _refused(self, frame: Frame, key: str, round: int) -> str | None:
        edge = (frame.sender, frame.receiver)
        if frame.run != self.run:
            return "foreign"
        if edge not in self._known or not key.endswith(f"/{frame.receiver}/{frame.sender}"):
            return "impostor"
        if frame.epoch != self.epoch or frame.round < round:
            return "late"
        return "replayed" if (frame.round, edge) in self._early else None

    # ---- links ----------------------------------------------------------------------------------------

    def _declare(self) -> dict[Edge, Any]:
        import zenoh

        def arrived(sample: Any) -> None:
            data = bytes(sample.payload)
            if self._waiting + len(data) > WAITING:
                self.dropped["flooded"] += 1
                return
            self._waiting += len(data)
            self._mail.put((str(sample.key_expr), data))

        prefix = f"fleetgp/{self.run:016x}"
        self._subscribers = [self._session.declare_subscriber(f"{prefix}/{agent}/*", arrived) for agent in self.hosted]
        return {
            (own, neighbour): self._session.declare_publisher(
                f"{prefix}/{neighbour}/{own}",
                reliability=zenoh.Reliability.RELIABLE,
                congestion_control=zenoh.CongestionControl.BLOCK,
                express=True,
            )
            for own, neighbour in self._edges
        }

    def _wait_for_neighbours(self, seconds: float) -> None:
        """A message before the neighbour listens is lost: wait until all do."""
        deadline = time.monotonic() + seconds
        while True:
            silent = sorted({edge[1] for edge, p in self._publishers.items() if not p.matching_status.matching})
            if not silent:
                return
            if time.monotonic() > deadline:
                names = ", ".join(map(str, silent))
                raise NetworkError(f"agent {names} did not answer within {seconds:g} s: is it running, and reachable?")
            time.sleep(0.01)

    def close(self) -> None:
        """Leave the fleet; safe to call twice."""
        if not self._closed.is_set():
            self._closed.set()
            self._session.close()

    def __enter__(self) -> ZenohNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_local(endpoint: str) -> bool:
    return re.match(r"^\w+/(127\.\d+\.\d+\.\d+|localhost|\[::1\]):", endpoint) is not None


def _open(listen: str, connect: Sequence[str], security: Mapping[str, Any]) -> Any:
    try:
        import zenoh
    except ImportError as error:
        raise InputError('this network needs Eclipse Zenoh: install the extra "fleet"') from error
    settings: dict[str, Any] = {
        "mode": "peer",
        "listen": {"endpoints": [listen]},
        "connect": {"endpoints": sorted(set(connect)), "timeout_ms": -1, "exit_on_failure": False},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "shared_memory": {"enabled": False},
            # Microseconds: longer, and one dead edge holds up the healthy ones.
            "link": {"tx": {"queue": {"congestion_control": {"block": {"wait_before_close": 500_000}}}}},
        },
    }
    if security:
        settings["transport"]["link"]["tls"] = security["tls"]
        settings["access_control"] = security["access_control"]
    try:
        return zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))
    except zenoh.ZError as error:
        raise NetworkError(f"no session on {listen}: {error}") from error
