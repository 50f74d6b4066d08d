"""A composite kernel as arrays: for compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.gp.composite import Composite
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.leaves import Leaf, Linear, Periodic, RationalQuadratic, Scaled

#: Leaves by their numbers; the first four are those of `compiled`.
PROFILES = {"se": 0, "matern12": 1, "matern32": 2, "matern52": 3}
RQ, PERIODIC, LINEAR = 4, 5, 6


class Layout(NamedTuple):
    """kinds: (L,) of the leaves.  alike: (L,) whether all inputs have one length-scale.

    axes: the inputs of all leaves, one leaf after the other; `starts` (L + 1,) tells where each begins.
    theta: (P,). first: (L + 1,) where the hyperparameters of each leaf begin in it; the last one is where those of the
    terms begin.  terms: (S, L) which leaves are in which term.  variances: (S,) of the terms.
    """

    kinds: IntArray
    alike: BoolArray
    starts: IntArray
    axes: IntArray
    theta: Array
    first: IntArray
    terms: BoolArray
    variances: Array


def layout(kernel: Composite, h: Hyperparameters) -> Layout:
    """Of a kernel at a theta."""
    leaves = kernel.leaves
    terms = np.zeros((len(kernel.terms), len(leaves)), dtype=np.bool_)
    for row, term in zip(terms, kernel.terms, strict=True):
        row[list(term)] = True
    return Layout(
        np.array([_kind(leaf) for leaf in leaves]),
        np.array([isinstance(leaf, Scaled) and leaf.alike for leaf in leaves]),
        np.cumsum([0, *(len(leaf.axes) for leaf in leaves)]),
        np.array([axis for leaf in leaves for axis in leaf.axes]),
        h.theta,
        np.cumsum([0, *(len(leaf.units()) for leaf in leaves)]),
        terms,
        kernel.split(h)[1],
    )


def _kind(leaf: Leaf) -> int:
    if isinstance(leaf, RationalQuadratic):
        return RQ
    if isinstance(leaf, Scaled):
        return PROFILES[leaf.profile]
    return {Periodic: PERIODIC, Linear: LINEAR}[type(leaf)]
