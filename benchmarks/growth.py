"""A fleet of M agents with 100 observations each: dec-apx-gp for 100 rounds, then dec-nn-rbcm at 100 points.

The agents stand at random in a square whose area grows with M, are linked to those nearby, and each has seen the
field around itself. Run as a process of its own, so that its peak memory is its own: python -m benchmarks.growth M
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fleetgp as fg
from fleetgp.metrics import rmse

POINTS, ROUNDS, QUERIES = 100, 100, 100
THETA = (1.0, 1.0, 1.3, 0.1)


def fleet_of(agents: int, seed: int = 0) -> tuple[fg.Fleet, np.ndarray, np.ndarray]:
    """The fleet, queries, and the true field there."""
    rng = np.random.default_rng(seed)
    side = np.sqrt(agents)
    places = rng.uniform(0.5, side - 0.5, (agents, 2))
    graph = fg.Graph.geometric(agents, places=places)
    inputs = places[:, None, :] + rng.uniform(-0.5, 0.5, (agents, POINTS, 2))
    queries = rng.uniform(0.5, side - 0.5, (QUERIES, 2))
    field = random_field(rng)
    shards = [(x, field(x) + THETA[3] * rng.standard_normal(POINTS)) for x in inputs]
    return fg.Fleet(shards, graph, kernel="se", normalize=False), queries, field(queries)


def random_field(rng: np.random.Generator, waves: int = 300) -> Callable[[np.ndarray], np.ndarray]:
    """Close to a draw from the GP, as a sum of random waves: cheap on any area."""
    frequencies = rng.standard_normal((2, waves)) * np.sqrt(2.0) / np.array(THETA[:2])[:, None]
    shifts = rng.uniform(0, 2 * np.pi, waves)
    return lambda x: THETA[2] * np.sqrt(2.0 / waves) * np.cos(x @ frequencies + shifts).sum(axis=1)


def peak_memory() -> int:
    """Bytes of this process alone. (ru_maxrss would count the process that started this one.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8")).group(1)) * 1024


def run(agents: int) -> dict[str, object]:
    fleet, queries, truth = fleet_of(agents)
    start = time.perf_counter()
    fit = fleet.train("dec-apx-gp", theta0=(2.0, 2.0, 1.0, 0.3), rounds=ROUNDS, tol=0)
    trained = time.perf_counter()
    out = fleet.predict(queries, "dec-nn-rbcm")
    ended = time.perf_counter()
    return {
        "agents": agents,
        "edges": len(fleet.graph.union.edges),
        "diameter": fleet.graph.diameter,
        "training": trained - start,
        "prediction": ended - trained,
        "memory": peak_memory(),
        "training_bytes": fit.ledger.bytes,
        "prediction_bytes": out.ledger.bytes,
        "theta": fit.theta.tolist(),
        "disagreement": fit.disagreement,
        "status": out.status,
        "rmse": rmse(out.mean, truth),
        "rounds": out.rounds,
        "participants": float(out.participants.sum(axis=0).mean()),
    }


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
