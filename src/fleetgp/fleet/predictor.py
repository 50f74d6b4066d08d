"""The predictor of the agents hosted here: all of a fleet, a worker's group, or the one of this robot.

A question is answered in four steps: the agents agree on the model (how it sees the data, and theta), they are
conditioned on their data, they agree on what the method needs from others, and the method answers. The results of the
first three are kept in a `PredictionCache`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import Scaling, agree_on_coordinates, agree_on_scaling
from fleetgp.consensus.reductions import ByServer, ByTree, Reduction
from fleetgp.data.transforms import View
from fleetgp.engines.base import translate_theta_errors
from fleetgp.engines.expert import Expert
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import NumericalError, warn
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.network import InProcess, Network
from fleetgp.prediction import Calibration, Holding, Prediction, PredictionMethod, PredictionOptions
from fleetgp.prediction.answer import Question, agree, gradient, joint, predict_in_blocks
from fleetgp.prediction.cache import CacheEntry, PredictionCache
from fleetgp.prediction.calibrate import Fleetwide
from fleetgp.prediction.calibrate import calibrate as calibrated
from fleetgp.prediction.conditioned import Conditioned, model_units
from fleetgp.prediction.methods import PreviousState, SharedState
from fleetgp.prediction.registry import prediction_method
from fleetgp.prediction.results import Gradient, Joint, joined
from fleetgp.training.objective import reweighed_experts
from fleetgp.training.outer_loops import agree_on_correction, trend_of
from fleetgp.training.reporting import about_coordinates


class FleetPredictor(Protocol):
    """Answers the questions of a conditioned fleet, wherever its agents are."""

    @property
    def last_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        """The moments of the last answer by dec-full-gp in this process, and (M,) how many rows they include."""

    def predict_in_blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]: ...

    def joint(self, question: Question) -> Joint: ...

    def gradient(self, question: Question) -> Gradient: ...


def renew(cache: PredictionCache, snapshot: ModelSnapshot, options: PredictionOptions) -> None:
    """Prepare the cache for another snapshot: clear it, unless only the rows have changed."""
    if cache.last is None or cache.last[1] != options or not snapshot.same_model(cache.last[0]):
        cache.clear()
    else:
        cache.replace(snapshot.replaced_since(cache.last[0]))
    cache.last = snapshot, options


class Predictor:
    """Answers questions for the hosted agents.

    snapshot: with the data of the hosted agents, and their theta if estimates differ.  options: of the engine.

    network: links the hosted agents to the others; None for a new one with all agents in this process, whose ledger
    counts what was sent for this answer.
    """

    def __init__(
        self, snapshot: ModelSnapshot, options: PredictionOptions, cache: PredictionCache | None = None
    ) -> None:
        self.snapshot, self.options, self.cache = snapshot, options, cache or PredictionCache()
        self._conditioned: dict[bool, Conditioned] = {}

    @property
    def last_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        """The moments that dec-full-gp last agreed on with engine="auto", and (M,) how many rows they include."""
        options = PredictionOptions(seed=self.snapshot.seed)
        known = self.cache.shared.get(prediction_method("dec-full-gp").agreement_key(options))
        if known is None or known.value.moments is None or -1 in known.rows:
            return None
        return known.value.moments, known.rows

    def predict(self, question: Question, network: Network | None = None) -> Prediction:
        return joined([block for _, block in self.predict_in_blocks(question, network)])

    def predict_in_blocks(self, question: Question, network: Network | None = None) -> Iterator[tuple[int, Prediction]]:
        """Agree on what is needed, and yield (number, answer) for blocks of some thousand queries."""
        return predict_in_blocks(*self._prepared(question, network))

    def joint(self, question: Question, network: Network | None = None) -> Joint:
        return joint(*self._prepared(question, network))

    def gradient(self, question: Question, network: Network | None = None) -> Gradient:
        return gradient(*self._prepared(question, network))

    def conditioned(self, network: Network, method: PredictionMethod) -> Conditioned:
        """Return the hosted agents, conditioned at the model that they agree on, now or before."""
        snapshot, options, rows = self.snapshot, self.options, self.snapshot.rows
        view, theta = self.cache.agreed(
            network,
            ("model", method.decentralized),
            rows,
            lambda _: agree_on_model(network, snapshot, method, options),
            depends_on_data=False,
        )
        if method.decentralized not in self._conditioned:
            thetas, engine = np.tile(theta, (len(snapshot.shards), 1)), (options.engine, options.n_neighbours)
            result = self.cache.conditioned(snapshot.shards, snapshot.kernel, thetas, view, *engine, snapshot.names)
            result.sent, result.kept = snapshot.sent, snapshot.kept
            self._conditioned[method.decentralized] = result
        return self._conditioned[method.decentralized]

    def _prepared(
        self, question: Question, network: Network | None
    ) -> tuple[Conditioned, Network, Question, SharedState]:
        """Return what the method's functions need, with all agreements made now or before."""
        method, network = question.method, network or InProcess(self.snapshot.graph)
        conditioned, shared = self.conditioned(network, method), SharedState()
        if len(question.queries):
            shared = self.cache.agreed(
                network,
                method.agreement_key(question.options),
                self.snapshot.rows,
                lambda known: agree(conditioned, network, question, self._previous(network, method, known)),
                depends_on_data=True,
            )
        return conditioned, network, question, shared

    def _previous(self, network: Network, method: PredictionMethod, known: CacheEntry | None) -> PreviousState | None:
        """Return the state from the agents' last agreement, or from the training."""
        snapshot = self.snapshot
        trained = snapshot.moments is not None and method.takes_moments(central=snapshot.central)
        if trained and (known is None or -1 in known.rows):
            known = CacheEntry(SharedState(moments=snapshot.moments), 0, snapshot.trained)
        if known is None:
            return None
        own, grown = [known.rows[i] for i in network.hosted], -1 not in known.rows
        return PreviousState(known.value, own, known.rows == snapshot.rows, grown)


def agree_on_model(
    network: Network, snapshot: ModelSnapshot, method: PredictionMethod, options: PredictionOptions
) -> tuple[View, Array]:
    """Agree on how the model sees the data, and on theta."""
    reduction = ByTree(network) if method.decentralized else ByServer(network)
    coordinates, scaling = snapshot.coordinates, snapshot.scaling
    if coordinates is None:
        with network.phase("coordinates"):
            coordinates = agree_on_coordinates(reduction, snapshot.shards, snapshot.rule)
        if text := about_coordinates(coordinates):
            warn(text)
    shards = snapshot.shards.moved(coordinates)
    if scaling is None:
        with network.phase("normalize"):
            scaling = agree_on_scaling(reduction, shards, snapshot.mean, normalize=snapshot.normalize)
    theta = snapshot.theta
    if theta.ndim == 2:
        # Each agent has its own estimate, and a prediction needs one model: they agree on the mean.
        with network.phase("model"):
            theta = np.exp(reduction.total(np.log(theta)) / network.agents)
    if snapshot.scaling is None and snapshot.mean != "zero":
        of_model = theta / model_units(snapshot.kernel, coordinates, snapshot.shards.dimension)
        with network.phase("mean"):
            scaling = _generalized(network, reduction, replace(snapshot, shards=shards), scaling, of_model, options)
    return View(scaling, coordinates), theta


def _generalized(
    network: Network,
    reduction: Reduction,
    snapshot: ModelSnapshot,
    scaling: Scaling,
    theta: Array,
    options: PredictionOptions,
) -> Scaling:
    """Fit the mean function by generalized least squares at a given theta. snapshot: in model coordinates."""
    shards, dimension = snapshot.shards, snapshot.shards.dimension
    scaled = theta / np.exp(scaling.shift(snapshot.kernel.units(dimension)))
    pairs = zip(shards.rescaled(scaling), network.hosted, strict=True)
    experts = [Expert(own, snapshot.kernel, i, options.engine, options.n_neighbours) for own, i in pairs]
    thetas = np.tile(scaled, (len(experts), 1))
    if snapshot.kernel.noise_model.robust:
        experts = reweighed_experts(experts, np.log(thetas))
    trend = trend_of(scaling, dimension)
    correction = agree_on_correction(reduction, experts, thetas, trend)
    if not correction.known:
        raise NumericalError(
            f'mean="{snapshot.mean}": generalized least squares has no answer at the theta that was given: give one '
            "with more noise, or train"
        )
    return scaling.corrected(correction.coefficients.tolist())


def calibrate_hosted(
    snapshot: ModelSnapshot, network: Network, method: PredictionMethod, options: PredictionOptions, holding: Holding
) -> Calibration:
    view, theta = agree_on_model(network, snapshot, method, options)
    units = model_units(snapshot.kernel, view.coordinates, snapshot.shards.dimension)
    shards, of_model = snapshot.shards.moved(view.coordinates).load(), theta / units
    kept = tuple(one.at(view.coordinates) for one in snapshot.kept)
    fleet = Fleetwide(shards, snapshot.kernel, of_model, view.scaling, snapshot.sent, kept)
    with translate_theta_errors(units=units, names=snapshot.names):
        return calibrated(fleet, network, method, options, holding)
