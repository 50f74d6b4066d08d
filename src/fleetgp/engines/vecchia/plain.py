"""What `compiled` does, in NumPy, for every kernel; and with jitter, where a covariance is not positive definite.

Everything is in units of sigma_f: C = Phi + ratio I with Phi the kernel's profile, ratio = (sigma_eps / sigma_f)^2, and
observations over sigma_f. With C the covariance of a point's m neighbours, k that with the point itself,
a = C^-1 k and alpha = C^-1 y:

    v = 1 + ratio - k'a        e = y_i - a'y        -log p(y_i | neighbours) = (log v + e^2 / v) / 2

A change of the covariances of all m + 1 points, dC, changes v by u'dC u and e by u'dC w, with u = (-a, 1) and
w = (-alpha, 0). So all derivatives are sums over pairs of points,

    d = sum_pq u_p t_q dC_pq        t = (1 - e^2 / v) u / 2v + e w / v
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.kernels.stationary import Stationary
from fleetgp.linalg.cholesky import JITTERS

#: Squared pivots below this part of the diagonal are rounding.
SMALLEST = 1e-15


class NotPositiveDefiniteError(Exception):
    """A covariance cannot be factorized, even with jitter."""


def conditionals(
    kernel: Stationary, places: Array, y: Array, rows: IntArray, near: Neighbours, ratio: float
) -> tuple[Array, float]:
    """(n, 1 + D + 2) of the points `rows` with neighbours near (n, m), and the largest jitter, over 1 + ratio.

    (log v + e^2 / v) / 2, its derivatives by log l_d, then e^2 / v, and the derivative by log ratio.
    """
    everyone = np.concatenate([near, rows[:, None]], axis=1)
    squares = _squares(places[everyone])
    phi, slope = kernel.profile_and_slope(squares.sum(axis=3))
    c, jitter = _covariances(phi, ratio)
    if c is None:  # one of them is not positive definite: half of them at a time
        found = [conditionals(kernel, places, y, rows[half], near[half], ratio) for half in halves(len(rows))]
        return np.concatenate([values for values, _ in found]), max(jitter for _, jitter in found)
    k, observed = c[:, -1, :-1], y[near]
    a, alpha = np.moveaxis(np.linalg.solve(c[:, :-1, :-1], np.stack([k, observed], axis=2)), 2, 0)
    v = c[:, -1, -1] - np.einsum("nm,nm->n", k, a)
    e = y[rows] - np.einsum("nm,nm->n", a, observed)
    u = np.pad(-a, ((0, 0), (0, 1)), constant_values=1.0)
    w = np.pad(-alpha, ((0, 0), (0, 1)))
    t = (0.5 * (1.0 - e * e / v) / v)[:, None] * u + (e / v)[:, None] * w
    by_scales = 2.0 * np.einsum("npq,npqd->nd", u[:, :, None] * t[:, None] * slope, squares)
    by_ratio = ratio * np.einsum("np,np->n", u, t)
    return np.column_stack([0.5 * (np.log(v) + e * e / v), by_scales, e * e / v, by_ratio]), jitter


def means(
    kernel: Stationary, places: Array, y: Array, queries: Array, near: Neighbours, ratio: float
) -> tuple[Array, Array, float]:
    """(T, 2) mean and what is explained of a prior variance of 1; the weights (T, m); and the largest jitter."""
    points = places[near]
    phi, _ = kernel.profile_and_slope(_squares(points).sum(axis=3))
    c, jitter = _covariances(phi, ratio)
    if c is None:
        parts = [means(kernel, places, y, queries[half], near[half], ratio) for half in halves(len(near))]
        values, weights, jitters = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(weights), max(jitters)
    k, _ = kernel.profile_and_slope(((points - queries[:, None]) ** 2).sum(axis=2))
    a = np.asarray(np.linalg.solve(c, k[..., None])[..., 0], dtype=np.float64)
    return np.stack([np.einsum("tm,tm->t", a, y[near]), np.einsum("tm,tm->t", a, k)], axis=1), a, jitter


def together(kernel: Stationary, places: Array, y: Array, ratio: float) -> tuple[Array, float]:
    """(1 + D + 2,) as of `conditionals`, of some points together, and the jitter: -log p(y), all of it at once."""
    squares = _squares(places[None])
    phi, slope = kernel.profile_and_slope(squares.sum(axis=3))
    c, jitter = _covariances(phi, ratio)
    assert c is not None  # of a single one
    inverse, alpha = np.linalg.inv(c[0]), np.linalg.solve(c[0], y)
    b = inverse - np.outer(alpha, alpha)
    square = float(y @ alpha)
    value = 0.5 * (square + np.linalg.slogdet(c[0]).logabsdet)
    by_scales = np.einsum("pq,pqd->d", b * slope[0], squares[0])
    return np.array([value, *by_scales, square, 0.5 * ratio * np.trace(b)]), jitter


def _squares(points: Array) -> Array:
    """(x_pd - x_qd)^2, (n, m, m, D)."""
    return np.asarray((points[:, :, None] - points[:, None]) ** 2)


def halves(count: int) -> tuple[slice, slice]:
    """Of as many points."""
    return slice(None, count // 2), slice(count // 2, None)


def _covariances(phi: Array, ratio: float) -> tuple[Array | None, float]:
    """Phi + ratio I, (n, m, m), and the jitter, over 1 + ratio; that of a single one with the jitter that it needs.

    None if, of several, one is not positive definite.
    """
    if not np.isfinite(phi).all():
        raise NotPositiveDefiniteError
    for jitter in JITTERS:
        c = phi + (ratio + jitter * (1.0 + ratio)) * np.eye(phi.shape[1])
        try:
            lower = np.linalg.cholesky(c)
        except np.linalg.LinAlgError:
            if len(phi) > 1:
                return None, 0.0
            continue
        # Rounding can let a singular matrix pass.
        if (np.diagonal(lower, axis1=1, axis2=2) ** 2 > SMALLEST * (1.0 + ratio)).all():
            return c, jitter
        if len(phi) > 1:
            return None, 0.0
    raise NotPositiveDefiniteError
