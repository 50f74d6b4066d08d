"""What an evaluation by moments is expected to cost, in seconds on one core, before any work is done.

The costs are those of the matrices involved. Their sizes follow from the spectra of the axes, which are tabulated
over the length-scale, so that a guess costs a table look-up.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import Axis
from fleetgp.gp.moments.products import by_pairs
from fleetgp.gp.moments.rows import LARGEST_GRID

#: Seconds per axis for the calls themselves: some hundred of NumPy's, however small the arrays.
CALLS = 7e-4
#: Floating-point operations per second of the triangular routines, which run on matrices of a few hundred rows.
TRIANGLES = 2.5e10
#: The same of matrix products, most of which are thin.
PRODUCTS = 1.8e10
#: Seconds to gather an element of Phi'Phi from the table of pairs.
GATHER = 5e-9
#: Seconds per element of an axis's kernel matrix: an exponential and a pivoted Cholesky that stops early.
AXIS = 1.7e-8
#: Spectra are tabulated over h in steps of this factor.
STEP = 1.1
#: Above this h an axis's spectrum is nearly flat; it is guessed, not computed.
FLAT = 40.0
#: More products of the axes' functions than this are not worth counting: the engine would refuse.
MOST_PRODUCTS = 1_000_000
#: The longest basis: its matrices have 200 MB.
LONGEST = 5000


def expected_seconds(reach: Array, drop_exponent: float) -> float:
    """Seconds for a likelihood with its gradient; inf where the engine cannot answer.

    reach: (D,) half the box over the length-scale along each axis.
    drop_exponent: log10 of the part of k(x, x) that may be dropped.
    """
    if not (np.isfinite(drop_exponent) and np.isfinite(reach).all()):
        return np.inf
    return _tabulated(tuple(_step(h) for h in reach.tolist()), int(np.ceil(drop_exponent)))


def _step(h: float) -> int:
    """Where h is in the table of spectra."""
    return int(np.ceil(np.log(min(max(h, 1e-2), 1e3)) / np.log(STEP)))


@cache
def _spectrum(step: int) -> Array:
    """The spectrum of an axis with h at a step of the table."""
    h = STEP**step
    # 24 + 15 h nodes resolve the kernel to rounding. A nearly flat spectrum has 8.5 h values that sum to a constant.
    return Axis.of(h, int(np.ceil(24 + 15 * h))).spectrum if h < FLAT else np.full(int(8.5 * h), 1.0 / h)


@lru_cache(maxsize=65536)
def _tabulated(steps: tuple[int, ...], drop_exponent: int) -> float:
    spectra = [_spectrum(step) for step in steps]
    products = spectra[0]
    for spectrum in spectra[1:]:
        products = np.multiply.outer(products, spectrum)
        if products.size > MOST_PRODUCTS:
            return np.inf
    rank = float(np.count_nonzero(products > 10.0 ** (drop_exponent - 1)))
    # Fits to the sizes that the engine chooses: nodes of the grid, and unordered pairs of the functions in use.
    nodes = [float(len(spectrum)) * 4.5 + 20.0 for spectrum in spectra]
    pairs = [0.3 * len(spectrum) ** 2 for spectrum in spectra]
    if rank > LONGEST or float(np.prod(nodes)) > LARGEST_GRID:
        return np.inf
    dimension = len(steps)
    if dimension == 1:
        contraction = nodes[0] * rank**2
    elif by_pairs(np.sqrt(2.0 * np.array(pairs)), rank):
        contraction = _contraction(pairs, nodes) + 0.5 * PRODUCTS * GATHER * rank**2
    else:
        contraction = _contraction([2.0 * p for p in pairs[:-1]], nodes) + 0.5 * nodes[-1] * rank**2
    return float(
        dimension * CALLS
        + (1 + dimension) * rank**3 / TRIANGLES
        + (2 + dimension) * 2.0 * contraction / PRODUCTS
        + sum(AXIS * n * n for n in nodes)
    )


def _contraction(functions: list[float], nodes: list[float]) -> float:
    """Multiplications to contract a grid with so many functions along the first axes, one after the other."""
    return float(sum(np.prod(functions[: d + 1]) * np.prod(nodes[d:]) for d in range(len(functions))))
