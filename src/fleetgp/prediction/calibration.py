"""A calibration: by what the deviations of a prediction are multiplied, so that intervals cover what they promise.

What can be checked against observations is the deviation of an observation: it is what the factor is found for. The
deviation of f gets the same factor. A factor is one number for each kind of held-out rows: where there are data
("rows"), and in gaps ("blocks"). With both, a query between them gets a factor between them, linear in logarithms along
the deviation, and beyond them that of the nearer one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.partition import HOLDS, Hold
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.metrics import LEVEL
from fleetgp.network import Ledger
from fleetgp.options import Eta, PredictionOptions
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.registry import METHODS
from fleetgp.validation import check_number, check_whole

BOTH = "both"
#: What rows may be held out for.
HOLDINGS = (*HOLDS, BOTH)
#: Held-out rows are counted in bins of the factor that they need, equal in logarithms, with an edge at 1.
BINS = 2048
EDGES = 10.0 ** (np.arange(BINS + 1) / 256.0 - 3.0)
#: Counts of two kinds of rows are made so often: a factor between two others moves both coverages a little.
PASSES = 4
#: Deviations where there are data and in gaps that are closer than this, in logarithms, are no reason for two factors.
APART = 0.1
#: Cells of the fleet's box for each agent, and at least: where the agents divide the box, a block is a quarter of an
#: agent's area wide, in two dimensions.
CELLS_OF_AGENT, FEWEST_CELLS, MOST_CELLS = 16, 100, 1_000_000


@dataclass(frozen=True)
class Holding:
    """How a calibration holds rows out; known to every agent.

    holdout: "rows", "blocks" or "both".  level: the coverage that intervals shall have.
    cells: of the box of the fleet, for blocks; None: 16 for each agent, and at least 100.
    max_rows: rows that an agent holds out at most, of each kind; their inputs are sent.
    seed: draws all of it.
    apart: rows are private: the fleet is asked about places all over its box instead of theirs.
    """

    holdout: str = BOTH
    level: float = LEVEL
    cells: int | None = None
    max_rows: int = 300
    seed: int = 0
    apart: bool = False

    def __post_init__(self) -> None:
        check_name("holdout", self.holdout, HOLDINGS)
        check_number("level", self.level, above=0.0)
        if not self.level < 1.0:
            raise InputError(f"level must lie between 0 and 1, got {shortened(self.level)}")
        if self.cells is not None:
            check_whole("cells", self.cells, least=10, most=MOST_CELLS)
        check_whole("max_rows", self.max_rows, least=5)
        check_whole("seed", self.seed, least=0)

    @property
    def holds(self) -> tuple[Hold, ...]:
        return tuple(hold for hold in HOLDS if self.holdout in (hold, BOTH))

    def cells_for(self, agents: int) -> int:
        return self.cells or max(FEWEST_CELLS, CELLS_OF_AGENT * agents)

    @property
    def fewest(self) -> int:
        """Held-out rows of each kind without which there is no quantile at this level."""
        return int(np.ceil(2.0 / (1.0 - self.level)))


@dataclass(frozen=True)
class Knot:
    """What was found for one kind of held-out rows.

    factor: of the standard deviations.  deviation: the typical one of an observation there, uncalibrated (a geometric
    mean).  rows: how many.
    before, after: their coverage without the factor, and with it; after is honest: the factors for one half of the
    pieces are those of the other half.
    """

    holdout: Hold
    factor: float
    deviation: float
    rows: int
    before: float
    after: float


@dataclass(frozen=True)
class Calibration:
    """Found by `Fleet.calibrate`, for one method and its options, at one theta, on the data as they were.

    n_neighbours: of the engine; of dec-nearest, n_nearest.  min_rows, budget: of dec-summary.
    knots: where there are data, in gaps, or both.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(200, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = fleet.calibrate("dec-poe", holdout="rows", max_rows=20)
    >>> found.level, found.knots[0].rows, found.factors(np.array([0.1, 1.0])).shape
    (0.95, 80, (2,))
    """

    method: str
    eta: Eta
    n_neighbours: int
    holdout: str
    level: float
    cells: int
    knots: tuple[Knot, ...]
    theta: Array = field(repr=False)
    ledger: Ledger | None = field(default=None, repr=False, compare=False)
    min_rows: int = PredictionOptions.min_rows
    budget: float = PredictionOptions.budget

    def factors(self, variances: Array) -> Array:
        """Of the deviations, from the uncalibrated variances of an observation."""
        places = [(np.log(knot.deviation), np.log(knot.factor)) for knot in self.knots]
        return interpolated(np.array(places), variances)

    @property
    def told(self) -> str:
        """What it is for, in words."""
        row = METHODS[self.method]
        facts = {"eta": self.eta, "n_neighbours": self.n_neighbours, "n_nearest": self.n_neighbours}
        facts |= {"min_rows": self.min_rows, "budget": self.budget}
        having = {name: value for name, value in facts.items() if name in row.options}
        given = " and ".join(f"{name} {value}" for name, value in having.items())
        return f"{self.method} with {given}" if given else self.method

    def about(self, method: PredictionMethod, options: PredictionOptions) -> bool:
        """Whether it is one for such predictions."""
        mine = self.method, self.eta, self.n_neighbours, self.min_rows, self.budget
        asked = method.name, options.eta, neighbours_of(method, options), options.min_rows, options.budget
        return mine == asked and options.beta == "relative" and not options.local


def neighbours_of(method: PredictionMethod, options: PredictionOptions) -> int:
    """The number of neighbours that matters to a method: n_nearest, or that of its engine."""
    return options.n_nearest if "n_nearest" in method.options else options.n_neighbours


def interpolated(places: Array, variances: Array) -> Array:
    """Factors at some variances, from rows (log deviation, log factor).

    >>> places = np.log([[1.0, 1.0], [4.0, 2.0]])
    >>> interpolated(places, np.array([0.01, 1.0, 4.0, 16.0, 1e4])).round(4).tolist()
    [1.0, 1.0, 1.4142, 2.0, 2.0]
    """
    order = np.argsort(places[:, 0], kind="stable")
    return np.asarray(np.exp(np.interp(0.5 * np.log(variances), *places[order].T)))


# ---- sums of held-out rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcomes:
    """An agent's held-out rows of one kind: (n,) the factor that each needs to be covered, the variance that it was
    predicted with, and whether it is of the second half.
    """

    needed: Array
    variance: Array
    second: BoolArray

    def counted(self, places: Array | None = None) -> Array:
        """(3, BINS + 4), of all rows, of the first half and of the second: how many need which factor (below and above
        the edges too), how many there are, and the sum of their log deviations.

        places: (3, knots, 2) of `interpolated`: what has these factors already, and needs others besides.
        """
        parts = []
        for k, part in enumerate((np.ones_like(self.second), ~self.second, self.second)):
            needed, variance = self.needed[part], self.variance[part]
            if places is not None:
                needed = needed / interpolated(places[k], variance)
            bins = np.searchsorted(EDGES, needed, side="left")  # what is not a number needs all
            parts.append([*np.bincount(bins, minlength=BINS + 2), len(needed), 0.5 * np.log(variance).sum()])
        return np.array(parts, dtype=float)

    def covered(self, halves: Array) -> Array:
        """(3,) how many there are, how many are covered as they are, and how many with the factors of the other half.

        halves: (2, knots, 2) the places of `interpolated` for the rows of the first half, and of the second.
        """
        first, second = (interpolated(places, self.variance) for places in halves)
        factors = np.where(self.second, second, first)
        return np.array([len(self.needed), (self.needed <= 1.0).sum(), (self.needed <= factors).sum()], dtype=float)


def places_of(counts: Array, level: float, before: Array | None = None) -> Array:
    """(knots, 2) log deviation and log factor of each kind of rows, from their counts, (knots, BINS + 4).

    before: the places of the factors that the rows have already.
    """
    deviations = counts[:, -1] / np.maximum(counts[:, -2], 1.0)
    factors = np.array([quantile(row[:-2], level) for row in counts])
    if np.ptp(deviations) < APART:
        factors[:] = quantile(counts[:, :-2].sum(axis=0), level)
    more = 0.0 if before is None else before[:, 1]
    return np.stack([deviations, np.log(factors) + more], axis=1)


def quantile(counts: Array, level: float) -> float:
    """The factor that so large a part of the rows needs at most, so that a new one is covered with this probability.

    counts: (BINS + 2,) rows by the factor that they need. No rows need none: 1.

    >>> counts = np.zeros(BINS + 2)
    >>> counts[769] = 99  # all between the edge at 1 and the next
    >>> bool(1.0 < quantile(counts, 0.95) < EDGES[769])
    True
    """
    if not counts.any():
        return 1.0
    rank = min((counts.sum() + 1.0) * level, counts.sum())
    below = np.concatenate([[0.0], np.cumsum(counts)])
    place = int(np.searchsorted(below[1:], rank, side="left"))
    if not 0 < place <= BINS:  # beyond the edges
        return float(EDGES[0] if place == 0 else EDGES[-1])
    share = (rank - below[place]) / counts[place]
    return float(EDGES[place - 1] * (EDGES[place] / EDGES[place - 1]) ** share)


def needed_factors(truth: Array, mean: Array, variance: Array, deviations: float) -> Array:
    """By what each deviation must be multiplied for its interval, of so many deviations, to cover the truth."""
    return np.asarray(np.abs(truth - mean) / (deviations * np.sqrt(variance)))
