"""Kernels: what they make of a gap, and what they look like."""

from __future__ import annotations

from typing import Any

import numpy as np
from panels import FIRST, SECOND, empty_figure, map_rows, means_and_deviations
from scenes import (
    BOX,
    Drawn,
    Scene,
    Size,
    anywhere,
    draw,
    map_points,
    rounded,
    scene,
    scores,
    told_theta,
)

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray
from fleetgp.data import Shard
from fleetgp.gp.expression import as_kernel
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.prediction import Prediction

#: The rough field, and where nobody observes it: left, right, below, above.
ROUGH, ROUGH_THETA = "matern12", (1.2, 1.2, 1.0, 0.05)
HOLE = (0.6, 1.5, 0.6, 1.4)
COMPARED = ("se", "matern32", "matern12")
#: Other draws of the same kind, and the one in the picture.
DRAWS, SHOWN = 8, 1


def inside(places: Array) -> BoolArray:
    return np.asarray(
        (places[:, 0] > HOLE[0]) & (places[:, 0] < HOLE[1]) & (places[:, 1] > HOLE[2]) & (places[:, 1] < HOLE[3])
    )


def with_gap(size: Size, side: int, seed: int) -> tuple[Scene, list[Shard]]:
    seen = scene(ROUGH, ROUGH_THETA, map_points(side), anywhere(size.of(520), seed), seed)
    seen = seen.kept(~inside(seen.places))
    return seen, fg.partition(seen.places, seen.observations, agents=4, by="kmeans")


def by_kernel(seen: Scene, shards: list[Shard], kernel: str) -> tuple[fg.Fit, Prediction, dict[str, Any]]:
    """A fleet with this kernel, its map, and how good that is."""
    fleet, hidden = fg.Fleet(shards, "complete", kernel=kernel, normalize=False), inside(seen.grid)
    fit = fleet.train()
    found = fleet.predict(seen.grid, "dec-grbcm")
    parts = {"in the gap": scores(found, seen.truth, hidden), "elsewhere": scores(found, seen.truth, ~hidden)}
    return fit, found, {"theta": told_theta(fleet.names, fit.theta), **parts}


def gap(size: Size) -> Drawn:
    """A rough field with a gap, by three kernels; and which of them "auto" chooses."""
    seen, shards = with_gap(size, size.side, SHOWN)
    found, facts = {}, {}
    for kernel in COMPARED:
        _, found[kernel], facts[kernel] = by_kernel(seen, shards, kernel)
    chosen = fg.Fleet(shards, "complete", kernel="auto", normalize=False).train()
    facts["auto"] = {one.kernel: round(one.density, 3) for one in chosen.compared} | {"chosen": chosen.kernel}
    facts["medians of draws"] = _medians(size)
    figure = empty_figure(4.3)
    map_rows(figure, means_and_deviations(seen.truth, found, shards), (*BOX, *BOX), seen.places)
    return Drawn(figure, facts)


def _medians(size: Size) -> dict[str, Any]:
    """Of the scores, over several draws."""
    told: dict[str, list[list[float]]] = {kernel: [] for kernel in COMPARED}
    for seed in size.draws(DRAWS):
        seen, shards = with_gap(size, size.side // 2, seed)
        for kernel in COMPARED:
            facts = by_kernel(seen, shards, kernel)[2]
            told[kernel].append([facts[part][what] for part in ("in the gap", "elsewhere") for what in facts[part]])
    names = ("rmse in the gap", "covered in the gap", "rmse elsewhere", "covered elsewhere")
    return {
        kernel: dict(zip(names, map(rounded, np.median(rows, axis=0).tolist()), strict=True)) | {"draws": len(rows)}
        for kernel, rows in told.items()
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
REACH = 4.0


def shapes(size: Size) -> Drawn:
    """Each kernel's covariance with one point, above three draws, along a line."""
    x = np.linspace(-REACH, REACH, 8 * size.side + 1)
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
            below.set(xlabel="$x$", xlim=(-REACH, REACH))
        axes[0, 0].set_ylabel("covariance")
        axes[1, 0].set_ylabel("draws")
    return Drawn(figure, {})
