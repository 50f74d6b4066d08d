"""What an agent must not forget when its process ends: a small JSON file, whole or as it was before."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.agenda import STATUSES, Trained
from fleetgp.agent.description import TRAINERS, Description
from fleetgp.arrays import Array
from fleetgp.files import whole

VERSION = 1


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial, partial.open("w", encoding="utf-8") as file:
            json.dump(facts, file)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path, description: Description) -> Checkpoint | None:
        """The last one, or None: if there is none, none of this model, or none that makes sense."""
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if facts["version"] != VERSION or facts["model"] != description.model:
                return None
            size = description.dimension + 2
            estimates = np.array(facts["estimates"], dtype=float).reshape(-1, size)
            found = cls(
                _trained(facts["trained"], description),
                int(facts["rows"]),
                estimates if len(estimates) else np.zeros((0, 0)),
                bool(facts["chosen"]),
                int(facts["round"]),
            )
            return found if np.isfinite(estimates).all() else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _trained(facts: dict[str, Any] | None, description: Description) -> Trained | None:
    """The model, unless somebody trained it who is no agent of this fleet any more."""
    if facts is None or not set(facts["members"]) <= set(description.names):
        return None
    log_theta = tuple(float(value) for value in facts["log_theta"])
    if len(log_theta) != description.dimension + 2 or not np.isfinite(log_theta).all():
        return None
    if facts["method"] not in TRAINERS or facts["status"] not in STATUSES:
        return None
    members = tuple(sorted(description.names.index(name) for name in facts["members"]))
    return Trained(**{**facts, "log_theta": log_theta, "members": members})
