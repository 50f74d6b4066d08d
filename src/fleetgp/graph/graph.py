"""A communication graph: a frozen list of undirected edges, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import GraphError, InputError, listed, shortened
from fleetgp.validation import as_flag, as_numbers, check_finite, check_number, check_whole

#: More agents than any machine has room for are a mistake.
MOST_AGENTS = 10_000_000


@runtime_checkable
class NetworkxGraph(Protocol):
    """What is asked of a networkx graph."""

    @property
    def nodes(self) -> Iterable[Any]: ...

    @property
    def edges(self) -> Iterable[tuple[Any, ...]]: ...

    def is_directed(self) -> bool: ...


def require_connected(graph: Graph, what: str = "the graph") -> None:
    """One clear error, with the components, for a graph on which some agents cannot be reached."""
    components = graph.components
    if len(components) > 1:
        parts = "; ".join("{" + _listed(component) + "}" for component in components[:8])
        more = f"; ... ({len(components)} components)" if len(components) > 8 else ""
        raise GraphError(
            f"{what} is not connected: its components are {parts}{more}. Add edges so that every agent can be reached"
        )


def _listed(agents: Iterable[int]) -> str:
    return listed(str(int(agent)) for agent in agents)


def check_agents(agents: object) -> None:
    """A number of agents, or one clear error."""
    whole = isinstance(agents, int | np.integer) and not isinstance(agents, bool)
    if not whole or not 1 <= agents <= MOST_AGENTS:  # type: ignore[operator]
        raise GraphError(
            f"expected a graph of at least one agent, and at most {MOST_AGENTS:,}, got {shortened(agents)}"
        )


def pairs_of(edges: object) -> IntArray:
    """(E, 2) agents, or one clear error."""
    try:
        listed_edges = edges if isinstance(edges, np.ndarray) else [tuple(edge) for edge in edges]  # type: ignore[attr-defined]
        given = np.array(listed_edges)
    except (TypeError, ValueError):
        given = np.array(None)
    if given.size == 0 and given.ndim <= 2:
        return np.zeros((0, 2), dtype=np.int64)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise GraphError(f"expected edges as pairs of agents' numbers, as [(0, 1), (1, 2)], got {shortened(edges)}")
    return given.astype(np.int64)


class Graph:
    """An undirected graph without self-loops; connected, unless it is one of a sequence (`connected=False`).

    Directed edges are kept sorted by receiver, then sender: every sum over neighbours runs in this order,
    whichever agents a process hosts, which makes results equal to the last bit.

    >>> g = Graph.path(4)
    >>> g.diameter, g.degrees.tolist(), g.edges.tolist()
    (3, [1, 2, 2, 1], [[0, 1], [1, 2], [2, 3]])
    >>> g.neighbours(1), g.distances(0).tolist(), g.at(7) is g
    ([0, 2], [0, 1, 2, 3], True)
    >>> Graph.cycle(6), Graph.star(6), Graph.grid(6), Graph.complete(3)
    (Graph(agents=6, edges=6), Graph(agents=6, edges=5), Graph(agents=6, edges=7), Graph(agents=3, edges=3))
    >>> Graph.geometric(3, places=[[0, 0], [0, 1], [1, 1]], radius=1.2).edges.tolist()
    [[0, 1], [1, 2]]
    >>> Graph.from_adjacency([[0, 1], [1, 0]]).metropolis().tolist(), Graph.path(2).perron(0.25).tolist()
    ([[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75]])
    """

    period = 1

    def __init__(self, agents: int, edges: Iterable[Sequence[int]], *, connected: bool = True) -> None:
        check_agents(agents)
        pairs = pairs_of(edges)
        if pairs.size and (pairs.min() < 0 or pairs.max() >= agents):
            wrong = pairs[((pairs < 0) | (pairs >= agents)).any(axis=1)][0].tolist()
            raise GraphError(f"expected edges between agents 0 .. {agents - 1}, got {wrong}")
        loops = pairs[pairs[:, 0] == pairs[:, 1], 0]
        if loops.size:
            raise GraphError(f"agents {_listed(np.unique(loops))} have an edge to themselves: remove the self-loops")
        self.agents = agents
        self.edges: IntArray = np.unique(np.sort(pairs, axis=1), axis=0)
        if as_flag(connected, "connected"):
            require_connected(self)

    # ---- structure ------------------------------------------------------------------------------------

    @cached_property
    def directed(self) -> IntArray:
        """(2E, 2) rows (receiver, sender), sorted."""
        both = np.concatenate([self.edges, self.edges[:, ::-1]])
        return both[np.lexsort((both[:, 1], both[:, 0]))]

    @cached_property
    def degrees(self) -> IntArray:
        """(M,) how many neighbours each agent has."""
        return np.bincount(self.edges.ravel(), minlength=self.agents).astype(np.int64)

    @cached_property
    def sparse_adjacency(self) -> csr_array:
        """(M, M) 1 on edges, sparse."""
        receivers, senders = self.directed.T
        return csr_array((np.ones(len(receivers)), (receivers, senders)), shape=(self.agents, self.agents))

    @property
    def adjacency(self) -> Array:
        """(M, M) 1 on edges."""
        return np.asarray(self.sparse_adjacency.toarray(), dtype=float)

    @property
    def laplacian(self) -> Array:
        """L = D - A."""
        return np.diag(self.degrees.astype(float)) - self.adjacency

    @cached_property
    def components(self) -> list[list[int]]:
        """Agents that can reach each other, in lists; one list if the graph is connected."""
        count, labels = connected_components(self.sparse_adjacency, directed=False)
        return [np.flatnonzero(labels == c).tolist() for c in range(count)]

    def neighbours(self, agent: int) -> list[int]:
        """Those of one agent, ascending."""
        receivers, senders = self.directed.T
        return [int(j) for j in senders[receivers == agent]]

    @cached_property
    def diameter(self) -> int:
        """The longest shortest path; the number of rounds a flood needs.

        Levels of a breadth-first search from a central root bound it from above while single searches
        bound it from below (iFUB), so that a few searches do where M would be needed.
        """
        if self.agents == 1:
            return 0
        far = int(np.argmax(self.distances(int(np.argmax(self.degrees)))))
        from_far = self.distances(far)
        other = int(np.argmax(from_far))
        lower = int(from_far[other])
        middle = from_far + self.distances(other)
        # Of those halfway between the two, the first, the last or one in the middle: a grid's middle is its centre.
        halfway = np.flatnonzero((middle == lower) & (from_far == lower // 2))
        roots = {int(halfway[k]) for k in (0, len(halfway) // 2, -1)}
        levels = min((self.distances(root) for root in sorted(roots)), key=np.max)
        for level in range(int(levels.max()), 0, -1):
            if lower >= 2 * level:
                return lower
            for node in np.flatnonzero(levels == level):
                lower = max(lower, int(self.distances(int(node)).max()))
        return lower

    def distances(self, source: int) -> IntArray:
        """(M,) hops from one agent to every other that it can reach; M for those it cannot.

        >>> Graph(4, [(0, 1), (1, 2)], connected=False).distances(1).tolist()
        [1, 0, 1, 4]
        """
        order, parents = breadth_first_order(self.sparse_adjacency, source, directed=False)
        hops = np.full(self.agents, self.agents, dtype=np.int64)
        hops[source] = 0
        place = np.empty(self.agents, dtype=np.int64)
        place[order] = np.arange(len(order))
        # Breadth first, agents come in the order of their parents: a level ends with the last child of the one before.
        above, end, level = place[parents[order[1:]]], 1, 0
        while end < len(order):
            start, end, level = end, 1 + int(np.searchsorted(above, end)), level + 1
            hops[order[start:end]] = level
        return hops

    @cached_property
    def algebraic_connectivity(self) -> float:
        """The second smallest eigenvalue of the Laplacian; 0 for one agent."""
        if self.agents == 1:
            return 0.0
        if self.agents <= 1500:
            return float(np.linalg.eigvalsh(self.laplacian)[1])
        return _fiedler_value(self)

    # ---- weights --------------------------------------------------------------------------------------

    def perron(self, epsilon: float | None = None) -> Array:
        """P = I - epsilon L, the paper's averaging matrix; epsilon strictly inside (0, 1/Delta).

        The paper takes epsilon = 1/Delta, which is on the boundary: on an even cycle P then has the
        eigenvalue -1 and averaging never ends. The default is 1/(Delta + 1).
        """
        return np.eye(self.agents) - perron_epsilon(self, epsilon) * self.laplacian

    def metropolis(self) -> Array:
        """W_ij = 1/(1 + max(d_i, d_j)) on edges, the rest on the diagonal: doubly stochastic."""
        receivers, senders = self.directed.T
        weights = np.zeros((self.agents, self.agents))
        weights[receivers, senders] = metropolis_weights(self.degrees[receivers], self.degrees[senders])
        np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
        return weights

    # ---- a graph is a sequence of one -----------------------------------------------------------------

    def at(self, round: int) -> Graph:
        """The graph of a round: always this one."""
        return self

    @property
    def union(self) -> Graph:
        """Of all rounds' graphs: this one."""
        return self

    # ---- families -------------------------------------------------------------------------------------

    @classmethod
    def path(cls, agents: int) -> Graph:
        """Agents in a row."""
        check_agents(agents)
        return cls(agents, [(i, i + 1) for i in range(agents - 1)])

    @classmethod
    def cycle(cls, agents: int) -> Graph:
        """Agents in a ring."""
        check_agents(agents)
        closing = [(agents - 1, 0)] if agents > 2 else []
        return cls(agents, [(i, i + 1) for i in range(agents - 1)] + closing)

    @classmethod
    def star(cls, agents: int) -> Graph:
        """Agent 0 linked with all others."""
        check_agents(agents)
        return cls(agents, [(0, i) for i in range(1, agents)])

    @classmethod
    def complete(cls, agents: int) -> Graph:
        """Everyone linked with everyone."""
        check_agents(agents)
        return cls(agents, np.argwhere(np.triu(np.ones((agents, agents), dtype=bool), 1)).tolist())

    @classmethod
    def grid(cls, agents: int) -> Graph:
        """A rectangle as square as M allows; a last row may be short."""
        check_agents(agents)
        columns = int(np.ceil(np.sqrt(agents)))
        ids = np.arange(agents)
        right, down = ids[:-1][(ids[:-1] + 1) % columns > 0], ids[: max(agents - columns, 0)]
        return cls(agents, np.concatenate([np.stack([right, right + 1], 1), np.stack([down, down + columns], 1)]))

    @classmethod
    def geometric(
        cls, agents: int, *, radius: float | None = None, seed: int = 0, places: Array | None = None
    ) -> Graph:
        """Agents linked within a radius, at given places (M, 2) or at random ones in the unit square.

        The default radius starts at the connectivity threshold sqrt(2 log M / (pi M)) of a square with the
        places' extent and grows until the graph is connected; a given radius is taken as it is.
        """
        check_agents(agents)
        check_whole("seed", seed, least=0)
        if radius is not None:
            check_number("radius", radius, above=0.0)
        if places is None:
            places = np.random.default_rng([seed, agents]).random((agents, 2))
            extent = 1.0
        else:
            places = as_numbers(places, "places")
            if places.shape != (agents, 2) or not np.isfinite(places).all():
                raise GraphError(f"expected finite places of shape ({agents}, 2), got {places.shape}")
            extent = float(np.ptp(places, axis=0).max(initial=0.0)) or 1.0
        if radius is not None:
            return cls(agents, _pairs_within(places, radius))
        reach = extent * np.sqrt(2.0 * np.log(max(agents, 2)) / (np.pi * agents))
        while True:
            candidate = cls(agents, _pairs_within(places, reach), connected=False)
            if len(candidate.components) == 1:
                return candidate
            reach *= 1.1

    @classmethod
    def from_adjacency(cls, matrix: object, *, connected: bool = True) -> Graph:
        """From a square symmetric 0/1 matrix (nonzero means an edge)."""
        array = as_numbers(matrix, "the adjacency matrix", flags=True)
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise GraphError(f"expected a square adjacency matrix, got shape {array.shape}")
        check_finite(array, "the adjacency matrix")
        linked = array != 0
        one_way = np.argwhere(linked & ~linked.T)
        if one_way.size:
            i, j = one_way[0].tolist()
            raise GraphError(f"expected an undirected graph, got edge ({i}, {j}) without ({j}, {i}): symmetrize it")
        return cls(len(array), np.argwhere(np.tril(linked)).tolist(), connected=connected)

    @classmethod
    def from_networkx(cls, graph: NetworkxGraph, *, connected: bool = True) -> Graph:
        """From a networkx graph; its nodes, in their own order, become agents 0 .. M-1.

        >>> import networkx as nx
        >>> Graph.from_networkx(nx.path_graph(3))
        Graph(agents=3, edges=2)
        """
        if not isinstance(graph, NetworkxGraph):
            raise GraphError(f"expected a networkx graph, got {shortened(graph)}")
        if graph.is_directed():
            raise GraphError("expected an undirected graph, got a directed networkx graph: use to_undirected()")
        index = {node: i for i, node in enumerate(graph.nodes)}
        edges = [(index[a], index[b]) for a, b, *_ in graph.edges]
        return cls(len(index), edges, connected=connected)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.agents == other.agents and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Networks look a round's edges up by its graph, round after round."""
        return hash((self.agents, self.edges.tobytes()))

    def __repr__(self) -> str:
        return f"Graph(agents={self.agents}, edges={len(self.edges)})"


def perron_epsilon(graph: Graph, epsilon: float | None) -> float:
    """epsilon, checked to lie strictly inside (0, 1/Delta); 1/(Delta + 1) if not given."""
    delta = int(graph.degrees.max()) if graph.agents > 1 else 0
    if epsilon is None:
        return 1.0 / (delta + 1)
    if not (epsilon > 0 and epsilon * delta < 1):
        raise InputError(f"expected epsilon strictly between 0 and 1/Delta = {1 / max(delta, 1):g}, got {epsilon}")
    return epsilon


def metropolis_weights(degrees: IntArray, neighbours_degrees: IntArray) -> Array:
    """The Metropolis weight of edges, from the degrees of their two ends: 1 / (1 + the larger one)."""
    return np.asarray(1.0 / (1.0 + np.maximum(degrees, neighbours_degrees)))


def _pairs_within(places: Array, radius: float) -> list[tuple[int, int]]:
    from scipy.spatial import cKDTree

    return sorted(cKDTree(places).query_pairs(radius))


def _fiedler_value(graph: Graph) -> float:
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import eigsh

    laplacian = diags_array(graph.degrees.astype(float)) - graph.sparse_adjacency
    start = np.random.default_rng(0).standard_normal(graph.agents)
    values = eigsh(laplacian.tocsc(), k=2, sigma=-1e-4, which="LM", v0=start, return_eigenvectors=False)
    return float(np.sort(values)[1])
