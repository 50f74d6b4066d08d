"""The front door: a fleet of agents with their data, and what one can ask of it."""

from fleetgp.fleet.fleet import Fleet

__all__ = ["Fleet"]
