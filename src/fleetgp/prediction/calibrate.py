"""Calibration over a network: rows are hidden, predicted by the fleet from the rest, and counted.

Each agent judges its own held-out rows. What is sent: one reduction of the box of the data (rounded outwards), for
blocks; one of how many rows there are, for rows; the inputs of the held-out rows, to all agents, since they are
queries; what the predictions themselves send; reductions of counts (one, or four for two factors), of which the root
makes factors, and one of how many rows these cover. No observation is sent, except by methods that send some with every
prediction.

Where rows are private, no input is sent either: the fleet is asked about places all over its box, which all agents
know, and each agent carries the answers over to its own held-out rows (`_carried`).

Where agents hold groups of each other's rows (dec-summary), whole groups are hidden, and no other ones are made: groups
of the remaining rows would differ by single rows from those that all agents hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import Scaling, merged_of_enough, outer_corners
from fleetgp.consensus.reductions import ByServer, ByTree
from fleetgp.data.dataset import InMemory
from fleetgp.data.partition import (
    FEWEST,
    FOLDS,
    Hold,
    block_pieces,
    drawn,
    hidden,
    lattice,
    row_pieces,
    second_half,
)
from fleetgp.data.transforms import View
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.observations import Observations
from fleetgp.network import MAXIMUM, Network
from fleetgp.network.wire import check_from_peers
from fleetgp.options import PredictionOptions
from fleetgp.prediction.answer import Question, agree, predict
from fleetgp.prediction.calibration import (
    EDGES,
    PASSES,
    Calibration,
    Holding,
    Knot,
    Outcomes,
    needed_factors,
    neighbours_of,
    places_of,
)
from fleetgp.prediction.conditioned import Conditioned, SentGroups
from fleetgp.prediction.groups import Groups
from fleetgp.prediction.kept import KeptGroups
from fleetgp.prediction.methods import PredictionMethod, SharedState
from fleetgp.prediction.results import Prediction

#: Where rows are private: so many places all over the box are asked about, and so many near a row stand for it.
PLACES, NEAR = 1000, 4
#: Added to variances of f so that none is zero, and relatively to those of places that are close to each other.
SINGULAR, JITTER = 1e-300, 1e-6
#: Rows of an agent, on average, below which rows are hidden in more folds, and in how many.
FEW, FOLDS_OF_FEW = 100, 20


@dataclass(frozen=True)
class Fleetwide:
    """The hosted agents with what they all agree on: theta (P,) in the units of the data, and the scaling.

    sent: the rows of the groups that they have sent.  kept: groups of rows that they have forgotten, in the model's
    coordinates.
    """

    shards: Sequence[Observations]
    kernel: Kernel
    theta: Array
    scaling: Scaling
    sent: SentGroups = field(default_factory=dict)
    kept: Sequence[KeptGroups] = ()

    def conditioned(self, hide: Sequence[BoolArray], options: PredictionOptions) -> Conditioned:
        """On the rows that are not hidden."""
        rest = InMemory(own.rows(~mask) for own, mask in zip(self.shards, hide, strict=True))
        thetas = np.tile(self.theta, (len(rest), 1))
        result = Conditioned(rest, self.kernel, thetas, View(self.scaling), options.engine, options.n_neighbours)
        result.sent, result.kept = self.sent, self.kept
        return result


def calibrate(
    fleet: Fleetwide, network: Network, method: PredictionMethod, options: PredictionOptions, holding: Holding
) -> Calibration:
    """The factors that give intervals of this method their nominal coverage, the same bits at every agent."""
    cells = holding.cells_for(network.agents)
    result = [list(_outcomes(fleet, network, method, options, holding, hold, cells)) for hold in holding.holds]
    judged = [[_joined([fold[i] for fold in folds]) for folds in result] for i in range(len(network.hosted))]
    with network.phase("calibration"):
        every, first, second = _agreed_places(network, method, judged, holding.level)
        of_other = np.stack([second, first])  # for each half the factors of the other
        counts = _reduction(network, method).total(np.array([[one.covered(of_other) for one in row] for row in judged]))
    if (np.exp(every[:, 1]) >= EDGES[-1]).any():
        raise NumericalError(
            f"{method.name}: no factor up to {EDGES[-1]:.0e} covers the held-out rows: does it diverge?"
        )
    knots = [
        Knot(hold, float(np.exp(place[1])), float(np.exp(place[0])), int(rows), float(plain / rows), float(now / rows))
        for hold, place, (rows, plain, now) in zip(holding.holds, every, counts, strict=True)
    ]
    facts = holding.holdout, holding.level, cells, tuple(knots), fleet.theta, network.ledger
    of_engine = neighbours_of(method, options)
    return Calibration(method.name, options.eta, of_engine, *facts, options.min_rows, options.budget)


# ---- one kind of held-out rows ----------------------------------------------------------------------------------


def _outcomes(
    fleet: Fleetwide,
    network: Network,
    method: PredictionMethod,
    options: PredictionOptions,
    holding: Holding,
    hold: Hold,
    cells: int,
) -> Iterator[list[Outcomes]]:
    """Fold by fold, what became of each hosted agent's held-out rows."""
    shards = fleet.shards
    box = _box(shards, network, method) if hold == "blocks" or holding.apart else None

    def dealt(inputs: Array, values: Array) -> IntArray:
        if hold == "rows":
            return row_pieces(inputs, values, holding.seed)
        return block_pieces(inputs, *_known(box), cells, holding.seed)

    pieces = [dealt(own.inputs, own.values) for own in shards]
    groups = _groups(fleet, network, method, options)
    of_groups = [dealt(one.places, one.values) for one in groups]
    for i, agent in enumerate(network.hosted if groups else ()):
        for members, piece in zip(groups[agent].members, of_groups[agent].tolist(), strict=True):
            pieces[i][members] = piece
    folds = FOLDS if hold == "blocks" or holding.apart else _folds(network, method, shards)
    most, deviations = max(1, holding.max_rows // folds), float(scipy.special.ndtri(0.5 + 0.5 * holding.level))
    count = 0
    for fold in range(folds):
        if groups:
            gone = [hidden_groups(one, of, fold, folds) for one, of in zip(groups, of_groups, strict=True)]
            hide = [_rows_of(groups[i], gone[i], len(own)) for i, own in zip(network.hosted, shards, strict=True)]
            shared = SharedState(groups=tuple(one.rows(~some) for one, some in zip(groups, gone, strict=True)))
        else:
            hide, shared = [hidden(own, fold, folds) for own in pieces], None
        rows = [
            drawn(np.flatnonzero(mask), most, own.inputs, own.values, holding.seed)
            for mask, own in zip(hide, shards, strict=True)
        ]
        held = [own.rows(some) for own, some in zip(shards, rows, strict=True)]
        places = [one.inputs for one in held]
        conditioned = fleet.conditioned(hide, options)
        if holding.apart:
            queries = lattice(*_known(box), PLACES)
            result = predict(conditioned, network, Question(method, queries, options), shared)
            told = _carried(conditioned, network, places, queries, result)
            number = sum(len(own) for own in rows)
        else:
            queries, starts = _collected(network, method, places)
            result = predict(conditioned, network, Question(method, queries, options), shared)
            answers = zip(result.means, result.field_variances, starts, rows, strict=True)
            told = [(m[start:][: len(own)], v[start:][: len(own)]) for m, v, start, own in answers]
            number = len(queries)
        count += number
        if number:
            yield [
                _judged(one, piece[some], mean, variance + noise, deviations)
                for one, some, piece, (mean, variance), noise in zip(
                    held, rows, pieces, told, result.noise, strict=True
                )
            ]
    if count < holding.fewest:
        or_one = ", or with a single group," if method.grouped else ""
        raise InputError(
            f"calibration: expected at least {holding.fewest} held-out rows ({hold}) for intervals of "
            f"{100 * holding.level:g} %, got {count}: agents with fewer than {FEWEST} rows{or_one} hold none out"
        )


def _groups(
    fleet: Fleetwide, network: Network, method: PredictionMethod, options: PredictionOptions
) -> tuple[Groups, ...]:
    """Every agent's groups, of all rows; none where the method has none."""
    if not method.grouped or network.agents == 1:
        return ()
    nothing = [np.zeros(len(own), dtype=bool) for own in fleet.shards]
    queries = np.zeros((0, fleet.shards[0].dimension))
    return agree(fleet.conditioned(nothing, options), network, Question(method, queries, options)).groups


def hidden_groups(groups: Groups, pieces: IntArray, fold: int, folds: int) -> BoolArray:
    """(G,) which groups an agent hides in a fold, as all agents know: none of few rows, and never all."""
    result = np.asarray(pieces % folds == fold)
    if groups.counts.sum() < FEWEST:
        return np.zeros_like(result)
    if result.all():
        result[0] = False
    return result


def _rows_of(groups: Groups, some: BoolArray, count: int) -> BoolArray:
    """(N,) which of an agent's rows are in some of its groups."""
    result = np.zeros(count, dtype=bool)
    for rows, chosen in zip(groups.members, some, strict=True):
        result[rows] = chosen
    return result


def _box(shards: Sequence[Observations], network: Network, method: PredictionMethod) -> tuple[Array, Array]:
    """The lowest and the highest corner of the box of the data, rounded outwards, without agents with few rows."""
    nothing = np.full(2 * shards[0].dimension, -np.inf)
    corners = np.array(
        [outer_corners(own.inputs.min(axis=0), own.inputs.max(axis=0)) if len(own) else nothing for own in shards]
    )
    with network.phase("box"):
        ends = merged_of_enough(
            _reduction(network, method),
            corners,
            list(map(len, shards)),
            MAXIMUM,
            -np.inf,
            lambda ends: bool(np.isfinite(ends).all()),
        )
    high, low = np.split(ends, 2)
    return -low, high


def _known(box: tuple[Array, Array] | None) -> tuple[Array, Array]:
    assert box is not None, "blocks and places need one"
    return box


def _folds(network: Network, method: PredictionMethod, shards: Sequence[Observations]) -> int:
    """How many times rows are hidden: more often where agents have few, since models of four fifths of few rows are
    less overconfident than those of all.
    """
    with network.phase("held out"):
        rows = _reduction(network, method).total(np.array([[float(len(own))] for own in shards]))
    return FOLDS if rows.item() >= FEW * network.agents else FOLDS_OF_FEW


def _carried(
    conditioned: Conditioned, network: Network, places: Sequence[Array], queries: Array, result: Prediction
) -> list[tuple[Array, Array]]:
    """Each agent's predictions of its rows at these places, (n,) and (n,), from those of the fleet at other queries.

    At the queries nearest to a row the fleet's mean differs from the agent's own. The row gets as much of the
    difference as f there follows from f at these queries, given the agent's own rows; the ratio of the fleet's variance
    to the agent's own is taken from these queries.
    """
    posteriors = conditioned.own(network.hosted).items(range(len(places)))
    scaling = conditioned.scaling
    width = np.maximum(np.ptp(queries, axis=0), np.finfo(float).tiny)
    tree, told = scipy.spatial.cKDTree(queries / width), []
    for posterior, own, means, variances in zip(posteriors, places, result.means, result.field_variances, strict=True):
        mean, variance = np.empty(len(own)), np.empty(len(own))
        for n, near in enumerate(tree.query(own / width, NEAR)[1]):
            points = np.concatenate([own[n : n + 1], queries[near]])
            known, covariance = posterior.mean_and_covariance(points)
            known, spread = scaling.mean(points) + scaling.scale * known, np.diagonal(covariance) + SINGULAR
            share = np.linalg.solve(covariance[1:, 1:] + JITTER * np.diag(spread[1:]), covariance[1:, 0])
            mean[n] = known[0] + share @ (means[near] - known[1:])
            variance[n] = spread[0] * np.exp(np.log(variances[near] / spread[1:]).mean())
        told.append((mean, variance))
    return told


def _collected(network: Network, method: PredictionMethod, inputs: Sequence[Array]) -> tuple[Array, IntArray]:
    """All agents' held-out inputs (T, D), the same everywhere; and where those of the hosted agents begin, (A,)."""
    width = inputs[0].shape[1]
    with network.phase("held out"):
        if method.decentralized:
            told = network.collect({"inputs": inputs})
            assert told is not None, "all agents are told"
            everyone = [x.reshape(0, width) if not x.size else x for x in told["inputs"]]
            check_from_peers(everyone, lambda _, x: x.ndim == 2 and x.shape[1] == width, f"(n, {width}) inputs")
        else:
            everyone = network.gather({"inputs": inputs})["inputs"]
            network.scatter(np.concatenate(everyone), "inputs")
    starts = np.cumsum([0, *map(len, everyone)])[:-1]
    return np.concatenate(everyone), starts[list(network.hosted)]


def _judged(held: Observations, pieces: IntArray, mean: Array, variance: Array, deviations: float) -> Outcomes:
    """An agent's held-out rows of a fold. What has no sound prediction is never covered.

    mean, variance: of new observations there, whose noise has no known part.
    """
    if held.noise_std is not None:
        variance = variance + held.noise_std**2
    sound = np.isfinite(mean) & np.isfinite(variance) & (variance > 0.0)
    variance = np.where(sound, variance, 1.0)
    needed = np.where(sound, needed_factors(held.values, np.where(sound, mean, 0.0), variance, deviations), np.inf)
    return Outcomes(needed, variance, second_half(pieces))


def _joined(folds: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(*(np.concatenate([getattr(fold, name) for fold in folds]) for name in Outcomes.__annotations__))


# ---- sums over the fleet ----------------------------------------------------------------------------------------


def _agreed_places(
    network: Network, method: PredictionMethod, judged: Sequence[Sequence[Outcomes]], level: float
) -> Array:
    """(3, knots, 2) the places of all held-out rows, of the first half and of the second.

    One reduction for one kind of rows: the root makes factors of the counts. With two kinds the factors of rows between
    them are interpolated, and all are counted again, with the factors that they have.
    """
    knots = len(judged[0])
    places: Array | None = None
    for _ in range(1 if knots == 1 else PASSES):
        counts = np.array([[one.counted(places) for one in row] for row in judged])  # (A, knots, 3, n)
        places = _pass(network, method, counts, level, places)
    assert places is not None, "there is one pass at least"
    return places


def _pass(network: Network, method: PredictionMethod, counts: Array, level: float, before: Array | None) -> Array:
    shape, knots = counts.shape[1:], counts.shape[1]

    def finish(total: Array, _: object = None) -> Array:
        parts = enumerate(np.moveaxis(total.reshape(shape), 1, 0))
        result = [places_of(part, level, None if before is None else before[k]) for k, part in parts]
        return np.concatenate([places.ravel() for places in result])[None]

    flat = counts.reshape(len(counts), 1, -1)
    if method.decentralized:
        told = network.reduce(flat, "statistics", finish=finish, result_shape=(6 * knots,))
        assert told is not None, "all agents are told"
    else:
        told = finish(ByServer(network).total(flat))
    return told.reshape(3, knots, 2)


def _reduction(network: Network, method: PredictionMethod) -> ByTree | ByServer:
    return ByTree(network) if method.decentralized else ByServer(network)
