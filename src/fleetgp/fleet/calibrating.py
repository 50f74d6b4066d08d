"""`Fleet.calibrate`: factors for the deviations of predictions, by rows that the agents hold out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.data.holdout import FOLDS
from fleetgp.data.streamed import Streamed, counts_of
from fleetgp.errors import InputError
from fleetgp.fleet.answering import agree_on_model
from fleetgp.fleet.privacy import predictor_of, refuse_private
from fleetgp.fleet.source import Source, source_of
from fleetgp.gp.expert import check_engine_name
from fleetgp.gp.failure import retold
from fleetgp.network import Network
from fleetgp.options import Consensus, Eta
from fleetgp.prediction import Calibration, Holding, PredictionMethod, PredictionOptions
from fleetgp.prediction.calibrate import Fleetwide
from fleetgp.prediction.calibrate import calibrate as calibrated
from fleetgp.prediction.methods import refuse_foreign

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def calibrate(
    fleet: Fleet,
    method: str | None = None,
    *,
    hold: str = "both",
    level: float = 0.95,
    cells: int | None = None,
    most: int = 300,
    seed: int | None = None,
    engine: str = "auto",
    neighbours: int | None = None,
    eta: Eta | None = None,
    consensus: Consensus | None = None,
    rounds: int | None = None,
    tol: float | None = None,
) -> Calibration:
    """Find the factor on the standard deviations with which intervals of this method cover what they promise.

    Agents hide rows of theirs, five times another fifth; the fleet predicts them from the rest, with the present theta;
    each agent sees how far off the predictions of its own rows are, and the fleet adds up. The result stays on the
    fleet as `calibration`, and `predict` by this method with the same eta and neighbours has its factor in the
    deviations: of an observation, for which it was found, and of f alike (`factor` of the prediction says so).
    Predictions by other methods are as they were, and warn. After a training, new observations or with another theta
    there is none.

    Where agents have fewer than 100 rows on average, "rows" are hidden twenty times, another twentieth each time: a
    committee of four fifths of few rows is less overconfident than one of all of them.

    hold: "rows" are hidden at random: the factor is for places among the data. "blocks" hides whole cells of the
        fleet's box, the same for all agents, so that nobody observes them: the factor is for gaps. With "both" there
        are two factors, and a query gets one between them according to its deviation.
    level: the coverage that intervals shall have.
    cells: how many cells the box has for blocks; 16 for each agent, and at least 100. Choose them as large as the gaps
        that you will ask about.
    most: how many rows an agent holds out at most, of each kind. Their inputs are sent to all agents, unless the fleet
        has private="rows". Then the fleet is asked about 1,000 places all over its box instead, and every agent carries
        the answers over to its own hidden rows. Factors are then equal or up to some 10% larger.
    seed: draws what is hidden, and the samples of grBCM; without it the fleet's.
    engine, neighbours, eta, consensus, rounds, tol: as in `predict`.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(400, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> found = fleet.calibrate("dec-poe", hold="rows")
    >>> knot = found.knots[0]
    >>> knot.rows, knot.before < 0.95, knot.factor > 1.0
    (400, True, True)
    >>> bool(fleet.predict([[0.5, 0.5]], "dec-poe").factor[0] == knot.factor)
    True
    """
    row = predictor_of(fleet.private, method)
    check_engine_name(engine)
    given: dict[str, Any] = {"eta": eta, "consensus": consensus, "rounds": rounds, "tol": tol, "neighbours": neighbours}
    refuse_foreign(row, {**given, "engine": None if engine == "auto" else engine})
    refuse_private(row, fleet.private, fleet.kernel, engine, min(counts_of(fleet.data)) // FOLDS)
    if fleet.private is not None and fleet.coordinates.name == "sphere":
        raise InputError(
            'calibrate: private="rows" needs a box in which all agents know places, and there is none on the sphere: '
            'use coordinates="kilometres", or a fleet without private'
        )
    chosen = fleet.seed if seed is None else seed
    holding = Holding(hold, level, cells, most, chosen, apart=fleet.private is not None)
    options = PredictionOptions(seed=chosen).changed({**given, "engine": engine})
    source = source_of(fleet, None, ())
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
    shards = view.coordinates.apply(source.shards)
    rows = shards.load() if isinstance(shards, Streamed) else shards
    return calibrated(Fleetwide(rows, source.kernel, theta, view.scaling), network, method, options, holding)


def current_calibration(fleet: Fleet, theta: object) -> Calibration | None:
    """That of the fleet, if predictions are with the theta that it is for. theta: another one that was given."""
    found, own = fleet.calibration, fleet.theta
    if found is None or own is None or theta is not None:
        return None
    return found if np.array_equal(found.theta, own) else None
