"""The errors a user can meet. Each message says what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Iterable


class FleetGPError(Exception):
    """Base of every error that FleetGP raises on purpose."""


class InputError(FleetGPError, ValueError):
    """Something given by the caller does not fit: a shape, a value, a name."""


class GraphError(InputError):
    """A communication graph that no fleet can work on."""


class NumericalError(FleetGPError, ArithmeticError):
    """A covariance that cannot be factorized even with jitter."""


class NetworkError(FleetGPError, RuntimeError):
    """A network that cannot do what was asked of it, or a peer that did not answer."""


class FleetGPWarning(UserWarning):
    """Something that was done as asked, but is probably not what was meant, or is worth less than it looks."""


def unknown_name(what: str, name: object, choices: Iterable[str]) -> InputError:
    """The one error for a name that is not in a list.

    >>> str(unknown_name("graph", "ring", ("path", "cycle")))
    "unknown graph 'ring': choose one of path, cycle"
    """
    return InputError(f"unknown {what} {name!r}: choose one of {', '.join(choices)}")
