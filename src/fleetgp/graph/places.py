"""Neighbours by place: the Gabriel graph of points, which links those between which nobody stands."""

from __future__ import annotations

import numpy as np
from scipy.spatial import Delaunay, QhullError, cKDTree

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import GraphError
from fleetgp.graph.graph import Graph

#: Up to so many agents all pairs are looked at; beyond, in the plane and in space, the edges of a triangulation.
ALL_PAIRS = 400
#: Two agents are linked if no other is nearer to the middle between them, but for rounding.
ROUNDING = 1e-9


def gabriel_graph(places: Array) -> Graph:
    """Agents at places (M, D), linked where the ball with the two at its ends holds no third; always connected.

    >>> gabriel_graph(np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.0], [9.0, 9.0]])).edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    points = np.asarray(places, dtype=float)
    if points.ndim != 2 or not np.isfinite(points).all():
        raise GraphError(f"expected finite places of shape (M, D), got {points.shape}")
    first, second = _candidates(points).T
    middle = 0.5 * (points[first] + points[second])
    radius = np.linalg.norm(middle - points[first], axis=1)
    nearest = cKDTree(points).query(middle)[0] if len(middle) else np.zeros(0)
    linked = nearest >= radius * (1.0 - ROUNDING)
    return Graph(len(points), np.stack([first[linked], second[linked]], axis=1).tolist())


def _candidates(points: Array) -> IntArray:
    """(E, 2) pairs among which all edges are: the Gabriel graph is a part of every Delaunay triangulation."""
    agents, dimension = points.shape
    if agents > ALL_PAIRS and dimension in (2, 3):
        try:
            simplices = Delaunay(points).simplices
        except QhullError:  # they lie on a line, or in a plane
            simplices = None
        if simplices is not None and len(np.unique(simplices)) == agents:  # else some are copies of others
            corners = np.triu_indices(dimension + 1, 1)
            pairs = np.concatenate([simplices[:, [a, b]] for a, b in zip(*corners, strict=True)])
            return np.asarray(np.unique(np.sort(pairs, axis=1), axis=0), dtype=np.int64)
    return np.stack(np.triu_indices(agents, 1), axis=1).astype(np.int64)
