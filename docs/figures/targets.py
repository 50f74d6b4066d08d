"""Several targets: one that is observed seldom, alone and together with one that is observed often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from panels import dot, empty_figure, map_rows, means_and_deviations
from scenes import (
    BOX,
    Drawn,
    Scene,
    Size,
    anywhere,
    map_points,
    rounded,
    scene,
    scores,
    told_theta,
)

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.prediction import Prediction

THETA = (0.4, 0.4, 1.0, 0.2)
#: Which is observed in every row, and which in the first few of every agent alone.
OFTEN, SELDOM = "temperature", "salinity"
COUNT, FEW, BOATS = 180, 6, 3
#: Draws of the same kind, and the one in the picture.
DRAWS, SHOWN = 10, 8


@dataclass(frozen=True)
class Trial:
    """Both ways to fit what is observed seldom."""

    seen: Scene
    alone: fg.Fleet
    together: fg.Fleet

    @property
    def found(self) -> dict[str, Prediction]:
        fleets = {f"{SELDOM} alone": self.alone, f"with {OFTEN}": self.together}
        return {title: fleet.predict(self.seen.grid, "dec-nearest") for title, fleet in fleets.items()}


def trial(size: Size, side: int, seed: int) -> Trial:
    """Two fields that have nothing in common but how far they reach."""
    places, grid = anywhere(size.of(COUNT), seed), map_points(side)
    often, seldom = (scene("matern32", THETA, grid, places, one) for one in (seed, 100 + seed))
    boats = [np.flatnonzero(np.arange(len(places)) % BOATS == boat) for boat in range(BOATS)]
    few = [rows[:FEW] for rows in boats]
    alone = fg.Fleet(
        [(places[rows], seldom.observations[rows]) for rows in few], "path", kernel="matern32", normalize=False
    )
    alone.train()
    every = [(places[rows], _both(often.observations[rows], seldom.observations[rows])) for rows in boats]
    both = fg.Outputs(every, "path", targets=[OFTEN, SELDOM], kernel="matern32", normalize=False)
    both.train()
    return Trial(seldom, alone, both.fleets[SELDOM])


def _both(often: Array, seldom: Array) -> Array:
    """(n, 2) the observations of an agent; the second of them are missing after the first few."""
    found = np.column_stack([often, seldom])
    found[FEW:, 1] = np.nan
    return found


def targets(size: Size) -> Drawn:
    """One draw on maps, and the scores of several."""
    shown = trial(size, size.side, SHOWN)
    found, alone = shown.found, shown.alone
    rows = means_and_deviations(shown.seen.truth, found, alone.shards, first=f"truth, {SELDOM}")
    figure = empty_figure(5.3)
    axes = map_rows(figure, rows, (*BOX, *BOX))
    for ax in [ax for line in axes for ax in line if ax is not axes[1][0]]:
        dot(ax, np.concatenate([x for x, _ in alone.shards]), s=9)
    facts: dict[str, Any] = {"observations": {OFTEN: len(shown.seen.places), SELDOM: FEW * BOATS}}
    for (title, one), fleet in zip(found.items(), (alone, shown.together), strict=True):
        assert fleet.theta is not None
        facts[title] = {"theta": told_theta(fleet.names, fleet.theta), **scores(one, shown.seen.truth)}
    return Drawn(figure, facts | {"draws": _draws(size)})


def _draws(size: Size) -> dict[str, Any]:
    """The median scores."""
    told: dict[str, list[list[float]]] = {}
    for seed in size.draws(DRAWS):
        one = trial(size, 12, seed)
        for title, found in one.found.items():
            told.setdefault(title, []).append(list(scores(found, one.seen.truth).values()))
    return {
        title: {"draws": len(rows), "median rmse": rounded(middle[0]), "median covered": rounded(middle[1])}
        for title, rows in told.items()
        if (middle := np.median(rows, axis=0).tolist())
    }
