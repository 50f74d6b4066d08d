"""A season at sea: rows fed to five processes by `observe`, with a window. Latency, memory and disk must become flat.

Every boat sends rows of the same number in each step; after some steps one boat is asked. Run it from a checkout:

    python -m benchmarks.season 200000 docs/figures/season.png

It prints one JSON document, and draws the figure where a path is given.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tests.processes import Processes

from fleetgp.operator.client import AgentClient

BOATS, ROWS, POINTS = 5, 40, 100
#: Rows of each boat in the window, and at the start. Days per step.
WINDOW, FIRST, STEP = 2_000, 400, 0.05
#: Steps between two questions.
ASKED = 5


def field(x: np.ndarray) -> np.ndarray:
    """What the boats measure at (x, y, day): it moves."""
    return np.sin(2.0 * x[:, 0] + 0.3 * x[:, 2]) + np.cos(1.5 * x[:, 1] - 0.2 * x[:, 2])


def rows_of(boat: int, count: int, day: float, span: float, rng: np.random.Generator) -> np.ndarray:
    """(count, 4) places, days and observations of a boat in its own waters."""
    inputs = np.column_stack(
        [boat + rng.uniform(0, 1, count), rng.uniform(0, 1, count), np.sort(day + span * rng.uniform(0, 1, count))]
    )
    return np.column_stack([inputs, field(inputs) + 0.1 * rng.standard_normal(count)])


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return 1024 * int(re.search(r"VmRSS:\s*(\d+) kB", status).group(1))


def season(total: int) -> dict[str, list[float]]:
    """Of every question: rows sent by then, seconds, bytes in memory and on disk, rows and groups of all boats."""
    rng = np.random.default_rng(0)
    start = -STEP * FIRST / ROWS
    first = [rows_of(boat, FIRST, start, -start, rng) for boat in range(BOATS)]
    found: dict[str, list[float]] = {
        name: [] for name in ("sent", "seconds", "memory", "disk", "rows", "kept", "write")
    }
    lines = {
        "model": 'time = "day"\n',
        "extra": f"\n[memory]\nwindow = {STEP * WINDOW / ROWS}\n",
    }
    edges = [(k, k + 1) for k in range(BOATS - 1)]
    with tempfile.TemporaryDirectory() as folder:
        shards = [(rows[:, :3], rows[:, 3]) for rows in first]
        options = {"inputs": ("x", "y", "day"), "kernel": "matern32", "round": 60, **lines}
        with Processes(Path(folder), shards, edges, **options) as fleet:
            fleet.start()
            fleet.wait(lambda states: all(one["phase"] == "serving" for one in states.values()), fleet.names, 300.0)
            clients = [AgentClient(fleet.description, name) for name in fleet.names]
            for step in range(total // (BOATS * ROWS)):
                day, writing = STEP * step, time.perf_counter()
                for boat, client in enumerate(clients):
                    client.request(
                        "observe", 60.0, rows=rows_of(boat, ROWS, day, STEP, rng).tolist(), request=f"s{step}"
                    )
                writing = (time.perf_counter() - writing) / BOATS
                if step % ASKED:
                    continue
                queries = np.column_stack([rng.uniform(0, (BOATS, 1), (POINTS, 2)), np.full(POINTS, day + STEP)])
                began = time.perf_counter()
                clients[step // ASKED % BOATS].request("ask", 60.0, queries=queries.tolist())
                found["seconds"].append(time.perf_counter() - began)
                states = [client.request("status") for client in clients]
                found["write"].append(writing)
                found["sent"].append((step + 1) * BOATS * ROWS)
                found["memory"].append(sum(resident(state["pid"]) for state in states))
                found["disk"].append(
                    sum(path.stat().st_size for path in Path(folder, "state").rglob("*") if path.is_file())
                )
                found["rows"].append(sum(state["rows"] for state in states))
                found["kept"].append(sum(state["kept_groups"] for state in states))
            for client in clients:
                client.close()
    return found


def summary(found: dict[str, list[float]]) -> dict[str, float]:
    """Medians over the first and the last third of the questions after the window was full."""
    full = np.array(found["sent"]) >= 1.2 * BOATS * WINDOW
    result: dict[str, float] = {}
    for name in ("seconds", "write", "memory", "disk", "rows", "kept"):
        values = np.array(found[name])[full]
        if len(values) >= 3:
            first, *_, last = np.array_split(values, 3)
            result |= {f"{name} first": float(np.median(first)), f"{name} last": float(np.median(last))}
    return result


def draw(found: dict[str, list[float]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    sent = np.array(found["sent"]) / 1e3
    panels = (
        ("seconds", "an answer, seconds", 1.0),
        ("memory", "memory of five, MB", 1e6),
        ("disk", "disk of five, MB", 1e6),
    )
    for number, (name, label, unit) in enumerate(panels, start=1):
        ax = figure.add_subplot(1, 3, number)
        ax.plot(sent, np.array(found[name]) / unit, ".", markersize=2, color="#3b6ea5")
        ax.axvline(BOATS * WINDOW / 1e3, color="#9a9a9a", linewidth=0.8)
        ax.set(xlabel="rows sent, thousands", title=label, ylim=(0, None))
        ax.title.set_fontsize(9)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    result = season(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
    print(json.dumps({**summary(result), "series": result}))
    if len(sys.argv) > 2:
        draw(result, sys.argv[2])
