"""Calibration over a network: rows are hidden, predicted by the fleet from the rest, and counted.

Each agent judges its own held-out rows. What is sent: one reduction of the box of the data (rounded outwards), for
blocks; the inputs of the held-out rows, to all agents, since they are queries; what the predictions themselves send;
reductions of counts (one, or four for two factors), of which the root makes factors, and one of how many rows these
cover. No observation is
sent, but for methods that send some with every prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.fleet_moments import outer_corners
from fleetgp.consensus.reductions import ByServer, ByTree
from fleetgp.consensus.scaling import Scaling
from fleetgp.data.holdout import FEWEST, FOLDS, Hold, block_pieces, drawn, hidden, row_pieces, second_half
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import visible_of
from fleetgp.errors import InputError, NumericalError
from fleetgp.gp.kernels import Kernel
from fleetgp.network import Network
from fleetgp.network.peer_checks import check_from_peers
from fleetgp.prediction.calibration import (
    EDGES,
    PASSES,
    Calibration,
    Holding,
    Knot,
    Outcomes,
    needed_factors,
    places_of,
)
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.options import PredictionOptions
from fleetgp.prediction.predict import answer


@dataclass(frozen=True)
class Fleetwide:
    """The hosted agents with what they all agree on: theta (P,) in the units of the data, and the scaling."""

    shards: Sequence[Shard]
    kernel: Kernel
    theta: Array
    scaling: Scaling

    def conditioned(self, hide: Sequence[BoolArray], options: PredictionOptions) -> Conditioned:
        """On the rows that are not hidden."""
        rest = [(x[~mask], y[~mask]) for (x, y), mask in zip(self.shards, hide, strict=True)]
        thetas = np.tile(self.theta, (len(rest), 1))
        return Conditioned(rest, self.kernel, thetas, self.scaling, options.engine, options.neighbours)


def calibrate(
    fleet: Fleetwide, network: Network, method: PredictionMethod, options: PredictionOptions, holding: Holding
) -> Calibration:
    """The factors that give intervals of this method their nominal coverage, the same bits at every agent."""
    cells = holding.cells_for(network.agents)
    found = [list(_outcomes(fleet, network, method, options, holding, hold, cells)) for hold in holding.holds]
    judged = [[_joined([fold[i] for fold in folds]) for folds in found] for i in range(len(network.hosted))]
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
    facts = holding.hold, holding.level, cells, tuple(knots), fleet.theta, network.ledger
    return Calibration(method.name, options.eta, options.neighbours, *facts)


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
    noises = fleet.kernel.noises
    pieces = _pieces(visible_of(fleet.shards, noises), network, method, hold, cells, holding.seed)
    most, deviations, count = holding.most // FOLDS, float(ndtri(0.5 + 0.5 * holding.level)), 0
    for fold in range(FOLDS):
        hide = [hidden(own, fold) for own in pieces]
        rows = [
            drawn(np.flatnonzero(mask), most, noises.visible(x), y, holding.seed)
            for mask, (x, y) in zip(hide, fleet.shards, strict=True)
        ]
        asked = [noises.visible(x[own]) for (x, _), own in zip(fleet.shards, rows, strict=True)]
        queries, starts = _collected(network, method, asked)
        count += len(queries)
        if len(queries):  # as all agents know
            padded = noises.padded(queries)
            found = answer(fleet.conditioned(hide, options), network, method, padded, options, noisy=True)
            yield [
                _judged(
                    y[own],
                    piece[own],
                    mean[start:][: len(own)],
                    variance[start:][: len(own)] + noises.known(x[own]) ** 2,  # which nobody else knows of
                    deviations,
                )
                for (x, y), own, piece, mean, variance, start in zip(
                    fleet.shards, rows, pieces, found.means, found.variances, starts, strict=True
                )
            ]
    if count < holding.fewest:
        raise InputError(
            f"calibration: expected at least {holding.fewest} held-out rows ({hold}) for intervals of "
            f"{100 * holding.level:g} %, got {count}: agents with fewer than {FEWEST} rows hold none out"
        )


def _pieces(
    shards: Sequence[Shard], network: Network, method: PredictionMethod, hold: Hold, cells: int, seed: int
) -> list[IntArray]:
    """The piece of each row of the hosted agents."""
    if hold == "rows":
        return [row_pieces(x, y, seed) for x, y in shards]
    corners = np.array([outer_corners(x.min(axis=0), x.max(axis=0)) for x, _ in shards])
    with network.phase("box"):
        high, low = np.split(_reduction(network, method).maximum(corners), 2)
    return [block_pieces(x, -low, high, cells, seed) for x, _ in shards]


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


def _judged(truth: Array, pieces: IntArray, mean: Array, variance: Array, deviations: float) -> Outcomes:
    """An agent's held-out rows of a fold. What has no sound prediction is never covered."""
    sound = np.isfinite(mean) & np.isfinite(variance) & (variance > 0.0)
    variance = np.where(sound, variance, 1.0)
    needed = np.where(sound, needed_factors(truth, np.where(sound, mean, 0.0), variance, deviations), np.inf)
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
        found = [places_of(part, level, None if before is None else before[k]) for k, part in parts]
        return np.concatenate([places.ravel() for places in found])[None]

    flat = counts.reshape(len(counts), 1, -1)
    if method.decentralized:
        told = network.reduce(flat, "statistics", finish=finish, told=(6 * knots,))
        assert told is not None, "all agents are told"
    else:
        told = finish(ByServer(network).total(flat))
    return told.reshape(3, knots, 2)


def _reduction(network: Network, method: PredictionMethod) -> ByTree | ByServer:
    return ByTree(network) if method.decentralized else ByServer(network)
