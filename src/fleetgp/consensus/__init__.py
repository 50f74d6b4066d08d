"""Consensus algorithms: agreement, extremes, averages and linear systems over a network."""

from fleetgp.consensus.average import average, average_items
from fleetgp.consensus.batch import BatchOutcome, BatchRule, FloodRule, Scope, iterate_batch, iterate_flooded
from fleetgp.consensus.dale import dale
from fleetgp.consensus.extrema import maximum, minimum
from fleetgp.consensus.flooding import total
from fleetgp.consensus.interlude import Interlude, WithInterludes
from fleetgp.consensus.iterate import NeighbourRule, Outcome, iterate
from fleetgp.consensus.jor import jor
from fleetgp.consensus.power import optimal_relaxation, power_method
from fleetgp.consensus.stopping import Maximin, Settled, Status, Verdict, Watch

__all__ = [
    "BatchOutcome",
    "BatchRule",
    "FloodRule",
    "Interlude",
    "Maximin",
    "NeighbourRule",
    "Outcome",
    "Scope",
    "Settled",
    "Status",
    "Verdict",
    "Watch",
    "WithInterludes",
    "average",
    "average_items",
    "dale",
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
