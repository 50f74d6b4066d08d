"""What an evaluation is expected to cost, in seconds on one core; see the dense engine's for what that means."""

from __future__ import annotations

#: Seconds per pair of neighbours of a point: a distance, an exponential, their part of the gradient.
PAIR = 7e-9
#: Seconds per operation of the small factorizations.
OPERATION = 2e-10
#: Seconds for the calls themselves.
CALLS = 3e-4


def expected_seconds(size: int, neighbours: int) -> float:
    """Of a likelihood with its gradient, neighbours known."""
    return size * (PAIR * neighbours**2 / 2 + OPERATION * neighbours**3 / 3) + CALLS
