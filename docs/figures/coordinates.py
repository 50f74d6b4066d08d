"""Coordinates: degrees and kilometres far from the equator."""

from __future__ import annotations

from typing import Literal

import numpy as np
from panels import empty_figure, map_rows, means_and_deviations
from scenes import Drawn, Size, map_points, rounded, scene, scores

import fleetgp as fg
from fleetgp.data.coordinates import DEGREE

INPUTS = ("lon", "lat")
CENTRE = (20.0, 70.0)
#: Half a side of the area, and the length-scale of the field, in kilometres.
HALF, SCALE = 17.0, 6.0
CHOICES: dict[str, Literal["as-given", "kilometres"]] = {"degrees": "as-given", "kilometres": "kilometres"}


def coordinates(size: Size) -> Drawn:
    """A field that is alike in all directions over the ground."""
    degrees = np.array([1.0 / (DEGREE * np.cos(np.radians(CENTRE[1]))), 1.0 / DEGREE])
    grid = map_points(size.side, (-HALF, -HALF), (HALF, HALF))
    places = np.random.default_rng([4, 0]).uniform(-HALF, HALF, (size.of(90), 2))
    seen = scene("matern32", (SCALE, SCALE, 1.0, 0.1), grid, places, seed=4)
    there, asked = CENTRE + places * degrees, CENTRE + grid * degrees
    shards = fg.partition(there, seen.observations, agents=3, by="stripes")
    found, facts = {}, {}
    for title, name in CHOICES.items():
        fleet = fg.Fleet(shards, "path", kernel="iso-matern32", coordinates=name, inputs=INPUTS, normalize=False)
        fit = fleet.train()
        found[title] = fleet.predict(asked, "dec-nearest", neighbours=60)
        both = fg.Fleet(shards, "path", kernel="matern32", coordinates=name, inputs=INPUTS, normalize=False).train()
        facts[title] = {
            "l, one for both": rounded(fit.theta[0]),
            "l_lon, l_lat": [rounded(scale) for scale in both.theta[:2]],
            **scores(found[title], seen.truth),
        }
    low, high = CENTRE - HALF * degrees, CENTRE + HALF * degrees
    figure = empty_figure(5.3)
    map_rows(
        figure,
        means_and_deviations(seen.truth, found, shards),
        (low[0], high[0], low[1], high[1]),
        there,
        labels=("longitude", "latitude"),
        aspect=float(degrees[0] / degrees[1]),
    )
    return Drawn(figure, facts)
