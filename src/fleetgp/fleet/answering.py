"""The answers of the agents hosted here, query after query: all of a fleet, or a worker's group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import Scaling, agree_on_coordinates, agree_on_scaling
from fleetgp.consensus.reductions import ByServer, ByTree, Reduction
from fleetgp.data.transforms import View
from fleetgp.engines.base import retold
from fleetgp.engines.expert import Expert
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import NumericalError, warn
from fleetgp.fleet.source import Source
from fleetgp.network import Network
from fleetgp.prediction import (
    Calibration,
    Conditioned,
    Conditioner,
    Holding,
    Prediction,
    PredictionMethod,
    PredictionOptions,
)
from fleetgp.prediction.answer import gradient, joint, predict_in_blocks
from fleetgp.prediction.calibrate import Fleetwide
from fleetgp.prediction.calibrate import calibrate as calibrated
from fleetgp.prediction.methods import PreviousState, SharedState
from fleetgp.prediction.registry import prediction_method
from fleetgp.prediction.results import Gradient, Joint
from fleetgp.training.outer_loops import agree_on_correction, reweighed_experts, trend_of
from fleetgp.training.reporting import about_coordinates

Found = TypeVar("Found")


@dataclass(frozen=True)
class Question:
    """queries: (T, D).  done: numbers of blocks to leave out.  to: the only agent that is told; None: all.

    calibration: that of the fleet; it need not be for this method.
    """

    method: PredictionMethod
    options: PredictionOptions
    queries: Array
    observed: bool = False
    done: Collection[int] = ()
    to: int | None = None
    calibration: Calibration | None = None


class Answers(Protocol):
    """What a conditioned fleet asks."""

    def blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        """The answers at some thousand queries at a time, each with its number."""

    def joint(self, question: Question) -> Joint:
        """The answer at all queries together."""

    def gradient(self, question: Question) -> Gradient:
        """The gradients of the mean at the queries."""


@dataclass(frozen=True)
class Asked:
    """A question as the model sees it. given: the method, queries in its coordinates, options and agreements."""

    conditioned: Conditioned
    view: View
    units: Array
    given: tuple[PredictionMethod, Array, PredictionOptions, SharedState]


@dataclass(frozen=True)
class Made:
    """What agents have agreed on, the rounds that it took, and (M,) how many rows they had."""

    value: Any
    rounds: int
    rows: tuple[int, ...]


class HostedAnswers:
    """Keeps the posteriors of the hosted agents, and what they have agreed on.

    source: with the data of the hosted agents, and of estimates that differ their own.
    agreed: what was agreed on, by what it is for, also when there were fewer rows. It is the same at every agent.
    """

    def __init__(
        self,
        source: Source,
        options: PredictionOptions,
        conditioner: Conditioner,
        agreed: dict[object, Made] | None = None,
    ) -> None:
        self.source, self._options, self._conditioner = source, options, conditioner
        self.agreed = {} if agreed is None else agreed
        self._conditioned: dict[bool, Conditioned] = {}

    @property
    def last_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        """The moments that dec-full-gp last agreed on with engine="auto", and (M,) of how many rows they are."""
        options = PredictionOptions(seed=self.source.seed)
        made = self.agreed.get(prediction_method("dec-full-gp").agreement_key(options))
        return None if made is None or made.value.moments is None else (made.value.moments, made.rows)

    def blocks(self, network: Network, question: Question) -> Iterator[tuple[int, Prediction]]:
        """All agreements that are needed are made at once, the answers as they are asked for."""
        asked = self._asked(network, question)
        given: dict[str, Any] = {"observed": question.observed, "done": question.done, "to": question.to}
        given["calibration"] = question.calibration
        found = predict_in_blocks(asked.conditioned, network, *asked.given, **given)
        return _told(found, asked.units)

    def joint(self, network: Network, question: Question) -> Joint:
        """At all queries together."""
        asked = self._asked(network, question)
        given: dict[str, Any] = {"observed": question.observed, "to": question.to, "calibration": question.calibration}
        with retold(units=asked.units):
            return joint(asked.conditioned, network, *asked.given, **given)

    def gradient(self, network: Network, question: Question) -> Gradient:
        """By the inputs as they are given."""
        asked = self._asked(network, question)
        with retold(units=asked.units):
            found = gradient(asked.conditioned, network, *asked.given, to=question.to)
        change = asked.view.coordinates.jacobian(question.queries)
        spread, kinks = found.covariance, found.kinks
        return replace(
            found,
            gradient=np.einsum("tp,tpd->td", found.gradient, change),
            covariance=None if spread is None else np.einsum("tpd,tpq,tqe->tde", change, spread, change),
            kinks=np.einsum("tp,tpd->td", kinks.astype(float), np.abs(change)) > 0.0,
        )

    def _asked(self, network: Network, question: Question) -> Asked:
        """All agreements that are needed, made now or before."""
        row, options, queries = question.method, question.options, question.queries
        source, kept = self.source, ("model", row.decentralized)
        view, theta = self._once(network, kept, lambda _: agree_on_model(network, source, row, self._options))
        conditioned = self._at(row.decentralized, view, theta)
        agreed, units = SharedState(), conditioned.units * told_units(source, view)
        if len(queries):

            def agree_since(made: Made | None) -> SharedState:
                return row.agree(network, conditioned, options, self._earlier(network, row, made))

            with retold(units=units, names=source.names):
                agreed = self._once(network, row.agreement_key(options), agree_since, of_rows=True)
        return Asked(conditioned, view, units, (row, view.coordinates.places(queries), options, agreed))

    def _once(
        self, network: Network, key: object, make: Callable[[Made | None], Found], *, of_rows: bool = False
    ) -> Found:
        """What was made before, or now. The rounds that it took pass in any case: graphs that vary with time are then
        where they were, and the same question has the same answer.

        of_rows: it is renewed when rows have come, from what was made before them.
        """
        known = self.agreed.get(key)
        if known is None or (of_rows and known.rows != self.source.rows):
            before = network.round
            made = make(known)
            self.agreed[key] = Made(made, network.round - before, self.source.rows)
            return made
        network.round += known.rounds
        return cast(Found, known.value)

    def _earlier(self, network: Network, method: PredictionMethod, made: Made | None) -> PreviousState | None:
        """What the agents hold of what a method needs: from their last agreement, or from the training."""
        source = self.source
        exact = method.rule == "full-gp" and source.central != method.decentralized  # who has the moments?
        if made is None and source.moments is not None and exact:
            made = Made(SharedState(moments=source.moments), 0, source.trained)
        if made is None:
            return None
        return PreviousState(made.value, [made.rows[i] for i in network.hosted], made.rows == source.rows)

    def _at(self, decentralized: bool, view: View, theta: Array) -> Conditioned:
        """The hosted agents at this model."""
        if decentralized not in self._conditioned:
            source, options = self.source, self._options
            thetas = np.tile(theta, (len(source.shards), 1))
            shards = source.shards.moved(view.coordinates)
            self._conditioned[decentralized] = self._conditioner.condition(
                shards, source.kernel, thetas, view.scaling, options.engine, options.n_neighbours
            )
        return self._conditioned[decentralized]


def told_units(source: Source, view: View) -> Array:
    """Of the hyperparameters in the coordinates of the model, as they are told, (P,)."""
    return np.exp(view.coordinates.shift(source.kernel.units(source.shards.dimension)))


def agree_on_model(
    network: Network, source: Source, method: PredictionMethod, options: PredictionOptions
) -> tuple[View, Array]:
    """The agents' common theta, for the coordinates of the model, and how that sees the data."""
    reduction = ByTree(network) if method.decentralized else ByServer(network)
    coordinates, scaling = source.coordinates, source.scaling
    if coordinates is None:
        with network.phase("coordinates"):
            coordinates = agree_on_coordinates(reduction, source.shards, source.rule)
        if told := about_coordinates(coordinates):
            warn(told)
    shards = source.shards.moved(coordinates)
    if scaling is None:
        with network.phase("normalize"):
            scaling = agree_on_scaling(reduction, shards, source.mean, normalize=source.normalize)
    theta = source.theta
    if theta.ndim == 2:
        # Each agent has its own estimate; a joint prediction needs one model, so they agree on the mean.
        with network.phase("model"):
            theta = np.exp(reduction.total(np.log(theta)) / network.agents)
    theta = theta / told_units(source, View(scaling, coordinates))
    if source.scaling is None and source.mean != "zero":
        with network.phase("mean"):
            scaling = _generalized(network, reduction, replace(source, shards=shards), scaling, theta, options)
    return View(scaling, coordinates), theta


def _generalized(
    network: Network,
    reduction: Reduction,
    source: Source,
    scaling: Scaling,
    theta: Array,
    options: PredictionOptions,
) -> Scaling:
    """The mean function by generalized least squares at a theta that was given. source: in the model's coordinates."""
    shards, dimension = source.shards, source.shards.dimension
    scaled = theta / np.exp(scaling.shift(source.kernel.units(dimension)))
    pairs = zip(shards.rescaled(scaling), network.hosted, strict=True)
    experts = [Expert(own, source.kernel, i, options.engine, options.n_neighbours) for own, i in pairs]
    thetas = np.tile(scaled, (len(experts), 1))
    if source.kernel.noise_model.robust:
        experts = reweighed_experts(experts, np.log(thetas))
    trend = trend_of(scaling, dimension)
    found = agree_on_correction(reduction, experts, thetas, trend)
    if not found.known:
        raise NumericalError(
            f'mean="{source.mean}": generalized least squares has no answer at the theta that was given: give one '
            "with more noise, or train"
        )
    return scaling.corrected(found.coefficients.tolist())


def _told(blocks: Iterator[tuple[int, Prediction]], units: Array) -> Iterator[tuple[int, Prediction]]:
    """Errors with length-scales as the user says them."""
    with retold(units=units):
        yield from blocks


def calibrate_hosted(
    source: Source, network: Network, method: PredictionMethod, options: PredictionOptions, holding: Holding
) -> Calibration:
    """The part of the agents hosted here, whose data the source has."""
    view, theta = agree_on_model(network, source, method, options)
    shards = source.shards.moved(view.coordinates).load()
    return calibrated(Fleetwide(shards, source.kernel, theta, view.scaling), network, method, options, holding)
