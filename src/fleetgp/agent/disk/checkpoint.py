"""What an agent must not forget when its process ends: a small JSON file, whole or as it was before."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.agenda import STATUSES, Trained
from fleetgp.agent.description import TRAINERS, Description
from fleetgp.arrays import Array
from fleetgp.errors import StorageError
from fleetgp.files import private_folder, whole
from fleetgp.gp.hyperparameters import sound_log_theta
from fleetgp.network.sound import LARGEST

VERSION = 1
#: Bytes; ours have some hundreds, and some thousands for a thousand agents.
LARGEST_FILE = 4 * 2**20


@dataclass(frozen=True)
class Checkpoint:
    """trained: the model, and how many rows it knew.  estimates, chosen, round: of a training that has not ended."""

    trained: Trained | None = None
    rows: int = 0
    estimates: Array = field(default_factory=lambda: np.zeros((0, 0)))
    chosen: bool = False
    round: int = 0

    def save(self, path: Path, description: Description) -> None:
        facts = asdict(self)
        facts.update(version=VERSION, model=description.model, estimates=self.estimates.tolist())
        if self.trained is not None:  # by name: the order in the description may change
            facts["trained"]["members"] = [description.names[member] for member in self.trained.members]
        private_folder(path.parent)
        with whole(path) as partial, open(partial, "w", encoding="utf-8", opener=_private) as file:
            json.dump(facts, file)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path, description: Description) -> Checkpoint | None:
        """The last one, or None: if there is none, none of this model, or none that makes sense."""
        data = _content(path)
        if data is None or len(data) > LARGEST_FILE:
            return None
        try:
            facts = json.loads(data)
            if facts["version"] != VERSION or facts["model"] != description.model:
                return None
            estimates = facts["estimates"]
            sound = (
                (estimates == [] or (np.ndim(estimates) == 2 and sound_log_theta(estimates, description.dimension)))
                and isinstance(facts["chosen"], bool)
                and _count(facts["rows"])
                and _count(facts["round"])
                and (facts["trained"] is None or _sound(facts["trained"], description))
            )
            if not sound:
                return None
            rows = np.array(estimates, dtype=float).reshape(-1, description.dimension + 2)
            return cls(
                _trained(facts["trained"], description),
                facts["rows"],
                rows if len(rows) else np.zeros((0, 0)),
                facts["chosen"],
                facts["round"],
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _content(path: Path) -> bytes | None:
    """What is in the file, as far as it can be a checkpoint; None if there is none."""
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
            return stream.read(LARGEST_FILE + 1)
    finally:
        os.close(file)


def _count(value: object) -> bool:
    """A number that a float holds exactly, as it travels to others."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= LARGEST


def _sound(facts: dict[str, Any], description: Description) -> bool:
    """Whether a model can be what a training has left."""
    members = facts["members"]
    return (
        set(facts) == {field.name for field in fields(Trained)}
        and isinstance(facts["log_theta"], list)
        and np.ndim(facts["log_theta"]) == 1
        and sound_log_theta(facts["log_theta"], description.dimension)
        and _count(facts["id"])
        and facts["id"] > 0
        and isinstance(members, list)
        and 0 < len(members) == len(set(members))
        and all(isinstance(name, str) for name in members)
        and facts["method"] in TRAINERS
        and facts["status"] in STATUSES
        and _count(facts["rounds"])
        and _number(facts["offset"], -LARGEST)
        and _number(facts["scale"], 1.0 / LARGEST)
    )


def _trained(facts: dict[str, Any] | None, description: Description) -> Trained | None:
    """The model, unless somebody trained it who is no agent of this fleet any more."""
    if facts is None or not set(facts["members"]) <= set(description.names):
        return None
    members = tuple(sorted(description.names.index(name) for name in facts["members"]))
    return Trained(**{**facts, "log_theta": tuple(map(float, facts["log_theta"])), "members": members})
