"""What is asked of the agents at one block of queries, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import BatchOutcome
from fleetgp.network import Network
from fleetgp.prediction.agreed import Agreed
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.options import PredictionOptions


@dataclass(frozen=True)
class Task:
    """thetas: (A, P) of the hosted agents, for the scaled observations.  queries: (T, D)."""

    method: PredictionMethod
    network: Network
    thetas: Array
    agreed: Agreed
    queries: Array
    options: PredictionOptions

    @property
    def prior(self) -> Array:
        """k(x*, x*) by each hosted agent's theta, (A,)."""
        return np.asarray(self.thetas[:, -2] ** 2)

    @property
    def everyone(self) -> BoolArray:
        return np.ones((self.network.agents, len(self.queries)), dtype=bool)


@dataclass(frozen=True)
class Answer:
    """means, variances: (A, T) of f.  participants: (M, T).  averaging, solving: how the agents came by them."""

    means: Array
    variances: Array
    participants: BoolArray
    averaging: BatchOutcome | None = None
    solving: BatchOutcome | None = None
    engine: tuple[str, ...] = ()
    jitter: float = 0.0
