"""The exact GP of a synthetic field in Parquet files, which may be larger than memory: read, trained, and mapped.

Every run is a process of its own, so that its memory is its own: python -m benchmarks.scale ROWS FOLDER, as JSON.
The files are made in FOLDER where they are not there. A billion rows: python -m benchmarks.scale 1000000000 FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
from scipy.ndimage import map_coordinates, spline_filter

import fleetgp as fg
from benchmarks.growth import peak_memory
from benchmarks.timing import Table, seconds
from fleetgp.io.file_shards import Source
from fleetgp.linalg.threads import cores

THETA = (1.2, 0.3, 1.3, 0.1)
SIDE, ROWS_PER_FILE, WAVES = 2.0, 1_000_000, 300
#: Of the grid on which the field is known, and how many cells it is wider.
STEP, MARGIN = 0.004, 20
GRID = 500


@cache
def spline() -> np.ndarray:
    """Coefficients of the field on a grid: close to a draw from the GP, as a sum of random waves."""
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((2, WAVES)) * np.sqrt(2.0) / np.array(THETA[:2])[:, None]
    shifts = rng.uniform(0, 2 * np.pi, WAVES)
    axis = STEP * np.arange(-MARGIN, round(SIDE / STEP) + MARGIN + 1)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    waves = sum(np.cos(x @ frequencies[:, k] + shifts[k]) for k in range(WAVES))
    return spline_filter((THETA[2] * np.sqrt(2.0 / WAVES) * waves).reshape(len(axis), -1), order=3)


def field(x: np.ndarray) -> np.ndarray:
    return map_coordinates(spline(), (x / STEP + MARGIN).T, order=3, prefilter=False)


def make(folder: Path, rows: int) -> list[Path]:
    """Files of a million rows each, of single precision; those that are there stay."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number in range(max(1, rows // ROWS_PER_FILE)):
        files.append(folder / f"part{number:05d}.parquet")
        if files[-1].exists():
            continue
        rng = np.random.default_rng([1, number])
        x = rng.uniform(0.0, SIDE, (min(rows, ROWS_PER_FILE), 2))
        y = field(x) + THETA[3] * rng.standard_normal(len(x))
        columns = {"x": x[:, 0], "y": x[:, 1], "value": y}
        table = pa.table({name: values.astype(np.float32) for name, values in columns.items()})
        partial = files[-1].with_suffix(".partial")
        pq.write_table(table, partial, compression="none", use_dictionary=False)
        os.replace(partial, files[-1])
    return files


def run(rows: int, folder: Path) -> dict[str, object]:
    files = make(folder, rows)
    passes: list[float] = []
    gather = Source.moments

    def timed(*given: object) -> object:
        start = time.perf_counter()
        found = gather(*given)
        passes.append(time.perf_counter() - start)
        return found

    Source.moments = timed
    start = time.perf_counter()
    fleet = fg.Fleet.from_files(files, "star" if len(files) > 1 else "path", inputs=["x", "y"], target="value")
    surveyed = time.perf_counter()
    fit = fleet.train("dec-full-gp")
    trained = time.perf_counter()
    axis = np.linspace(0.0, SIDE, GRID)
    queries = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    out = fleet.predict(queries, "dec-full-gp", agent=0)
    ended = time.perf_counter()
    return {
        "threads": cores(),
        "bytes": sum(file.stat().st_size for file in files),
        "survey": surveyed - start,
        "moments": sum(passes),
        "passes": len(passes),
        "training": trained - surveyed - sum(passes),
        "map": ended - trained,
        "total": ended - start,
        "memory": peak_memory(),
        "theta": fit.theta.tolist(),
        "status": fit.status,
        "rmse": float(np.sqrt(np.mean((out.mean - field(queries)) ** 2))),
        "deviation": float(np.sqrt(out.variance).mean()),
    }


def scale(sizes: tuple[int, ...] = (10**6, 10**7, 10**8)) -> Table:
    table = Table(f"The exact GP of data in files: dec-full-gp, and a map of {GRID} x {GRID} with deviations",
                  "N", "threads", "files", "first pass", "moments", "training", "map", "in all", "us / row",
                  "peak memory", "RMSE to the field", "mean deviation")  # fmt: skip
    table.start()
    found: dict[tuple[int, int], float] = {}
    with tempfile.TemporaryDirectory() as place:
        for rows in sizes:
            make(Path(place), rows)
            for threads in (1, 2):
                command = [sys.executable, "-m", "benchmarks.scale", str(rows), place]
                environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                r = json.loads(done.stdout.splitlines()[-1])
                found[rows, threads] = r["survey"] + r["moments"]
                table.add(f"{rows:,}", threads, f"{r['bytes'] / 1e9:.2f} GB", seconds(r["survey"]),
                          f"{seconds(r['moments'])} ({r['passes']})", seconds(r["training"]), seconds(r["map"]),
                          seconds(r["total"]), f"{1e6 * r['total'] / rows:.2f}", f"{r['memory'] / 1e9:.2f} GB",
                          f"{r['rmse']:.2e}", f"{r['deviation']:.2e}")  # fmt: skip
    most = sizes[-1]
    table.note(f"Reading {most:,} rows with two threads: {found[most, 1] / found[most, 2]:.2f} x faster than with one.")
    table.note(
        "Files of a million rows, an agent each, linked as a star. The moments may take several passes: in brackets."
    )
    table.note(
        "As published: EFGP (Greengard et al.): 10^9 points in the plane, the mean alone, theta known, two minutes on "
        "a desktop. Exact GPs on 8 GPUs (Wang et al. 2019): 10^6 points, hours to days."
    )
    return table


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), Path(sys.argv[2]))))
