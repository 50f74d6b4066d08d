"""What an agent is doing, and how much it has done: for whoever asks."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

Phase = Literal["starting", "agreeing", "training", "calibrating", "predicting", "serving", "failed", "stopped"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass
class Activity:
    """round: of the training under way.  problem, data_problem: what is wrong, with the work and with the watched file.

    rounds, questions, views: how many there were.  kinds: bytes sent in rounds, by kind of content.
    began: on the wall clock.
    """

    phase: Phase = "starting"
    round: int = 0
    problem: str = ""
    data_problem: str = ""
    rounds: int = 0
    questions: int = 0
    views: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.time)

    def __str__(self) -> str:
        return f"training, round {self.round}" if self.phase == "training" else self.phase
