"""A mean function and data that are known by their sums: polynomials of degree 1, so that all of it is exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.gp.moments.solution import Solution
from fleetgp.gp.trend import Trend
from fleetgp.linalg import lapack


def products(s: Solution, trend: Trend) -> Array:
    """Z'C^-1 Z for Z = (H, y), (count + 1, count + 1).

    As the likelihood's own y'C^-1 y: with U = A^-1 Phi'Z it is (|Z - Phi U|^2 + sigma^2 |U|^2) / sigma^2.
    """
    m, flat, box = s.grid.moments, s.grid.basis.flat, s.grid.moments.box
    nodes = np.stack(np.meshgrid(*s.grid.positions, indexing="ij"), axis=-1)
    h = np.moveaxis(trend.columns(box.centre + box.half * nodes), -1, 0)
    sums = [m.weights * column for column in h] + [m.responses]
    heard = np.stack([s.grid.sums(weights)[flat] for weights in sums], axis=1)
    own = np.empty((len(sums), len(sums)))
    own[:-1, :] = [[float((column * weights).sum()) for weights in sums] for column in h]
    own[-1, :-1], own[-1, -1] = own[:-1, -1], m.squares
    u = np.asfortranarray(heard)
    lapack.solve_in_place(s.lower, u)
    mixed = u.T @ heard
    return np.asarray((own - mixed - mixed.T + u.T @ s.gram @ u) / s.noise**2 + u.T @ u)


def without(moments: FleetMoments, trend: Trend, coefficients: Sequence[float]) -> FleetMoments:
    """The moments of y_n - h(x_n)'coefficients, from those of y_n: no data are needed."""
    box, sums, low = moments.box, moments.sums, moments.responses.shape
    slopes = np.array([*coefficients[1:], *[0.0] * (len(box.centre) if not trend.linear else 0)])
    # Sums one by one: all agents have the same bits, whatever their processors.
    constant = float(coefficients[0]) + sum((slopes * (box.centre - trend.centre)).tolist())
    # The mean function in positions, constant + sum_d steep_d t_d, and t T_j = (T_j+1 + T_|j-1|) / 2.
    steep = slopes * box.half
    corner = tuple(slice(0, size) for size in low)
    taken = constant * sums[corner]
    for d, slope in enumerate(steep):
        taken = taken + slope * _times_position(sums, d, low)
    responses = moments.responses - taken
    first = [np.eye(len(low), dtype=np.int64)[d] for d in range(len(low))]
    # |y - m|^2 = |y|^2 - m'(y + (y - m))
    both = moments.responses + responses
    weighed = constant * both.flat[0] + sum(slope * both[tuple(one)] for slope, one in zip(steep, first, strict=True))
    return FleetMoments(box, sums, responses, max(float(moments.squares - weighed), 0.0))


def _times_position(sums: Array, axis: int, low: Sequence[int]) -> Array:
    """The sums of t_d T_j(x_n), of degrees below `low`; none that is not there is needed for these."""
    degrees = np.arange(low[axis])
    along = 0.5 * (
        np.take(sums, np.minimum(degrees + 1, sums.shape[axis] - 1), axis) + np.take(sums, np.abs(degrees - 1), axis)
    )
    return np.asarray(along[tuple(slice(0, size) for size in low)])
