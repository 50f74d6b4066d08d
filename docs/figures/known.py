"""Bounds, priors and fixed values: few observations, and what is known besides."""

from __future__ import annotations

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
from fleetgp.data import Shard
from fleetgp.prediction import Prediction

THETA = (0.6, 0.6, 1.0, 0.5)
COUNT = 15
#: What is told besides the data.
TOLD: dict[str, dict[str, Any]] = {
    "likelihood alone": {},
    "fixed noise": {"fixed": {"noise": 0.5}},
    "prior and bounds": {"priors": {"noise": (0.5, 1.5)}, "bounds": {"length": (0.2, 4.0)}},
}
#: Draws of the same kind, and the one in the picture, where the noise is taken for signal.
DRAWS, SHOWN = 20, 7


def shards_of(seen: Scene) -> list[Shard]:
    return fg.partition(seen.places, seen.observations, agents=3, by="stripes")


def by_told(seen: Scene, told: dict[str, Any]) -> tuple[dict[str, float], Prediction]:
    """The hyperparameters that are found, and the map with them. told: what `train` is given."""
    fleet = fg.Fleet(shards_of(seen), "path", kernel="matern32", normalize=False)
    theta = fleet.train(**told).theta
    return told_theta(fleet.names, theta), fleet.predict(seen.grid, "dec-grbcm")


def known(size: Size) -> Drawn:
    """One draw on maps, and the noise that is found in all of them."""
    seen = scene("matern32", THETA, map_points(size.side), anywhere(COUNT, SHOWN), SHOWN)
    found, facts = {}, {}
    for title, told in TOLD.items():
        theta, found[title] = by_told(seen, told)
        facts[title] = {"theta": theta, **scores(found[title], seen.truth)}
    facts["draws"] = _draws(size)
    figure = empty_figure(4.3)
    axes = map_rows(figure, means_and_deviations(seen.truth, found, shards_of(seen)), (*BOX, *BOX))
    for ax in [ax for line in axes for ax in line if ax is not axes[1][0]]:
        dot(ax, seen.places, s=12)
    return Drawn(figure, facts)


def _draws(size: Size) -> dict[str, Any]:
    """How often the noise is found to be less than half of what it is, and the median scores, over many draws."""
    told: dict[str, list[list[float]]] = {title: [] for title in TOLD}
    for seed in size.draws(DRAWS):
        seen = scene("matern32", THETA, map_points(10), anywhere(COUNT, seed), seed)
        for title, given in TOLD.items():
            theta, found = by_told(seen, given)
            told[title].append([theta["sigma_eps"], *scores(found, seen.truth).values()])
    return {
        title: {
            "draws": len(rows),
            "noise below half": int(sum(row[0] < 0.5 * THETA[-1] for row in rows)),
            "median rmse": rounded(float(np.median([row[1] for row in rows]))),
            "median covered": rounded(float(np.median([row[2] for row in rows]))),
        }
        for title, rows in told.items()
    }
