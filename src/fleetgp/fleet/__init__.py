"""The front door: a fleet of agents with their data, and what one can ask of it."""

from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.cross_validation import CrossValidation
from fleetgp.fleet.fleet import Fleet
from fleetgp.fleet.forgetting import Removal
from fleetgp.fleet.outputs import Outputs

__all__ = ["ConditionedFleet", "CrossValidation", "Fleet", "Outputs", "Removal"]
