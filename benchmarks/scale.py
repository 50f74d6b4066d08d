"""The exact GP of a synthetic field in Parquet files, which may be larger than memory: read, trained, and mapped.

Every run is a process of its own, so that its memory is its own, and prints JSON:
python -m benchmarks.scale ROWS FOLDER [METHOD [WORKERS]], with so many workers on Ray, or in process with 0.
The files are made in FOLDER where they are not there. Without METHOD they are all that is made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from scipy.ndimage import map_coordinates, spline_filter

import fleetgp as fg
from benchmarks.growth import peak_memory
from benchmarks.rivals import RIVALS
from benchmarks.timing import Table, Tables, seconds
from fleetgp.io.file_dataset import FileReader
from fleetgp.linalg.threads import cores
from fleetgp.metrics import rmse

THETA = (1.2, 0.3, 1.3, 0.1)
SIDE, ROWS_PER_FILE, WAVES = 2.0, 1_000_000, 300
#: Of the grid on which the field is known, and how many cells it is wider.
STEP, MARGIN = 0.004, 20
GRID = 500
#: Seconds for training and the map that another library has.
LIMIT = 600
#: Threads that wait for each other sleep, as in `real`.
CALM = {"OMP_WAIT_POLICY": "passive"}


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


def queries() -> np.ndarray:
    axis = np.linspace(0.0, SIDE, GRID)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def run(rows: int, folder: Path, method: str, workers: int) -> dict[str, object]:
    """In process, or with so many workers on Ray: there the cluster is started first, and the start is told."""
    files = make(folder, rows)
    passes: list[float] = []
    gather, start_up, where = FileReader.moments, 0.0, {}

    def noted(*given: object) -> object:
        taken, found = timed(lambda: gather(*given))
        passes.append(taken)
        return found

    FileReader.moments = noted
    if workers:
        from fleetgp.network.ray.session import Session

        start_up, _ = timed(lambda: Session(None, workers))
        where = {"backend": "ray", "workers": workers}
    graph, begun = "star" if len(files) > 1 else "path", time.process_time()
    surveyed, fleet = timed(
        lambda: fg.Fleet.from_files(
            files, graph, inputs=["x", "y"], target="value", **{"kernel": "se", "normalize": False, **where}
        )
    )
    trained, fit = timed(lambda: fleet.train(method))
    count = len(passes)
    drawn, out = timed(lambda: fleet.predict(queries(), method, agent=0))
    found = {
        "threads": cores(),
        "bytes": sum(file.stat().st_size for file in files),
        "start": start_up,
        "survey": surveyed,
        "moments": sum(passes),
        "passes": count,
        "training": trained - sum(passes),
        "map": drawn,
        "total": surveyed + trained + drawn,
        "cores": time.process_time() - begun,
        "memory": peak_memory(),
        "theta": fit.theta.tolist(),
        "status": fit.status,
        "rmse": rmse(out.mean, field(queries())),
        "deviation": float(np.sqrt(out.variance).mean()),
    }
    fleet.close()
    return found


def rival(rows: int, folder: Path, name: str) -> dict[str, object]:
    """Another library on the first rows, with the kernel of the field: a training, and the same map."""
    import pyarrow.parquet as pq

    table = pq.read_table(make(folder, rows)[0])
    x, y = (
        np.column_stack([table["x"], table["y"]])[:rows].astype(float),
        np.asarray(table["value"])[:rows].astype(float),
    )
    mean, size = y.mean(), y.std()
    training, trained = timed(lambda: RIVALS[name](x, (y - mean) / size, "se"))
    way, predict = next(iter(trained.ways.items()))
    drawn, (means, _) = timed(lambda: predict(queries()))
    off = rmse(mean + size * means, field(queries()))
    return {"training": training, "map": drawn, "memory": peak_memory(), "rmse": off,
            "said": ", ".join(part for part in (trained.said, way) if part)}  # fmt: skip


def started(threads: int, *arguments: object, limit: float | None = None) -> dict[str, object] | str:
    """What a process of its own has found, or why nothing."""
    command = [sys.executable, "-m", "benchmarks.scale", *map(str, arguments)]
    environment = os.environ | CALM | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"over {limit / 60:.0f} min"
    except subprocess.CalledProcessError as problem:
        return (problem.stderr.strip().splitlines() or [f"exit code {problem.returncode}"])[-1][:120]
    return json.loads(done.stdout.splitlines()[-1])


def load() -> str:
    return f"Load of the machine before: {os.getloadavg()[0]:.1f}."


def exact(folder: str, sizes: tuple[int, ...], ways: tuple[tuple[str, int, int], ...]) -> Table:
    """ways: the method, threads in process, or workers on Ray with one thread each, for the largest size alone."""
    table = Table(f"The exact GP of data in files, and a map of {GRID} x {GRID} with deviations",
                  "N", "method", "where", "files", "first pass", "a pass for moments", "training", "map", "in all",
                  "seconds of a core", "peak memory", "RMSE to the field", "mean deviation")  # fmt: skip
    table.start()
    table.note(load())
    reading: dict[tuple[str, int], float] = {}
    for rows in sizes:
        make(Path(folder), rows)
        for method, threads, workers in ways if rows == sizes[-1] else [way for way in ways if not way[2]]:
            where = f"Ray, {workers}" if workers else f"threads, {threads}"
            r = started(threads or 1, rows, folder, method, workers)
            if isinstance(r, str):
                table.add(f"{rows:,}", method, where, r, *["-"] * 9)
                continue
            own = r["training"] if workers else r["moments"]
            reading[where.split(",")[0] + method, threads or workers] = r["survey"] + own
            moments = f"{seconds(r['moments'] / r['passes'])} x {r['passes']}" if r["passes"] else "in training"
            table.add(f"{rows:,}", method, where, f"{r['bytes'] / 1e9:.2f} GB", seconds(r["survey"]),
                      moments, seconds(r["training"]), seconds(r["map"]), seconds(r["total"]),
                      "-" if workers else f"{r['cores']:.0f}", f"{r['memory'] / 1e9:.2f} GB",
                      f"{r['rmse']:.2e}", f"{r['deviation']:.2e}")  # fmt: skip
            if workers:
                table.note(
                    f"N = {rows:,}, Ray with {workers}: {seconds(r['start'])} to start the cluster, not counted."
                )
    for kind, name in (("threads", "threads"), ("Ray", "workers")):
        one, two = (reading.get((kind + ways[0][0], count)) for count in (1, 2))
        if one and two:
            what = f"Two passes over {sizes[-1]:,} rows" + ", with the training" * (kind == "Ray")
            table.note(f"{what}: {one / two:.2f} x as fast with two {name} as with one.")
    table.note("Seconds of a core are what the process computed, however busy the machine is with other things.")
    table.note("Files of a million rows, an agent each, linked as a star. On Ray training holds its pass, and starting "
               "the workers; memory is that of the process that follows them.")  # fmt: skip
    return table


def others(folder: str, sizes: tuple[int, ...] = (10**5, 10**6)) -> Table:
    table = Table("What else there is, on the first rows of the same files", "N", "library", "training", "map",
                  "in all", "peak memory", "RMSE to the field", "said")  # fmt: skip
    table.start()
    table.note(load())
    make(Path(folder), ROWS_PER_FILE)
    for rows in sizes:
        for name, label in (("svgp", "GPyTorch SVGP"), ("ski", "GPyTorch SKI"), ("gpboost", "GPBoost, Vecchia")):
            r = started(2, rows, folder, name, limit=LIMIT)
            if isinstance(r, str):
                table.add(f"{rows:,}", label, *["-"] * 5, r)
                continue
            table.add(f"{rows:,}", label, seconds(r["training"]), seconds(r["map"]), seconds(r["training"] + r["map"]),
                      f"{r['memory'] / 1e9:.2f} GB", f"{r['rmse']:.2e}", r["said"])  # fmt: skip
    table.note(f"With the kernel of the field, from memory. Each is given {LIMIT // 60} minutes, and two threads.")
    table.note(
        "As published: EFGP (Greengard et al.): 10^9 points in the plane, the mean alone, theta known, two minutes on "
        "a desktop. Exact GPs on 8 GPUs (Wang et al. 2019): 10^6 points, hours to days."
    )
    return table


IN_PROCESS = (("dec-full-gp", 1, 0), ("dec-full-gp", 2, 0))


def scale() -> Tables:
    found = Tables("Scale: data larger than memory")
    with tempfile.TemporaryDirectory() as place:
        every = (*IN_PROCESS, ("full-gp", 2, 0), ("dec-full-gp", 0, 1), ("dec-full-gp", 0, 2))
        found.tables = [exact(place, (10**6, 10**7, 10**8), every), others(place)]
    return found


def scale_long() -> Tables:
    """The long form: a billion rows, 12 GB."""
    found = Tables("Scale: a billion observations")
    with tempfile.TemporaryDirectory() as place:
        found.tables = [exact(place, (10**9,), IN_PROCESS[1:])]
    return found


if __name__ == "__main__":
    rows, place, asked = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    if not asked:
        print(len(make(place, rows)), "files")
    elif asked[0] in RIVALS:
        print(json.dumps(rival(rows, place, asked[0])))
    else:
        print(json.dumps(run(rows, place, asked[0], int(asked[1]) if len(asked) > 1 else 0)))
