"""The moments of the whole fleet that an agent holds: whose rows are in them, their file, and how members update them.

With them an agent answers alone, also for agents that are not there. Agents whose totals have the same number hold the
same totals. `Agreements` are what else a prediction needs from the others: it is sent once, and kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import FailFast, Field

from fleetgp.agent.agenda import Agenda, Change, Trained, with_change
from fleetgp.agent.description import WHOLE, Description
from fleetgp.agent.logs import Log
from fleetgp.agent.records import Codec, Count, Strict, Value
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import SPARE, agree_on_moments
from fleetgp.data.dataset import InMemory
from fleetgp.data.transforms import View
from fleetgp.engines.basis import Box
from fleetgp.engines.expert import FleetExpert
from fleetgp.engines.moments.fleet import FleetMoments, fits, moments_on, response_sizes
from fleetgp.engines.moments.sums import LARGEST_GRID
from fleetgp.errors import NonsenseError
from fleetgp.files import read_private, write_private
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.network.wire import LARGEST
from fleetgp.prediction import PredictionMethod, PredictionOptions, SharedState

#: Bytes of the numbers of data and agreements: a float holds them exactly.
SHORT = 6


def short_hash(facts: Any) -> int:
    """A number of six bytes: a float holds it exactly."""
    return int.from_bytes(hashlib.blake2b(json.dumps(facts).encode(), digest_size=SHORT).digest(), "big")


def number_of(agenda: Agenda, model: Trained, method: PredictionMethod, options: PredictionOptions) -> int:
    """A number that differs where something else must be agreed on: the same at every member."""
    seen = model.offset, model.scale, *astuple(model.change)  # what is sent is what the model sees
    data = [item.data for item in agenda.items], *seen
    facts = [agenda.members, data, method.agreement_key(options)]
    if method.rule == "npae":  # its basis is made for one theta
        facts.append((model.log_theta, model.kernel))
    return short_hash(facts)


class Agreements:
    """One agent's last agreement of each rule (grBCM's samples, NPAE's box), with its number.

    All members must decide alike whether they hold one. Within a view they do; an agreement of an earlier view counts
    if every member's first item says that it holds the same.
    """

    def __init__(self) -> None:
        self._by_rule: dict[str, tuple[int, SharedState]] = {}
        self._data: dict[str, dict[int, int]] = {}  # of what data each is, by member

    @property
    def held(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(sorted(number for number, _ in self._by_rule.values()))

    def find(self, rule: str, number: int, agenda: Agenda, here: dict[str, int]) -> SharedState | None:
        """What all members hold; None if they must agree again. here: numbers of what was agreed on in this view."""
        common = number == here[rule] if rule in here else all(number in item.agreed for item in agenda.items)
        return self._by_rule[rule][1] if common else None

    def keep(self, rule: str, number: int, agreed: SharedState, here: dict[str, int], agenda: Agenda) -> None:
        """Replace the rule's earlier agreement. agenda: with the data that it is about."""
        self._by_rule[rule] = number, agreed
        self._data[rule] = _data_of(agenda)
        here[rule] = number

    @property
    def versions(self) -> list[dict[int, int]]:
        """By rule, of which version of each member's data the agreement is."""
        return list(self._data.values())

    def drop_outdated(self, agenda: Agenda) -> None:
        """Forget what is about other data than members have now: there may be rows in it that were taken back."""
        now = _data_of(agenda)
        for rule, data in list(self._data.items()):
            if any(now.get(member, version) != version for member, version in data.items()):
                del self._by_rule[rule], self._data[rule]


def _data_of(agenda: Agenda) -> dict[int, int]:
    """The version of each member's data."""
    return {member: item.data for member, item in zip(agenda.members, agenda.items, strict=True)}


#: Bytes of the record of what totals contain; with a thousand agents it has some 50,000.
MOST_BYTES = 2**18

Positive = Annotated[float, Field(gt=0.0, le=LARGEST)]


@dataclass(frozen=True)
class Part(Strict):
    """The first rows of an agent's data, and their version."""

    agent: Count
    rows: Count
    version: Count

    def holds(self, shard: Observations) -> bool:
        """Whether these are the first rows of an agent's data."""
        return self.rows <= len(shard) and shard.rows(slice(self.rows)).version == self.version


@dataclass(frozen=True)
class Contents(Strict):
    """What totals are about: whose rows, scaled how, on which box and grid."""

    parts: Annotated[tuple[Part, ...], FailFast(), Field(min_length=1)]
    offset: Value
    scale: Positive
    centre: Annotated[tuple[Value, ...], FailFast()]
    half: Annotated[tuple[Positive, ...], FailFast()]
    sizes: Annotated[tuple[Annotated[int, Field(gt=0, lt=2**32)], ...], FailFast()]
    change: Change = field(default_factory=Change)

    @property
    def agents(self) -> tuple[int, ...]:
        """Whose rows are in the totals."""
        return tuple(part.agent for part in self.parts)

    @property
    def count(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def length(self) -> int:
        """How many numbers the moments are, packed."""
        return 1 + prod(self.sizes) + prod(response_sizes(self.sizes))

    @property
    def box(self) -> Box:
        return Box(np.array(self.centre), np.array(self.half))

    @property
    def view(self) -> View:
        return View(self.change.scaling(self.offset, self.scale), self.change.places)

    def part(self, agent: int) -> Part | None:
        return next((part for part in self.parts if part.agent == agent), None)

    def rows_without(self, agents: Collection[int]) -> int:
        """Rows of other agents than these."""
        return sum(part.rows for part in self.parts if part.agent not in agents)

    def left_out(self, parts: Sequence[Part]) -> tuple[int, ...]:
        """The agents whose rows are not in the totals as these parts say."""
        return tuple(part.agent for part in parts if self.part(part.agent) != part)

    def check(self, fleet: int, dimension: int) -> None:
        """A ValueError where they cannot be of this fleet."""
        if not len(self.centre) == len(self.half) == len(self.sizes) == dimension:
            raise ValueError(f"expected a box and a grid of {dimension} dimensions")
        if not fits(self.sizes):
            raise ValueError(f"expected a grid that can be, got {self.sizes}")
        self.change.check(dimension)
        if list(self.agents) != sorted(set(self.agents)) or self.agents[-1] >= fleet:
            raise ValueError(f"expected rows of the {fleet} agents of this fleet, each once, got {self.agents}")

    def beyond(self, agent: int, shard: Observations) -> Array | None:
        """What an agent's data have to add to the totals, packed; None if they cannot be added.

        They cannot if a new row lies outside of the box, or if its first rows are not those that are in the totals.
        """
        part = self.part(agent)
        if part is not None and not part.holds(shard):
            return None
        first = 0 if part is None else part.rows
        new = self.view.of(shard.rows(slice(first, None)))
        return moments_on(self.box, self.sizes, new.inputs, new.values).packed if self.box.holds(new.inputs) else None

    def with_parts(self, parts: Sequence[Part]) -> Contents:
        """With these parts in the place of older ones."""
        newer = {part.agent: part for part in (*self.parts, *parts)}
        return replace(self, parts=tuple(newer[agent] for agent in sorted(newer)))


CONTENTS = Codec(Contents, MOST_BYTES)


@dataclass(frozen=True)
class Totals:
    contents: Contents
    moments: FleetMoments

    @classmethod
    def of(cls, moments: FleetMoments, parts: Sequence[Part], model: Trained) -> Totals:
        box = moments.box
        contents = Contents(
            parts=tuple(parts),
            offset=model.offset,
            scale=model.scale,
            centre=tuple(box.centre.tolist()),
            half=tuple(box.half.tolist()),
            sizes=moments.sizes,
            change=model.change,
        )
        return cls(contents, moments)

    @classmethod
    def unpacked(cls, contents: Contents, row: Array) -> Totals:
        """From the moments, packed."""
        return cls(contents, FleetMoments.unpacked(contents.box, contents.sizes, row))

    @cached_property
    def number(self) -> int:
        """A hash of all that is in them."""
        digest = hashlib.blake2b(CONTENTS.encode(self.contents), digest_size=SHORT)
        digest.update(self.moments.packed.tobytes())
        return int.from_bytes(digest.digest(), "big")

    def covers(self, theta: Array) -> bool:
        """Whether the grid is fine enough for theta, of the scaled observations."""
        return FleetExpert(self.moments).covers(theta)

    def lost(self, newer: Totals) -> tuple[int, ...]:
        """The agents of whom these hold more rows than newer ones."""
        rows = {part.agent: part.rows for part in newer.contents.parts}
        return tuple(part.agent for part in self.contents.parts if part.rows > rows.get(part.agent, 0))


def parts_of_members(agenda: Agenda) -> list[Part]:
    """All rows of the members, as the agenda says."""
    return [Part(member, item.rows, item.data) for member, item in zip(agenda.members, agenda.items, strict=True)]


# ---- on disk: a line of JSON with the contents and a checksum, then the numbers ---------------------------------

VERSION = 1
#: Bytes; ours have some 500,000.
LARGEST_FILE = 16 * LARGEST_GRID + MOST_BYTES


class TotalsFile:
    """The totals that an agent holds, and their file.

    current: None if it holds none.  changed: called when other totals take their place.
    """

    def __init__(self, path: Path, description: Description, log: Log, changed: Callable[[], None]) -> None:
        self._path, self._description, self._log, self._changed = path, description, log, changed
        self.current = load_totals(path, description)
        self._saved = True
        if self.current is None and path.exists():
            aside = path.with_suffix(".old.bin")
            path.replace(aside)
            log.warn("totals left aside", why="they are damaged, or of another fleet", file=str(aside))
        gone = () if self.current is None else description.without_rows & {*self.current.contents.agents}
        if gone:  # nobody can take them out of the sums: the members make new ones
            log("totals dropped", why="rows of agents that have left are in them", agents=description.names_of(gone))
            path.unlink()
            self.current = None

    def hold(self, totals: Totals) -> None:
        """Replace the current totals; the log says if the new ones contain less of an agent's data."""
        before = self.current
        if before is not None and before.number == totals.number:
            return
        lost = () if before is None else before.lost(totals)
        if lost:
            self._log.warn("rows of others are not in the totals any more", agents=self._description.names_of(lost))
        self.current, self._saved = totals, False
        self._changed()

    def save(self) -> None:
        if self.current is not None and not self._saved:
            save_totals(self.current, self._path, self._description)
            self._saved = True


def save_totals(totals: Totals, path: Path, description: Description) -> None:
    facts = CONTENTS.facts_of(totals.contents)
    for part in facts["parts"]:  # by name: the order in the description may change
        part["agent"] = description.names[part["agent"]]
    numbers = totals.moments.packed.astype("<f8").tobytes()
    head: dict[str, Any] = {"version": VERSION, "model": description.model, "contents": facts}
    head["check"] = _check(head, numbers)
    write_private(path, json.dumps(head).encode() + b"\n" + numbers)


def load_totals(path: Path, description: Description) -> Totals | None:
    """The last ones, or None: if there are none, none of this fleet, or none that make sense."""
    data = read_private(path, LARGEST_FILE)
    if data is None or len(data) > LARGEST_FILE:
        return None
    line, _, numbers = data.partition(b"\n")
    try:
        head = json.loads(line)
        check = head.pop("check")
        if check != _check(head, numbers) or (head["version"], head["model"]) != (VERSION, description.model):
            return None
        facts = head["contents"]
        for part in facts["parts"]:
            part["agent"] = description.names.index(part["agent"])
        facts["parts"].sort(key=lambda part: part["agent"])
        contents = CONTENTS.of_facts(with_change(facts))
        contents.check(len(description.names), description.dimension)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if len(numbers) != 8 * contents.length:
        return None
    totals = Totals.unpacked(contents, np.frombuffer(numbers, dtype="<f8").astype(float))
    sound = np.isfinite(totals.moments.packed).all() and totals.moments.count == contents.count
    return totals if sound else None


def _check(head: dict[str, Any], numbers: bytes) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + numbers).hexdigest()


# ---- over the network -------------------------------------------------------------------------------------------


class MomentsSync:
    """Brings the totals of a view's members up to date: what each member has to add is reduced.

    All members must do the same: what they decide by is in the agenda, or the same to the bit at all of them.
    fleet, dimension: of the description.
    """

    def __init__(self, id: int, file: TotalsFile, fleet: int, dimension: int) -> None:
        self._id, self._file = id, file
        self._fleet, self._dimension = fleet, dimension
        self._synced: Agenda | None = None
        self._removed = False

    def due(self, agenda: Agenda) -> bool:
        """Whether the members have not done so since they agreed on this agenda."""
        return self._synced is not agenda

    def holds(self, shard: Observations) -> bool:
        """Whether the totals that this agent holds are of no other rows of its own than these."""
        totals = self._file.current
        part = None if totals is None else totals.contents.part(self._id)
        return part is None or part.holds(shard)

    def run(
        self,
        network: Network,
        agenda: Agenda,
        model: Trained,
        shard: Observations,
        theta: Array,
        here: dict[str, int],
        *,
        removed: bool = False,
    ) -> Totals:
        """Totals of the rows that the members had at this agenda, and of what is known of others.

        shard: the rows of this agent.  theta: of the scaled observations; a grid that is too coarse for it is renewed.
        here: numbers of what was agreed on in this view.  removed: rows of this agent were taken back at some time.
        """
        self._removed = removed
        totals = self._updated(network, agenda, model, shard, here) if self.due(agenda) else self._file.current
        if totals is not None:
            self._file.hold(totals)
        if totals is None or not totals.covers(theta):
            moments = agree_on_moments(network, InMemory([model.view.of(shard)]), theta, spare=SPARE)
            totals = Totals.of(moments, parts_of_members(agenda), model)
            self._file.hold(totals)
        here[WHOLE] = _state(totals, agenda)
        self._synced = agenda
        return totals

    def _updated(
        self, network: Network, agenda: Agenda, model: Trained, shard: Observations, here: dict[str, int]
    ) -> Totals | None:
        """The best totals that members hold, with what all members have to add; None if they must begin again."""
        if len({item.totals for item in agenda.items}) > 1:
            return self._added_to_best(network, agenda, model, shard)
        own = self._file.current
        if own is None or own.contents.view != model.view:
            return None
        if not own.contents.left_out(parts_of_members(agenda)) or here.get(WHOLE) == _state(own, agenda):
            return own  # nobody has more, or nothing that could be added last time
        row = own.contents.beyond(self._id, shard)
        return self._summed(network, agenda, own.contents, row, known=own.moments.packed)

    def _added_to_best(self, network: Network, agenda: Agenda, model: Trained, shard: Observations) -> Totals | None:
        """Members hold different totals, or none: the best go to all, with what they lack.

        The best have the most rows of agents that are not there; those of members are complete in the end anyway.
        """
        offered = {
            position: contents
            for position, contents in self._offers(network, agenda).items()
            if contents.view == model.view
        }
        if not offered:
            return None

        def worth(position: int) -> tuple[int, int, int]:
            contents = offered[position]
            return contents.rows_without(agenda.members), contents.count, agenda.items[position].totals

        best = max(offered, key=worth)
        contents, held, sent = offered[best], self._file.current, None
        if agenda.members[best] == self._id:
            assert held is not None, "its own item says so"
            sent = held.moments.packed
        return self._summed(network, agenda, contents, contents.beyond(self._id, shard), sent=sent)

    def _summed(
        self,
        network: Network,
        agenda: Agenda,
        contents: Contents,
        row: Array | None,
        *,
        known: Array | float = 0.0,
        sent: Array | None = None,
    ) -> Totals | None:
        """Totals with what the members add to them, in one reduction.

        row: of this agent; None if it cannot add its rows: there are others in the totals.
        known: the totals, where every member holds them; sent: from the one member that sends them to all.
        If somebody cannot, they begin again, unless that loses rows of an agent that is not there: then its rows wait.
        They do not wait if the totals may have rows that were taken back: these must leave, whatever else is lost.
        """
        (own,) = network.hosted
        failed = np.zeros(network.agents)
        failed[own] = 0.0 if row is not None else 2.0 if self._removed else 1.0
        adds = np.zeros(contents.length) if row is None else row
        with network.phase("moments"):
            total = network.reduce(np.concatenate([failed, adds if sent is None else adds + sent])[None], "moments")
        assert total is not None, "every agent is a recipient"
        failed, moments = np.split(total, [network.agents])
        if (failed > 1.0).any() or (failed.any() and not contents.rows_without(agenda.members)):
            return None
        able = [part for part, fails in zip(parts_of_members(agenda), failed, strict=True) if not fails]
        return Totals.unpacked(contents.with_parts(able), moments + known)

    def _offers(self, network: Network, agenda: Agenda) -> dict[int, Contents]:
        """What is in the different totals: the first member that holds some sends it."""
        (own,) = network.hosted
        numbers, totals = [item.totals for item in agenda.items], self._file.current
        record = b""
        if totals is not None and numbers.index(totals.number) == own:
            record = CONTENTS.encode(totals.contents)
        with network.phase("moments"):
            records = network.collect({"agenda": [np.frombuffer(record, dtype=np.uint8)]})
        assert records is not None, "every agent is a recipient"
        offers = {}
        for position, number in enumerate(numbers):
            if number and numbers.index(number) == position:
                try:
                    offers[position] = CONTENTS.decode(records["agenda"][position].tobytes())
                    offers[position].check(self._fleet, self._dimension)
                except ValueError as error:
                    raise NonsenseError(position, f"not the contents of totals: {error}") from error
        return offers


def _state(totals: Totals, agenda: Agenda) -> int:
    """Another number where the members could have something to add."""
    return short_hash([totals.number, [(item.rows, item.data) for item in agenda.items]])
