"""Reductions and collections along the tree by real frames, for the agents hosted here.

Rows of a reduction as the parts of a message, and back.

Where all agents are present in all rows, a message is the rows. Else it is the rows in which somebody is, and who is in
which: as bits, or as a list of small integers, whichever is shorter. A message without any such row has no parts.
"""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.graph import Tree
from fleetgp.network.edges import Edge
from fleetgp.network.reduction import Reduced, Reducing, Schedule, recipients_of
from fleetgp.network.wire import Part, content

WHO = "participants"


def list_type(agents: int) -> np.dtype[Any]:
    """Of the integers that name so many agents, and count them. Bits have a type of their own, of one byte."""
    return np.dtype("<u2" if agents < 2**16 else "<u4")


def bit_bytes(rows: int, used: int | IntArray, possible: int | IntArray) -> int | IntArray:
    """Bytes of the bits: one for each row, whether it is used; of those that are, one for each possible agent."""
    return (rows + used * possible + 7) // 8


def to_parts(kind: str, origin: int, rows: Array, who: BoolArray | None, possible: IntArray) -> tuple[Part, ...]:
    """Rows (n, ..) as parts; who: (M, n) is present in which, if not all are; possible: the agents that may be."""
    if who is None:
        return (Part(kind, origin, rows),)
    counts = who.sum(axis=0)
    used = counts > 0
    if not used.any():
        return ()
    named: NDArray[Any] = np.concatenate([counts, np.nonzero(who.T)[1]]).astype(list_type(len(who)))
    if bit_bytes(len(used), int(used.sum()), len(possible)) <= named.nbytes:
        named = np.packbits(np.concatenate([used, who[possible][:, used].T.ravel()]))
    return Part(kind, origin, rows[used]), Part(WHO, origin, named)


def from_parts(
    parts: Sequence[Part], kind: str, sender: int, shape: tuple[int, ...], possible: IntArray | None, agents: int
) -> tuple[Array, BoolArray | None]:
    """The rows of a message, of this shape, and who is present in which, or a NonsenseError that names the sender.

    possible: the agents that may be present, if not all are; absent rows are zero.
    """
    if possible is None:
        return content(parts, kind, sender, shape), None
    who = np.zeros((agents, shape[0]), dtype=bool)
    if not parts:
        return np.zeros(shape), who
    named = next((part.value for part in parts if part.kind == WHO), None)
    if named is None or named.ndim != 1 or named.dtype.kind != "u":
        raise NonsenseError(sender, f"expected who is present in each of {shape[0]} rows, got no such list")
    fill = _from_bits if named.dtype == np.uint8 else _from_list
    if not fill(named, who, possible):
        raise NonsenseError(sender, "it names agents that cannot be present, or others than it says")
    present = np.asarray(who.any(axis=0))
    rows = np.zeros(shape)
    rows[present] = content(parts, kind, sender, (int(present.sum()), *shape[1:]))
    return rows, who


def _from_bits(packed: NDArray[Any], who: BoolArray, possible: IntArray) -> bool:
    """Fill in who is present; whether it made sense: each row that is used has somebody."""
    rows, bits = who.shape[1], np.unpackbits(packed).astype(bool)
    used = np.flatnonzero(bits[:rows])
    needed = rows + len(used) * len(possible)
    if len(bits) < rows or len(packed) != (needed + 7) // 8:
        return False
    who[np.ix_(possible, used)] = bits[rows:needed].reshape(len(used), len(possible)).T
    return bool(who[:, used].any(axis=0).all())


def _from_list(named: NDArray[Any], who: BoolArray, possible: IntArray) -> bool:
    """The same from how many are in each row, then their numbers, row by row."""
    agents, rows = who.shape
    counts, ids = named[:rows].astype(np.int64), named[rows:].astype(np.int64)
    sound = named.dtype == list_type(agents) and len(counts) == rows and counts.sum() == len(ids)
    if not sound or not np.isin(ids, possible).all():
        return False
    who[ids, np.repeat(np.arange(rows), counts)] = True
    return bool(who.sum() == len(ids))


def absent_to_parts(origin: int, absent: BoolArray) -> tuple[Part, ...]:
    """In which rows nobody was present, for those who hear nothing else."""
    return (Part(WHO, origin, np.packbits(absent)),) if absent.any() else ()


def absent_from_parts(parts: Sequence[Part], sender: int, rows: int) -> BoolArray:
    if not parts:
        return np.zeros(rows, dtype=bool)
    words = parts[0].value
    if parts[0].kind != WHO or words.dtype != np.uint8 or words.shape != (-(-rows // 8),):
        raise NonsenseError(sender, f"expected a bit for each of {rows} rows, got an array of shape {words.shape}")
    return np.unpackbits(words, count=rows).astype(bool)


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
        self.task, self.recipients = task, set(recipients_of(tree, task.recipient))
        self.agents = len(tree.parents)
        self._everyone = np.arange(self.agents)
        self._ups, self._downs = task.pieces(task.x.shape[2:]), task.pieces(task.result_shape)
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
            value = np.zeros((self.task.rows, *self.task.result_shape))
            self._results[agent] = Result(value, who, np.zeros(self.task.rows, dtype=bool))
        return self._results[agent]

    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        parent = int(self.tree.parents[agent])
        result, where = self.result(parent), self._downs[piece]
        if agent not in self.recipients:
            return absent_to_parts(parent, result.absent)
        who = None if result.who is None else result.who[:, where]
        return to_parts(self.task.kind, parent, result.value[where], who, self._everyone)

    def heard_from_above(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        parent, result, where = int(self.tree.parents[agent]), self.result(agent), self._downs[piece]
        if agent not in self.recipients:
            result.absent[:] = absent_from_parts(parts, parent, self.task.rows)
            return
        shape = (where.stop - where.start, *self.task.result_shape)
        possible = None if self.task.present is None else self._everyone
        result.value[where], who = from_parts(parts, self.task.kind, parent, shape, possible, self.agents)
        if result.who is not None and who is not None:
            result.who[:, where] = who
            result.absent[where] = ~who.any(axis=0)

    def reduced(self) -> Reduced:
        """For this process: from a hosted agent that was told, if there is one."""
        informed = [agent for agent in self.hosted if self.task.recipient in (None, agent)]
        result = self.result(informed[0] if informed else self.hosted[0])
        return Reduced(result.value if informed else None, result.who if informed else None, result.absent)


class CollectionWalk(Walk):
    """recipients: to whom everything comes down; the others hear that it is over.

    check(part, sender): raises where a part makes no sense.
    """

    def __init__(
        self,
        items: dict[str, list[Array]],
        tree: Tree,
        recipients: Sequence[int],
        hosted: Sequence[int],
        check: Callable[[Part, int], None],
    ) -> None:
        super().__init__(tree, hosted)
        self.kinds, self.recipients, self._check = tuple(items), set(recipients), check
        self.known: dict[int, dict[int, tuple[Part, ...]]] = {
            agent: {agent: tuple(Part(kind, agent, values[i]) for kind, values in items.items())}
            if any(values[i].size for values in items.values())
            else {}
            for i, agent in enumerate(hosted)
        }

    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        return self._parts(agent, set())

    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        if agent not in self.recipients:
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
