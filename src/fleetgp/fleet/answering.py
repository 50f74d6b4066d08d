"""The answers of the agents hosted here, query after query: all of a fleet, or a worker's group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.coordinates import agree_on_coordinates
from fleetgp.consensus.reductions import ByServer, ByTree, Reduction
from fleetgp.consensus.scaling import Scaling, agree_on_scaling
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import dimension_of
from fleetgp.data.view import View
from fleetgp.errors import FleetGPWarning, NumericalError
from fleetgp.fleet.source import Source
from fleetgp.gp.expert import Expert
from fleetgp.gp.failure import retold
from fleetgp.network import Network
from fleetgp.prediction import Conditioned, Conditioner, Prediction, PredictionMethod, PredictionOptions
from fleetgp.prediction.agreed import Agreed, agreement_key
from fleetgp.prediction.predict import agree_on, answer_in_blocks
from fleetgp.training.endings import about_coordinates
from fleetgp.training.mean import agree_on_correction, trend_of

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
        view, theta = self._once(network, ("model", row.decentralized), lambda: self._model(network, row))
        conditioned = self._at(row.decentralized, view, theta)
        agreed = Agreed()
        if len(queries):
            key, moments = agreement_key(row, options), self.source.moments
            with retold(inputs=self.source.inputs, lengths=view.coordinates.told_lengths):
                agreed = self._once(network, key, lambda: agree_on(conditioned, network, row, options, moments))
        given: dict[str, Any] = {"noisy": question.noisy, "done": question.done, "to": question.to}
        places = view.coordinates.places(queries)
        return _told(answer_in_blocks(conditioned, network, row, places, options, agreed, **given), view)

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

    def _model(self, network: Network, method: PredictionMethod) -> tuple[View, Array]:
        """The agents' common theta, for the coordinates of the model, and how that sees the data."""
        source = self.source
        reduction = ByTree(network) if method.decentralized else ByServer(network)
        coordinates, scaling = source.coordinates, source.scaling
        if coordinates is None:
            with network.phase("coordinates"):
                coordinates = agree_on_coordinates(reduction, source.shards, source.rule)
            if told := about_coordinates(coordinates):
                warnings.warn(told, FleetGPWarning, stacklevel=2)
        shards = coordinates.apply(source.shards) if coordinates.origin else source.shards
        if scaling is None:
            with network.phase("normalize"):
                scaling = agree_on_scaling(reduction, shards, source.mean, normalize=source.normalize)
        theta = source.theta
        if theta.ndim == 2:
            # Each agent has its own estimate; a joint prediction needs one model, so they agree on the mean.
            with network.phase("model"):
                theta = np.exp(reduction.total(np.log(theta)) / network.agents)
        if coordinates.origin:
            theta = theta / np.exp(coordinates.shift(theta))
        if source.scaling is None and source.mean != "zero":
            scaling = self._generalized(network, reduction, shards, scaling, theta)
        return View(scaling, coordinates), theta

    def _generalized(
        self, network: Network, reduction: Reduction, shards: Sequence[Shard], scaling: Scaling, theta: Array
    ) -> Scaling:
        """The mean function by generalized least squares at a theta that was given."""
        source, options = self.source, self._options
        scaled = theta / np.exp(scaling.shift(theta))
        pairs = zip(scaling.apply(shards), network.hosted, strict=True)
        experts = [Expert(x, y, source.kernel, i, options.engine, options.neighbours) for (x, y), i in pairs]
        trend = trend_of(scaling, dimension_of(shards))
        with network.phase("mean"):
            found = agree_on_correction(reduction, experts, np.tile(scaled, (len(experts), 1)), trend)
        if not found.known:
            raise NumericalError(
                f'mean="{source.mean}": generalized least squares has no answer at the theta that was given: give one '
                "with more noise, or train"
            )
        return scaling.corrected(found.coefficients.tolist())

    def _at(self, decentralized: bool, view: View, theta: Array) -> Conditioned:
        """The hosted agents at this model."""
        if decentralized not in self._conditioned:
            source, options = self.source, self._options
            thetas = np.tile(theta, (len(source.shards), 1))
            shards = view.coordinates.apply(source.shards) if view.coordinates.origin else source.shards
            self._conditioned[decentralized] = self._conditioner.condition(
                shards, source.kernel, thetas, view.scaling, options.engine, options.neighbours
            )
        return self._conditioned[decentralized]


def _told(blocks: Iterator[tuple[int, Prediction]], view: View) -> Iterator[tuple[int, Prediction]]:
    """Errors with length-scales as the user says them."""
    with retold(lengths=view.coordinates.told_lengths):
        yield from blocks
