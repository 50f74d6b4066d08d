"""The result of a training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Status
from fleetgp.network import Ledger
from fleetgp.training.normalize import Scaling


@dataclass(frozen=True)
class Start:
    """One of the starts of a training: where it began, how good it was, and how it ended."""

    theta0: Array
    nll: float
    rounds: int
    status: Status


@dataclass(frozen=True)
class Fit:
    """What a training ended with, and how, for the agents hosted here: all of them, for a `Fleet`.

    thetas: (A, P) each agent's own hyperparameters, natural units, paper order: l_1 .. l_D, sigma_f, sigma_eps.
    history: (R + 1, A, P) the same after every round, from the start.
    rounds: rounds of the training itself; the ledger also has those of setting it up.
    status: "converged" (the stopping rule held), "round limit" or "diverged".
    residual: what the stopping rule last saw; infinite if it never judged.
    nll: the sum of the local likelihoods at the end, of augmented data for the g- methods.
    jitter: (A,) the largest that an agent's covariance needed; 0 where none was needed.
    scaling: the mean and standard deviation taken out of the observations; 0 and 1 without normalize. The
        likelihood is of the scaled observations, theta is in the units of the data.
    engine: (A,) what evaluated the agent's likelihood at the end, "dense" or "moments".
    rho: (P,) the penalty at the end; empty for the methods that have none.
    """

    method: str
    thetas: Array
    history: Array
    rounds: int
    status: Status
    residual: float
    nll: float
    jitter: Array
    rho: Array
    starts: tuple[Start, ...]
    scaling: Scaling
    engine: tuple[str, ...]
    ledger: Ledger

    @property
    def theta(self) -> Array:
        """(P,) the fleet's estimate: the geometric mean of the agents' own."""
        return np.asarray(np.exp(np.log(self.thetas).mean(axis=0)))

    @property
    def disagreement(self) -> float:
        """The largest difference between two agents in the logarithm of a hyperparameter."""
        return float(np.ptp(np.log(self.thetas), axis=0).max())

    def __repr__(self) -> str:
        values = ", ".join(f"{v:.4g}" for v in self.theta)
        return (
            f"Fit({self.method}: theta=({values}), status={self.status!r}, rounds={self.rounds}, "
            f"disagreement={self.disagreement:.1e})"
        )
