"""What an agent must not forget when its process ends: a small JSON file, whole or as it was before."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.agenda import Trained
from fleetgp.arrays import Array
from fleetgp.files import whole

VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """trained: the model, and how many rows it knew.  estimates, chosen, round: of a training that has not ended.

    model: what the numbers are of; a file of another is left aside.
    """

    trained: Trained | None = None
    rows: int = 0
    estimates: Array = field(default_factory=lambda: np.zeros((0, 0)))
    chosen: bool = False
    round: int = 0
    model: str = ""

    def save(self, path: Path) -> None:
        facts = asdict(self)
        facts.update(version=VERSION, estimates=self.estimates.tolist())
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial, partial.open("w", encoding="utf-8") as file:
            json.dump(facts, file)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path, model: str) -> Checkpoint | None:
        """The last one, or None if there is none that can be read, or none of this model."""
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if facts.pop("version") != VERSION or facts["model"] != model:
                return None
            trained = facts.pop("trained")
            if trained is not None:
                trained.update({name: tuple(trained[name]) for name in ("log_theta", "members")})
                trained = Trained(**trained)
            estimates = facts.pop("estimates")
            return cls(trained, estimates=np.array(estimates) if estimates else np.zeros((0, 0)), **facts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
