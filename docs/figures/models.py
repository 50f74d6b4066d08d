"""The figures of docs/models.md: `make figures`, or `python docs/figures/models.py gap` for one of them.

What each choice of a model does to a map of a field that was drawn with known hyperparameters: a figure and a few
numbers for each section of the page.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from panels import (
    FIRST,
    SECOND,
    STYLE,
    TRUTH,
    Panel,
    Row,
    dot,
    empty_figure,
    map_rows,
    mean_and_std_rows,
    mean_row,
)
from scenes import BOX, Drawn, Scene, Size, anywhere, draw, map_points, named_theta, rounded, scene, scores

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.data import Shard
from fleetgp.data.transforms import DEGREE
from fleetgp.errors import FleetGPWarning, unknown_name
from fleetgp.kernels.expression import as_kernel
from fleetgp.metrics import coverage
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.prediction import Prediction

WHOLE_BOX = (*BOX, *BOX)

# ---- kernels: what they make of a gap, and what they look like ---------------------------------------------

#: The rough field, and where nobody observes it: left, right, below, above.
ROUGH, ROUGH_THETA = "matern12", (1.2, 1.2, 1.0, 0.05)
HOLE = (0.6, 1.5, 0.6, 1.4)
COMPARED = ("se", "matern32", "matern12")


def inside(places: Array) -> BoolArray:
    x, y = places.T
    return np.asarray((x > HOLE[0]) & (x < HOLE[1]) & (y > HOLE[2]) & (y < HOLE[3]))


def with_gap(size: Size, side: int, seed: int) -> tuple[Scene, list[Shard]]:
    seen = scene(ROUGH, ROUGH_THETA, map_points(side), anywhere(size.of(520), seed), seed)
    seen = seen.kept(~inside(seen.places))
    return seen, fg.partition(seen.places, seen.observations, agents=4, by="kmeans")


def by_kernel(seen: Scene, shards: list[Shard], kernel: str) -> tuple[Prediction, dict[str, Any]]:
    """A fleet's map with this kernel, and how good that is."""
    fleet, hidden = fg.Fleet(shards, "complete", kernel=kernel, normalize=False), inside(seen.grid)
    fit = fleet.train()
    answer = fleet.predict(seen.grid, "dec-grbcm")
    parts = {"in the gap": scores(answer, seen.truth, hidden), "elsewhere": scores(answer, seen.truth, ~hidden)}
    return answer, {"theta": named_theta(fleet.names, fit.theta), **parts}


def gap(size: Size) -> Drawn:
    """A rough field with a gap, by three kernels; and which of them "auto" chooses."""
    seen, shards = with_gap(size, size.side, seed=1)
    answers, facts = {}, {}
    for kernel in COMPARED:
        answers[kernel], facts[kernel] = by_kernel(seen, shards, kernel)
    chosen = fg.Fleet(shards, "complete", kernel="auto", normalize=False).train()
    facts["auto"] = {one.kernel: round(one.density, 3) for one in chosen.compared} | {"chosen": chosen.kernel}
    facts["medians of draws"] = _medians_by_kernel(size, draws=8)
    figure = empty_figure(4.3)
    map_rows(figure, mean_and_std_rows(seen.truth, answers, shards), WHOLE_BOX, seen.places)
    return Drawn(figure, facts)


def _medians_by_kernel(size: Size, draws: int) -> dict[str, Any]:
    """Of the scores, over several draws."""
    rows: dict[str, list[list[float]]] = {kernel: [] for kernel in COMPARED}
    for seed in size.draws(draws):
        seen, shards = with_gap(size, size.side // 2, seed)
        for kernel in COMPARED:
            facts = by_kernel(seen, shards, kernel)[1]
            rows[kernel].append([facts[part][what] for part in ("in the gap", "elsewhere") for what in facts[part]])
    names = ("rmse in the gap", "covered in the gap", "rmse elsewhere", "covered elsewhere")
    return {
        kernel: dict(zip(names, map(rounded, np.median(of_kernel, axis=0).tolist()), strict=True))
        | {"draws": len(of_kernel)}
        for kernel, of_kernel in rows.items()
    }


#: Expression, hyperparameters, and the point that covariances are with.
SHAPES: tuple[tuple[str, tuple[float, ...], float], ...] = (
    ("se", (1.0, 1.0, 0.1), 0.0),
    ("matern32", (1.0, 1.0, 0.1), 0.0),
    ("matern12", (1.0, 1.0, 0.1), 0.0),
    ("rq", (0.6, 0.3, 1.0, 0.1), 0.0),
    ("periodic", (1.0, 2.0, 1.0, 0.1), 0.0),
    ("linear", (0.5, 0.1), 1.5),
    ("se + matern12", (2.0, 0.3, 0.9, 0.4, 0.1), 0.0),
    ("periodic * se", (1.0, 1.0, 2.5, 1.0, 0.1), 0.0),
)


def shapes(size: Size) -> Drawn:
    """Each kernel's covariance with one point, above three draws, along a line."""
    x = np.linspace(-4.0, 4.0, 8 * size.side + 1)
    figure = empty_figure(6.0)
    halves = figure.subfigures(2, 1, squeeze=False).ravel()
    for half, part in zip(halves, (SHAPES[:4], SHAPES[4:]), strict=True):
        axes = half.subplots(2, len(part), sharex=True, sharey="row")
        for (above, below), (kernel, theta, at) in zip(axes.T, part, strict=True):
            h = Hyperparameters.from_theta(theta)
            above.plot(x, as_kernel(kernel, 1)(x[:, None], np.array([[at]]), h)[:, 0], color="black", linewidth=1.2)
            above.axvline(at, color="0.6", linewidth=0.7, linestyle=":")
            above.set_title(kernel)
            for seed, colour in ((6, FIRST), (11, SECOND), (4, "0.45")):
                below.plot(x, draw(kernel, theta, x[:, None], seed), color=colour, linewidth=0.8)
            below.set(xlabel="$x$", xlim=(x[0], x[-1]))
        axes[0, 0].set_ylabel("covariance")
        axes[1, 0].set_ylabel("draws")
    return Drawn(figure, {})


# ---- space and time: one day of a field, from that day alone and from the days around it -------------------


def space_time(size: Size) -> Drawn:
    """The same hyperparameters for both, so that the difference is the data's."""
    kernel, inputs, n_days, middle, n_boats = "matern32(lon, lat) * matern12(day)", ("lon", "lat", "day"), 7, 4, 4
    counts = [size.of(12 if day == middle else 80) for day in range(1, n_days + 1)]
    days = np.repeat(np.arange(1.0, n_days + 1.0), counts)
    flat = map_points(size.side)
    grid = np.column_stack([flat, np.full(len(flat), float(middle))])
    places = np.column_stack([anywhere(len(days), 7), days])
    # l_lon, l_lat, l_day, sigma_f, sigma_eps.
    seen = scene("matern32(1, 2) * matern12(3)", (0.6, 0.6, 6.0, 1.0, 0.1), grid, places, seed=7)
    boats, today = np.arange(len(places)) % n_boats, days == middle

    def shards(chosen: BoolArray) -> list[Shard]:
        rows = [(boats == boat) & chosen for boat in range(n_boats)]
        return [(places[own], seen.observations[own]) for own in rows]

    every = fg.Fleet(shards(days > 0), "cycle", kernel=kernel, inputs=inputs, normalize=False)
    fit = every.train()
    alone = fg.Fleet(shards(today), "cycle", kernel=kernel, inputs=inputs, theta=fit.theta, normalize=False)
    fleets = {"that day alone": alone, "all days": every}
    answers = {title: fleet.predict(grid, "dec-nearest", n_nearest=60) for title, fleet in fleets.items()}
    figure = empty_figure(5.3)
    rows = mean_and_std_rows(seen.truth, answers, shards(today), first=f"truth, day {middle}")
    axes = map_rows(figure, rows, WHOLE_BOX, labels=("lon", "lat"))
    for line in axes:
        dot(line[2], places[~today], s=1.5, color="black", linewidths=0.0)
        for ax in line if line is axes[0] else line[1:]:
            dot(ax, places[today], s=9)
    axes[1][0].set_title(f"the agents, day {middle}")
    facts = {title: scores(answer, seen.truth) for title, answer in answers.items()}
    observations = {"of the day": int(today.sum()), "of all days": len(today)}
    return Drawn(figure, {"theta": named_theta(every.names, fit.theta), "observations": observations, **facts})


# ---- mean functions: what a map becomes where nobody has been ----------------------------------------------


def means(size: Size) -> Drawn:
    """A field with a trend, observed in its left half: the map reaches beyond the data."""
    long, wide, end, slope, level = 4.0, 2.0, 2.0, 1.2, 5.0
    places = np.random.default_rng([8, 0]).uniform((0.0, 0.0), (end, wide), (size.of(240), 2))
    grid = map_points(size.side, (0.0, 0.0), (long, wide))
    plain = scene("matern32", (0.6, 0.6, 0.5, 0.1), grid, places, seed=8)
    truth = plain.truth + level + slope * grid[:, 0]
    observations = plain.observations + level + slope * places[:, 0]
    shards = fg.partition(places, observations, agents=4, by="kmeans")
    answers: dict[str, Prediction] = {}
    facts: dict[str, Any] = {}
    choices: tuple[Literal["zero", "constant", "linear"], ...] = ("zero", "constant", "linear")
    for mean in choices:
        fleet = fg.Fleet(shards, "complete", kernel="matern32", mean=mean, normalize=False)
        fit = fleet.train()
        answers[mean] = fleet.predict(grid, "dec-grbcm")
        facts[mean] = {"beyond the data": scores(answers[mean], truth, grid[:, 0] > end), "l_1": rounded(fit.theta[0])}
        if fit.mean is not None:
            named = zip(fit.mean.named(None).items(), fit.mean.errors, strict=True)
            facts[mean] |= {name: [rounded(value), rounded(error)] for (name, value), error in named}
    figure = empty_figure(4.0)
    above, below = figure.subfigures(2, 1, height_ratios=[1.0, 1.35], squeeze=False).ravel()
    panels = [Panel("truth", truth), *(Panel(f'mean="{name}"', answer.mean) for name, answer in answers.items())]
    map_rows(above, [mean_row(panels, truth)], (0.0, long, 0.0, wide), places, s=2.0, linewidths=0.25)
    middle = slice(size.side // 2 * size.side, (size.side // 2 + 1) * size.side)
    _sections(below, grid[middle, 0], truth[middle], answers, middle, end)
    return Drawn(figure, facts)


def _sections(
    figure: FigureBase, x: Array, truth: Array, answers: dict[str, Prediction], row: slice, end: float
) -> None:
    """Along a row of the map: the truth, the mean and its 95% interval."""
    axes = figure.subplots(1, len(answers), sharex=True, sharey=True)
    for ax, (name, answer) in zip(axes, answers.items(), strict=True):
        centre, reach = answer.mean[row], 1.96 * np.sqrt(answer.variance[row])
        ax.axvspan(0.0, end, color="0.93", linewidth=0)
        ax.fill_between(x, centre - reach, centre + reach, color=SECOND, alpha=0.25, linewidth=0, label="95%")
        ax.plot(x, truth, color=TRUTH, linewidth=1.0, linestyle="--", label="truth")
        ax.plot(x, centre, color=SECOND, linewidth=1.4, label="mean")
        ax.set(title=f'mean="{name}"', xlabel="$x_1$, where $x_2$ = 1", xlim=(0.0, 2 * end))
    axes[0].legend(frameon=False, loc="lower left")


# ---- coordinates: degrees and kilometres far from the equator ----------------------------------------------


def coordinates(size: Size) -> Drawn:
    """A field that is alike in all directions over the ground."""
    half, reach = 17.0, 6.0  # half a side of the area, and the length-scale of the field, in kilometres
    centre = np.array((20.0, 70.0))
    degrees = np.array([1.0 / (DEGREE * np.cos(np.radians(centre[1]))), 1.0 / DEGREE])
    grid = map_points(size.side, (-half, -half), (half, half))
    places = np.random.default_rng([4, 0]).uniform(-half, half, (size.of(90), 2))
    seen = scene("matern32", (reach, reach, 1.0, 0.1), grid, places, seed=4)
    there, queries = centre + places * degrees, centre + grid * degrees
    shards = fg.partition(there, seen.observations, agents=3, by="stripes")
    answers, facts = {}, {}
    choices: dict[str, Literal["as-given", "kilometres"]] = {"degrees": "as-given", "kilometres": "kilometres"}
    for title, name in choices.items():
        one, both = (
            fg.Fleet(shards, "path", kernel=kernel, coordinates=name, inputs=("lon", "lat"), normalize=False)
            for kernel in ("iso-matern32", "matern32")
        )
        fit = one.train()
        answers[title] = one.predict(queries, "dec-nearest", n_nearest=60)
        facts[title] = {
            "l, one for both": rounded(fit.theta[0]),
            "l_lon, l_lat": [rounded(length) for length in both.train().theta[:2]],
            **scores(answers[title], seen.truth),
        }
    low, high = centre - half * degrees, centre + half * degrees
    figure = empty_figure(5.3)
    map_rows(
        figure,
        mean_and_std_rows(seen.truth, answers, shards),
        (low[0], high[0], low[1], high[1]),
        there,
        labels=("longitude", "latitude"),
        aspect=float(degrees[0] / degrees[1]),
    )
    return Drawn(figure, facts)


# ---- bounds, priors and fixed values: few observations, and what is known besides --------------------------

#: What `train` is given besides the data.
KNOWN: dict[str, dict[str, Any]] = {
    "likelihood alone": {},
    "fixed noise": {"fixed": {"noise": 0.5}},
    "prior and bounds": {"priors": {"noise": (0.5, 1.5)}, "bounds": {"length": (0.2, 4.0)}},
}
NOISE = 0.5


def few_places(side: int, seed: int) -> tuple[Scene, list[Shard]]:
    seen = scene("matern32", (0.6, 0.6, 1.0, NOISE), map_points(side), anywhere(15, seed), seed)
    return seen, fg.partition(seen.places, seen.observations, agents=3, by="stripes")


def by_known(seen: Scene, shards: list[Shard], options: dict[str, Any]) -> tuple[dict[str, float], Prediction]:
    """The estimated hyperparameters, and the map with them."""
    fleet = fg.Fleet(shards, "path", kernel="matern32", normalize=False)
    theta = fleet.train(**options).theta
    return named_theta(fleet.names, theta), fleet.predict(seen.grid, "dec-grbcm")


def known(size: Size) -> Drawn:
    """One draw, where the noise is taken for signal, on maps, and the noise that is found in many of them."""
    seen, shards = few_places(size.side, seed=7)
    answers, facts = {}, {}
    for title, options in KNOWN.items():
        theta, answers[title] = by_known(seen, shards, options)
        facts[title] = {"theta": theta, **scores(answers[title], seen.truth)}
    facts["draws"] = _noise_of_draws(size, draws=20)
    figure = empty_figure(4.3)
    map_rows(figure, mean_and_std_rows(seen.truth, answers, shards), WHOLE_BOX, seen.places, s=12)
    return Drawn(figure, facts)


def _noise_of_draws(size: Size, draws: int) -> dict[str, Any]:
    """How often the noise is found to be less than half of what it is, and the median scores, over many draws."""
    rows: dict[str, list[list[float]]] = {title: [] for title in KNOWN}
    for seed in size.draws(draws):
        seen, shards = few_places(10, seed)
        for title, options in KNOWN.items():
            theta, answer = by_known(seen, shards, options)
            rows[title].append([theta["sigma_eps"], *scores(answer, seen.truth).values()])
    return {
        title: {"draws": len(of_title), "noise below half": int(sum(row[0] < 0.5 * NOISE for row in of_title))}
        | _median_scores([row[1:] for row in of_title])
        for title, of_title in rows.items()
    }


def _median_scores(rows: list[list[float]]) -> dict[str, float]:
    """rows: (RMSE, coverage) of draws."""
    error, covered = np.median(rows, axis=0).tolist()
    return {"median rmse": rounded(error), "median covered": rounded(covered)}


# ---- calibration: what intervals promise, and what they cover, among the data and in gaps ------------------


def holes(places: Array) -> BoolArray:
    """Whether places lie in cells that nobody observes: one of nine, eight cells along each axis."""
    cells = np.clip((places / BOX[1] * 8).astype(int), 0, 7)
    return np.asarray((5 * cells[:, 0] + 7 * cells[:, 1]) % 9 == 2)


def calibration(size: Size) -> Drawn:
    """Observations at new places, among the data and in gaps, before and after. The agents are all over the area."""
    kernel, theta, method = "matern12", (0.8, 0.8, 1.0, 0.1), "dec-rbcm"
    anyone = anywhere(size.of(5000), 61)  # as many in gaps as there are, and some among the data
    queries = np.concatenate([anyone[holes(anyone)], anyone[~holes(anyone)][: size.of(600)]])
    grid = map_points(size.side)
    seen = scene(kernel, theta, queries, anywhere(size.of(1600), 6), seed=6)
    seen = seen.kept(~holes(seen.places))
    new = seen.truth + theta[-1] * np.random.default_rng([6, 3]).standard_normal(len(queries))
    shards = fg.partition(seen.places, seen.observations, agents=16, by="random")
    fleet = fg.Fleet(shards, "cycle", kernel=kernel, normalize=False)
    fleet.train()
    answers, maps = {}, {}
    answers["before"], maps["before"] = fleet.predict(queries, method, observed=True), fleet.predict(grid, method)
    how = fleet.calibrate(method)
    answers["after"], maps["after"] = fleet.predict(queries, method, observed=True), fleet.predict(grid, method)
    figure = empty_figure(2.5)
    left, right = figure.subfigures(1, 2, width_ratios=[1.15, 1.0], squeeze=False).ravel()
    panels = [Panel(title, np.sqrt(answer.variance)) for title, answer in maps.items()]
    map_rows(left, [Row(panels, "standard deviation", "cividis", 0.0)], WHOLE_BOX)
    facts: dict[str, Any] = {knot.holdout: {"factor": rounded(knot.factor)} for knot in how.knots}
    facts["observations"] = len(seen.places)
    axes = right.subplots(1, 2, sharex=True, sharey=True)
    parts = {"among the data": ~holes(queries), "in gaps": holes(queries)}
    for ax, (title, where) in zip(axes, parts.items(), strict=True):
        facts[title] = _reliability(ax, title, answers, new, where)
    axes[0].set_ylabel("covered")
    axes[0].legend(frameon=False, loc="upper left")
    return Drawn(figure, facts)


def _reliability(
    ax: Axes, title: str, answers: dict[str, Prediction], truth: Array, where: BoolArray
) -> dict[str, float]:
    """The share that is covered, against the nominal one; what it is for 95%."""
    levels = np.linspace(0.05, 0.99, 48)
    facts: dict[str, float] = {"places": int(where.sum())}
    for (name, answer), (colour, line) in zip(answers.items(), ((FIRST, "--"), (SECOND, "-")), strict=True):
        part = answer.mean[where], answer.variance[where], truth[where]
        shares = [coverage(*part, level) for level in levels]
        ax.plot(levels, shares, color=colour, linestyle=line, linewidth=1.5, label=name)
        facts[name] = rounded(coverage(*part))
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
    ticks = (0, 0.5, 1)
    ax.set(title=title, xlabel="nominal", xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=ticks, yticks=ticks)
    return facts


# ---- noise that differs, and a sensor that is stuck --------------------------------------------------------

NOISY_THETA = (0.5, 0.5, 1.0, 0.05)


def sensors(size: Size) -> Drawn:
    """One noise for all, one for each agent, and the standard deviations as they are known."""
    adds = (0.0, 0.8, 0.8)  # to the noise, by the agents' sensors: a good one and two cheap ones
    seen = scene("matern32", NOISY_THETA, map_points(size.side), anywhere(size.of(180), 2), seed=2)
    whose = np.arange(len(seen.places)) % len(adds)
    added = np.array(adds)[whose]
    observations = seen.observations + added * np.random.default_rng([2, 3]).standard_normal(len(whose))
    shards = [(seen.places[whose == k], observations[whose == k]) for k in range(len(adds))]
    with_std = [(*shard, added[whose == k]) for k, shard in enumerate(shards)]
    fleets = {
        "one noise": fg.Fleet(shards, "path", kernel="matern32", normalize=False),
        "one for each agent": fg.Fleet(shards, "path", kernel="matern32", noise="agents", normalize=False),
        "known deviations": fg.Fleet(with_std, "path", kernel="matern32", normalize=False),
    }
    return _compared(seen, fleets, shards, seen.places)


def robust(size: Size) -> Drawn:
    """One agent's sensor is stuck for some of its rows: few of them, in the picture, and many."""
    seen, shards, stuck = _stuck(size, 1 / 15)
    others = np.delete(seen.places, stuck, axis=0)
    drawn = _compared(seen, _robust_or_not(shards), shards, others, seen.places[stuck], height=5.3)
    many, shards, rows = _stuck(size, 1 / 4)
    of_many: dict[str, Any] = {"rows": len(rows)}
    for title, fleet in _robust_or_not(shards).items():
        fleet.train()
        of_many[title] = scores(fleet.predict(many.grid, "dec-nearest"), many.truth)
    drawn.facts.update({"stuck": len(stuck), "many stuck": of_many})
    return drawn


def _robust_or_not(shards: list[Shard]) -> dict[str, fg.Fleet]:
    return {
        title: fg.Fleet(shards, "path", kernel="matern32", robust=robust, normalize=False)
        for title, robust in (("as they are", False), ("robust", True))
    }


def _stuck(size: Size, part: float) -> tuple[Scene, list[Shard], IntArray]:
    """A field and what three agents observe; and the rows for which the sensor of the second is stuck."""
    seen = scene("matern32", NOISY_THETA, map_points(size.side), anywhere(size.of(360), 9), seed=9)
    whose = np.arange(len(seen.places)) % 3
    own = np.flatnonzero(whose == 1)
    stuck = own[: round(part * len(own))]
    seen.observations[stuck] = 4.0
    return seen, [(seen.places[whose == k], seen.observations[whose == k]) for k in range(3)], stuck


def _compared(
    seen: Scene,
    fleets: dict[str, fg.Fleet],
    shards: list[Shard],
    dots: Array,
    crosses: Array | None = None,
    height: float = 4.3,
) -> Drawn:
    """Train all fleets, and draw their maps. crosses: observations that are shown as such."""
    answers: dict[str, Prediction] = {}
    facts: dict[str, Any] = {"observations": len(seen.places)}
    for title, fleet in fleets.items():
        fit = fleet.train()
        answers[title] = fleet.predict(seen.grid, "dec-nearest")
        facts[title] = {"theta": named_theta(fleet.names, fit.theta), **scores(answers[title], seen.truth)}
        if len(fit.outliers):
            facts[title]["weighed down"] = fit.outliers.tolist()
    figure = empty_figure(height)
    above, below = map_rows(figure, mean_and_std_rows(seen.truth, answers, shards), WHOLE_BOX, dots)
    if crosses is not None:
        for ax in (*above, *below[1:]):
            dot(ax, crosses, marker="x", s=14, color="white", edgecolors=None, linewidths=1.0)
    return Drawn(figure, facts)


# ---- several targets: one that is observed seldom, alone and together with one that is observed often ------

OFTEN, SELDOM = "temperature", "salinity"


def two_targets(size: Size, side: int, seed: int) -> tuple[Scene, dict[str, fg.Fleet]]:
    """Two fields that have nothing in common but how far they reach; both ways to fit the second of them.

    Of that every agent observes the first six rows alone.
    """
    theta, few, n_boats = (0.4, 0.4, 1.0, 0.2), 6, 3
    places, grid = anywhere(size.of(180), seed), map_points(side)
    often, seldom = (scene("matern32", theta, grid, places, one) for one in (seed, 100 + seed))
    both = np.column_stack([often.observations, seldom.observations])
    boats = [np.flatnonzero(np.arange(len(places)) % n_boats == boat) for boat in range(n_boats)]
    for rows in boats:
        both[rows[few:], 1] = np.nan
    shards = [(places[rows[:few]], seldom.observations[rows[:few]]) for rows in boats]
    alone = fg.Fleet(shards, "path", kernel="matern32", normalize=False)
    alone.train()
    together = fg.Outputs(
        [(places[rows], both[rows]) for rows in boats],
        "path",
        targets=[OFTEN, SELDOM],
        kernel="matern32",
        normalize=False,
    )
    together.train()
    return seldom, {f"{SELDOM} alone": alone, f"with {OFTEN}": together.fleets[SELDOM]}


def targets(size: Size) -> Drawn:
    """One draw on maps, and the scores of several."""
    seen, fleets = two_targets(size, size.side, seed=8)
    answers = {title: fleet.predict(seen.grid, "dec-nearest") for title, fleet in fleets.items()}
    shards = fleets[f"{SELDOM} alone"].shards
    few = np.concatenate([x for x, _ in shards])
    figure = empty_figure(5.3)
    rows = mean_and_std_rows(seen.truth, answers, shards, first=f"truth, {SELDOM}")
    map_rows(figure, rows, WHOLE_BOX, few, s=9)
    facts: dict[str, Any] = {"observations": {OFTEN: len(seen.places), SELDOM: len(few)}}
    for title, fleet in fleets.items():
        assert fleet.theta is not None
        facts[title] = {"theta": named_theta(fleet.names, fleet.theta), **scores(answers[title], seen.truth)}
    return Drawn(figure, facts | {"draws": _scores_of_draws(size, draws=10)})


def _scores_of_draws(size: Size, draws: int) -> dict[str, Any]:
    rows: dict[str, list[list[float]]] = {}
    for seed in size.draws(draws):
        seen, fleets = two_targets(size, 12, seed)
        for title, fleet in fleets.items():
            answer = fleet.predict(seen.grid, "dec-nearest")
            rows.setdefault(title, []).append(list(scores(answer, seen.truth).values()))
    return {title: {"draws": len(of_title)} | _median_scores(of_title) for title, of_title in rows.items()}


# ---- all of them -------------------------------------------------------------------------------------------

#: What draws the figure of a section of the page.
SECTIONS: dict[str, Callable[[Size], Drawn]] = {
    "gap": gap,
    "shapes": shapes,
    "space-time": space_time,
    "means": means,
    "coordinates": coordinates,
    "known": known,
    "calibration": calibration,
    "sensors": sensors,
    "robust": robust,
    "targets": targets,
}


def draw_all(
    folder: Path,
    size: Size = Size(),  # noqa: B008
    names: Iterable[str] = SECTIONS,
    report: Callable[[str], object] = lambda _: None,
) -> None:
    """Write NAME.png for these sections, and their numbers into numbers.json; what is there of others stays.

    report: called with every figure that is finished, and its numbers.
    """
    chosen = tuple(names)
    for name in chosen:
        if name not in SECTIONS:
            raise unknown_name("figure", name, SECTIONS)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "numbers.json"
    facts = json.loads(page.read_text(encoding="utf-8")) if page.exists() else {}
    for name in chosen:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of gaps, floors and bounds: they are what is shown
            drawn = SECTIONS[name](size)
            drawn.figure.savefig(folder / f"{name}.png", dpi=140)
        facts[name] = drawn.facts
        report(f"{name}: {json.dumps(drawn.facts)}")
    ordered = {name: facts[name] for name in SECTIONS if name in facts}
    page.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw_all(Path(__file__).parents[1] / "models", names=sys.argv[1:] or SECTIONS, report=print)
