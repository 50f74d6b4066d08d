"""Neighbours keep an agent out whose certificate has expired, whatever it does itself and whatever Zenoh lets in.

No agent here looks at its own certificate: the process does that, and these are nodes alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent.certificates import days_left, make_authority, make_certificate
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.node import Node
from fleetgp.agent.threads import Threads
from fleetgp.network.zenoh import session
from fleetgp.network.zenoh.session import Security, expiry_of
from tests.agent.fleets import describe, until

REFUSED = "refused: its certificate has expired"
#: Seconds for which the certificate of a1 is valid.
SHORT = 3.0
#: More than anything here takes, on any machine: only a hang is longer.
LONG = 60.0


@pytest.fixture(autouse=True)
def hellos_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetgp.agent.node.HEARTBEAT", 0.1)


@pytest.fixture(autouse=True)
def zenoh_lets_everybody_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does with whoever comes back within the second: links outlive their certificates."""
    monkeypatch.setattr(Security, "tls", property(lambda self: {**real(self), "close_link_on_expiration": False}))


real: Any = Security.tls.fget  # type: ignore[attr-defined]


def secured(folder: Path) -> Description:
    make_authority(folder / "keys")
    for name in ("a0", "a1", "a2", "operator"):
        make_certificate(folder / "keys", name, hosts=["127.0.0.1"])
    description, _ = describe(folder, 3, tls="keys", connect=120)
    return description


@contextmanager
def a_node(description: Description, name: str, folder: Path) -> Iterator[Node]:
    log = Log(name, file=folder / f"{name}.log")
    threads = Threads(log)
    with ExitStack() as closing:
        closing.callback(log.close)
        closing.callback(threads.close)
        node = Node(description, description.id_of(name), log, threads)
        closing.callback(node.close)
        yield node


class Later:
    """A clock that is some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def time(self) -> float:
        return time.time() + self._seconds


def test_neighbours_refuse_who_has_expired_until_it_has_a_new_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = secured(tmp_path)
    make_certificate(tmp_path / "keys", "a1", hosts=["127.0.0.1"], days=1)
    with ExitStack() as closing:
        neighbours = [closing.enter_context(a_node(description, name, tmp_path)) for name in ("a0", "a2")]
        with a_node(description, "a1", tmp_path) as member:
            until(lambda: all(node.neighbours()["a1"] == "up" for node in neighbours))
            until(lambda: all(1 in node.monitor.expiries._known for node in neighbours))
            monkeypatch.setattr(session, "time", Later(2 * 86_400.0))
            until(lambda: all(node.neighbours()["a1"] == REFUSED for node in neighbours))
            sent = [node.links.sent[1] for node in neighbours]
            until(lambda: all(node.links.dropped["expired"] >= 4 for node in neighbours))  # the links are there
            assert all(node.links.up(node.agent, 1) for node in neighbours)
            assert [node.links.sent[1] for node in neighbours] == sent, "nobody tells it anything"
            assert member.view is None
        make_certificate(tmp_path / "keys", "a1", hosts=["127.0.0.1"])
        closing.enter_context(a_node(description, "a1", tmp_path))
        until(lambda: all(node.neighbours()["a1"] == "up" for node in neighbours))
    for name in ("a0", "a2"):
        assert "start a1 again" in (tmp_path / f"{name}.log").read_text(encoding="utf-8")


def test_who_expires_within_seconds_is_out_for_good(tmp_path: Path) -> None:
    """On a machine so slow that it has expired before it was linked, TLS keeps it out."""
    description = secured(tmp_path)
    with a_node(description, "a0", tmp_path) as node:
        own = make_certificate(tmp_path / "keys", "a1", hosts=["127.0.0.1"], days=SHORT / 86_400.0)
        with a_node(description, "a1", tmp_path):
            until(lambda: days_left(own.certificate) <= 0.0 and node.neighbours()["a1"] != "up")
            until(lambda: node.links.dropped["expired"] >= 4 or not node.links.up(0, 1))
            assert node.neighbours()["a1"] in (REFUSED, "down")


def test_a_handshake_shows_when_a_certificate_expires(tmp_path: Path) -> None:
    description = secured(tmp_path)
    own = description.credentials("a0")
    assert own is not None
    security, end = Security(own.authority, own.certificate, own.key, description.names), description.agents[1].endpoint
    assert expiry_of(end, "a1", security) is None  # nobody is there
    with a_node(description, "a1", tmp_path):
        shown = expiry_of(end, "a1", security, LONG)
        assert shown is not None
        assert (shown - time.time()) / 86_400.0 == pytest.approx(days_left(tmp_path / "keys" / "a1.crt"), abs=0.01)
        assert expiry_of(end, "a2", security, LONG) is None  # it is somebody else's
        assert expiry_of(end.replace("tls/", "quic/"), "a1", security, LONG) is None
        make_certificate(tmp_path / "other", "a0")
        other = Security(tmp_path / "other" / "authority.crt", own.certificate, own.key, description.names)
        assert expiry_of(end, "a1", other, LONG) is None
    make_certificate(tmp_path / "keys", "a1", hosts=["127.0.0.1"], days=-1)
    with a_node(description, "a1", tmp_path):
        assert expiry_of(end, "a1", security, LONG) == 0.0
