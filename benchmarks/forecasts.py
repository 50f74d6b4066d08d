"""Kernels of the time on ten days of MUR, and the coverage of forecasts of the next day: the numbers of docs/time.md.

python -m benchmarks.forecasts [DAY ..] prints both tables; it takes an hour. The data are those of benchmarks/sea.py.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

import fleetgp as fg
from benchmarks.sea import NOISE, _field
from fleetgp.metrics import coverage, crps, rmse

INPUTS = ("lon", "lat", "day")
KERNELS = (
    "matern32(lon, lat) * matern12(day)",
    "matern32(lon, lat) * matern32(day)",
    "matern32(lon, lat) * matern52(day)",
    "matern32(lon, lat) * se(day)",
    "matern32",
    "matern32(lon, lat) * matern12(day) + matern32(lon, lat)",
    "matern32(lon, lat) * matern32(day) + matern32(lon, lat)",
)
#: Days that are forecast, and days that are predicted from both sides.
NEXT, MIDDLE = (4, 5, 6, 7, 8, 9), (4, 6)
#: Rows of a day that one agent, or five agents, have; cells that are predicted.
ALONE, TOGETHER, CELLS = 370, 500, 2_000
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


class Days:
    """Rows of ten days: places with the day, observations with noise, and the true values."""

    def __init__(self) -> None:
        self.kelvin, self.lat, self.lon, self.days = _field("days")

    def draw(self, day: int, count: int, rng: np.random.Generator) -> Rows:
        known = np.argwhere(np.isfinite(self.kelvin[day]))
        row, column = known[rng.choice(len(known), count, replace=False)].T
        true = self.kelvin[day][row, column]
        inputs = np.column_stack([self.lon[column], self.lat[row], np.full(count, self.days[day])])
        return inputs, true + NOISE * rng.standard_normal(count), true

    def case(self, days: Iterable[int], asked: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, Rows]:
        """Inputs and observations of some days, and what is asked of another one."""
        rng = np.random.default_rng(seed)
        parts = [self.draw(day, count, rng) for day in days]
        inputs, observed = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        return inputs, observed, self.draw(asked, CELLS, rng)


def kernels(sea: Days, ahead: Sequence[int]) -> None:
    """Print for every kernel: RMSE of the field, CRPS and coverage of observations, and seconds, means over days."""
    for name, days in (("next day", ahead), ("a day in the middle", [day for day in MIDDLE if day in ahead])):
        for kernel in KERNELS:
            scores, theta = [], None
            for day in days:
                before = range(day - 4, day) if name == "next day" else (day - 2, day - 1, day + 1, day + 2)
                inputs, observed, (places, seen, true) = sea.case(before, day, ALONE, seed=day)
                fleet, began = fg.Fleet([(inputs, observed)], inputs=INPUTS, kernel=kernel), time.perf_counter()
                theta = fleet.train(engine="dense", theta0=theta).theta
                took = time.perf_counter() - began
                out = fleet.predict(places, "full-gp", observed=True)
                of_rows = crps(out.mean, out.variance, seen), coverage(out.mean, out.variance, seen)
                scores.append((rmse(out.mean, true), *of_rows, took))
            print(f"{name}: {kernel}:", np.round(np.mean(scores, axis=0), 4), flush=True)


def forecasts(sea: Days, days: Sequence[int]) -> None:
    """Print the coverage of the next day by a fleet of five agents, with all defaults."""
    for day in days:
        inputs, observed, (places, seen, true) = sea.case(range(day - 3, day), day, TOGETHER, seed=100 + day)
        fleet = fg.Fleet(fg.partition(inputs, observed, agents=5, by="kmeans"), inputs=INPUTS, time="day")
        fleet.train()
        out = fleet.predict(places[:, :2], at_time=float(day))
        held = coverage(out.mean, out.std_observed**2, seen), coverage(out.mean, out.std**2, true)
        print(
            f"day {day}: RMSE {rmse(out.mean, true):.3f}, coverage of observations and of the field:", held, flush=True
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    chosen = [int(day) for day in sys.argv[1:]] or list(NEXT)
    forecasts(Days(), chosen)
    kernels(Days(), chosen)
