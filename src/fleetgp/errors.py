"""The errors a user can meet: each message says what was expected, what it got and what to do. And `Cancelled`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterable


class FleetGPError(Exception):
    """Base of every error that FleetGP raises on purpose."""


class InputError(FleetGPError, ValueError):
    """An invalid argument: a shape, a value, a name."""


class NothingToLearnError(InputError):
    """All observations have the same value.

    >>> raise NothingToLearnError("the column 'sst'")
    Traceback (most recent call last):
    fleetgp.errors.NothingToLearnError: the column 'sst' has one value only: there is nothing to learn
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} has one value only: there is nothing to learn")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what,)


class PointedError(InputError):
    """A text that is invalid at one place. message: why.  shown: the text, with the place marked.

    >>> raise PointedError("--fix: expected a number, got 'O.1'", "noise=O.1", 6)
    Traceback (most recent call last):
    fleetgp.errors.PointedError: --fix: expected a number, got 'O.1'
      noise=O.1
            ^
    """

    def __init__(self, message: str, text: str, position: int) -> None:
        self.message, self.text, self.position = message, text, position
        self.shown = f"  {text}\n  {' ' * position}^"
        super().__init__(f"{message}\n{self.shown}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.message, self.text, self.position)


class GraphError(InputError):
    """A communication graph that no fleet can work on."""


class NumericalError(FleetGPError, ArithmeticError):
    """A covariance that cannot be factorized even with jitter."""


class NetworkError(FleetGPError, RuntimeError):
    """A network that cannot do what was asked, or a peer that did not answer."""


class NeighbourLostError(NetworkError):
    """A round's deadline passed without a message from some neighbours, which are named."""

    def __init__(self, round: int, neighbours: Iterable[int], seconds: float) -> None:
        self.round, self.neighbours, self.seconds = round, tuple(sorted(neighbours)), seconds
        names = ", ".join(map(str, self.neighbours))
        super().__init__(f"round {round}: nothing came from agent {names} within {seconds:g} s")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.round, self.neighbours, self.seconds)


class WorkerLostError(NetworkError):
    """Workers of a cluster were lost, and others could not continue the work."""


class StorageError(FleetGPError, OSError):
    """A file or folder that cannot be written or read, and must be."""


class NonsenseError(NetworkError):
    """A peer sent invalid content. sender: its number in the network.  why: what was wrong."""

    def __init__(self, sender: int, why: str) -> None:
        self.sender, self.why = sender, why
        super().__init__(f"agent {sender} sent nonsense: {why}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.sender, self.why)


class Cancelled(BaseException):
    """Work was ended from outside, not by an error.

    It is not an `Exception`, so that no `except Exception` stops it: it is caught where the work was started.
    """


class FleetGPWarning(UserWarning):
    """Something that works as asked, but may not be what was meant."""


class NotConvergedWarning(FleetGPWarning):
    """A training stopped before it converged; its estimates are used all the same."""


def warn(text: str, category: type[Warning] = FleetGPWarning) -> None:
    """Warn, pointing to the line outside FleetGP that made the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fleetgp."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def unknown_name(what: str, name: object, choices: Iterable[str]) -> InputError:
    """Return the error for a name that is not in a list.

    >>> str(unknown_name("graph", "ring", ("path", "cycle")))
    "unknown graph 'ring': choose one of path, cycle"
    """
    return InputError(f"unknown {what} {shortened(name)}: choose one of {', '.join(choices)}")


def check_name(what: str, name: object, choices: Collection[str]) -> None:
    """Refuse anything that is not in a list of names, for example an array or None."""
    if not isinstance(name, str) or name not in choices:
        raise unknown_name(what, name, choices)


def listed(names: Iterable[str], most: int = 12) -> str:
    """Join names for a message: all, or the first and how many more.

    >>> listed("abc"), listed("abcdef", 3)
    ('a, b, c', 'a, b, c and 3 more')
    """
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def shortened(value: object, limit: int = 80) -> str:
    """Return any value as a short text for a message.

    >>> shortened("auv1"), shortened([1] * 100, 9), shortened(1 << 20_000)
    ("'auv1'", '[1, 1, 1,...', 'an int too long to print')
    """
    try:
        text = " ".join(repr(value).split())  # on one line, an array too
    except (ValueError, RecursionError):
        return f"an {type(value).__name__} too long to print"
    return text if len(text) <= limit else f"{text[:limit]}..."
