"""Consensus algorithms: agreement, extremes, averages and linear systems over a network."""

from fleetgp.consensus.average import average
from fleetgp.consensus.dale import dale
from fleetgp.consensus.extrema import maximum, minimum
from fleetgp.consensus.flooding import total
from fleetgp.consensus.iterate import FloodRule, NeighbourRule, Outcome, iterate, iterate_flooded
from fleetgp.consensus.jor import jor
from fleetgp.consensus.power import optimal_relaxation, power_method
from fleetgp.consensus.stopping import Maximin, Settled, Status, Verdict, Watch

__all__ = [
    "FloodRule",
    "Maximin",
    "NeighbourRule",
    "Outcome",
    "Settled",
    "Status",
    "Verdict",
    "Watch",
    "average",
    "dale",
    "iterate",
    "iterate_flooded",
    "jor",
    "maximum",
    "minimum",
    "optimal_relaxation",
    "power_method",
    "total",
]
