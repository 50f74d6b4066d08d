"""Consensus algorithms: agreement, extremes, averages and linear systems over a network."""

from fleetgp.consensus.batch import (
    BatchOutcome,
    BatchRule,
    FloodRule,
    Scope,
    WholeFleet,
    iterate_batch,
    iterate_flooded,
)
from fleetgp.consensus.iterate import (
    Interlude,
    NeighbourRule,
    Outcome,
    OverNeighbours,
    Running,
    WithInterludes,
    drive,
    iterate,
)
from fleetgp.consensus.linear import average, average_items, dale, jor, optimal_relaxation, power_method
from fleetgp.consensus.reductions import maximum, minimum, total
from fleetgp.consensus.stopping import LATE, UNWATCHED, Maximin, Settled, Status, Unwatched, Verdict, Watch

__all__ = [
    "LATE",
    "UNWATCHED",
    "BatchOutcome",
    "BatchRule",
    "FloodRule",
    "Interlude",
    "Maximin",
    "NeighbourRule",
    "Outcome",
    "OverNeighbours",
    "Running",
    "Scope",
    "Settled",
    "Status",
    "Unwatched",
    "Verdict",
    "Watch",
    "WholeFleet",
    "WithInterludes",
    "average",
    "average_items",
    "dale",
    "drive",
    "iterate",
    "iterate_batch",
    "iterate_flooded",
    "jor",
    "maximum",
    "minimum",
    "optimal_relaxation",
    "power_method",
    "total",
]
