"""First on a sample, then on all: where an agent has many observations, a training begins with some of them.

A sample of a thousand tells much about theta, and its exact likelihood costs next to nothing. All starts are followed
on the smallest sample. The best one goes on with eight times as many, and so on, at last with all. The result is the
optimum of all observations; samples only save time, and tell which engine suits.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.gp.expert import MOST_DENSE, Expert
from fleetgp.gp.places import drawn_by_place
from fleetgp.training.objective import Objective

#: Observations of an agent in the smallest sample, and how many times as many are in the next one.
SMALLEST, TIMES = 1000, 8
#: A sample is taken if all observations are more than so many times as many; the smallest one if they are more than the
#: dense engine takes.
WORTH = 4


def levels(observations: int) -> int:
    """How many samples an agent with so many observations trains on first.

    >>> [levels(n) for n in (1_500, 1_501, 32_000, 32_001, 1_000_000)]
    [0, 1, 1, 2, 3]
    """
    if observations <= MOST_DENSE:
        return 0
    count = 1
    while observations > WORTH * SMALLEST * TIMES**count:
        count += 1
    return count


def first_sizes(observations: IntArray) -> IntArray:
    """How many observations of each agent are in the smallest sample."""
    return np.minimum(observations, SMALLEST)


def sampled(objective: Objective, level: int, seed: int) -> Objective:
    """The likelihoods of a sample with at most as many observations of each agent as the level has.

    level: 0 for the smallest sample.  seed: known to all. Rows are drawn by where they lie (`gp/places.py`).
    """
    size = SMALLEST * TIMES**level
    return objective.changed(lambda expert: _sample(expert, size, seed))


def _sample(expert: Expert, size: int, seed: int) -> Expert:
    if expert.size <= size:
        return expert
    return expert.part(drawn_by_place(expert.data, size, seed))
