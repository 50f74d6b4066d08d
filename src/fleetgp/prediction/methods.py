"""The prediction methods: one row each. A method is a rule, a selection of agents, and where they meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleetgp.errors import InputError, check_name

Solver = Literal["direct", "jor", "jor-star", "dale"]
#: The options of the paper's recursions alone.
RECURSIVE = ("rounds", "tol")


@dataclass(frozen=True)
class PredictionMethod:
    """rule: "full-gp", "npae", "nearest" (observations) or an aggregation rule.

    nearest: only the correlated agents take part (CBNN).
    full-gp is of all data at a central node; decentralized, of their moments at every agent.
    """

    name: str
    rule: str
    decentralized: bool = False
    nearest: bool = False
    solver: Solver = "direct"

    @property
    def options(self) -> tuple[str, ...]:
        """The options that have a meaning for this method.

        >>> prediction_method("dec-nn-poe").options
        ('engine', 'n_neighbours', 'consensus', 'rounds', 'tol', 'eta')
        """
        if self.rule == "nearest":
            return ("n_neighbours",)
        agrees = ("consensus", "rounds", "tol") if self.decentralized and self.rule != "full-gp" else ()
        selects = ("eta",) if self.nearest else ()
        draws = ("seed",) if self.rule == "grbcm" or self.solver == "jor-star" else ()
        weighs = ("beta",) if self.rule == "grbcm" else ()
        return ("engine", "n_neighbours", *agrees, *selects, *draws, *weighs)

    def those_of(self, **options: Any) -> dict[str, Any]:
        """Of one set of options for many methods, those that this method has.

        >>> prediction_method("dec-poe").those_of(eta=0.1, rounds=50)
        {'rounds': 50}
        """
        return {name: value for name, value in options.items() if name in self.options}


AGGREGATIONS = ("poe", "gpoe", "bcm", "rbcm", "grbcm")

_ROWS = (
    PredictionMethod("dec-full-gp", "full-gp", decentralized=True),
    PredictionMethod("full-gp", "full-gp"),
    *(PredictionMethod(rule, rule) for rule in AGGREGATIONS),
    PredictionMethod("npae", "npae"),
    *(PredictionMethod(f"dec-{rule}", rule, decentralized=True) for rule in AGGREGATIONS),
    PredictionMethod("dec-npae", "npae", decentralized=True, solver="jor"),
    PredictionMethod("dec-npae-star", "npae", decentralized=True, solver="jor-star"),
    *(PredictionMethod(f"dec-nn-{rule}", rule, decentralized=True, nearest=True) for rule in AGGREGATIONS),
    PredictionMethod("dec-nn-npae", "npae", decentralized=True, nearest=True, solver="dale"),
    PredictionMethod("dec-nearest", "nearest", decentralized=True),
)
METHODS = {row.name: row for row in _ROWS}
PREDICTION_METHODS: tuple[str, ...] = tuple(METHODS)


def prediction_method(name: str) -> PredictionMethod:
    """A method by name.

    >>> prediction_method("dec-nn-grbcm").nearest
    True
    """
    check_name("prediction method", name, PREDICTION_METHODS)
    return METHODS[name]


def refuse_foreign(method: PredictionMethod, given: Mapping[str, object], spelled: Callable[[str], str] = str) -> None:
    """One clear error for an option that was given (is not None) and that the method does not have.

    spelled: how the caller writes an option's name.

    >>> refuse_foreign(METHODS["poe"], {"eta": 0.1})
    Traceback (most recent call last):
    fleetgp.errors.InputError: poe has no option eta: expected one of engine, n_neighbours; methods with eta: dec-nn-...
    """
    for name, value in given.items():
        if value is not None and name not in method.options:
            having = ", ".join(row.name for row in METHODS.values() if name in row.options)
            own = ", ".join(map(spelled, method.options))
            raise InputError(
                f"{method.name} has no option {spelled(name)}: expected one of {own}; "
                f"methods with {spelled(name)}: {having}"
            )
        consensus = given.get("consensus")
        recursive = isinstance(consensus, str) and consensus == "average"
        if value is not None and name in RECURSIVE and not recursive:
            raise InputError(
                f"{spelled(name)} is of the paper's recursions, and sums along the tree are exact: "
                f"leave it out, or give {spelled('consensus')} average as well"
            )
