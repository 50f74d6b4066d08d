"""A fleet of processes that is asked and told rows for a long time: `python -m tests.soak --minutes 15`.

Memory, descriptors and threads of every agent must stay flat after a first third, in which caches fill, and its disk
must hold the rows it was told and nothing else that grows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetgp.agent.certificates import make_certificate
from fleetgp.network.zenoh.session import OPERATOR
from fleetgp.operator.launch import free_ports
from tests.conftest import paper_shards
from tests.processes import Processes

AGENTS = 5
#: Seconds between two questions, between two rows, and between two looks.
ASK, OBSERVE, LOOK = 1.0, 2.0, 15.0
#: What counts as flat: megabytes and descriptors beyond the first third's largest, and bytes on disk per row.
MEGABYTES, DESCRIPTORS, BYTES_PER_ROW = 8.0, 4, 400.0


@dataclass(frozen=True)
class Look:
    """One agent's process at some time."""

    minute: float
    megabytes: float
    descriptors: int
    threads: int
    disk: int
    rows: int

    @classmethod
    def at(cls, fleet: Processes, name: str, began: float) -> Look:
        process = Path(f"/proc/{fleet.running[name].pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text(encoding="utf-8").splitlines())
        state = fleet.description.state / name
        return cls(
            (time.monotonic() - began) / 60.0,
            int(status["VmRSS"].split()[0]) / 1024.0,
            len(os.listdir(process / "fd")),
            int(status["Threads"]),
            sum(file.stat().st_size for file in state.rglob("*") if file.is_file()),
            int(fleet.status(name).get("rows", 0)),
        )


def soak(minutes: float, folder: Path) -> tuple[dict[str, list[Look]], int, int]:
    """What was seen of every agent, and how many questions and rows there were."""
    ends = [f"tls/127.0.0.1:{port}" for port in free_ports(AGENTS)]
    for name in (*(f"a{k}" for k in range(AGENTS)), OPERATOR):
        make_certificate(folder / "keys", name, hosts=["127.0.0.1"])
    edges = [(k, (k + 1) % AGENTS) for k in range(AGENTS)]
    shards = list(paper_shards(40 * AGENTS, AGENTS))
    options = {"training": "dec-apx-gp", "prediction": "dec-rbcm", "extra": '\n[tls]\nfolder = "keys"\n'}
    rng, asked, told = np.random.default_rng(0), 0, 0
    with Processes(folder, shards, edges, endpoints=ends, **options) as fleet:  # type: ignore[arg-type]
        fleet.start()
        fleet.wait_trained(fleet.names, 300.0)
        seen: dict[str, list[Look]] = {name: [] for name in fleet.names}
        began = time.monotonic()
        due = dict.fromkeys((ASK, OBSERVE, LOOK), began)
        while time.monotonic() - began < 60.0 * minutes:
            name = str(rng.choice(fleet.names))
            now = time.monotonic()
            if now >= due[ASK]:
                answer = fleet.request(name, "ask", 60.0, queries=rng.uniform(0.0, 2.0, (20, 2)).tolist())
                assert answer["members"] == fleet.names
                asked, due[ASK] = asked + 1, now + ASK
            elif now >= due[OBSERVE]:
                rows = [[*rng.uniform(0.0, 2.0, 2).tolist(), float(rng.normal())]]
                fleet.request(name, "observe", 60.0, rows=rows, request=f"s{told}")
                told, due[OBSERVE] = told + 1, now + OBSERVE
            elif now >= due[LOOK]:
                for each in fleet.names:
                    seen[each].append(Look.at(fleet, each, began))
                due[LOOK] = now + LOOK
            else:
                time.sleep(min(due.values()) - now if min(due.values()) > now else 0.0)
        return seen, asked, told


def judged(seen: dict[str, list[Look]]) -> list[str]:
    """What is not flat."""
    found = []
    for name, looks in seen.items():
        third = max(1, len(looks) // 3)
        first, last = looks[:third], looks[-third:]
        for what, most in (("megabytes", MEGABYTES), ("descriptors", DESCRIPTORS), ("threads", DESCRIPTORS)):
            before, after = (max(getattr(look, what) for look in part) for part in (first, last))
            if after > before + most:
                found.append(f"{name}: {what} grew from {before:.0f} to {after:.0f}")
        rows, disk = looks[-1].rows - looks[0].rows, looks[-1].disk - looks[0].disk
        if disk > BYTES_PER_ROW * rows + 2**16:
            found.append(f"{name}: {disk} bytes more on disk for {rows} rows")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen, asked, told = soak(arguments.minutes, Path(folder))
    print(f"{asked} questions and {told} rows in {arguments.minutes:g} minutes, all answered and acknowledged")
    for name, looks in seen.items():
        for look in (looks[0], looks[len(looks) // 3], looks[-1]):
            print(
                f"{name}, minute {look.minute:4.1f}: {look.megabytes:.1f} MB, {look.descriptors} descriptors, "
                f"{look.threads} threads, {look.disk} bytes on disk, {look.rows} rows"
            )
    found = judged(seen)
    print("\n".join(found) or "memory, descriptors, threads and disk are flat")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
