"""Noise that differs, and a sensor that is stuck."""

from __future__ import annotations

from typing import Any

import numpy as np
from panels import dot, empty_figure, map_rows, means_and_deviations
from scenes import BOX, Drawn, Scene, Size, anywhere, map_points, scene, scores, told_theta

import fleetgp as fg
from fleetgp.arrays import Array, IntArray
from fleetgp.data import Shard
from fleetgp.prediction import Prediction

THETA = (0.5, 0.5, 1.0, 0.05)
#: Deviations of what the agents' sensors add to the noise: a good one and two cheap ones.
SENSORS = (0.0, 0.8, 0.8)
METHOD = "dec-nearest"


def sensors(size: Size) -> Drawn:
    """One noise for all, one for each agent, and the deviations as they are known."""
    seen = scene("matern32", THETA, map_points(size.side), anywhere(size.of(180), 2), seed=2)
    whose = np.arange(len(seen.places)) % len(SENSORS)
    added = np.array(SENSORS)[whose]
    seen = _with(seen, seen.observations + added * np.random.default_rng([2, 3]).standard_normal(len(whose)))
    shards = [(seen.places[whose == k], seen.observations[whose == k]) for k in range(len(SENSORS))]
    known = [(*shard, added[whose == k]) for k, shard in enumerate(shards)]
    fleets = {
        "one noise": fg.Fleet(shards, "path", kernel="matern32", normalize=False),
        "one for each agent": fg.Fleet(shards, "path", kernel="matern32", noise="agents", normalize=False),
        "known deviations": fg.Fleet(known, "path", kernel="matern32", normalize=False),
    }
    return _drawn(seen, fleets, shards, seen.places)


#: The part of an agent's rows for which its sensor is stuck, and what it tells: in the picture, and beside it.
STUCK, MANY, VALUE = 1 / 15, 1 / 4, 4.0


def robust(size: Size) -> Drawn:
    """One agent's sensor is stuck for some of its rows."""
    seen, shards, stuck = _stuck(size, STUCK)
    fleets = {"as they are": _fleet(shards), "robust": _fleet(shards, robust=True)}
    drawn = _drawn(seen, fleets, shards, np.delete(seen.places, stuck, axis=0), seen.places[stuck], height=5.3)
    many, shards, beside = _stuck(size, MANY)
    drawn.facts.update({"stuck": len(stuck), "many stuck": {"rows": len(beside)}})
    for title, fleet in (("as they are", _fleet(shards)), ("robust", _fleet(shards, robust=True))):
        fleet.train()
        drawn.facts["many stuck"][title] = scores(fleet.predict(many.grid, METHOD), many.truth)
    return drawn


def _fleet(shards: list[Shard], *, robust: bool = False) -> fg.Fleet:
    return fg.Fleet(shards, "path", kernel="matern32", robust=robust, normalize=False)


def _stuck(size: Size, part: float) -> tuple[Scene, list[Shard], IntArray]:
    """A field and what three agents observe; and the rows for which the sensor of the second is stuck."""
    seen = scene("matern32", THETA, map_points(size.side), anywhere(size.of(360), 9), seed=9)
    whose = np.arange(len(seen.places)) % 3
    own = np.flatnonzero(whose == 1)
    stuck = own[: round(part * len(own))]
    seen.observations[stuck] = VALUE
    return seen, [(seen.places[whose == k], seen.observations[whose == k]) for k in range(3)], stuck


def _with(seen: Scene, observations: Array) -> Scene:
    return Scene(seen.grid, seen.truth, seen.places, observations)


def _drawn(
    seen: Scene,
    fleets: dict[str, fg.Fleet],
    shards: list[Shard],
    dots: Array,
    crosses: Array | None = None,
    height: float = 4.3,
) -> Drawn:
    """Train them all, and draw their maps. crosses: observations that are shown as such."""
    found: dict[str, Prediction] = {}
    facts: dict[str, Any] = {"observations": len(seen.places)}
    for title, fleet in fleets.items():
        fit = fleet.train()
        found[title] = fleet.predict(seen.grid, METHOD)
        facts[title] = {"theta": told_theta(fleet.names, fit.theta), **scores(found[title], seen.truth)}
        if len(fit.outliers):
            facts[title]["weighed down"] = fit.outliers.tolist()
    figure = empty_figure(height)
    axes = map_rows(figure, means_and_deviations(seen.truth, found, shards), (*BOX, *BOX), dots)
    if crosses is not None:
        for ax in [ax for line in axes for ax in line if ax is not axes[1][0]]:
            dot(ax, crosses, marker="x", s=14, color="white", edgecolors=None, linewidths=1.0)
    return Drawn(figure, facts)
