"""The summary of the whole fleet that an agent holds for dec-summary: every agent's groups of rows, and their file.

Groups stay when their agent goes away, so the map stays whole, and an agent that is cut off answers from what it holds.
Members bring each other up to date when something has changed. All decide alike, by what the agenda says and by what
the members send:

1. If members hold different summaries, one member that holds each says which versions are in it.
2. A member that has the newest groups of an agent sends them to those who lack them: what has changed since the version
   that these hold, if it still knows that version, or else all.
3. Members whose own rows have changed groups send these, and which of their earlier groups they replace.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field

from fleetgp.agent.agenda import Agenda, Trained
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.records import Codec, Count, Strict
from fleetgp.agent.totals import short_hash
from fleetgp.arrays import Array, IntArray, occurrences
from fleetgp.data.dataset import InMemory
from fleetgp.errors import NonsenseError
from fleetgp.files import read_private, write_private
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction import Conditioned
from fleetgp.prediction.groups import (
    NUMBER,
    Groups,
    are_sound,
    groups_within,
    regrouped,
    size_that_fits,
    summarize,
    width,
    with_earlier,
)
from fleetgp.prediction.kept import KeptGroups

#: The rule of the methods that use it.
RULE = "summary"
#: When an agent made its groups, in milliseconds, and a hash of them.
Version = tuple[int, int]
#: Versions of groups that an agent remembers, to send what has changed since.
REMEMBERED = 64
#: Numbers of a message about one agent, before its groups: the agent, when it made them, the hash of the groups that
#: these replace in part (0: they are all), how many of those go, and how many come.
HEAD = 5
#: Whole numbers below this are exact as floats.
LARGEST_COUNT = 2.0**53
NONE: IntArray = np.zeros(0, dtype=np.int64)
#: Times the budget that one agent's groups may have: where rows wait, they are others than those that were counted.
SLACK = 1.25


@dataclass(frozen=True, eq=False)
class Entry:
    """The groups of one agent. made: milliseconds by its own clock, more than of those before."""

    made: int
    groups: Groups

    @cached_property
    def number(self) -> int:
        """A hash of the groups."""
        return _hash(self.groups)

    @property
    def version(self) -> Version:
        return self.made, self.number


@dataclass(frozen=True)
class Own:
    """What an agent's own groups are made of: so many rows, and the theta of the model when it began.

    version: of these rows.  keys: (rows,) a hash of each, to find it again where rows have come before it.
    members: the rows of every group that it has sent, first those of its groups now; fewer if it does not know them.
    """

    agent: int
    theta: tuple[float, ...]
    rows: int
    version: int
    keys: NDArray[np.uint64] = field(compare=False)
    members: tuple[IntArray, ...] = field(compare=False)

    @classmethod
    def of(cls, agent: int, theta: Sequence[float], shard: Observations, members: Sequence[IntArray]) -> Own:
        return cls(agent, tuple(theta), len(shard), shard.version, keys_of(shard), tuple(members))

    def found(self, shard: Observations) -> list[IntArray]:
        """The groups whose rows are all in these data, as the rows there."""
        if self.rows <= len(shard) and shard.rows(slice(self.rows)).version == self.version:
            return list(self.members)
        if not len(shard):
            return []
        keys, turns = keys_of(shard), occurrences(self.keys, np.arange(len(self.keys), dtype=float)).astype(np.int64)
        order = np.argsort(keys, kind="stable")
        first, end = (np.searchsorted(keys[order], self.keys, side) for side in ("left", "right"))
        where = np.where(first + turns < end, order[np.minimum(first + turns, len(order) - 1)], -1)
        moved = [where[rows] for rows in self.members]
        return [rows for rows in moved if (rows >= 0).all()]


def keys_of(shard: Observations) -> NDArray[np.uint64]:
    """(N,) a hash of each row, of 64 bits.

    >>> keys = keys_of(Observations(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]), np.array([3.0, 3.0, 3.0])))
    >>> keys[0] == keys[2], keys[0] == keys[1]
    (np.True_, np.False_)
    """
    known = [] if shard.noise_std is None else [shard.noise_std]
    columns = np.column_stack([shard.inputs, shard.values, *known]).astype("<f8").view("<u8")
    result = np.full(len(shard), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in columns.T:
        result = (result ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        result ^= result >> np.uint64(29)
    return result


class Left(NamedTuple):
    """What has left an agent: how many rows, ever, and the groups that stand for those that it has forgotten."""

    rows: int
    kept: KeptGroups


@dataclass(frozen=True, eq=False)
class Summary:
    """basis: a hash of what groups depend on besides rows.  size: how many rows a group has at least.

    entries: by agent.  own: of the agent that holds it, which no other knows.
    """

    basis: int
    size: int
    entries: Mapping[int, Entry]
    own: Own | None = None

    def members(self, shard: Observations) -> list[IntArray]:
        """The rows of each of the groups that this agent has sent, as far as they are among these."""
        return [] if self.own is None else self.own.found(shard)

    @cached_property
    def versions(self) -> dict[int, Version]:
        return {agent: entry.version for agent, entry in sorted(self.entries.items())}

    @cached_property
    def number(self) -> int:
        """A hash of all but what is its holder's own."""
        return short_hash([self.basis, self.size, list(self.versions.items())])

    @property
    def count(self) -> int:
        """How many groups there are."""
        return sum(len(entry.groups) for entry in self.entries.values())

    @property
    def facts(self) -> dict[str, dict[int, float]]:
        """Of each agent: how many groups and rows, their bytes, and how many seconds ago it made them."""
        now = time.time()
        groups = {agent: entry.groups for agent, entry in sorted(self.entries.items())}
        return {
            "groups": {agent: len(one) for agent, one in groups.items()},
            "rows": {agent: int(one.counts.sum()) for agent, one in groups.items()},
            "bytes": {agent: one.packed.nbytes for agent, one in groups.items()},
            "seconds": {agent: max(0.0, now - entry.made / 1000.0) for agent, entry in sorted(self.entries.items())},
        }


def basis_of(model: Trained, options: PredictionOptions) -> int:
    """A number that differs where groups of the same rows would."""
    seen = model.id, model.kernel, model.offset, model.scale, *astuple(model.change)
    return short_hash([seen, options.min_rows, options.budget])


# ---- among the members -----------------------------------------------------------------------------------------------


class SummarySync:
    """Brings the summaries of a view's members up to date.

    All members must do the same: what they decide by is in the agenda, or came from members to all.
    """

    def __init__(self, id: int, file: SummaryFile, description: Description) -> None:
        self._id, self._file, self._description = id, file, description
        self._options, self._nothing = description.prediction_options(), Groups.none(description.model_dimension)
        self._columns = width(description.model_dimension)
        self._synced: Agenda | None = None
        self._changed = False  # whether this agent's rows change the groups that it holds
        self._left = Left(0, KeptGroups.none(description.dimension))
        self._regrouped: tuple[object, Groups] = None, self._nothing
        self._earlier: dict[tuple[int, Version], Groups] = {}  # by agent
        held = file.current
        if held is not None and held.own is not None and held.own.agent != id:  # a copy of another agent's file
            file.current = replace(held, own=None)

    def look(self, model: Trained | None, shard: Observations, left: Left) -> tuple[int, bool]:
        """The number of the summary that this agent holds (0: none of its model), and whether its rows change it."""
        self._left, self._changed = left, False
        held = self._file.current
        if held is None or model is None or held.basis != basis_of(model, self._options):
            return 0, False
        new = self._regroup(model, shard, held, held.size)
        if not _same(new, self._own_groups(held)):
            self._changed = True
            return held.number, True
        if held.own is None or held.own.version != shard.version or not _known(self._own_groups(held)):  # new rows wait
            self._file.hold(self._with_own(held, new, model, shard))
        return held.number, False

    def clean(self, shard: Observations) -> bool:
        """Whether this agent's groups, of whatever model, are of no other rows than these."""
        held = self._file.current
        if held is None or not len(self._own_groups(held)):
            return True
        return not self._changed and held.own is not None and held.own.version == shard.version

    def due(self, agenda: Agenda, model: Trained) -> bool:
        """Whether the members of this agenda have something to send each other."""
        if self._synced is agenda:
            return False
        numbers = _numbers(agenda, model)
        if len(agenda.members) == 1:  # it answers from its own rows, but for what stands for those that have left
            return self._left.rows > 0 and (0 in numbers or agenda.items[0].regrouped)
        return 0 in numbers or len(set(numbers)) > 1 or any(item.regrouped for item in agenda.items)

    def run(self, network: Network, agenda: Agenda, model: Trained, shard: Observations) -> tuple[Groups, ...]:
        """The groups of all members, in the order of the view, and then those of agents that are away."""
        if self.due(agenda, model):
            with network.phase("groups"):
                self._hold(self._met(network, agenda, model, shard))
            self._synced, self._changed = agenda, False
        entries = self._entries(model)
        away = [agent for agent in sorted(entries) if agent not in agenda.members]
        return tuple(entries[agent].groups if agent in entries else self._nothing for agent in (*agenda.members, *away))

    def data_of(self, agenda: Agenda, model: Trained) -> list[int]:
        """The agents whose rows or groups an answer is from."""
        return sorted({*agenda.members, *(agent for agent, entry in self._entries(model).items() if len(entry.groups))})

    def _entries(self, model: Trained) -> Mapping[int, Entry]:
        held = self._file.current
        return held.entries if held is not None and held.basis == basis_of(model, self._options) else {}

    def _met(self, network: Network, agenda: Agenda, model: Trained, shard: Observations) -> Summary:
        """What all members hold in the end."""
        numbers = _numbers(agenda, model)
        held = self._file.current if numbers[self._at(agenda)] else None
        known = Summary(basis_of(model, self._options), 0, {}) if held is None else held
        known, size = self._caught_up(network, agenda, numbers, known)
        if not size:  # nobody holds any
            size = self._size(network, agenda, model, shard, known)
        changes = 0 in numbers or any(item.regrouped for item in agenda.items)
        result = self._renewed(network, agenda, model, shard, known, size, changes=changes)
        if result.count > groups_within(self._options.budget, network.agents, self._description.model_dimension):
            size = self._size(network, agenda, model, shard, result)
            if size > result.size:
                result = self._renewed(network, agenda, model, shard, result, size)
        return result

    def _renewed(
        self,
        network: Network,
        agenda: Agenda,
        model: Trained,
        shard: Observations,
        known: Summary,
        size: int,
        *,
        changes: bool = True,
    ) -> Summary:
        """With all members' groups of their rows now. changes: whether somebody's are others than those known."""
        groups, result = self._regroup(model, shard, known, size), replace(known, size=size)
        if changes or size != known.size:
            result = self._with_changes(network, agenda, result, groups)
        return self._with_own(result, groups, model, shard)

    def _at(self, agenda: Agenda) -> int:
        return agenda.members.index(self._id)

    def _size(self, network: Network, agenda: Agenda, model: Trained, shard: Observations, summary: Summary) -> int:
        """How many rows a group has at least, so that the groups of all members fit beside those of agents away."""
        data, h = self._modelled(model, shard, summary.own)
        places = data.shards[0].inputs / data.kernel.scales(h, self._description.model_dimension)[0]
        away = sum(len(one.groups) for agent, one in summary.entries.items() if agent not in agenda.members)
        forgotten = [one.counted(self._options.min_rows) for one in data.forgotten()]
        return size_that_fits(network, [places], self._options, [self._sent(summary, shard)], away, forgotten)

    # ---- this agent's own groups -------------------------------------------------------------------------------------

    def _own_groups(self, summary: Summary) -> Groups:
        return summary.entries[self._id].groups if self._id in summary.entries else self._nothing

    def _sent(self, summary: Summary, shard: Observations) -> list[IntArray]:
        """The rows of the groups that this agent has sent, of this model or of an earlier one."""
        held = self._file.current
        return (held if summary.own is None and held is not None else summary).members(shard)

    def _regroup(self, model: Trained, shard: Observations, summary: Summary, size: int) -> Groups:
        """This agent's groups of its rows now, with as few changes as can be."""
        own, old = summary.own, self._own_groups(summary)
        same = own is not None and (own.version, summary.size) == (shard.version, size) and _known(old)
        if same and not len(self._left.kept) and not old.without_rows.any():
            return old
        key = shard.version, self._left, size, summary.basis, own, summary.versions.get(self._id)
        if self._regrouped[0] != key:
            data, h = self._modelled(model, shard, own)
            self._regrouped = key, self._grouped(data, h, size, shard, own, old)
        return self._regrouped[1]

    def _grouped(
        self, data: Conditioned, h: Hyperparameters, size: int, shard: Observations, own: Own | None, old: Groups
    ) -> Groups:
        """Groups of these data, of which some are in old groups, and stay there."""
        rows, least = data.shards[0], self._options.min_rows
        places, counted = rows.inputs / data.kernel.scales(h, rows.dimension)[0], int(old.counts.sum())
        held = self._file.current  # it may be of another model or other options
        known = held.own if own is None and held is not None else own
        members: Sequence[IntArray] = () if known is None else known.found(shard)
        lost = known is None or (known is own and len(known.members) < len(old))
        if lost and not self._left.rows and 0 < counted <= len(shard):  # without its file: its first rows are in them
            first = summarize(rows, regrouped(places[:counted], size, least, ()), data.kernel, h)
            if not _alike(first, old):  # nobody knows which: the groups stay as they are
                new = [counted + some for some in regrouped(places[counted:], least, least, ())]
                return old.changed(NONE, summarize(rows, new, data.kernel, h).packed)
            members = first.members
        result = summarize(rows, regrouped(places, size, least, members), data.kernel, h)
        for one in data.forgotten():
            result = result.plus(one.of_size(size, least))
        return result

    def _modelled(self, model: Trained, shard: Observations, own: Own | None) -> tuple[Conditioned, Hyperparameters]:
        """This agent's rows as the model sees them, and theta, which stays what it was when it began."""
        theta = np.array([model.theta if own is None else own.theta])
        data = Conditioned(InMemory([shard]), self._description.kernel_of(model.kernel), theta, model.view)
        data.kept = (self._left.kept,) if len(self._left.kept) else ()
        return data, Hyperparameters.from_theta(data.thetas[0])

    def _with_own(self, summary: Summary, groups: Groups, model: Trained, shard: Observations) -> Summary:
        """With these groups of this agent, as they were agreed on, and the rows that they are of."""
        entries = dict(summary.entries)
        if self._id in entries:
            entries[self._id] = replace(entries[self._id], groups=groups)
        theta = model.theta if summary.own is None else summary.own.theta
        members = with_earlier(groups.of_rows, self._sent(summary, shard)) if _known(groups) else ()
        return replace(summary, entries=entries, own=Own.of(self._id, theta, shard, members))

    def _hold(self, summary: Summary) -> None:
        """Keep it, and remember the groups that it replaces, unless one of them was withdrawn."""
        before = self._file.current
        for agent, entry in {} if before is None else before.entries.items():
            if summary.versions.get(agent) != entry.version:
                newer = summary.entries.get(agent)
                if newer is not None and not len(newer.groups.change(entry.groups)[0]):
                    self._earlier[agent, entry.version] = entry.groups
                else:
                    self._earlier = {key: groups for key, groups in self._earlier.items() if key[0] != agent}
        for version in list(self._earlier)[:-REMEMBERED]:
            del self._earlier[version]
        self._file.hold(summary)

    # ---- what members lack -------------------------------------------------------------------------------------------

    def _caught_up(
        self, network: Network, agenda: Agenda, numbers: Sequence[int], known: Summary
    ) -> tuple[Summary, int]:
        """What the members hold together, the same at all of them but for `own`; and the largest size that one has.

        Its own size is the smallest. Where only one summary is held, nobody needs to say what is in it.
        """
        held_numbers = set(numbers) - {0}
        if len(held_numbers) > 1:
            sizes, versions = self._offers(network, numbers, known)
            known, least = replace(known, size=min(sizes)), max(sizes)
        else:  # a member that holds nothing knows of no version, and sends none
            versions, least = [known.versions if number else {} for number in numbers], known.size
        newest = _newest(versions, agenda)
        lacking = [k for k, theirs in enumerate(versions) if not numbers[k] or theirs != newest]
        if not held_numbers or not lacking:
            return known, least
        own = self._at(agenda)
        parts = []
        for agent, version in newest.items():
            theirs = [one.get(agent) for one in versions]
            if theirs.index(version) == own and set(theirs) != {version}:  # the first that holds it
                parts.append(self._message(agent, known.entries[agent], self._base(agent, {*theirs} - {version})))
        speaks = parts or (len(held_numbers) == 1 and numbers.index(max(numbers)) == own)  # if only to say the size
        sent = network.collect(
            {"groups": [np.concatenate([[known.size], *parts]) if speaks else np.zeros(0)]},
            recipient=lacking[0] if len(lacking) == 1 else None,
        )
        if sent is None or own not in lacking:
            return known, least
        entries = {agent: entry for agent, entry in known.entries.items() if newest.get(agent) == entry.version}
        for sender, message in enumerate(sent["groups"]):
            if message.size:
                size, changes = self._read(sender, message)
                known, least = replace(known, size=known.size or size), max(least, size)
                entries |= {
                    change.agent: change.applied(sender, known.entries)
                    for change in changes
                    if change.agent not in entries
                }
                self._check_budget(sender, entries)
        result = replace(known, entries=entries)
        expected, got = (newest, result.versions) if len(held_numbers) > 1 else (held_numbers, {result.number})
        if expected != got:
            sender = next((k for k, one in enumerate(sent["groups"]) if one.size), numbers.index(max(numbers)))
            raise NonsenseError(sender, "expected the groups that it said it holds, got others")
        return result, least

    def _offers(
        self, network: Network, numbers: Sequence[int], known: Summary
    ) -> tuple[list[int], list[dict[int, Version]]]:
        """How large the groups are, and which versions each member holds: the first that holds a summary says so."""
        (own,) = network.hosted
        said = np.zeros(0)
        if numbers[own] and numbers.index(numbers[own]) == own:
            rows = [[agent, *version] for agent, version in known.versions.items()]
            said = np.append(float(known.size), np.array(rows, dtype=float).ravel())
        sent = network.collect({"groups": [said]})
        assert sent is not None, "every agent is a recipient"
        offers: dict[int, dict[int, Version]] = {0: {}}
        sizes = []
        for k, number in enumerate(numbers):
            if number not in offers:
                values = sent["groups"][k]
                if values.ndim != 1 or len(values) % 3 != 1 or not _are_counts(values) or not values[0]:
                    raise NonsenseError(k, f"expected the versions of groups, got an array of shape {values.shape}")
                rows = values[1:].reshape(-1, 3).astype(np.int64).tolist()
                offers[number] = {agent: (made, hashed) for agent, made, hashed in rows}
                sizes.append(int(values[0]))
                if len(offers[number]) != len(rows) or max(offers[number], default=0) >= len(self._description.names):
                    raise NonsenseError(k, "expected versions of the groups of this fleet's agents, each once")
        return sizes, [offers[number] for number in numbers]

    def _base(self, agent: int, others: set[Version | None]) -> Groups | None:
        """The groups that all who lack some hold instead, if those are the same and this agent still knows them."""
        (base,) = others if len(others) == 1 else (None,)
        return None if base is None else self._earlier.get((agent, base))

    # ---- what is new -------------------------------------------------------------------------------------------------

    def _with_changes(self, network: Network, agenda: Agenda, summary: Summary, groups: Groups) -> Summary:
        """With what every member's rows have changed. groups: of this agent."""
        part, old = np.zeros(0), self._own_groups(summary)
        if not _same(groups, old):
            known = summary.entries.get(self._id)
            made = max(int(1000 * time.time()), 0 if known is None else known.made + 1)
            base = old if len(old) else None
            part = np.append(float(summary.size), self._message(self._id, Entry(made, groups), base))
        sent = network.collect({"groups": [part]})
        assert sent is not None, "every agent is a recipient"
        entries = dict(summary.entries)
        for sender, message in enumerate(sent["groups"]):
            if message.size:
                size, changes = self._read(sender, message)
                agent, known = agenda.members[sender], summary.entries.get(agenda.members[sender])
                if size != summary.size or [change.agent for change in changes] != [agent]:
                    raise NonsenseError(sender, f"expected its own groups, of at least {summary.size} rows")
                entry = changes[0].applied(sender, summary.entries)
                rows = agenda.items[sender].rows + agenda.items[sender].kept
                if entry.groups.counts.sum() > rows:
                    raise NonsenseError(sender, f"expected groups of its {rows} rows, got {len(entry.groups)} of more")
                self._check_budget(sender, {agent: entry})
                if known is not None and entry.made <= known.made:
                    raise NonsenseError(sender, "expected groups that are newer than those before")
                entries[agent] = entry
        return replace(summary, entries=entries)

    # ---- messages ----------------------------------------------------------------------------------------------------

    def _message(self, agent: int, entry: Entry, base: Groups | None) -> Array:
        """One agent's groups, or what makes them of others that the recipients hold."""
        gone, new = (np.zeros(0), entry.groups.packed) if base is None else entry.groups.change(base)
        head = agent, entry.made, 0 if base is None else _hash(base), len(gone), len(new)
        return np.concatenate([head, gone, new.ravel()])

    def _read(self, sender: int, message: Array) -> tuple[int, list[Change]]:
        """The size of groups, and what a message says of agents, checked as far as one can without what was before."""
        changes: list[Change] = []
        place, fleet = 1, len(self._description.names)
        sound = message.ndim == 1 and _are_counts(message[:1])
        while sound and place < len(message):
            head = message[place : place + HEAD]
            if len(head) < HEAD or not _are_counts(head) or head[0] >= fleet:
                sound = False
                break
            agent, made, base, gone, new = head.astype(np.int64).tolist()
            middle, end = place + HEAD + gone, place + HEAD + gone + new * self._columns
            rows = message[middle:end].reshape(-1, self._columns) if end <= len(message) else np.zeros((0, 0))
            sound = end <= len(message) and are_sound(rows, self._columns, self._options.min_rows)
            changes.append(Change(agent, made, base, message[place + HEAD : middle], rows, self._nothing))
            place = end
        if not sound or len({change.agent for change in changes}) < len(changes):
            least = self._options.min_rows
            raise NonsenseError(sender, f"expected groups of at least {least} rows, {self._columns} numbers each")
        return int(message[0]), changes

    def _check_budget(self, sender: int, entries: Mapping[int, Entry]) -> None:
        for entry in entries.values():
            count = len(entry.groups)
            if count > 1 and NUMBER * self._columns * count > SLACK * self._options.budget:
                raise NonsenseError(sender, f"expected groups of at most {self._options.budget:g} bytes, got {count}")


@dataclass(frozen=True, eq=False)
class Change:
    """What a message says of one agent's groups. base: the hash of those before; 0: it has all groups."""

    agent: int
    made: int
    base: int
    gone: Array
    new: Array
    nothing: Groups

    def applied(self, sender: int, entries: Mapping[int, Entry]) -> Entry:
        """The groups now; entries: those before."""
        before = entries.get(self.agent)
        known = (0 if before is None else before.number) if self.base else 0
        old = before.groups if before is not None and self.base else self.nothing
        if known != self.base or not np.isin(self.gone, np.arange(len(old))).all():
            raise NonsenseError(sender, "expected what changes of groups that are known, got a change of others")
        return Entry(self.made, old.changed(self.gone.astype(np.int64), self.new))


def _numbers(agenda: Agenda, model: Trained) -> list[int]:
    """The number of each member's summary of this model, 0 for none."""
    return [0 if item.trained is None or item.trained.id != model.id else item.summary for item in agenda.items]


def _newest(versions: Sequence[Mapping[int, Version]], agenda: Agenda) -> dict[int, Version]:
    """The newest version of each agent's groups: a member's is what it holds itself."""
    newest: dict[int, Version] = {}
    for theirs in versions:
        newest |= {agent: max(version, newest.get(agent, version)) for agent, version in theirs.items()}
    for member, theirs in zip(agenda.members, versions, strict=True):
        if member in theirs:
            newest[member] = theirs[member]
    return dict(sorted(newest.items()))


def _hash(groups: Groups) -> int:
    return short_hash(groups.packed.tolist())


def _known(groups: Groups) -> bool:
    """Whether the rows of each are known."""
    return len(groups.members) == len(groups)


def _same(one: Groups, other: Groups) -> bool:
    return one.packed.tobytes() == other.packed.tobytes()


def _alike(one: Groups, other: Groups) -> bool:
    """Whether they are of the same rows; theta may differ a little."""
    mine, its = one.packed[:, :-1], other.packed[:, :-1]
    return mine.shape == its.shape and np.allclose(mine, its, rtol=1e-9, atol=0.0)


def _are_counts(values: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(((values >= 0.0) & (values < LARGEST_COUNT) & (values == np.floor(values))).all())


# ---- on disk: a line of JSON, a checksum, all groups, and the rows of each of the holder's own groups ----------------

VERSION = 1
#: Bytes. A summary of 100 kB, of an agent with a million rows, has 12 MB.
LARGEST_FILE = 2**26


@dataclass(frozen=True)
class Head(Strict):
    """The first line of the file. agents, made, counts: of each agent, the last how many groups it has.

    holder, theta, rows, data: of the agent that holds it, see `Own`.  sent: how many members; older files have none,
    and those of the groups now.
    """

    version: Count
    model: str
    basis: Count
    size: Count
    agents: Annotated[tuple[str, ...], FailFast()]
    made: Annotated[tuple[Count, ...], FailFast()]
    counts: Annotated[tuple[Count, ...], FailFast()]
    holder: str
    theta: Annotated[tuple[Annotated[float, Field(gt=0.0)], ...], FailFast()] = ()
    rows: Count = 0
    data: Count = 0
    sent: Count = 0


HEAD_CODEC = Codec(Head, 2**20)


class SummaryFile:
    """The summary that an agent holds, and its file. changed: called when another one takes its place."""

    def __init__(self, path: Path, description: Description, log: Log, changed: Callable[[], None]) -> None:
        self._path, self._description, self._changed = path, description, changed
        self.current = load_summary(path, description)
        self._saved = True
        if self.current is None and path.exists():
            aside = path.with_suffix(".old.bin")
            path.replace(aside)
            log.warn("summary left aside", why="it is damaged, or of another fleet", file=str(aside))

    def hold(self, summary: Summary) -> None:
        self.current, self._saved = summary, False
        self._changed()

    def hold_own(self, own: Own) -> None:
        """Keep which rows are in groups that this agent has sent; the groups of others stay."""
        self.hold(replace(self.current or Summary(0, 1, {}), own=own))

    def save(self) -> None:
        if self.current is not None and not self._saved:
            save_summary(self.current, self._path, self._description)
            self._saved = True


def save_summary(summary: Summary, path: Path, description: Description) -> None:
    entries, names, own = sorted(summary.entries.items()), description.names, summary.own
    head = Head(
        version=VERSION,
        model=description.model,
        basis=summary.basis,
        size=summary.size,
        agents=tuple(names[agent] for agent, _ in entries),
        made=tuple(entry.made for _, entry in entries),
        counts=tuple(len(entry.groups) for _, entry in entries),
        holder="" if own is None else names[own.agent],
        theta=() if own is None else own.theta,
        rows=0 if own is None else own.rows,
        data=0 if own is None else own.version,
        sent=0 if own is None else len(own.members),
    )
    members = () if own is None else own.members
    body = b"".join(entry.groups.packed.astype("<f8").tobytes() for _, entry in entries)
    body += b"" if own is None else own.keys.astype("<u8").tobytes()
    body += b"".join(rows.astype("<u4").tobytes() for rows in (np.array(list(map(len, members))), *members))
    line = HEAD_CODEC.encode(head)
    write_private(path, line + b"\n" + hashlib.sha256(line + body).digest() + body)


def load_summary(path: Path, description: Description) -> Summary | None:
    """The last one, or None: if there is none, none of this fleet, or none that makes sense."""
    data = read_private(path, LARGEST_FILE)
    if data is None or len(data) > LARGEST_FILE:
        return None
    line, _, rest = data.partition(b"\n")
    check, body = rest[:32], rest[32:]
    try:
        head = HEAD_CODEC.of_facts({"sent": 0, **json.loads(line)})
    except (ValueError, TypeError, RecursionError):
        return None
    if check != hashlib.sha256(line + body).digest() or (head.version, head.model) != (VERSION, description.model):
        return None
    return _summary_of(head, body, description)


def _summary_of(head: Head, body: bytes, description: Description) -> Summary | None:
    columns = width(description.model_dimension)
    keys_at = NUMBER * columns * sum(head.counts)
    members_at = keys_at + 8 * head.rows + 4 * head.sent
    shaped = len(head.agents) == len(head.made) == len(head.counts) == len(set(head.agents))
    if not shaped or len(body) < members_at or not head.size or len(head.theta) not in (0, len(description.parameters)):
        return None
    rows = np.frombuffer(body[:keys_at], dtype="<f8").astype(float).reshape(-1, columns)
    if not are_sound(rows, columns, 1):
        return None
    keys = np.frombuffer(body[keys_at : keys_at + 8 * head.rows], dtype="<u8").astype(np.uint64)
    sizes = np.frombuffer(body[keys_at + 8 * head.rows : members_at], dtype="<u4").tolist()
    if not head.sent and head.holder in head.agents:
        first = sum(head.counts[: head.agents.index(head.holder)])
        sizes = rows[first:, 0][: head.counts[head.agents.index(head.holder)]].astype(np.int64).tolist()
    members = _members_of(sizes, body[members_at:], head.rows)
    entries, parts = {}, np.split(rows, np.cumsum(head.counts))
    for name, made, part in zip(head.agents, head.made, parts, strict=False):  # after the last one comes nothing
        groups = Groups.unpacked(part, description.model_dimension)
        if name == head.holder:
            own_members = members[: len(groups)]
            if groups.counts.tolist() == [float(len(one)) for one in own_members]:
                groups = replace(groups, members=own_members)
        if name in description.names and description.counts(name):  # another one is no agent any more
            entries[description.names.index(name)] = Entry(made, groups)
    own = None
    if head.theta and head.holder in description.names:
        own = Own(description.names.index(head.holder), head.theta, head.rows, head.data, keys, members)
    return Summary(head.basis, head.size, entries, own)


def _members_of(sizes: Sequence[int], body: bytes, rows: int) -> tuple[IntArray, ...]:
    """The rows of each group; none if they are not known. sizes: how many each has."""
    if len(body) != 4 * sum(sizes) or 0 in sizes:
        return ()
    members = np.frombuffer(body, dtype="<u4").astype(np.int64)
    if members.size and (members.max() >= rows or len(set(members.tolist())) < len(members)):
        return ()
    return tuple(np.split(members, np.cumsum(sizes)[:-1])) if sizes else ()
