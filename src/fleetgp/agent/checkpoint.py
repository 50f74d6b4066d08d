"""An agent's own files: for their owner alone, and whole or as they were before.

What an agent must not forget when its process ends: a small JSON file, whole or as it was before.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetgp.agent.agenda import NOTHING, Trained, with_change
from fleetgp.agent.description import Description
from fleetgp.agent.records import Codec, Count, Matrix, Strict
from fleetgp.errors import StorageError
from fleetgp.files import private_folder, whole
from fleetgp.model.hyperparameters import sound_log_theta


def write_private(path: Path, content: bytes) -> None:
    """In the place of what was there, safely on disk."""
    private_folder(path.parent)
    with whole(path) as partial, open(partial, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_private(path: Path, most: int) -> bytes | None:
    """What is in a file, of one that is too long so much as to see it: one byte more. None if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # of a pipe nobody may ever write to
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path}: it cannot be read: {error.strerror}") from error
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise StorageError(f"{path}: expected a file, got a folder, a device or a pipe: move it away")
        if mode & 0o077:
            os.fchmod(file, 0o600)
        with open(file, "rb", closefd=False) as stream:
            return stream.read(most + 1)
    finally:
        os.close(file)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


VERSION = 1
#: Bytes; ours have some hundreds, and some thousands for a thousand agents.
LARGEST_FILE = 4 * 2**20


@dataclass(frozen=True)
class Checkpoint(Strict):
    """trained: the model, and how many rows it knew.  estimates, chosen, round: of a training that has not ended."""

    trained: Trained | None = None
    rows: Count = 0
    estimates: Matrix = field(default_factory=lambda: NOTHING)
    chosen: bool = False
    round: Count = 0

    def save(self, path: Path, description: Description) -> None:
        facts = _CODEC.facts_of(self)
        facts.update(version=VERSION, model=description.model)
        if self.trained is not None:  # by name: the order in the description may change
            facts["trained"]["members"] = [description.names[member] for member in self.trained.members]
        write_private(path, json.dumps(facts).encode())

    @classmethod
    def load(cls, path: Path, description: Description) -> Checkpoint | None:
        """The last one, or None: if there is none, none of this model, or none that makes sense."""
        data = read_private(path, LARGEST_FILE)
        if data is None or len(data) > LARGEST_FILE:
            return None
        try:
            facts = json.loads(data)
            if (facts.pop("version"), facts.pop("model")) != (VERSION, description.model):
                return None
            found = _CODEC.of_facts(_by_number(facts, description))
            if found.trained is not None:
                found.trained.change.check(description.dimension)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        rows = [*found.estimates, *([] if found.trained is None else [found.trained.log_theta])]
        return found if all(sound_log_theta(row, len(description.parameters)) for row in rows) else None


_CODEC = Codec(Checkpoint, LARGEST_FILE)


def _by_number(facts: dict[str, Any], description: Description) -> dict[str, Any]:
    """A checkpoint's values with the members' numbers; without the model if one of these is no agent any more."""
    trained = with_change(facts["trained"])
    if trained is None:
        return facts
    trained = {"kernel": "", "calibration": None, **trained}  # an older FleetGP kept neither
    facts, names = {**facts, "trained": trained}, trained["members"]
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError("expected the names of agents")
    if not set(names) <= set(description.names):
        _CODEC.of_facts({**facts, "trained": {**trained, "members": list(range(len(names)))}})  # all else must be sound
        return {**facts, "trained": None}
    return {**facts, "trained": {**trained, "members": sorted(description.names.index(name) for name in names)}}
