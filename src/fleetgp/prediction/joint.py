"""The result of a joint prediction: mean and covariance of f at several queries together, and draws from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import Status
from fleetgp.errors import InputError
from fleetgp.given import check_whole
from fleetgp.network import Ledger

#: Of draws, at one time: more do not fit into the memory of most machines.
MOST_NUMBERS = 100_000_000


@dataclass(frozen=True)
class Joint:
    """What the fleet knows of f at T queries together, and how it came by it. `Fleet.joint` makes it.

    mean: (T,), covariance: (T, T), in the units of the data; of f, or of observations where noisy. NaN where no hosted
        agent was told, since another one asked.
    participants: (M, T) who had a say in which query.
    status: "converged": every joint answer is exact, in a fixed number of rounds.
    rounds: how many it took.
    jitter: the largest that any covariance needed, or the nugget of a committee: a variance, in the scaled units of the
        model; 0 if none.
    engine: (A,) where each agent's own posterior came from.
    noise: the variance of an observation of the agent that asks, beyond that of f.
    factor: (T,) what a calibration has multiplied the standard deviations by; 1 without one.
    uninformed: (T,) where the answer is no better than the prior: a FleetGPWarning says so too.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> found = fleet.joint([[0.5, 0.5], [0.5, 0.6]], "dec-full-gp")
    >>> found.mean.shape, found.covariance.shape, bool((found.std == found.variance**0.5).all())
    ((2,), (2, 2), True)
    """

    method: str
    mean: Array
    covariance: Array
    participants: BoolArray
    status: Status
    rounds: int
    jitter: float
    engine: tuple[str, ...]
    ledger: Ledger
    noise: float
    factor: Array
    uninformed: BoolArray

    @property
    def variance(self) -> Array:
        """(T,) the diagonal of the covariance."""
        return np.diagonal(self.covariance).copy()

    @property
    def std(self) -> Array:
        """(T,) standard deviations."""
        return np.asarray(np.sqrt(self.variance))

    def sample(self, n: int = 1, seed: int = 0) -> Array:
        """Draws (n, T), the same for the same seed.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> draws = fleet.joint([[0.5, 0.5], [0.5, 0.6]], "dec-rbcm").sample(1000, seed=3)
        >>> draws.shape, bool(np.corrcoef(draws.T)[0, 1] > 0.3)
        ((1000, 2), True)
        """
        check_whole("n", n, least=1)
        check_whole("seed", seed, least=0)
        if n * len(self.mean) > MOST_NUMBERS:
            most = MOST_NUMBERS // len(self.mean)
            raise InputError(f"n: expected at most {most:,} draws of {len(self.mean):,} points, got {n:,}")
        # The symmetric root: it takes covariances that are only just positive, as of two equal queries.
        values, vectors = np.linalg.eigh(self.covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return np.asarray(self.mean + np.random.default_rng(seed).standard_normal((n, len(self.mean))) @ root)

    def __repr__(self) -> str:
        return f"Joint({self.method}: {len(self.mean)} queries, status={self.status!r}, rounds={self.rounds})"
