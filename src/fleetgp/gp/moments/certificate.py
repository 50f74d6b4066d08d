"""How far a likelihood by moments can be from the exact one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import ROUNDING
from fleetgp.gp.chebyshev import at_nodes, expansion_error
from fleetgp.gp.moments.products import contract
from fleetgp.gp.moments.solution import Solution

#: A unit of rounding.
EPS = float(np.finfo(float).eps)
#: Rounding of a sum is taken for this many units in the last place of its largest terms.
ULPS = 32.0
#: The effect of the expansion error is bounded to first order; this margin covers the higher ones.
HIGHER_ORDERS = 1.2


def negligible(size: int) -> float:
    """The largest error of the NLL, in nats, that is allowed from dropping small products, for so many points.

    A tenth of the smallest tolerance of an expert; more for many points, whose likelihood is larger and rounded more.
    """
    return 1e-7 * max(1.0, size / 1e4)


def certificate(s: Solution, expansion: float, inverse: Array, nll: float) -> float:
    r"""A bound on the error of the NLL, by its three causes.

    Dropped products: with E = K - Phi Phi' positive semidefinite, log|C| is short by at most tr E / sigma^2 and
    y'C^-1 y long by at most a'Ea, a = C^-1 y; both are known. Expansion: |E_ij| sums to at most its bound.
    Rounding, which is not a bound but an estimate with a wide margin: see `_rounding`.
    """
    noise2, signal2, m = s.noise**2, s.grid.basis.signal**2, s.grid.moments
    expanded = 0.5 * HIGHER_ORDERS * expansion * signal2 * m.count * (1.0 / noise2 + s.misfit / noise2**2)
    return float(s.dropped + expanded + EPS * _rounding(s, inverse, nll))


def _rounding(s: Solution, inverse: Array, nll: float) -> float:
    """In units of EPS.

    The sums: entries of Phi'Phi are off by ULPS of N times the largest values of the two functions, independently.
    The axes: a function basis ends where its pivots reach `ROUNDING`, so that a multiple of rounding of the kernel is
    left out. What is left out is smooth, of low degree; so it changes y'C^-1 y by no more than that multiple times
    the squares of the low Chebyshev moments of C^-1 y, which are known.
    """
    grid, m = s.grid, s.grid.moments
    noise2, signal2, count = s.noise**2, grid.basis.signal**2, m.count
    largest = grid.largest
    spread = np.linalg.norm(largest[:, None] * inverse * largest) + ((largest * s.coefficients) ** 2).sum() / noise2
    sums = count * spread + m.squares / noise2 + signal2 * (count / noise2 + s.misfit / noise2**2)
    low_degrees = [at_nodes(size // 2, size) for size in m.sizes]
    smooth = contract(s.residuals, low_degrees).ravel() / noise2
    left_out = 1.0 + len(m.sizes) * ROUNDING / EPS
    axes = left_out * signal2 * float(smooth @ smooth)
    return float(ULPS * sums + axes + abs(nll) + count * abs(np.log(noise2)))


@lru_cache(maxsize=65536)
def expansion_bound(counts: tuple[int, ...], reach: tuple[float, ...]) -> float:
    """The error of the product of the axes' expansions: a sum over the axes, times what the others may amplify."""
    others = [4.0 * count**2 for count in counts]
    errors = [expansion_error(count, r) / other for count, r, other in zip(counts, reach, others, strict=True)]
    return float(np.prod(others) * sum(errors))
