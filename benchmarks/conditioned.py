"""What a conditioned fleet saves: a second prediction, a map block by block, and grBCM beside rBCM.

Run as a process of its own, so that another version can be measured in the same way:
PYTHONPATH=<its src> python -m benchmarks.conditioned
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fleetgp as fg
from fleetgp.storage.answers import ask
from fleetgp.storage.model import Model

TILES, POINTS, GRID = 7, 600, 100
#: A field ten length-scales wide, rough.
THETA = (0.2, 0.2, 1.3, 0.1)
HUNDRED, QUERIES = 100, 300


def tiled(tiles: int, points: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Agents in a square of 2 x 2, each with the data of its own tile."""
    rng = np.random.default_rng(seed)
    shards = []
    for tile in np.ndindex(tiles, tiles):
        x = (np.array(tile) + rng.uniform(0, 1, (points, 2))) * 2.0 / tiles
        shards.append((x, np.sin(3 * x[:, 0]) * np.cos(5 * x[:, 1]) + 0.1 * rng.standard_normal(points)))
    return shards


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of all cores: the second hangs less on what else the machine does."""
    clock, cores = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - cores


def run() -> dict[str, tuple[float, float]]:
    warnings.simplefilter("ignore")
    found = {}
    fleet = fg.Fleet(tiled(TILES, POINTS), "grid", theta=THETA, kernel="matern32", normalize=False)
    few = np.random.default_rng(1).uniform(0, 2, (20, 2))
    # With a central node nothing is left but the local part.
    for name in ("first", "second"):
        found[f"{name} rbcm"] = seconds_of(lambda: fleet.predict(few, "rbcm"))
    for name in ("first", "second"):
        found[f"{name} grbcm"] = seconds_of(lambda: fleet.predict(few, "grbcm"))
    axis = np.linspace(0.0, 2.0, GRID)
    cells = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    model = Model(fleet, tuple(f"a{i}" for i in range(fleet.agents)), ("x", "y"), "z")
    with tempfile.TemporaryDirectory() as folder:
        found["map"] = seconds_of(
            lambda: ask(model, cells, "dec-nn-grbcm", None, {"engine": "auto"}, Path(folder) / "map.nc", quiet=True)
        )
    queries = np.random.default_rng(2).uniform(0, 2, (QUERIES, 2))
    for method in ("dec-nn-rbcm", "dec-nn-grbcm"):
        hundred = fg.Fleet(tiled(10, 300), "grid", theta=THETA, kernel="matern32", normalize=False)
        found[f"{method}, {HUNDRED} agents"] = seconds_of(lambda f=hundred, m=method: f.predict(queries, m))
    return found


if __name__ == "__main__":
    print(json.dumps(run()))
