"""What is asked of the agents at one block of queries, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import BatchOutcome
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.agreed import Agreed
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.rules import PAPER_GRBCM, RULES, Rule


@dataclass(frozen=True)
class Task:
    """thetas: (A, P) of the hosted agents, for the scaled observations.  queries: (T, D).  prior: (A, T) k(x*, x*).

    to: the only agent that is told the answer, where it comes along the tree; None: all.
    """

    method: PredictionMethod
    network: Network
    thetas: Array
    prior: Array
    agreed: Agreed
    queries: Array
    options: PredictionOptions
    to: int | None = None

    @property
    def along_tree(self) -> bool:
        return self.method.decentralized and self.options.consensus == "tree"

    @property
    def rule(self) -> Rule:
        """The aggregation rule. A fleet of one agent answers with its posterior, whatever the method."""
        if self.network.agents == 1:
            return RULES["poe"]
        paper = self.method.rule == "grbcm" and self.options.beta == "paper"
        return PAPER_GRBCM if paper else RULES[self.method.rule]

    @property
    def everyone(self) -> BoolArray:
        return np.ones((self.network.agents, len(self.queries)), dtype=bool)


@dataclass(frozen=True)
class Answer:
    """means, variances: (A, T) of f; NaN at agents that are not told.  participants: (M, T), likewise.

    averaging, solving: how the agents came by them; along the tree, rounds: (T,) how many it took.
    """

    means: Array
    variances: Array
    participants: BoolArray
    averaging: BatchOutcome | None = None
    solving: BatchOutcome | None = None
    engine: tuple[str, ...] = ()
    jitter: float = 0.0
    rounds: IntArray | None = None

    @classmethod
    def told(cls, task: Task, answers: Array | None, participants: BoolArray, rounds: IntArray, **facts: Any) -> Answer:
        """From the answers (T, 2), mean and variance, that came along the tree; None where nobody here was told."""
        shape = len(task.network.hosted), len(task.queries)
        means, variances = np.full(shape, np.nan), np.full(shape, np.nan)
        if answers is not None:
            rows = [i for i, agent in enumerate(task.network.hosted) if task.to in (None, agent)]
            means[rows], variances[rows] = answers.T
        return cls(means, variances, participants, rounds=rounds, **facts)
