"""The totals of an agent on disk: a line of JSON that says what they are, with its checksum, and then the numbers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.changes import with_change
from fleetgp.agent.description import Description
from fleetgp.agent.disk.private import read_private, write_private
from fleetgp.agent.totals import CONTENTS, MOST_BYTES, Totals
from fleetgp.gp.moments.rows import LARGEST_GRID

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
