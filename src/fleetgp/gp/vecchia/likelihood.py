r"""The likelihood of N points as the product of N conditional densities, and its gradient in log theta.

The first m points are taken together. Every other one is given its m nearest earlier ones (`plain` has the formulas).
With r = (sigma_eps / sigma_f)^2 and everything in units of sigma_f, sigma_f itself enters by its logarithm, by r, and
by the observations over it:

    l = sum_i (log v_i + e_i^2 / v_i) / 2 + N log sigma_f
    dl / d log sigma_f = N - sum_i e_i^2 / v_i - 2 dl / d log r        dl / d log sigma_eps = 2 dl / d log r
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.gp.evaluation import Evaluation
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.vecchia import plain
from fleetgp.gp.vecchia.neighbours import Neighbours
from fleetgp.linalg.compiling import compiled_module
from fleetgp.linalg.threads import spread

#: Points of which the sum is taken at a time, whatever the number of threads: all have the same bits.
CHUNK = 2048
#: Doubles of one of the arrays that NumPy works on at a time.
WORK = 1 << 20


@dataclass(frozen=True)
class Ordered:
    """Points in their order: the places (N, D) over the length-scales, and the observations (N,) over sigma_f."""

    kernel: Kernel
    places: Array
    values: Array
    ratio: float

    @classmethod
    def of(cls, kernel: Kernel, inputs: Array, observations: Array, h: Hyperparameters) -> Ordered:
        places = np.ascontiguousarray(inputs / np.asarray(h.length_scales))
        return cls(kernel, places, observations / h.signal, (h.noise / h.signal) ** 2)


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where there is no Numba."""
    return compiled_module("fleetgp.gp.vecchia.compiled")


def fast_loops(kernel: Kernel) -> tuple[ModuleType | None, int]:
    """The compiled loops and the number of this kernel in them; none for a kernel that they do not have."""
    loops = compiled()
    if loops is None or type(kernel) not in loops.KINDS:
        return None, 0
    return loops, loops.KINDS[type(kernel)]


def evaluation(data: Ordered, near: Neighbours, h: Hyperparameters) -> Evaluation | None:
    """NLL and log-gradient; None where no jitter helps. near: (N - m, m) neighbours of all points but the first m."""
    size = len(data.values)
    together = size - len(near)
    try:
        with np.errstate(all="ignore"):
            first, jitter = plain.together(data.kernel, data.places[:together], data.values[:together], data.ratio)
        chunks = [np.arange(start, min(start + CHUNK, size)) for start in range(together, size, CHUNK)]
        parts = spread(lambda rows: _summed(data, rows, near[rows[0] - together : rows[-1] + 1 - together]), chunks)
    except plain.NotPositiveDefiniteError:
        return None
    total = np.sum([first, *(part for part, _ in parts)], axis=0)
    if not np.isfinite(total).all():
        return None
    jitter = max([jitter, *(jitter for _, jitter in parts)]) * (h.signal**2 + h.noise**2)
    square, by_ratio = total[-2:]
    gradient = np.array([*total[1:-2], size - square - 2.0 * by_ratio, 2.0 * by_ratio])
    return Evaluation(float(total[0] + size * np.log(h.signal)), gradient, jitter, "vecchia")


def _summed(data: Ordered, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
    values, jitter = conditionals(data, rows, near)
    return values.sum(axis=0), jitter


def conditionals(data: Ordered, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
    """As `plain.conditionals`, compiled if possible, and with jitter only where it is needed."""
    loops, kind = fast_loops(data.kernel)
    found = np.full((len(rows), data.places.shape[1] + 3), np.nan)
    if loops is not None:
        loops.conditionals(kind, data.places, data.values, rows, near, data.ratio, found)
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
    jitters = [0.0]
    for part in in_parts(len(wrong), near.shape[1]):
        some = wrong[part]
        with np.errstate(all="ignore"):
            found[some], jitter = plain.conditionals(
                data.kernel, data.places, data.values, rows[some], near[some], data.ratio
            )
        jitters.append(jitter)
    return found, max(jitters)


def products(data: Ordered, near: Neighbours, columns: Array) -> Array:
    """columns'C^-1 columns, (q, q), in units of sigma_f^-2: sums of e e'/v over the points, e (q,) of all columns.

    Raises NotPositiveDefiniteError. near: as of `evaluation`; columns: (N, q), in the order of the points.
    """
    size = len(data.values)
    together = size - len(near)
    with np.errstate(all="ignore"):
        found = plain.products_together(data.kernel, data.places[:together], columns[:together], data.ratio)
        for part in in_parts(len(near), near.shape[1]):
            rows = np.arange(together, size)[part]
            explained, weights = _regressed(data, rows, near[part])
            e = columns[rows] - np.einsum("nm,nmq->nq", weights, columns[near[part]])
            found = found + e.T @ (e / (1.0 + data.ratio - explained)[:, None])
    return found


def _regressed(data: Ordered, rows: IntArray, near: Neighbours) -> tuple[Array, Array]:
    """Of points given their neighbours: what these explain of a variance of 1, (n,), and their weights, (n, m)."""
    loops, kind = fast_loops(data.kernel)
    told, weights = np.full((len(rows), 2), np.nan), np.zeros(near.shape)
    places = data.places[rows]
    if loops is not None:
        loops.means(kind, data.places, data.values, places, near, data.ratio, told, weights)
    wrong = np.flatnonzero(~(np.isfinite(told).all(axis=1) & (told[:, 1] < 1.0 + data.ratio)))
    if len(wrong):
        told[wrong], weights[wrong], _ = plain.means(
            data.kernel, data.places, data.values, places[wrong], near[wrong], data.ratio
        )
    return told[:, 1], weights


def in_parts(count: int, neighbours: int) -> list[slice]:
    """`count` points in parts, such that NumPy's arrays of all their pairs stay small."""
    step = max(1, WORK // (neighbours + 1) ** 2)
    return [slice(start, start + step) for start in range(0, count, step)]
