"""The nine training methods: one row each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fleetgp.errors import unknown_name


@dataclass(frozen=True)
class TrainingMethod:
    """A trainer is where the agents meet, how they solve their local problem, and which data they hold.

    meet: "pool" (all data at one node), "minimize" (one minimization at a central node), "server" (ADMM with
    a central node) or "edges" (ADMM over the graph).
    """

    name: str
    meet: Literal["pool", "minimize", "server", "edges"]
    step: Literal["none", "nested", "linearized"] = "none"
    augmented: bool = False

    @property
    def decentralized(self) -> bool:
        return self.meet == "edges"

    @property
    def options(self) -> tuple[str, ...]:
        """Of the options that only some methods have, its own.

        >>> training_method("dec-apx-gp").options, training_method("full-gp").options
        (('rho', 'kappa'), ())
        """
        if self.step == "nested":
            return ("rho", "nested", "step", "nested_iterations")
        if self.step == "linearized":
            return ("rho", "kappa" if self.decentralized else "lipschitz")
        return ()


_ROWS = (
    TrainingMethod("full-gp", "pool"),
    TrainingMethod("fact-gp", "minimize"),
    TrainingMethod("g-fact-gp", "minimize", augmented=True),
    TrainingMethod("c-gp", "server", "nested"),
    TrainingMethod("apx-gp", "server", "linearized"),
    TrainingMethod("gapx-gp", "server", "linearized", augmented=True),
    TrainingMethod("dec-c-gp", "edges", "nested"),
    TrainingMethod("dec-apx-gp", "edges", "linearized"),
    TrainingMethod("dec-gapx-gp", "edges", "linearized", augmented=True),
)
METHODS = {row.name: row for row in _ROWS}
TRAINING_METHODS: tuple[str, ...] = tuple(METHODS)


def about_unused(method: TrainingMethod, given: Iterable[str]) -> str:
    """Which of the options that were given the method does not have, and which methods have them; empty if none.

    >>> about_unused(METHODS["full-gp"], ["kappa"])
    'full-gp has no kappa, which is ignored: it is an option of dec-apx-gp, dec-gapx-gp'
    """
    told = []
    for name in given:
        if name not in method.options:
            having = ", ".join(row.name for row in _ROWS if name in row.options)
            told.append(f"{method.name} has no {name}, which is ignored: it is an option of {having}")
    return "; ".join(told)


def training_method(name: str) -> TrainingMethod:
    """A method by name.

    >>> training_method("dec-gapx-gp").augmented
    True
    """
    if name not in METHODS:
        raise unknown_name("training method", name, TRAINING_METHODS)
    return METHODS[name]
