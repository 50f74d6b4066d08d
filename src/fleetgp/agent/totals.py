"""The moments of the whole fleet that an agent holds, and which rows of whom are in them.

With them it answers alone, also for agents that are not there. Who holds totals of the same number holds the same.

What the members of a view have agreed on for their answers: grBCM's samples, NPAE's box. It travels once.

All members must decide alike whether they hold it. What they agreed on in this view all of them do; what is left of
earlier views counts if every member has said, with its first item, that it holds the same.

The totals of an agent on disk: a line of JSON that says what they are, with its checksum, and then the numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import FailFast, Field

from fleetgp.agent.agenda import Agenda, Change, Trained, with_change
from fleetgp.agent.checkpoint import read_private, write_private
from fleetgp.agent.description import Description
from fleetgp.agent.records import Codec, Count, Strict, Value
from fleetgp.arrays import Array
from fleetgp.data.transforms import View
from fleetgp.engines.basis import Box
from fleetgp.engines.expert import FleetExpert
from fleetgp.engines.moments.fleet import FleetMoments, fits, moments_on, response_sizes
from fleetgp.engines.moments.sums import LARGEST_GRID
from fleetgp.model.observations import Observations
from fleetgp.network.wire import LARGEST
from fleetgp.prediction import PredictionMethod, PredictionOptions
from fleetgp.prediction.task import Agreed, agreement_key

#: Bytes of the numbers of data and agreements: a float holds them exactly.
SHORT = 6


def number_of(agenda: Agenda, model: Trained, method: PredictionMethod, options: PredictionOptions) -> int:
    """A number that is another one where something else must be agreed on: the same at every member."""
    seen = model.offset, model.scale, *astuple(model.change)  # what travels is what the model sees
    data = [item.data for item in agenda.items], *seen
    facts = [agenda.members, data, agreement_key(method, options)]
    if method.rule == "npae":  # its basis is made for one theta
        facts.append((model.log_theta, model.kernel))
    return int.from_bytes(hashlib.blake2b(json.dumps(facts).encode(), digest_size=SHORT).digest(), "big")


class Agreements:
    """Of one agent: the last of each rule, with its number."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, Agreed]] = {}

    @property
    def held(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(sorted(number for number, _ in self._kept.values()))

    def find(self, rule: str, number: int, agenda: Agenda, here: dict[str, int]) -> Agreed | None:
        """What all members hold; None if they must agree anew. here: numbers of what was agreed on in this view."""
        common = number == here[rule] if rule in here else all(number in item.agreed for item in agenda.items)
        return self._kept[rule][1] if common else None

    def keep(self, rule: str, number: int, agreed: Agreed, here: dict[str, int]) -> None:
        """In the place of an earlier one."""
        self._kept[rule] = number, agreed
        here[rule] = number


#: Bytes of what is said of totals; of those of a thousand agents it has some 50,000.
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

    def grown(self, parts: Sequence[Part]) -> Contents:
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
            tuple(parts),
            model.offset,
            model.scale,
            tuple(box.centre.tolist()),
            tuple(box.half.tolist()),
            moments.sizes,
            model.change,
        )
        return cls(contents, moments)

    @classmethod
    def unpacked(cls, contents: Contents, row: Array) -> Totals:
        """From the moments, packed."""
        return cls(contents, FleetMoments.unpacked(contents.box, contents.sizes, row))

    @cached_property
    def number(self) -> int:
        """Another one for other totals: of all that is in them."""
        found = hashlib.blake2b(CONTENTS.encode(self.contents), digest_size=SHORT)
        found.update(self.moments.packed.tobytes())
        return int.from_bytes(found.digest(), "big")

    def covers(self, theta: Array) -> bool:
        """Whether the grid is fine enough for theta, of the scaled observations."""
        return FleetExpert(self.moments).covers(theta)

    def lost(self, newer: Totals) -> tuple[int, ...]:
        """The agents of whom these hold more rows than newer ones."""
        rows = {part.agent: part.rows for part in newer.contents.parts}
        return tuple(part.agent for part in self.contents.parts if part.rows > rows.get(part.agent, 0))


def parts_of_members(agenda: Agenda) -> list[Part]:
    """All rows of the members, as they were when the agenda was told."""
    return [Part(member, item.rows, item.data) for member, item in zip(agenda.members, agenda.items, strict=True)]


VERSION = 1
#: Bytes; ours have some 500,000.
LARGEST_FILE = 16 * LARGEST_GRID + MOST_BYTES


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
    found = Totals.unpacked(contents, np.frombuffer(numbers, dtype="<f8").astype(float))
    sound = np.isfinite(found.moments.packed).all() and found.moments.count == contents.count
    return found if sound else None


def _check(head: dict[str, Any], numbers: bytes) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + numbers).hexdigest()
