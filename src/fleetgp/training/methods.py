"""The twelve training methods: one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from fleetgp.errors import InputError, check_name


@dataclass(frozen=True)
class TrainingMethod:
    """A trainer is where the agents meet, how they solve their local problem, and which data they hold.

    meet: "pool" (all data at one node), "minimize" (one minimization at a central node), "server" (ADMM with
    a central node), "tree" (one minimization, by sums over the spanning tree), "edges" (ADMM over the graph) or
    "moments" (each agent alone, with the moments of all data).
    options: of the options that only some methods have, its own.
    """

    name: str
    meet: Literal["pool", "minimize", "server", "tree", "edges", "moments"]
    step: Literal["none", "nested", "linearized"] = "none"
    options: tuple[str, ...] = ()
    augmented: bool = False

    @property
    def decentralized(self) -> bool:
        return self.meet in ("tree", "edges", "moments")

    @property
    def stepwise(self) -> bool:
        """Whether it goes round by round, so that a caller can take one step of it."""
        return self.meet in ("server", "tree", "edges")


_NESTED = ("rho", "nested", "step", "nested_iterations")
_ROWS = (
    TrainingMethod("dec-full-gp", "moments"),
    TrainingMethod("dec-fact-gp", "tree"),
    TrainingMethod("dec-g-fact-gp", "tree", augmented=True),
    TrainingMethod("full-gp", "pool"),
    TrainingMethod("fact-gp", "minimize"),
    TrainingMethod("g-fact-gp", "minimize", augmented=True),
    TrainingMethod("c-gp", "server", "nested", _NESTED),
    TrainingMethod("apx-gp", "server", "linearized", ("rho", "lipschitz")),
    TrainingMethod("gapx-gp", "server", "linearized", ("rho", "lipschitz"), augmented=True),
    TrainingMethod("dec-c-gp", "edges", "nested", _NESTED),
    TrainingMethod("dec-apx-gp", "edges", "linearized", ("rho", "kappa")),
    TrainingMethod("dec-gapx-gp", "edges", "linearized", ("rho", "kappa"), augmented=True),
)
METHODS = {row.name: row for row in _ROWS}
TRAINING_METHODS: tuple[str, ...] = tuple(METHODS)


def refuse_foreign(method: TrainingMethod, given: Iterable[str], spelled: Callable[[str], str] = str) -> None:
    """Refuse options that the method does not have. spelled: how the caller writes an option's name.

    >>> refuse_foreign(METHODS["dec-apx-gp"], ["rho", "step"])
    Traceback (most recent call last):
    fleetgp.errors.InputError: dec-apx-gp has no option step: methods with step: c-gp, dec-c-gp
    """
    for name in given:
        if name not in method.options:
            having = ", ".join(row.name for row in _ROWS if name in row.options)
            option = spelled(name)
            raise InputError(f"{method.name} has no option {option}: methods with {option}: {having}")


def training_method(name: str) -> TrainingMethod:
    """A method by name.

    >>> training_method("dec-gapx-gp").augmented
    True
    """
    check_name("training method", name, TRAINING_METHODS)
    return METHODS[name]
