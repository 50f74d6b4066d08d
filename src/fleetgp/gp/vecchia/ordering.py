"""From coarse to fine: an order in which every beginning covers all of the data about evenly."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.gp.places import order_by_place
from fleetgp.linalg.threads import cores

#: Distances between points that are taken halve from level to level; at most so many times.
LEVELS = 40
#: The rest follows at random once this part of the points is taken: nothing is left to be gained.
MOST = 0.8
#: The first distance is the width of the data over this, an odd number: distances on a grid are not at the threshold.
COARSEST = 4.13
#: Where the edges of cells lie, in cells: not where the rows of a grid do.
EDGE = 0.381966


def coarse_to_fine(inputs: Array, observations: Array) -> IntArray:
    """The rows in their order, (N,): near to the maximum-minimum order, in which each is the farthest from all before.

    On each level those are taken that are farther than r from all before and, of a random order, from each other. With
    20 neighbours the likelihood of 1,500 points in the plane then misses half of what it misses with a random order
    (Matern 1/2: 0.19 nats instead of 0.39, and 0.13 with the exact maximum-minimum order, which costs more).
    The order does not depend on how the rows are numbered: what is random in it goes by place (`gp/places.py`), and
    rows at the same place are told apart by their observations. Axes are compared in units of their standard
    deviations.
    """
    size = len(inputs)
    shuffled = order_by_place(inputs, observations, seed=0)
    deviations = np.sort(inputs, axis=0).std(axis=0)  # to the last bit, whatever the rows' order
    places = (inputs / np.where(deviations > 0.0, deviations, 1.0))[shuffled]
    places -= places.min(axis=0)
    radius = float(np.linalg.norm(places.max(axis=0))) / COARSEST
    order, taken, count = [np.zeros(1, dtype=np.int64)], np.arange(size) == 0, 1
    nearest = np.linalg.norm(places - places[0], axis=1)  # at most so far from what is taken
    for _ in range(LEVELS):
        if count >= MOST * size or radius == 0.0:
            break
        far = np.flatnonzero(~taken & (nearest > radius))
        if len(far):
            chosen = far[_apart(places[far], radius)]
            order.append(chosen)
            taken[chosen] = True
            count += len(chosen)
            distances, _ = cKDTree(places[chosen]).query(places[far], workers=cores())
            nearest[far] = np.minimum(nearest[far], distances)
        radius /= 2.0
    return np.asarray(shuffled[np.concatenate([*order, np.flatnonzero(~taken)])])


def _apart(places: Array, radius: float) -> IntArray:
    """Of places in the order of preference, in a grid of cells as wide as the radius: the first of every cell, but for
    those within the radius of a better one that stays.
    """
    cells = np.floor(places / radius + EDGE).astype(np.int64)
    numbers = cells @ np.cumprod([1, *(cells.max(axis=0)[:-1] + 2)])
    firsts = np.sort(np.unique(numbers, return_index=True)[1])
    pairs = cKDTree(places[firsts]).query_pairs(radius, output_type="ndarray")
    return np.asarray(firsts[_independent(len(firsts), pairs[:, 0], pairs[:, 1])])


def _independent(count: int, better: IntArray, worse: IntArray) -> BoolArray:
    """Who stays if, one by one, everybody leaves who has a better one beside that stays; all undecided at a time."""
    stays, leaves = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    while len(better):
        waits = np.zeros(count, dtype=bool)
        waits[worse] = True
        stays |= ~waits & ~leaves
        leaves[worse[stays[better]]] = True
        open_pairs = ~(stays[better] | leaves[better] | leaves[worse])
        better, worse = better[open_pairs], worse[open_pairs]
    return ~leaves
