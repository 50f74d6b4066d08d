"""The fleet's description, fleet.toml: read, checked, and the same for every agent."""

from fleetgp.agent.description.description import MOST_STARTS, PREDICTORS, PROTOCOL, TRAINERS, Description
from fleetgp.agent.description.reading import read_description

__all__ = ["MOST_STARTS", "PREDICTORS", "PROTOCOL", "TRAINERS", "Description", "read_description"]
