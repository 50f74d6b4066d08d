"""The first fit of a process and the second one, alone and beside other work."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time

from benchmarks.timing import Table

ROWS, INPUTS = 927, 8
#: What a new process does: two fits of the same data, each with its seconds of wall clock and of all cores.
SCRIPT = f"""
import time, warnings
import numpy as np
from fleetgp import FleetGPRegressor
warnings.filterwarnings("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal(({ROWS}, {INPUTS}))
y = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3] ** 2 + 0.3 * rng.standard_normal({ROWS})
for _ in range(2):
    wall, cpu = time.perf_counter(), time.process_time()
    FleetGPRegressor(kernel="matern32", normalize=True).fit(X, y)
    print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def _busy() -> None:
    while True:
        sum(range(100_000))


def first_fit() -> Table:
    title = f"FleetGPRegressor on {ROWS} rows of {INPUTS} inputs, in a new process"
    table = Table(title, "beside it", "fit", "seconds", "of all cores")
    table.start()
    for count in (0, 2):
        others = [multiprocessing.Process(target=_busy, daemon=True) for _ in range(count)]
        for each in others:
            each.start()
        time.sleep(0.5 * bool(others))
        try:
            done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
        finally:
            for each in others:
                each.terminate()
        for number, line in enumerate(done.stdout.splitlines()):
            wall, cpu = map(float, line.split())
            table.add(f"{count} processes", ("first", "second")[number], f"{wall:.1f} s", f"{cpu:.1f} s")
    return table
