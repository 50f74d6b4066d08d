"""A spanning tree that every agent derives from the graph alone: breadth first from the centre, ties by id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.graph.graph import Graph

#: Searches from single agents that may look for the centre. They find it exactly in nearly all graphs; where they do
#: not (long cycles, of which every agent is a centre), the best agent that they have seen is taken.
SEARCHES = 64


@dataclass(frozen=True, eq=False)
class Tree:
    """root: the centre.  parents: (M,) towards the root, which is its own.  depths: (M,) hops from the root.

    The parent of an agent is its neighbour of the smallest id among those nearer to the root.

    >>> tree = Tree.of(Graph.path(5))
    >>> tree.root, tree.parents.tolist(), tree.height
    (2, [1, 2, 2, 2, 3], 2)
    """

    root: int
    parents: IntArray
    depths: IntArray

    @classmethod
    def of(cls, graph: Graph) -> Tree:
        return _tree(graph)

    @cached_property
    def height(self) -> int:
        """The depth of the deepest agent: the graph's radius, as the root is its centre."""
        return int(self.depths.max())

    @cached_property
    def heights(self) -> IntArray:
        """(M,) hops from an agent down to the deepest one below it."""
        heights = np.zeros(len(self.parents), dtype=np.int64)
        for below, above in self.levels:
            np.maximum.at(heights, above, heights[below] + 1)
        return heights

    @cached_property
    def levels(self) -> list[tuple[IntArray, IntArray]]:
        """The agents of each depth and their parents, from the deepest to the children of the root; by id."""
        by_depth = [np.flatnonzero(self.depths == depth) for depth in range(self.height, 0, -1)]
        return [(below, self.parents[below]) for below in by_depth]

    @cached_property
    def turns(self) -> list[tuple[IntArray, IntArray]]:
        """The same in turns within which no parent stands twice: an agent's children in the order of their ids."""
        result = []
        for below, above in self.levels:
            order = np.argsort(above, kind="stable")
            below, above = below[order], above[order]
            rank = np.arange(len(above)) - np.searchsorted(above, above)
            result += [(below[rank == r], above[rank == r]) for r in range(int(rank.max()) + 1)]
        return result

    @cached_property
    def children(self) -> list[list[int]]:
        """Of each agent, by id."""
        result: list[list[int]] = [[] for _ in self.parents]
        for agent, parent in enumerate(self.parents.tolist()):
            if agent != self.root:
                result[parent].append(agent)
        return result

    def sums_below(self, amounts: IntArray) -> IntArray:
        """(M, ..) sums over each agent and all below it."""
        sums = amounts.copy()
        for below, above in self.turns:
            sums[above] += sums[below]
        return sums

    def below(self, agent: int) -> IntArray:
        """The agent itself and all whose way to the root leads over it, by id.

        >>> Tree.of(Graph.path(5)).below(3).tolist()
        [3, 4]
        """
        result, waiting = [agent], [agent]
        while waiting:
            children = self.children[waiting.pop()]
            result += children
            waiting += children
        return np.array(sorted(result), dtype=np.int64)

    def way_to(self, agent: int) -> list[int]:
        """From the root to an agent, without the root.

        >>> Tree.of(Graph.path(5)).way_to(0)
        [1, 0]
        """
        way = []
        while agent != self.root:
            way.append(agent)
            agent = int(self.parents[agent])
        return way[::-1]


@lru_cache(maxsize=64)
def _tree(graph: Graph) -> Tree:
    root = centre(graph)
    depths = graph.distances(root)
    receivers, senders = graph.directed.T
    nearer = depths[senders] < depths[receivers]
    parents = np.full(graph.agents, root, dtype=np.int64)
    # Directed edges are sorted by receiver, then sender: the last to be written is the one of the smallest id.
    parents[receivers[nearer][::-1]] = senders[nearer][::-1]
    return Tree(root, parents, depths)


def centre(graph: Graph) -> int:
    """The agent from which the farthest one is nearest; of equals, the one of the smallest id.

    Every search bounds how far all others are from their farthest: by the triangle inequality, an agent at distance d
    from one whose farthest is e hops away has its own between max(d, e - d) and e + d hops away. The most promising
    agent is searched next, until no other can be better.

    >>> centre(Graph.path(6)), centre(Graph.star(4)), centre(Graph.cycle(5))
    (2, 0, 0)
    """
    least = np.zeros(graph.agents, dtype=np.int64)
    known = np.full(graph.agents, -1, dtype=np.int64)
    start = int(np.argmax(graph.degrees))
    for number in range(SEARCHES):
        distance = graph.distances(start)
        known[start] = farthest = distance.max()
        least = np.maximum(least, np.maximum(distance, farthest - distance))
        least[start] = farthest
        best = least.min()
        candidates = np.flatnonzero(least == best)
        if known[candidates[0]] >= 0:
            return int(candidates[0])
        unknown = candidates[known[candidates] < 0]
        # By turns the first candidate, and the farthest agent of this search, which raises the bounds of many.
        far = int(np.argmax(distance))
        start = far if number % 2 == 0 and known[far] < 0 else int(unknown[0])
    seen = np.flatnonzero(known >= 0)
    return int(seen[np.argmin(known[seen])])
