"""Advice before a fleet is built, and a second look at one that is: what it would cost, what to use, what holds."""

from fleetgp.advice.link import Link
from fleetgp.advice.recommend import Advice, Candidate, recommend
from fleetgp.advice.verification import Check, Verification
from fleetgp.advice.verify import verify

__all__ = ["Advice", "Candidate", "Check", "Link", "Verification", "recommend", "verify"]
