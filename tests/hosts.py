"""Real hosts on one machine: a network namespace each, on one switch, whose links can be cut, healed and made lossy.

Needs root, iproute2 and iptables; `unavailable()` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable


def unavailable() -> str:
    """Why there can be no such hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        with Hosts(1) as hosts:
            hosts.lose(0.1)
    except (subprocess.CalledProcessError, OSError) as error:
        return f"no network namespaces here: {error}"
    return ""


class Hosts:
    """Hosts 0, 1, ... at 10.P.Q.1, 10.P.Q.2, ...; this process, whose number makes P and Q, is at 10.P.Q.254."""

    def __init__(self, count: int) -> None:
        number = os.getpid()
        self.count, self.label = count, f"fg{number % 100_000}"
        self.subnet = f"10.{90 + number // 250 % 100}.{number % 250}"
        self.cuts: set[frozenset[int]] = set()
        self.loss = 0.0
        self._remove()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise

    def address(self, host: int) -> str:
        return f"{self.subnet}.{host + 1}"

    def inside(self, host: int) -> list[str]:
        """What to put before a command so that it runs there."""
        return ["ip", "netns", "exec", f"{self.label}{host}"]

    def cut(self, one: int, other: int) -> None:
        """Nothing gets through between two hosts; nobody is told."""
        self.cuts.add(frozenset((one, other)))
        self._apply((one, other))

    def heal(self, one: int, other: int) -> None:
        self.cuts.discard(frozenset((one, other)))
        self._apply((one, other))

    def lose(self, probability: float) -> None:
        """So many of all packets between hosts are lost, at random."""
        self.loss = probability
        self._apply(range(self.count))

    def _apply(self, hosts: Iterable[int]) -> None:
        for host in hosts:
            tables = [*self.inside(host), "iptables"]
            _run([*tables, "-F", "INPUT"])
            for other in range(self.count):
                if frozenset((host, other)) in self.cuts:
                    _run([*tables, "-A", "INPUT", "-s", self.address(other), "-j", "DROP"])
                elif self.loss and other != host:
                    chance = ["-m", "statistic", "--mode", "random", "--probability", str(self.loss)]
                    _run([*tables, "-A", "INPUT", "-s", self.address(other), *chance, "-j", "DROP"])

    def _build(self) -> None:
        switch = f"{self.label}sw"
        _run(["ip", "link", "add", switch, "type", "bridge"])
        _run(["ip", "address", "add", f"{self.subnet}.254/24", "dev", switch])
        _run(["ip", "link", "set", switch, "up"])
        for host in range(self.count):
            space, near, far = f"{self.label}{host}", f"{self.label}v{host}", f"{self.label}w{host}"
            _run(["ip", "netns", "add", space])
            _run(["ip", "link", "add", near, "type", "veth", "peer", "name", far])
            _run(["ip", "link", "set", far, "netns", space])
            _run(["ip", "link", "set", near, "master", switch, "up"])
            _run([*self.inside(host), "ip", "address", "add", f"{self.address(host)}/24", "dev", far])
            _run([*self.inside(host), "ip", "link", "set", far, "up"])
            _run([*self.inside(host), "ip", "link", "set", "lo", "up"])

    def _remove(self) -> None:
        for host in range(self.count):
            subprocess.run(["ip", "link", "del", f"{self.label}v{host}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", f"{self.label}{host}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self.label}sw"], capture_output=True, check=False)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=20)
