"""Who is near whom depends on the ratios of the length-scales: on those in steps, with soft borders between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from fleetgp.arrays import Array

#: Ratios are rounded to powers of two: theta on its way has the same neighbours for long, and all are near enough. This
#: part of a step, around the border between two powers, belongs to both.
BORDER = 0.25
#: Ratios beyond this power of two are as this one: the other axes count for nothing.
MOST = 60.0


@dataclass(frozen=True)
class Shape:
    """powers: (D,) the length-scales relative to the first one, as powers of two.

    weight: how much it counts at the length-scales in question.  slope: (D,) its derivative by their logarithms.
    """

    powers: tuple[int, ...]
    weight: float
    slope: Array

    def places(self, inputs: Array) -> Array:
        """The inputs in units in which the nearest are near."""
        return np.asarray(inputs / 2.0 ** np.array(self.powers))


def shapes(scales: Array) -> list[Shape]:
    """The shapes that count at these length-scales, the one that counts most first; their weights sum to 1.

    One, but for ratios around the borders, where the weights go smoothly from one to the other: a likelihood that
    jumped there would stop its minimizers. All length-scales larger by the same factor have the same shapes.

    >>> [(shape.powers, shape.weight) for shape in shapes(np.array([3.0, 6.5]))]
    [((0, 1), 1.0)]
    >>> [(shape.powers, round(shape.weight, 3)) for shape in shapes(np.array([1.0, 2.0**1.45]))]
    [((0, 1), 0.784), ((0, 2), 0.216)]
    """
    axes = [_powers(ratio) for ratio in np.clip(np.log2(scales[1:] / scales[0]), -MOST, MOST).tolist()]
    found = []
    for chosen in product(*axes):
        weights = [weight for _, weight, _ in chosen]
        slope = np.zeros(len(scales))
        for d, (_, _, change) in enumerate(chosen):
            slope[1 + d] = change / math.log(2.0) * math.prod(weights[:d] + weights[d + 1 :])
        slope[0] = -slope[1:].sum()
        found.append(Shape((0, *(power for power, _, _ in chosen)), math.prod(weights), slope))
    return sorted(found, key=lambda shape: -shape.weight)


def _powers(ratio: float) -> list[tuple[int, float, float]]:
    """The powers next to a ratio, as a power itself: each with its weight, and the derivative of that by the ratio."""
    below = math.floor(ratio)
    s = (ratio - below - 0.5) / BORDER + 0.5
    if not 0.0 < s < 1.0:
        return [(below + (s >= 1.0), 1.0, 0.0)]
    weight, change = s * s * (3.0 - 2.0 * s), 6.0 * s * (1.0 - s) / BORDER
    return [(below, 1.0 - weight, -change), (below + 1, weight, change)]
