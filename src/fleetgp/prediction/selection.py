"""CBNN: who of the agents that chose themselves takes part in a query, and who relays between them.

Every agent knows its own correlation with a query, [k_mu*]_i = k_i*' C_i^-1 k_i*, and takes part if that is large
enough (`choice`). Who takes part is flooded, so every agent knows it. Agents that are needed as bridges
between the participants relay with zero weight.

CBNN's choice: which agents take part in a query, from what their own data explain of the prior variance there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, connected_components

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import BatchOutcome, Scope, maximum, minimum
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.network import Cargo, Network
from fleetgp.network.wire import check_from_peers
from fleetgp.options import AUTO, Eta
from fleetgp.prediction.methods import PreparedQuery
from fleetgp.prediction.posteriors import SMALLEST, Marginals

#: Among so many agents the diameter is found by products of small dense matrices, which is faster than by searches.
FEW = 200


def agree_on_participants(network: Network, chosen: BoolArray, correlation: Callable[[IntArray], Array]) -> BoolArray:
    """participants (M, T), the same at every agent, from each hosted agent's own choice (A, T).

    Where nobody chose itself, the most correlated agent answers alone (of equals, the smallest id): correlation(t)
    is each hosted agent's with the queries t, (A, len(t)).
    """
    agents, queries = network.agents, chosen.shape[1]
    lists = network.flood([np.flatnonzero(row).astype(float) for row in chosen], "statistics")
    check_from_peers(lists, lambda _, taken: _are_positions(taken, queries), f"positions of queries below {queries}")
    participants = np.zeros((agents, queries), dtype=bool)
    for agent, taken in enumerate(lists):
        participants[agent, taken.astype(int)] = True
    empty = np.flatnonzero(~participants.any(axis=0))
    if empty.size:
        own = correlation(empty)
        ids = np.asarray(network.hosted, dtype=float)[:, None]
        winner = minimum(network, np.where(own == maximum(network, own), ids, float(agents)))
        participants[winner.astype(int), empty] = True
    return participants


def _are_positions(values: Array, below: int) -> bool:
    whole = values.ndim == 1 and bool((values == np.floor(values)).all())
    return whole and bool(((values >= 0.0) & (values < below)).all())


class Selection(Scope):
    """The agents of every query, as a `Scope` for the consensus algorithms.

    participants (M, T) have a say; active (M, T) also holds the bridges between them.
    """

    def __init__(self, topology: Topology, participants: BoolArray) -> None:
        self.topology = topology
        self.participants = participants
        self.window = 1
        patterns, which = np.unique(participants, axis=1, return_inverse=True)
        active = np.zeros_like(patterns)
        for number, pattern in enumerate(patterns.T):
            members, diameter = _with_bridges(topology, np.flatnonzero(pattern).tobytes())
            active[members, number] = True
            self.window = max(self.window, diameter)
        self.active = active[:, which.ravel()]
        self._edges: dict[Graph, BoolArray] = {}
        self._degrees: dict[Graph, IntArray] = {}

    @cached_property
    def count(self) -> Array:
        """How many take part in each query, (T,): the paper's M_NN."""
        return np.asarray(self.participants.sum(axis=0), dtype=float)

    @cached_property
    def size(self) -> Array:
        """How many average in each query, bridges included, (T,)."""
        return np.asarray(self.active.sum(axis=0), dtype=float)

    def edges(self, graph: Graph) -> BoolArray:
        if graph not in self._edges:
            receivers, senders = graph.directed.T
            self._edges[graph] = self.active[receivers] & self.active[senders]
        return self._edges[graph]

    def degrees(self, graph: Graph) -> IntArray:
        if graph not in self._degrees:
            edge, query = np.nonzero(self.edges(graph))
            cells = graph.directed[edge, 0] * self.active.shape[1] + query
            self._degrees[graph] = np.bincount(cells, minlength=self.active.size).reshape(self.active.shape)
        return self._degrees[graph]

    def spread(
        self, network: Network, means: Array, variances: Array, result: BatchOutcome
    ) -> tuple[Array, Array, BatchOutcome]:
        """Carry the active agents' answers (A, T), and how they came by them, to all others."""
        whole = np.stack([means, variances, result.residual, result.rounds.astype(float)], axis=-1)
        told = self._carried(network, whole)
        residual = told[..., 2]
        outcome = BatchOutcome(
            result.state,
            told[..., 3].astype(np.int64),
            residual,
            residual <= result.tol,
            np.isnan(residual),
            result.tol,
        )
        return told[..., 0], told[..., 1], outcome

    def _carried(self, network: Network, answers: Array) -> Array:
        """(A, T, K): every agent hears a query's answer from its informed neighbours, and keeps the first."""
        informed = self.active.copy()
        hosted = np.asarray(network.hosted)
        queries = informed.shape[1]
        cells = answers.reshape(-1, answers.shape[2]).copy()
        while not informed.all():
            graph, incoming = network.topology.at(network.round), network.incoming
            own, other = informed[hosted[incoming.receivers]], informed[incoming.senders]
            cargo = Cargo.of_masks(incoming, own & ~other, other & ~own)
            heard = network.exchange_parts({"predictions": cells}, {"predictions": cargo})["predictions"]
            edge, query = np.nonzero(other & ~own)
            # Edges are sorted by receiver, then sender: of several that tell the same, the first counts.
            told, first = np.unique(incoming.receivers[edge] * queries + query, return_index=True)
            cells[told] = heard[first]
            receivers, senders = graph.directed.T
            edge, query = np.nonzero(informed[senders] & ~informed[receivers])
            informed[receivers[edge], query] = True
        return cells.reshape(answers.shape)


def bridged(graph: Graph, members: IntArray) -> IntArray:
    """The members, and the agents on shortest paths from the first of them to the others, if they need any.

    >>> bridged(Graph.path(6), np.array([0, 1, 4])).tolist()
    [0, 1, 2, 3, 4]
    """
    adjacency = graph.sparse_adjacency
    pieces, _ = connected_components(adjacency[members][:, members], directed=False)
    if pieces <= 1:
        return members
    _, parents = breadth_first_order(adjacency, int(members[0]), directed=False)
    needed = set(members.tolist())
    for member in members.tolist():
        step = member
        while step != members[0]:
            needed.add(step)
            step = int(parents[step])
    return np.array(sorted(needed), dtype=np.int64)


@lru_cache(maxsize=1 << 14)
def _with_bridges(topology: Topology, participants: bytes) -> tuple[IntArray, int]:
    """The agents of a query with the bridges that they need, and the diameter of the graph among them.

    Queries of one region have the same participants, block after block, so both are remembered.
    """
    members = np.frombuffer(participants, dtype=np.int64)
    diameter = _induced_diameter(topology, members)
    if diameter is None:
        members = bridged(topology.union, members)
        diameter = _induced_diameter(topology, members)
    assert diameter is not None
    return members, diameter


def _induced_diameter(topology: Topology, members: IntArray) -> int | None:
    """The diameter of the graph, or of the sequence of graphs, among some agents; None if they are not connected."""
    if len(members) == topology.agents:
        return topology.diameter
    position = np.full(topology.agents, -1, dtype=np.int64)
    position[members] = np.arange(len(members))
    edges = [position[topology.at(t).edges] for t in range(topology.period)]
    inside = [pairs[(pairs >= 0).all(axis=1)] for pairs in edges]
    if topology.period == 1 and len(members) <= FEW:
        return _steps_to_everyone(len(members), inside[0])
    pieces, _ = connected_components(topology.union.sparse_adjacency[members][:, members], directed=False)
    if pieces > 1:
        return None
    graphs = [Graph(len(members), pairs, connected=False) for pairs in inside]
    return GraphSequence(graphs).diameter if topology.period > 1 else graphs[0].diameter


def _steps_to_everyone(agents: int, edges: IntArray) -> int | None:
    """After how many rounds of telling all neighbours all that one knows everybody knows everything; None if never."""
    adjacency = np.eye(agents)
    adjacency[edges[:, 0], edges[:, 1]] = adjacency[edges[:, 1], edges[:, 0]] = 1.0
    known, steps = np.eye(agents) > 0.0, 0
    while not known.all():
        more = known @ adjacency > 0.0
        if (more == known).all():
            return None
        known, steps = more, steps + 1
    return steps


#: eta="auto": an agent takes part if it tells at least this share of what the best one tells. With half of it 2 to 7
#: of 100 agents in cells are left on smooth and on rough fields, and the RMSE is at most 3 % above that of all; a share
#: of the best one's precision instead keeps everybody on rough fields, or too few on smooth ones.
SHARE = 0.5


@dataclass(frozen=True)
class Choice:
    """chosen: (A, T) who takes part.  asked: (A, T) whose own posterior had to be known for that.  known: these."""

    chosen: BoolArray
    asked: BoolArray
    known: Marginals


def takes_part(network: Network, explained: Array, prior: Array, eta: Eta) -> BoolArray:
    """(A, T) from what each agent's own data explain, (A, T), of the prior variance, likewise: at least the share eta.

    "auto": it tells at least half as much as the best agent does, so that its variance is below the geometric mean of
    the prior's and the best one's.
    """
    if eta != AUTO:
        return np.asarray(explained >= eta * prior)
    told = _information(explained, prior)
    with network.phase("select"):
        best = maximum(network, told)
    return (told > 0.0) & (told >= SHARE * best)


def choose(query: PreparedQuery, *, only_who: bool) -> Choice:
    """The hosted agents' choices. only_who: the own posterior of an agent that certainly takes part is of no use.

    Bounds from the nearest observations spare the agents that cannot take part their posteriors.
    """
    network, prior, eta = query.network, query.prior, query.options.eta
    least, most = query.conditioned.reach.bounds(query.queries)
    if eta == AUTO:
        with network.phase("select"):
            best = maximum(network, _information(least, prior))
        possible, certain = _information(most, prior) >= SHARE * best, np.zeros_like(least, dtype=bool)
    else:
        possible, certain = most >= eta * prior, least >= eta * prior
    asked = possible & ~certain if only_who else possible
    known = query.conditioned.own(network.hosted).at(query.queries, asked)
    takes = takes_part(network, prior - known.variance, prior, eta)
    return Choice(np.where(asked, takes, possible), asked, known)


def _information(explained: Array, prior: Array) -> Array:
    """What data tell of f at a query that explain so much of its variance, in nats: rBCM's beta."""
    return np.asarray(-0.5 * np.log(np.maximum(1.0 - explained / prior, SMALLEST)))
