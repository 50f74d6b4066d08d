"""What every engine answers with: the value of a likelihood, and a posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fleetgp.arrays import Array
from fleetgp.gp.basis import Basis
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.slopes import Slopes
from fleetgp.model.observations import Observations

#: exp(2 * 150) is still far inside the range of a double.
LARGEST_LOG = 150.0


@dataclass(frozen=True)
class Evaluation:
    """l(theta) = (y'C^-1 y + log|C|) / 2, its gradient in log theta, the jitter it needed, and the engine.

    error: a bound on the error of the likelihood beyond that of the dense engine; 0 for the dense engine.
    """

    nll: float
    gradient: Array
    jitter: float
    engine: str = "dense"
    error: float = 0.0


class Posterior(Protocol):
    """f | D_i at fixed theta."""

    engine: str
    jitter: float
    hyperparameters: Hyperparameters

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]: ...

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean (T,) and covariance (T, T) of f at the queries, which is symmetric."""
        ...

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries."""
        ...

    def explained_variance(self, queries: Array) -> Array: ...

    def projected(self, basis: Basis, queries: Array) -> Array: ...


@runtime_checkable
class WeightedPosterior(Posterior, Protocol):
    """One whose means are sums over single observations."""

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        """The n observations that count for these queries, and their weights C_i^-1 k_i*, (n, T)."""
        ...

    def left_out(self) -> tuple[Array, Array]:
        """How far each observation is from what the others say, and the variance of f there given them, (N,) each."""
        ...
