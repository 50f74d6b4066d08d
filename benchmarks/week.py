"""A week at sea: the rows of each day arrive, and five boats forecast the next day, which they have not seen.

Sea-surface temperature off California (MUR), ten days. Every boat measures 200 cells of its own stripe each day, with a
noise of 0.1 K. The fleet trains on the first three days, and again when `needs_training` says so. Then every day it
forgets, trains if needed, and forecasts 2,000 cells of the next day: days 4 to 10. CRPS, RMSE and coverage of 95%
intervals are of noisy observations there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from benchmarks.sea import NOISE, TEN_DAYS, field_of
from benchmarks.timing import Table, Tables
from fleetgp.metrics import Scores, score

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "week.png"
BOATS, CELLS, QUERIES, FIRST, DAYS = 5, 200, 2000, 3, 10
#: Rows of so many days; a row at the very end of the window still counts.
WINDOW = 2.5
INPUTS = ("lon", "lat", "day")
MOVING = "matern32(lon, lat) * matern12(day)"
BOTH = "matern32(lon, lat) * matern12(day) + matern32(lon, lat)"
#: The day that is hidden between others, for the comparison with its neighbours; and the rows of all other days.
HIDDEN, MIDDLE_ROWS = 4, (9_000, 30_000)


class Sea:
    """The field, and what the boats measure of it. x is lon times the cosine of the middle latitude, in degrees."""

    def __init__(self, seed: int = 0) -> None:
        self.kelvin, self.lat, self.x, _ = field_of("days")
        self.rng = np.random.default_rng(seed)
        self.sea = np.argwhere(np.isfinite(self.kelvin).all(axis=0))
        edges = np.quantile(self.x[self.sea[:, 1]], np.linspace(0, 1, BOATS + 1))
        self.boat = np.clip(np.searchsorted(edges, self.x[self.sea[:, 1]], "right") - 1, 0, BOATS - 1)
        self.days = [[self._seen(day, self._cells(boat)) for boat in range(BOATS)] for day in range(DAYS)]
        chosen = self.sea[self.rng.choice(len(self.sea), QUERIES, replace=False)]
        self.cells = chosen
        self.queries = [self._seen(day, chosen) for day in range(DAYS)]

    def _cells(self, boat: int) -> np.ndarray:
        own = np.flatnonzero(self.boat == boat)
        return self.sea[self.rng.choice(own, CELLS, replace=False)]

    def _seen(self, day: int, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = cells.T
        inputs = np.column_stack([self.x[columns], self.lat[rows], np.full(len(cells), float(day))])
        return inputs, self.kelvin[day, rows, columns] + NOISE * self.rng.standard_normal(len(cells))

    def truth(self, day: int) -> np.ndarray:
        """At the queries, without noise."""
        rows, columns = self.cells.T
        return np.asarray(self.kelvin[day, rows, columns])

    def rows(self, boat: int, days: range) -> tuple[np.ndarray, np.ndarray]:
        parts = [self.days[day][boat] for day in days]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


@dataclass
class Week:
    """One way to forecast: the scores of each day, and what it took."""

    scores: list[Scores] = field(default_factory=list)
    trainings: int = 0
    rows: int = 0
    bytes: float = 0.0
    last: Any = None

    def add(self, mean: np.ndarray, std: np.ndarray, seen: np.ndarray) -> None:
        self.scores.append(score((mean, std**2), seen))

    def mean(self, name: str) -> float:
        return float(np.mean([getattr(one, name) for one in self.scores]))


def stream(sea: Sea, **model: Any) -> Week:
    """The fleet as it would run."""
    week = Week()
    shards = [sea.rows(boat, range(FIRST)) for boat in range(BOATS)]
    fleet = fg.Fleet(shards, "path", inputs=INPUTS, time="day", **model)
    for day in range(FIRST, DAYS):
        if day > FIRST:
            for boat in range(BOATS):
                fleet.observe(boat, *sea.days[day - 1][boat])
        if day == FIRST or fleet.needs_training():
            fleet.train(theta0=fleet.theta)
            week.trainings += 1
        inputs, seen = sea.queries[day]
        out = fleet.predict(inputs[:, :2], at_time=float(day))
        week.add(out.mean, out.std_observed, seen)
        week.bytes += sum(out.ledger.total(kind=kind).bytes for kind in ("groups", "statistics")) / (BOATS - 1)
        week.rows, week.last = sum(fleet.data.counts), fleet
    return week


def day_by_day(sea: Sea) -> Week:
    """A fleet of the last day's rows alone, without a time: its map is the forecast."""
    week = Week()
    for day in range(FIRST, DAYS):
        shards = [(x[:, :2], y) for x, y in sea.days[day - 1]]
        fleet = fg.Fleet(shards, "path", inputs=INPUTS[:2])
        fleet.train()
        week.trainings += 1
        inputs, seen = sea.queries[day]
        out = fleet.predict(inputs[:, :2])
        week.add(out.mean, out.std_observed, seen)
        week.rows = sum(fleet.data.counts)
    return week


def persistence(sea: Sea) -> Week:
    """All cells of the last day, without noise: what no boat has. Its error is that of the day before."""
    week = Week()
    for day in range(FIRST, DAYS):
        before = np.sqrt(np.mean((sea.truth(day - 1) - sea.truth(day - 2)) ** 2))
        week.add(sea.truth(day - 1), np.full(QUERIES, np.hypot(before, NOISE)), sea.queries[day][1])
    return week


WAYS: dict[str, Callable[[Sea], Week]] = {
    "all rows": lambda sea: stream(sea),
    'window of 3 days, keep="nothing"': lambda sea: stream(sea, window=WINDOW, keep="nothing"),
    'window of 3 days, keep="summary"': lambda sea: stream(sea, window=WINDOW),
    "all rows, a field that moves and one that stays": lambda sea: stream(sea, kernel=BOTH),
    'the same, window of 3 days, keep="summary"': lambda sea: stream(sea, kernel=BOTH, window=WINDOW),
    "day by day: a fit of the last day": day_by_day,
    "yesterday's true map (all cells, no noise)": persistence,
}


def forecasts(sea: Sea) -> tuple[Table, dict[str, Week]]:
    table = Table(
        "The next day", "forecast", "CRPS, K", "RMSE, K", "95% coverage", "rows on day 9", "trainings", "kB per link"
    )
    table.start()
    weeks = {}
    for name, way in WAYS.items():
        week = weeks[name] = way(sea)
        table.add(
            name, f"{week.mean('crps'):.3f}", f"{week.mean('rmse'):.3f}", f"{week.mean('coverage'):.1%}",
            f"{week.rows:,}" if week.rows else "", week.trainings or "",
            f"{week.bytes / 1e3:.0f}" if week.bytes else "",
        )  # fmt: skip
    return table, weeks


def middle(sea: Sea) -> Table:
    """Day 5 from the days before and after it."""
    table = Table("Day 5, from the other days", "by", "rows", "CRPS, K", "RMSE, K", "95% coverage")
    table.start()
    inputs, seen = sea.queries[HIDDEN]
    neighbours = 0.5 * (sea.truth(HIDDEN - 1) + sea.truth(HIDDEN + 1))
    table.add("the mean of the true maps of days 4 and 6", "all cells, no noise", "",
              f"{np.sqrt(np.mean((neighbours - seen) ** 2)):.3f}", "")  # fmt: skip
    for rows in MIDDLE_ROWS:
        days = [day for day in range(DAYS) if day != HIDDEN]
        cells = [sea.sea[sea.rng.choice(len(sea.sea), rows // len(days), replace=False)] for _ in days]
        parts = [sea._seen(day, some) for day, some in zip(days, cells, strict=True)]
        x, y = np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts])
        maps = []
        for day in (HIDDEN - 1, HIDDEN + 1):
            here = x[:, 2] == day
            alone = fg.Fleet(fg.partition(x[here][:, :2], y[here], agents=BOATS), inputs=INPUTS[:2])
            alone.train()
            maps.append(alone.predict(inputs[:, :2]).mean)
        error = np.sqrt(np.mean((0.5 * (maps[0] + maps[1]) - seen) ** 2))
        table.add("the mean of two fleets' maps of days 4 and 6", f"{len(x):,}", "", f"{error:.3f}", "")
        for name, kernel in (("a fleet", None), ("a fleet, a field that moves and one that stays", BOTH)):
            fleet = fg.Fleet(fg.partition(x, y, agents=BOATS), inputs=INPUTS, time="day", kernel=kernel)
            fleet.train()
            out = fleet.predict(inputs)
            found = score((out.mean, out.std_observed**2), seen)
            table.add(name, f"{len(x):,}", f"{found.crps:.3f}", f"{found.rmse:.3f}", f"{found.coverage:.1%}")
    return table


def week() -> Tables:
    found = Tables("A week at sea: forecasts of the next day")
    if not TEN_DAYS.exists():
        found.note("Skipped: the files of ../shared/data are not here.")
        return found
    warnings.filterwarnings("ignore")
    for text in (__doc__ or "").split("\n\n")[1:]:
        found.note(" ".join(text.split()))
    sea = Sea()
    table, weeks = forecasts(sea)
    found.tables += [table, middle(sea)]
    draw(sea, weeks, FIGURE)
    found.note(f"![CRPS of each day, and the last forecast](figures/{FIGURE.name})")
    return found


def draw(sea: Sea, weeks: dict[str, Week], path: Path) -> None:
    """CRPS by day, and the map of the last day: forecast, standard deviation, truth."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    shown = {
        'window of 3 days, keep="summary"': ("window of 3 days, old rows as groups", "#0072b2", "o", "-"),
        'window of 3 days, keep="nothing"': ("window of 3 days", "#56b4e9", "s", "-"),
        "all rows": ("all rows", "#009e73", "^", "--"),
        "day by day: a fit of the last day": ("day by day", "#d55e00", "D", "-"),
        "yesterday's true map (all cells, no noise)": ("yesterday's true map", "black", "v", ":"),
    }
    with plt.rc_context({"font.size": 8}):
        figure = plt.figure(figsize=(8.6, 3.0), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=(1, 1.9))
        ax = left.subplots()
        for name, (label, colour, marker, line) in shown.items():
            values = [one.crps for one in weeks[name].scores]
            ax.plot(range(FIRST + 1, DAYS + 1), values, line, marker=marker, color=colour, label=label,
                    markersize=4, linewidth=1.2)  # fmt: skip
        ax.set(xlabel="day of January 2021", ylabel="CRPS of the forecast, K", ylim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(fontsize=6.5, frameon=False, loc="lower left")
        day = DAYS - 1
        rows, columns = np.arange(0, len(sea.lat), 5), np.arange(0, len(sea.x), 5)
        x, lat = np.meshgrid(sea.x[columns], sea.lat[rows])
        truth = sea.kelvin[day][np.ix_(rows, columns)] - 273.15
        out = weeks['window of 3 days, keep="summary"'].last.predict(
            np.column_stack([x.ravel(), lat.ravel()]), at_time=float(day)
        )
        land = ~np.isfinite(truth)
        mean, std = (np.where(land, np.nan, values.reshape(x.shape)) for values in (out.mean - 273.15, out.std))
        low, high = np.nanpercentile(truth, [1, 99])
        degrees = sea.x[columns] / np.cos(np.deg2rad(sea.lat.mean()))
        for axes, values, title, limits, cmap, unit in zip(
            right.subplots(1, 3, sharey=True),
            (mean, std, truth),
            ("forecast for 10 January", "its standard deviation", "10 January, as it was"),
            ((low, high), (0.0, float(np.nanmax(std))), (low, high)),
            ("viridis", "magma", "viridis"),
            ("°C", "K", "°C"),
            strict=True,
        ):
            mesh = axes.pcolormesh(degrees, sea.lat[rows], values, vmin=limits[0], vmax=limits[1], cmap=cmap,
                                   shading="nearest", rasterized=True)  # fmt: skip
            axes.set_title(title, fontsize=8)
            axes.set_aspect(1 / np.cos(np.deg2rad(sea.lat.mean())))
            axes.set_facecolor("0.85")
            axes.set_xlabel("°E")
            right.colorbar(mesh, ax=axes, orientation="horizontal", label=unit, shrink=0.9)
        right.axes[0].set_ylabel("°N")
        figure.savefig(path, dpi=150)
        plt.close(figure)
