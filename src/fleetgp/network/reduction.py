"""Reductions along the spanning tree: what is reduced, how, and in which round it crosses which edge.

An agent waits for its children, merges their values with its own in the order of their ids, and passes the result to
its parent; the root finishes it, and the result goes down. Each value crosses each edge of the tree once up and once
down, in as many rounds as twice the radius of the graph. The root is an agent like any other: another one as soon as
the graph is another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.graph import Graph, Topology, Tree
from fleetgp.network.edges import edge_positions

#: Scalars of a value that go in one message; longer ones go in pieces that follow each other, but in no more than this
#: many: networks keep their last messages, in case one is lost.
PIECE, MOST_PIECES = 1 << 16, 8


@dataclass(frozen=True, eq=False)
class Merge:
    """An associative operation on rows: function(one, other) for arrays (.., n, ..) of the same shape, row by row.

    identity: what a row holds in which nobody is present; merged with any other it changes nothing.
    finite: a value that is not is nonsense.
    """

    function: Callable[[Array, Array], Array]
    identity: float | Array
    finite: bool = False

    def check(self, senders: Sequence[int] | IntArray, rows: Array, present: BoolArray | None) -> None:
        """A NonsenseError that names the first agent whose rows, of (K, n, ..), cannot be merged. present: (K, n)."""
        if not self.finite or np.isfinite(rows).all():
            return
        sound = np.asarray(np.isfinite(rows).all(axis=tuple(range(2, rows.ndim))))
        if present is not None:
            sound |= ~present
        if not sound.all():
            raise NonsenseError(int(senders[int(np.argmin(sound.all(axis=1)))]), "expected finite numbers, got others")


SUM = Merge(np.add, 0.0, finite=True)
MAXIMUM = Merge(np.maximum, -np.inf)
MINIMUM = Merge(np.minimum, np.inf)

#: finish(total (n, ..), who (M, n)) -> (n, ..): what the root makes of the total, and every agent gets.
Finish = Callable[[Array, BoolArray | None], Array]


@dataclass(frozen=True)
class ReductionTask:
    """A value that is about to be reduced.

    x: (A, n, ..) the hosted agents' rows.  present: (A, n) who takes part in which row; None: all in all.
    finish, result_shape: what the root makes of the total, and the shape of a row of that; None: the total goes down.
    recipient: the agent that gets the result; None: all.
    """

    x: Array
    kind: str
    merge: Merge
    present: BoolArray | None
    finish: Finish | None
    result_shape: tuple[int, ...]
    recipient: int | None

    @property
    def rows(self) -> int:
        return int(self.x.shape[1])

    def finished(self, total: Array, who: BoolArray | None) -> Array:
        if self.finish is None:
            return total
        return np.asarray(self.finish(total, who), dtype=float).reshape(self.rows, *self.result_shape)

    def pieces(self, row: tuple[int, ...]) -> list[slice]:
        """Rows of this shape, in the pieces in which they travel."""
        size = prod(row)
        scalars = max(PIECE, -(-self.rows * size // MOST_PIECES))
        step = max(1, scalars // max(size, 1))
        return [slice(start, min(start + step, self.rows)) for start in range(0, max(self.rows, 1), step)]


@dataclass(frozen=True)
class Reduced:
    """The result of a reduction.

    value: (n, ..) the same at every recipient; None in a process that hosts none of them.
    who: (M, n) who was present in which row, likewise; None too where all are in all.
    absent: (n,) rows in which nobody was present: known to every agent. Their values hold no meaning.
    """

    value: Array | None
    who: BoolArray | None
    absent: BoolArray


@dataclass(frozen=True)
class Schedule:
    """In which step which piece crosses which edge.

    ups: (P, M) when an agent sends a piece to its parent.  downs: (P', M) when it gets one from its parent; -1 for
    never.  rounds: how many steps there are.
    """

    ups: IntArray
    downs: IntArray
    rounds: int

    @classmethod
    def of(cls, topology: Topology, round: int, recipient: int | None, up: int, down: int) -> Schedule:
        """From a round on. up, down: how many pieces go up, and come down to who gets the result."""
        tree = Tree.of(topology.union)
        counts = pieces_down(tree, recipient, down)
        if topology.period == 1:
            ups = tree.heights + np.arange(up)[:, None]
            ups[:, tree.root] = -1
            first = tree.height + up - 1 if topology.agents > 1 else 0
            numbers = np.arange(counts.max(initial=0))[:, None]
            downs = np.where(numbers < counts, first + tree.depths - 1 + numbers, -1)
            downs[:, tree.root] = -1
            return cls(ups, downs, max(first, int(downs.max(initial=-1)) + 1))
        return _stored_and_forwarded(topology, tree, round, up, counts)


def _stored_and_forwarded(topology: Topology, tree: Tree, round: int, up: int, counts: IntArray) -> Schedule:
    """On graphs that vary with time: a piece crosses an edge of the union's tree in the next round that has it."""
    agents, pieces = topology.agents, int(counts.max(initial=0))
    ups, downs = np.full((up, agents), -1, dtype=np.int64), np.full((pieces, agents), -1, dtype=np.int64)

    def ready(piece: int, agent: int, step: int) -> bool:
        return all(0 <= ups[piece, child] < step for child in tree.children[agent])

    step = 0
    while True:
        linked = {tuple(edge) for edge in topology.at(round + step).directed.tolist()}
        arrived = all(ready(piece, tree.root, step) for piece in range(up))
        for agent in range(agents):
            parent = int(tree.parents[agent])
            if agent == tree.root or (parent, agent) not in linked:
                continue
            waiting = [piece for piece in range(up) if ups[piece, agent] < 0]
            if waiting and ready(waiting[0], agent, step):
                ups[waiting[0], agent] = step
            missing = [piece for piece in range(int(counts[agent])) if downs[piece, agent] < 0]
            if missing and (arrived if parent == tree.root else 0 <= downs[missing[0], parent] < step):
                downs[missing[0], agent] = step
        if arrived and all((downs[: counts[agent], agent] >= 0).all() for agent in range(agents) if agent != tree.root):
            return Schedule(ups, downs, max(int(ups.max()), int(downs.max(initial=-1))) + 1)
        step += 1


def recipients_of(tree: Tree, recipient: int | None) -> list[int]:
    """The agents to whom a result comes down, and on the way to them; all but the root if nobody is named."""
    if recipient is not None:
        return tree.way_to(recipient)
    return [agent for agent in range(len(tree.parents)) if agent != tree.root]


def pieces_down(tree: Tree, recipient: int | None, pieces: int) -> IntArray:
    """(M,) how many pieces come down to each agent.

    All come to the recipients and to those on the way to them. The others get one message: that it is over, so that
    no agent is ahead of the fleet by more than one reduction, and in which rows nobody was present, where that may be.
    """
    downs = np.full(len(tree.parents), pieces if recipient is None else 1, dtype=np.int64)
    if recipient is not None:
        downs[tree.way_to(recipient)] = pieces
    downs[tree.root] = 0
    return downs


@dataclass(frozen=True)
class Way:
    """What the hosted agents send in a reduction, and where that stands in the ledger.

    tree: the spanning tree.  senders: (K,) those with a parent.  up: (K,) the positions of the edges to it.
    below: (K,) how many agents their messages upward may name.
    children: (L,) the agents to whom the hosted ones pass the result on.  down: (L,) the positions of these edges.
    """

    tree: Tree
    senders: IntArray
    up: IntArray
    below: IntArray
    children: IntArray
    down: IntArray

    @classmethod
    def of(cls, union: Graph, hosted: IntArray) -> Way:
        tree, ids = Tree.of(union), np.arange(union.agents)
        senders = hosted[hosted != tree.root]
        children = ids[np.isin(tree.parents, hosted) & (ids != tree.root)]
        return cls(
            tree,
            senders,
            edge_positions(union, tree.parents[senders], senders),
            tree.sums_below(np.ones(union.agents, dtype=np.int64))[senders],
            children,
            edge_positions(union, children, tree.parents[children]),
        )

    def informed(self, recipient: int | None) -> BoolArray:
        """(L,) which children get the result; the others only learn that it is over."""
        if recipient is None:
            return np.ones(len(self.children), dtype=bool)
        return np.isin(self.children, recipients_of(self.tree, recipient))


@dataclass(frozen=True)
class Wave:
    """What a group of agents that one process hosts does at once in a reduction.

    arriving: of each other group, the agents whose rows it sent in the wave before.
    turns: whose rows are merged, (below, above).
    leaving: of each other group, the agents whose rows go to it.
    """

    arriving: dict[int, IntArray]
    turns: list[tuple[IntArray, IntArray]]
    leaving: dict[int, IntArray]

    @classmethod
    def all_of(cls, tree: Tree, group_of: IntArray, own: int) -> list[Wave]:
        """Those of a group; as many as in every group. In the last one the root has everything.

        An agent's rows are ready in the wave that is the largest number of cut edges on a way up to it. In each wave a
        group merges all that is ready, level by level, and sends each other group once what that one waits for: as soon
        as it has what it needs, and as often as the longest way crosses between groups, not once for each level.
        """
        agents, group_above = np.arange(len(tree.parents)), group_of[tree.parents]
        cut = group_of != group_above
        ready = np.zeros_like(agents)
        for below, above in tree.levels:
            np.maximum.at(ready, above, ready[below] + cut[below])
        waves = []
        for number in range(int(ready[tree.root]) + 1):
            arriving = agents[cut & (group_above == own) & (ready == number - 1)]
            leaving = agents[cut & (group_of == own) & (ready == number)]
            waves.append(cls(_by_group(arriving, group_of), [], _by_group(leaving, group_above)))
        for below, above in tree.turns:
            here = group_of[above] == own
            for number in np.unique(ready[above[here]]):
                some = here & (ready[above] == number)
                waves[number].turns.append((below[some], above[some]))
        return waves


def groups_above(tree: Tree, group_of: IntArray) -> dict[int, int]:
    """Of every group but the root's, the one from which it gets the result: where the way down comes first."""
    group_above = group_of[tree.parents]
    cut = group_of != group_above
    crossings = np.zeros(len(tree.parents), dtype=np.int64)
    for below, above in reversed(tree.levels):
        crossings[below] = crossings[above] + cut[below]
    result = {}
    for group in np.unique(group_of[cut]).tolist():
        members = np.flatnonzero((group_of == group) & cut)
        if group != group_of[tree.root]:
            result[group] = int(group_above[members[int(np.argmin(crossings[members]))]])
    return result


def _by_group(agents: IntArray, group_of: IntArray) -> dict[int, IntArray]:
    groups = group_of[agents]
    return {int(group): agents[groups == group] for group in np.unique(groups)}
