"""Reductions and collections along the tree by real frames, for the agents hosted here."""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import NonsenseError
from fleetgp.graph import Tree
from fleetgp.network.edges import Edge
from fleetgp.network.reduction import Reduced, Reducing, Schedule, told_of
from fleetgp.network.tree_parts import absent_from_parts, absent_to_parts, from_parts, to_parts
from fleetgp.network.wire import Part

#: swap(outgoing by edge, expected edges, step) -> the parts that came over each expected edge.
Swap = Callable[[dict[Edge, tuple[Part, ...]], list[Edge], int], dict[Edge, tuple[Part, ...]]]


class Walk(abc.ABC):
    """What the hosted agents say up and down the tree, piece by piece."""

    def __init__(self, tree: Tree, hosted: Sequence[int]) -> None:
        self.tree, self.hosted = tree, hosted

    def run(self, schedule: Schedule, swap: Swap) -> None:
        """All steps: in each, send what is due, and take in what comes."""
        mine, parents = set(self.hosted), self.tree.parents.tolist()
        due: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        for times, up in ((schedule.ups, True), (schedule.downs, False)):
            for piece, agent in zip(*(places.tolist() for places in np.nonzero(times >= 0)), strict=True):
                if agent in mine or parents[agent] in mine:
                    due[int(times[piece, agent])].append((piece, agent, up))
        for step in range(schedule.rounds):
            outgoing: dict[Edge, tuple[Part, ...]] = {}
            expected: dict[Edge, tuple[int, int, bool]] = {}
            for piece, agent, up in due[step]:
                sender, receiver = (agent, parents[agent]) if up else (parents[agent], agent)
                if sender in mine:
                    outgoing[sender, receiver] = self.up(piece, agent) if up else self.down(piece, agent)
                if receiver in mine:
                    expected[sender, receiver] = piece, agent, up
            for edge, parts in swap(outgoing, list(expected), step).items():
                piece, agent, up = expected[edge]
                if up:
                    self.heard_from_below(piece, agent, parts)
                else:
                    self.heard_from_above(piece, agent, parts)

    @abc.abstractmethod
    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        """What a hosted agent sends to its parent."""

    @abc.abstractmethod
    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        """What an agent's parent, which is hosted, sends to it."""

    @abc.abstractmethod
    def heard_from_below(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        """An agent's parent, which is hosted, has heard from it."""

    @abc.abstractmethod
    def heard_from_above(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        """A hosted agent has heard from its parent."""


@dataclass
class Rows:
    """What an agent holds of a reduction: its total so far, who is present in it, and what came from its children."""

    total: Array
    who: BoolArray | None
    heard: dict[tuple[int, int], tuple[Array, BoolArray | None]] = field(default_factory=dict)


@dataclass
class Result:
    """What came down to an agent."""

    value: Array
    who: BoolArray | None
    absent: BoolArray


class ReductionWalk(Walk):
    def __init__(self, task: Reducing, tree: Tree, hosted: Sequence[int]) -> None:
        super().__init__(tree, hosted)
        self.task, self.told = task, set(told_of(tree, task.to))
        self.agents = len(tree.parents)
        self._everyone = np.arange(self.agents)
        self._ups, self._downs = task.pieces(task.x.shape[2:]), task.pieces(task.told)
        self._rows = {agent: self._own(i, agent) for i, agent in enumerate(hosted)}
        self._results: dict[int, Result] = {}

    def _own(self, i: int, agent: int) -> Rows:
        if self.task.present is None:
            return Rows(self.task.x[i].copy(), None)
        who = np.zeros((self.agents, self.task.rows), dtype=bool)
        who[agent] = self.task.present[i]
        return Rows(self.task.x[i].copy(), who)

    # ---- up -------------------------------------------------------------------------------------------

    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        self._merge(piece, agent)
        rows, where = self._rows[agent], self._ups[piece]
        who = None if rows.who is None else rows.who[:, where]
        return to_parts(self.task.kind, agent, rows.total[where], who, self.tree.below(agent))

    def heard_from_below(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        where = self._ups[piece]
        shape = (where.stop - where.start, *self.task.x.shape[2:])
        possible = None if self.task.present is None else self.tree.below(agent)
        rows, who = from_parts(parts, self.task.kind, agent, shape, possible, self.agents)
        self.task.merge.check([agent], rows[None], None if who is None else np.asarray(who.any(axis=0))[None])
        if who is not None:
            rows[~who.any(axis=0)] = self.task.merge.identity
        self._rows[int(self.tree.parents[agent])].heard[piece, agent] = rows, who

    def _merge(self, piece: int, agent: int) -> None:
        """An agent's own rows with those of its children, in the order of their ids, whenever they came."""
        own, where = self._rows[agent], self._ups[piece]
        for child in self.tree.children[agent]:
            rows, who = own.heard.pop((piece, child))
            own.total[where] = self.task.merge.function(own.total[where], rows)
            if own.who is not None and who is not None:
                own.who[:, where] |= who

    # ---- down -----------------------------------------------------------------------------------------

    def result(self, agent: int) -> Result:
        """What an agent was told; the root tells itself, once it has heard everything."""
        if agent == self.tree.root and agent not in self._results:
            for piece in range(len(self._ups)):
                self._merge(piece, agent)
            rows = self._rows[agent]
            present = np.ones(self.task.rows, dtype=bool) if rows.who is None else np.asarray(rows.who.any(axis=0))
            self._results[agent] = Result(self.task.finished(rows.total, rows.who), rows.who, ~present)
        if agent not in self._results:
            rows = self._rows[agent]
            who = None if rows.who is None else np.zeros_like(rows.who)
            value = np.zeros((self.task.rows, *self.task.told))
            self._results[agent] = Result(value, who, np.zeros(self.task.rows, dtype=bool))
        return self._results[agent]

    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        parent = int(self.tree.parents[agent])
        result, where = self.result(parent), self._downs[piece]
        if agent not in self.told:
            return absent_to_parts(parent, result.absent)
        who = None if result.who is None else result.who[:, where]
        return to_parts(self.task.kind, parent, result.value[where], who, self._everyone)

    def heard_from_above(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        parent, result, where = int(self.tree.parents[agent]), self.result(agent), self._downs[piece]
        if agent not in self.told:
            result.absent[:] = absent_from_parts(parts, parent, self.task.rows)
            return
        shape = (where.stop - where.start, *self.task.told)
        possible = None if self.task.present is None else self._everyone
        result.value[where], who = from_parts(parts, self.task.kind, parent, shape, possible, self.agents)
        if result.who is not None and who is not None:
            result.who[:, where] = who
            result.absent[where] = ~who.any(axis=0)

    def reduced(self) -> Reduced:
        """For this process: from a hosted agent that was told, if there is one."""
        told = [agent for agent in self.hosted if self.task.to in (None, agent)]
        result = self.result(told[0] if told else self.hosted[0])
        return Reduced(result.value if told else None, result.who if told else None, result.absent)


class CollectionWalk(Walk):
    """told: to whom everything comes down; the others hear that it is over.

    check(part, sender): raises where a part makes no sense.
    """

    def __init__(
        self,
        items: dict[str, list[Array]],
        tree: Tree,
        told: Sequence[int],
        hosted: Sequence[int],
        check: Callable[[Part, int], None],
    ) -> None:
        super().__init__(tree, hosted)
        self.kinds, self.told, self._check = tuple(items), set(told), check
        self.known: dict[int, dict[int, tuple[Part, ...]]] = {
            agent: {agent: tuple(Part(kind, agent, values[i]) for kind, values in items.items())}
            if any(values[i].size for values in items.values())
            else {}
            for i, agent in enumerate(hosted)
        }

    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        return self._parts(agent, set())

    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        if agent not in self.told:
            return ()
        return self._parts(int(self.tree.parents[agent]), set(self.tree.below(agent).tolist()))

    def heard_from_below(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        self._take(int(self.tree.parents[agent]), agent, parts, set(self.tree.below(agent).tolist()))

    def heard_from_above(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        others = set(range(len(self.tree.parents))) - set(self.tree.below(agent).tolist())
        self._take(agent, int(self.tree.parents[agent]), parts, others)

    def _parts(self, agent: int, known_there: set[int]) -> tuple[Part, ...]:
        known = self.known[agent]
        return tuple(part for origin in sorted(set(known) - known_there) for part in known[origin])

    def _take(self, agent: int, sender: int, parts: tuple[Part, ...], possible: set[int]) -> None:
        heard: dict[int, list[Part]] = defaultdict(list)
        for part in parts:
            self._check(part, sender)
            if part.origin not in possible or part.kind not in self.kinds:
                raise NonsenseError(sender, f"it cannot know of agent {part.origin}, or not of its {part.kind}")
            heard[part.origin].append(part)
        self.known[agent].update({origin: tuple(found) for origin, found in heard.items()})
