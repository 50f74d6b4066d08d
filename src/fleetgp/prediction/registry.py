"""All prediction methods by name: ours, and those of the rules that other packages register."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleetgp.errors import InputError, shortened
from fleetgp.prediction.committee import Committee
from fleetgp.prediction.exact import Exact
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.nearest import Nearest
from fleetgp.prediction.npae import Npae
from fleetgp.prediction.rules import RULES, SUMMARY, AggregationRule
from fleetgp.registry import Names, Registry

#: The options of the paper's recursions alone.
RECURSIVE = ("rounds", "tol")

_OURS: tuple[PredictionMethod, ...] = (
    Exact("dec-full-gp", decentralized=True),
    Exact("full-gp"),
    *(Committee(rule.name, aggregation=rule) for rule in RULES),
    Npae("npae"),
    *(Committee(f"dec-{rule.name}", decentralized=True, aggregation=rule) for rule in RULES),
    Npae("dec-npae", decentralized=True, solver="jor"),
    Npae("dec-npae-star", decentralized=True, solver="jor-star"),
    *(Committee(f"dec-nn-{rule.name}", decentralized=True, nearest=True, aggregation=rule) for rule in RULES),
    Npae("dec-nn-npae", decentralized=True, nearest=True, solver="dale"),
    Nearest("dec-nearest", decentralized=True),
    Committee("dec-summary", decentralized=True, aggregation=SUMMARY),
)
METHODS: Registry[PredictionMethod] = Registry("prediction method", {method.name: method for method in _OURS})


PREDICTION_METHODS: Sequence[str] = Names(METHODS)
DECENTRALIZED_METHODS: Sequence[str] = Names(METHODS, lambda method: method.decentralized)


def register_rule(rule: AggregationRule) -> None:
    """Add the methods of an aggregation rule: over a server, along the tree, and of the correlated agents.

    They are called by the rule's name, alone and after dec- and dec-nn-. What knows methods by their names knows them
    from then on: predictions, `recommend`, the command line, and what private="rows" refuses.

    rule: an instance of a subclass of `fleetgp.prediction.AggregationRule`, or of `JointRule` if it is to have joint
        predictions, samples and suggestions too. docs/extending.md has an example.

    >>> from fleetgp.prediction.rules import ProductOfExperts
    >>> register_rule(ProductOfExperts())
    Traceback (most recent call last):
    fleetgp.errors.InputError: FleetGP has a prediction method 'poe' itself: choose another name
    """
    if not isinstance(rule, AggregationRule):
        raise InputError(f"expected an instance of a subclass of AggregationRule, got {shortened(rule)}")
    name = getattr(rule, "name", None)
    if not isinstance(name, str) or name.startswith("dec-"):
        raise InputError(f"expected a rule with a name of its own, without dec-, got {shortened(name)}")
    for method in (
        Committee(name, aggregation=rule),
        Committee(f"dec-{name}", decentralized=True, aggregation=rule),
        Committee(f"dec-nn-{name}", decentralized=True, nearest=True, aggregation=rule),
    ):
        METHODS.add(method.name, method)


def prediction_method(name: str) -> PredictionMethod:
    """A method by name.

    >>> prediction_method("dec-nn-grbcm").nearest
    True
    """
    return METHODS[METHODS.check(name)]


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
