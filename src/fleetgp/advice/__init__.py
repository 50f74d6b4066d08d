"""Advice before a fleet is built, and a second look at one that is: what it would cost, what to use, what holds."""

from fleetgp.advice.recommend import Advice, Candidate, recommend
from fleetgp.advice.verify import Check, Verification, verify
from fleetgp.network.counting import Link

__all__ = ["Advice", "Candidate", "Check", "Link", "Verification", "recommend", "verify"]
