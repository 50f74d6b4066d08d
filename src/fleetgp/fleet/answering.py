"""The answers of the agents hosted here, query after query: all of a fleet, or a worker's group.

`Fleet.calibrate`: factors for the deviations of predictions, by rows that the agents hold out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import Scaling, agree_on_coordinates, agree_on_scaling
from fleetgp.consensus.reductions import ByServer, ByTree, Reduction
from fleetgp.data.partition import FOLDS
from fleetgp.data.transforms import View
from fleetgp.engines.base import retold
from fleetgp.engines.expert import ENGINES, Expert
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError, NumericalError, warn
from fleetgp.fleet.privacy import predictor_of, refuse_private
from fleetgp.fleet.source import Source, source_of
from fleetgp.network import Network
from fleetgp.options import Consensus, Eta
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
from fleetgp.prediction.registry import prediction_method, refuse_foreign
from fleetgp.prediction.results import Gradient, Joint
from fleetgp.training.outer_loops import agree_on_correction, reweighed_experts, trend_of
from fleetgp.training.reporting import about_coordinates

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


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


def calibrate(
    fleet: Fleet,
    method: str | None = None,
    *,
    holdout: str = "both",
    level: float = 0.95,
    cells: int | None = None,
    max_rows: int = 300,
    seed: int | None = None,
    engine: str = "auto",
    n_neighbours: int | None = None,
    eta: Eta | None = None,
    consensus: Consensus | None = None,
    rounds: int | None = None,
    tol: float | None = None,
) -> Calibration:
    """Find the factor on the standard deviations with which intervals of this method cover what they promise.

    Agents hide rows of theirs, five times another fifth; the fleet predicts them from the rest, with the present theta;
    each agent sees how far off the predictions of its own rows are, and the fleet adds up. The result stays on the
    fleet as `calibration`, and `predict` by this method with the same eta and n_neighbours has its factor in the
    deviations: of an observation, for which it was found, and of f alike (`factor` of the prediction says so).
    Predictions by other methods are as they were, and warn. After a training, new observations or with another theta
    there is none.

    Where agents have fewer than 100 rows on average, "rows" are hidden twenty times, another twentieth each time: a
    committee of four fifths of few rows is less overconfident than one of all of them.

    holdout: "rows" are hidden at random: the factor is for places among the data. "blocks" hides whole cells of the
        fleet's box, the same for all agents, so that nobody observes them: the factor is for gaps. With "both" there
        are two factors, and a query gets one between them according to its deviation.
    level: the coverage that intervals shall have.
    cells: how many cells the box has for blocks; 16 for each agent, and at least 100. Choose them as large as the gaps
        that you will ask about.
    max_rows: how many rows an agent holds out at most, of each kind. Their inputs are sent to all agents, unless the
        fleet has private="rows". Then the fleet is asked about 1,000 places all over its box instead, and every agent
        carries the answers over to its own hidden rows. Factors are then equal or up to some 10% larger.
    seed: draws what is hidden, and the samples of grBCM; without it the fleet's.
    engine, n_neighbours, eta, consensus, rounds, tol: as in `predict`.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(400, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> found = fleet.calibrate("dec-poe", holdout="rows")
    >>> knot = found.knots[0]
    >>> knot.rows, knot.before < 0.95, knot.factor > 1.0
    (400, True, True)
    >>> bool(fleet.predict([[0.5, 0.5]], "dec-poe").factor[0] == knot.factor)
    True
    """
    row = predictor_of(fleet.private, method)
    ENGINES.check(engine)
    given: dict[str, Any] = {
        "eta": eta,
        "consensus": consensus,
        "rounds": rounds,
        "tol": tol,
        "n_neighbours": n_neighbours,
    }
    refuse_foreign(row, {**given, "engine": None if engine == "auto" else engine})
    refuse_private(row, fleet.private, fleet.kernel, engine, min(fleet.data.counts) // FOLDS)
    if fleet.private is not None and fleet.coordinates.name == "sphere":
        raise InputError(
            'calibrate: private="rows" needs a box in which all agents know places, and there is none on the sphere: '
            'use coordinates="kilometres", or a fleet without private'
        )
    chosen = fleet.seed if seed is None else seed
    holding = Holding(holdout, level, cells, max_rows, chosen, apart=fleet.private is not None)
    options = PredictionOptions(seed=chosen).changed({**given, "engine": engine})
    source = source_of(fleet, None, None)
    with retold(names=fleet.names):
        found = fleet._backend.calibrate(source, row, options, holding)
    if found.ledger is not None:
        found.ledger.labels = fleet.labels
    fleet.calibration = replace(found, theta=np.array(fleet.theta))
    return fleet.calibration


def calibrate_hosted(
    source: Source, network: Network, method: PredictionMethod, options: PredictionOptions, holding: Holding
) -> Calibration:
    """The part of the agents hosted here, whose data the source has."""
    view, theta = agree_on_model(network, source, method, options)
    shards = source.shards.moved(view.coordinates).load()
    return calibrated(Fleetwide(shards, source.kernel, theta, view.scaling), network, method, options, holding)


def current_calibration(fleet: Fleet, theta: object) -> Calibration | None:
    """That of the fleet, if predictions are with the theta that it is for. theta: another one that was given."""
    found, own = fleet.calibration, fleet.theta
    if found is None or own is None or theta is not None:
        return None
    return found if np.array_equal(found.theta, own) else None
