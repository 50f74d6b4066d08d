"""The answers of the agents hosted here, query after query: all of a fleet, or a worker's group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.reductions import ByServer, ByTree
from fleetgp.consensus.scaling import Scaling, agree_on_scaling
from fleetgp.fleet.source import Source
from fleetgp.gp.failure import retold
from fleetgp.network import Network
from fleetgp.prediction import Conditioned, Conditioner, Prediction, PredictionMethod, PredictionOptions
from fleetgp.prediction.agreed import Agreed, agreement_key
from fleetgp.prediction.predict import agree_on, answer_in_blocks

Found = TypeVar("Found")


@dataclass(frozen=True)
class Question:
    """queries: (T, D).  done: numbers of blocks to leave out.  to: the only agent that is told; None: all."""

    method: PredictionMethod
    options: PredictionOptions
    queries: Array
    noisy: bool = False
    done: Collection[int] = ()
    to: int | None = None


class Answers(Protocol):
    """What a conditioned fleet asks."""

    def blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        """The answers at some thousand queries at a time, each with its number."""


class HostedAnswers:
    """Keeps the posteriors of the hosted agents, and what they have agreed on.

    source: with the data of the hosted agents, and of estimates that differ their own.
    agreed: what was agreed on, by what it is for, and the rounds that it took. It is the same at every agent.
    """

    def __init__(
        self,
        source: Source,
        options: PredictionOptions,
        conditioner: Conditioner,
        agreed: dict[object, tuple[Any, int]] | None = None,
    ) -> None:
        self.source, self._options, self._conditioner = source, options, conditioner
        self._agreed = {} if agreed is None else agreed
        self._conditioned: dict[bool, Conditioned] = {}

    def blocks(self, network: Network, question: Question) -> Iterator[tuple[int, Prediction]]:
        """All agreements that are needed are made at once, the answers as they are asked for."""
        row, options, queries = question.method, question.options, question.queries
        scaling, theta = self._once(network, ("model", row.decentralized), lambda: self._model(network, row))
        conditioned = self._at(row.decentralized, scaling, theta)
        agreed = Agreed()
        if len(queries):
            key = agreement_key(row, options)
            moments = None if self.source.central == row.decentralized else self.source.moments  # who has them?
            with retold(names=self.source.names):
                agreed = self._once(network, key, lambda: agree_on(conditioned, network, row, options, moments))
        given: dict[str, Any] = {"noisy": question.noisy, "done": question.done, "to": question.to}
        return answer_in_blocks(conditioned, network, row, queries, options, agreed, **given)

    def _once(self, network: Network, key: object, make: Callable[[], Found]) -> Found:
        """What was made before, or now. The rounds that it took pass in any case: graphs that vary with time are then
        where they were, and the same question has the same answer.
        """
        if key not in self._agreed:
            before = network.round
            made = make()
            self._agreed[key] = made, network.round - before
            return made
        found, rounds = self._agreed[key]
        network.round += rounds
        return cast(Found, found)

    def _model(self, network: Network, method: PredictionMethod) -> tuple[Scaling, Array]:
        """The agents' common theta, and the scaling of the observations that belongs to it."""
        source = self.source
        reduction = ByTree(network) if method.decentralized else ByServer(network)
        scaling = source.scaling
        if scaling is None:
            with network.phase("normalize"):
                scaling = agree_on_scaling(reduction, source.shards)
        theta = source.theta
        if theta.ndim == 2:
            # Each agent has its own estimate; a joint prediction needs one model, so they agree on the mean.
            with network.phase("model"):
                theta = np.exp(reduction.total(np.log(theta)) / network.agents)
        return scaling, theta

    def _at(self, decentralized: bool, scaling: Scaling, theta: Array) -> Conditioned:
        """The hosted agents at this model."""
        if decentralized not in self._conditioned:
            source, options = self.source, self._options
            thetas = np.tile(theta, (len(source.shards), 1))
            self._conditioned[decentralized] = self._conditioner.condition(
                source.shards, source.kernel, thetas, scaling, options.engine, options.neighbours
            )
        return self._conditioned[decentralized]
