"""What a prediction method is, what it is asked and what it answers, and how many queries it answers at a time.

A method is an object: `agree` gets from the other agents what does not depend on the queries; `predict`, `joint` and
`gradient` answer a block of queries. All are abstract, so that no method is answered by the formula of another.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import BatchOutcome
from fleetgp.data.dataset import Dataset
from fleetgp.engines.basis import Basis
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.groups import Groups

#: Kinds of content that hold rows of the data.
ROWS = ("inputs", "observations")
#: Queries that the agents answer together: one message carries them all.
BLOCK = 2000
#: Bytes that a block of queries may need besides the agents' posteriors; with many agents it has fewer queries.
BLOCK_BYTES = 1 << 30
#: Queries of a joint prediction: of a committee, whose agents add up a matrix of so many rows, 1 MB over each edge; and
#: of the exact GP, where a matrix takes 0.8 GB.
MOST_OF_COMMITTEE, MOST_JOINT = 500, 10_000


# ---- what is asked, and answered ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedState:
    """What a method needs from the other agents, whatever is asked. It is the same at every agent.

    samples: every agent's, for grBCM.  basis: on the box of the whole fleet, for NPAE without inputs that travel.
    pool: all data at the central node, for the exact GP.  moments: of all data, for the exact GP at every agent, or
        at the central node.
    size: how many observations there are, for dec-nearest.
    groups: every agent's, for dec-summary; after those of the network's agents, those of agents that are away.
    """

    samples: tuple[Observations, ...] = ()
    basis: Basis | None = None
    pool: Observations | None = None
    moments: FleetMoments | None = None
    size: int = 0
    groups: tuple[Groups, ...] = ()


@dataclass(frozen=True)
class PreviousState:
    """What was agreed on before. rows: (A,) how many rows each hosted agent had, -1 where some of these have gone.

    unchanged: whether all agents of the fleet have the same rows now.  grown: whether all of them still have the rows
    that they had, and perhaps more.
    """

    state: SharedState
    rows: Sequence[int]
    unchanged: bool
    grown: bool = True

    def since(self, shards: Dataset) -> list[Observations]:
        """The rows that each hosted agent has received since."""
        return [own.rows(slice(n, None)) for own, n in zip(shards, self.rows, strict=True)]


@dataclass(frozen=True)
class PreparedQuery:
    """A block of queries (T, D), in the coordinates of the model, with all that is needed to answer them.

    shared: what the agents have agreed on.
    to: the only agent that receives the answer, where it comes along the tree; None: all.
    """

    network: Network
    conditioned: Conditioned
    queries: Array
    options: PredictionOptions
    shared: SharedState
    to: int | None = None

    @property
    def thetas(self) -> Array:
        """(A, P) of the hosted agents, for the scaled observations."""
        return self.conditioned.thetas

    @cached_property
    def prior(self) -> Array:
        """(A, T) k(x*, x*)."""
        return self.conditioned.prior(self.queries)

    @property
    def hosted(self) -> list[int]:
        """The agents hosted here."""
        return list(self.network.hosted)

    @property
    def everyone(self) -> BoolArray:
        """(M, T) that all agents take part."""
        return np.ones((self.network.agents, len(self.queries)), dtype=bool)

    @property
    def nobody(self) -> BoolArray:
        """(M, T) that no agent does: also what is known where another agent receives the answer."""
        return np.zeros((self.network.agents, len(self.queries)), dtype=bool)


@dataclass(frozen=True)
class Answer:
    """means, variances: (A, T) of f; NaN at agents that do not receive them.  participants: (M, T), likewise.

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
    def along_tree(
        cls, query: PreparedQuery, answers: Array | None, participants: BoolArray, rounds: IntArray, **facts: Any
    ) -> Answer:
        """From the answers (T, 2), mean and variance, that came along the tree; None where no hosted agent got them."""
        shape = len(query.hosted), len(query.queries)
        means, variances = np.full(shape, np.nan), np.full(shape, np.nan)
        if answers is not None:
            rows = [i for i, agent in enumerate(query.hosted) if query.to in (None, agent)]
            means[rows], variances[rows] = answers.T
        return cls(means, variances, participants, rounds=rounds, **facts)


@dataclass(frozen=True)
class Vector:
    """f at T queries: mean (T,) and covariance (T, T)."""

    mean: Array
    covariance: Array

    def at(self, some: BoolArray) -> Vector:
        """At some of the queries."""
        return self if some.all() else Vector(self.mean[some], self.covariance[np.ix_(some, some)])

    @property
    def packed(self) -> Array:
        """As one row: the mean, and the upper triangle of the covariance."""
        return np.concatenate([self.mean, self.covariance[np.triu_indices(len(self.mean))]])

    @staticmethod
    def length(size: int) -> int:
        """How many numbers that row has for so many queries."""
        return size + size * (size + 1) // 2

    @classmethod
    def unpacked(cls, numbers: Array, size: int) -> Vector:
        """The converse."""
        covariance = np.empty((size, size))
        covariance[np.triu_indices(size)] = numbers[size:]
        covariance.T[np.triu_indices(size)] = numbers[size:]
        return cls(np.array(numbers[:size]), covariance)


@dataclass(frozen=True)
class JointAnswer:
    """vector: None where no hosted agent receives it.  participants: (M, T)."""

    vector: Vector | None
    participants: BoolArray
    engine: tuple[str, ...]
    jitter: float = 0.0


@dataclass(frozen=True)
class GradientAnswer:
    """Of a block of queries, in the model's coordinates and units: gradient (T, D), covariance (T, D, D) or none."""

    gradient: Array
    covariance: Array | None
    participants: BoolArray
    engine: tuple[str, ...]
    kinks: BoolArray
    jitter: float = 0.0
    rounds: int = 0

    @classmethod
    def unknown(cls, query: PreparedQuery, engine: tuple[str, ...]) -> GradientAnswer:
        """Where another agent receives it."""
        nothing = np.full(query.queries.shape, np.nan)
        return cls(nothing, None, query.nobody, engine, np.isfinite(nothing))


# ---- methods -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictionMethod(abc.ABC):
    """One way to answer queries.

    decentralized: over the edges of the graph, without a central node.
    nearest: only the correlated agents take part in a query (CBNN).
    """

    name: str
    decentralized: bool = False
    nearest: bool = False

    @property
    @abc.abstractmethod
    def rule(self) -> str:
        """What the method is without its prefixes: of all methods with the same rule one is as good as the other."""

    @property
    @abc.abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options that have a meaning for this method."""

    @property
    @abc.abstractmethod
    def notes(self) -> tuple[str, str]:
        """What an agent sends, and when to use the method: for `fleetgp methods`."""

    @abc.abstractmethod
    def kinds(self, kernel: Kernel | None, engine: str, consensus: str) -> tuple[str, ...]:
        """The kinds of content that an answer may send. kernel: None for any."""

    @property
    def reveals(self) -> str:
        """What it reveals of single rows although it sends none; empty if nothing."""
        return ""

    @abc.abstractmethod
    def agree(
        self,
        network: Network,
        conditioned: Conditioned,
        options: PredictionOptions,
        previous: PreviousState | None = None,
    ) -> SharedState:
        """Let the agents agree on what this method needs, whatever is asked.

        previous: what all agents hold, of the same model: only what has come since is sent.
        """

    @abc.abstractmethod
    def predict(self, query: PreparedQuery) -> Answer:
        """Mean and variance at each query."""

    @abc.abstractmethod
    def joint(self, query: PreparedQuery) -> JointAnswer:
        """Mean and covariance at all queries together."""

    @abc.abstractmethod
    def gradient(self, query: PreparedQuery) -> GradientAnswer:
        """The gradient of the mean at each query."""

    @abc.abstractmethod
    def check_joint(self, agents: int) -> None:
        """One clear error for a method that has no joint prediction."""

    @abc.abstractmethod
    def check_gradient(self, agents: int) -> None:
        """One clear error for a method that has no gradients."""

    @property
    def grouped(self) -> bool:
        """Whether agents hold groups of each other's rows."""
        return False

    def exact(self, agents: int) -> bool:
        """Whether it is one exact GP: of all data, or of those that count."""
        return False

    def takes_moments(self, *, central: bool) -> bool:
        """Whether it needs the moments of all data where they are: at the central node, or at every agent."""
        return False

    def doubles(self, agents: int, options: PredictionOptions) -> int:
        """Numbers per query that are held besides sums and verdicts."""
        return 0

    def agreement_key(self, options: PredictionOptions) -> tuple[object, ...]:
        """Two questions with the same key need the same to be agreed on, by the same messages."""
        return self.rule, self.decentralized, None, options.engine

    def those_of(self, **options: Any) -> dict[str, Any]:
        """Of one set of options for many methods, those that this method has.

        >>> from fleetgp.prediction import prediction_method
        >>> prediction_method("dec-poe").those_of(eta=0.1, rounds=50)
        {'rounds': 50}
        """
        return {name: value for name, value in options.items() if name in self.options}

    def explained(self, prior: Array, participants: BoolArray, variances: Array) -> Array:
        """The share of the prior's variance (.., T) that variances of f explain. participants: (M, T)."""
        return np.asarray(1.0 - variances / prior)


def check_joint(method: PredictionMethod, agents: int, count: int) -> None:
    """One clear error for a method that has no joint prediction, or for too many queries."""
    method.check_joint(agents)
    if not count:
        raise InputError("expected at least one query, got none")
    exact = method.exact(agents)
    most = MOST_JOINT if exact else MOST_OF_COMMITTEE
    if count > most:
        advice = "give fewer" if exact else "give fewer, or use dec-nearest or dec-full-gp, which have more"
        raise InputError(f"{method.name}: expected at most {most} queries at once, got {count}: {advice}")


def block_size(method: PredictionMethod, network: Network, options: PredictionOptions | None = None) -> int:
    """Queries per block: the same at every agent, so it depends on what all agents know alone."""
    agents, links = network.agents, len(network.topology.union.directed)
    # Doubles per query: of an agent's sums and verdicts, and of what crosses a link, which only selected agents use.
    doubles = 12 * agents + (2 if method.nearest else 16) * links
    doubles += method.doubles(agents, options or PredictionOptions())
    return int(np.clip(BLOCK_BYTES // (8 * doubles), 1, BLOCK))
