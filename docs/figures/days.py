"""Space and time: one day of a field, from that day alone and from the days around it."""

from __future__ import annotations

import numpy as np
from panels import dot, empty_figure, map_rows, means_and_deviations
from scenes import (
    BOX,
    Drawn,
    Scene,
    Size,
    anywhere,
    map_points,
    scene,
    scores,
    told_theta,
)

import fleetgp as fg
from fleetgp.data import Shard

KERNEL, INPUTS = "matern32(lon, lat) * matern12(day)", ("lon", "lat", "day")
#: l_lon, l_lat, l_day, sigma_f, sigma_eps.
THETA = (0.6, 0.6, 6.0, 1.0, 0.1)
DAYS, MIDDLE = 7, 4
#: Observations of the day of the map, and of each of the others.
FEW, MANY = 12, 80
BOATS = 4


def observed(size: Size, seed: int) -> Scene:
    """All days' observations, and the map of one."""
    counts = [size.of(FEW) if day == MIDDLE else size.of(MANY) for day in range(1, DAYS + 1)]
    days = np.repeat(np.arange(1.0, DAYS + 1.0), counts)
    places = np.column_stack([anywhere(len(days), seed), days])
    flat = map_points(size.side)
    grid = np.column_stack([flat, np.full(len(flat), float(MIDDLE))])
    return scene("matern32(1, 2) * matern12(3)", THETA, grid, places, seed)


def space_time(size: Size) -> Drawn:
    """The same hyperparameters for both, so that the difference is the data's."""
    seen = observed(size, seed=7)
    boats = np.arange(len(seen.places)) % BOATS
    today = seen.places[:, 2] == MIDDLE

    def shards(days: bool) -> list[Shard]:
        rows = [(boats == boat) & (days | today) for boat in range(BOATS)]
        return [(seen.places[own], seen.observations[own]) for own in rows]

    every = fg.Fleet(shards(True), "cycle", kernel=KERNEL, inputs=INPUTS, normalize=False)
    fit = every.train()
    alone = fg.Fleet(shards(False), "cycle", kernel=KERNEL, inputs=INPUTS, theta=fit.theta, normalize=False)
    fleets = {"that day alone": alone, "all days": every}
    found = {title: fleet.predict(seen.grid, "dec-nearest", neighbours=60) for title, fleet in fleets.items()}
    figure = empty_figure(5.3)
    rows = means_and_deviations(seen.truth, found, shards(False), first=f"truth, day {MIDDLE}")
    axes = map_rows(figure, rows, (*BOX, *BOX), labels=("lon", "lat"))
    for line in axes:
        dot(line[2], seen.places[~today], s=1.5, color="black", linewidths=0.0)
        for ax in line if line is axes[0] else line[1:]:
            dot(ax, seen.places[today], s=9)
    axes[1][0].set_title(f"the agents, day {MIDDLE}")
    facts = {title: scores(one, seen.truth) for title, one in found.items()}
    counts = {"of the day": int(today.sum()), "of all days": len(today)}
    return Drawn(figure, {"theta": told_theta(every.names, fit.theta), "observations": counts, **facts})
