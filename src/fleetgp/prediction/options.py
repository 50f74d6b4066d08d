"""The options of a prediction: their defaults, their checks, and who has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from fleetgp.engines.expert import check_engine_name
from fleetgp.engines.vecchia.engine import NEIGHBOURS
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.given import check_number, check_whole
from fleetgp.prediction.methods import METHODS, PredictionMethod

Consensus = Literal["tree", "average"]
CONSENSUS = ("tree", "average")
Eta = float | Literal["auto"]
AUTO: Literal["auto"] = "auto"
Beta = Literal["relative", "paper"]
BETAS = ("relative", "paper")
#: The options of the paper's recursions alone.
RECURSIVE = ("rounds", "tol")


@dataclass(frozen=True)
class PredictionOptions:
    """Settings known to every agent.

    consensus: "tree", exact sums along the spanning tree; "average", the paper's recursions over neighbours (average
        consensus, JOR, the power method, DALE), which end at a tolerance.
    rounds, tol: of the paper's recursions: every query averages until its agents differ by less than tol, relatively,
        or for this many rounds. For NPAE tol is relative to what the agents explain of the prior variance.
    eta: with dec-nn-, an agent takes part in a query if k_i*' C_i^-1 k_i* is at least eta sigma_f^2; "auto":
        if it tells at least half as much as the best agent, in nats.
    beta: with grBCM, "relative": an agent's weight is d_i / sqrt(sum_j d_j^2), d_i being the information of its data
        beyond the samples; "paper": 1 for the first agent that takes part, d_i for the others.
    seed: draws the samples of grBCM, per agent, and the start of DEC-NPAE*'s power method.
    engine: "auto", "dense", "moments" or "vecchia", as in training.
    neighbours: of "vecchia", as in training: each query has the 4 * neighbours observations of an agent nearest to it.
        With dec-nearest, how many observations of the whole fleet, the nearest to it, answer a query.
    """

    consensus: Consensus = "tree"
    rounds: int = 20_000
    tol: float = 1e-6
    eta: Eta = 1e-3
    beta: Beta = "relative"
    seed: int = 0
    engine: str = "auto"
    neighbours: int = NEIGHBOURS

    def changed(self, given: Mapping[str, Any]) -> PredictionOptions:
        """These options with what was given (what is not None) in their place, checked.

        >>> found = PredictionOptions(seed=3).changed({"eta": 0.1, "tol": None})
        >>> found.eta, found.tol, found.seed
        (0.1, 1e-06, 3)
        """
        options = replace(self, **{name: value for name, value in given.items() if value is not None})
        check_name("consensus", options.consensus, CONSENSUS)
        check_name("beta", options.beta, BETAS)
        check_whole("rounds", options.rounds, least=1)
        check_number("tol", options.tol, above=0.0)
        check_whole("seed", options.seed, least=0)
        check_engine_name(options.engine)
        check_whole("neighbours", options.neighbours, least=1)
        return replace(
            options,
            rounds=int(options.rounds),
            tol=float(options.tol),
            eta=checked_eta(options.eta),
            seed=int(options.seed),
            neighbours=int(options.neighbours),
        )


def checked_eta(eta: object) -> Eta:
    """A number from 0 to 1, or "auto", or one clear error."""
    if isinstance(eta, str):
        if eta == AUTO:
            return AUTO
        raise InputError(f'eta must be a number of at least 0 and at most 1, or "auto", got {shortened(eta)}')
    check_number("eta", eta, least=0.0, most=1.0)
    return float(cast(float, eta))


def refuse_foreign(method: PredictionMethod, given: Mapping[str, object], prefix: str = "") -> None:
    """One clear error for an option that was given (is not None) and that the method does not have.

    prefix: what options are typed with, "--" on the command line.

    >>> refuse_foreign(METHODS["poe"], {"eta": 0.1})
    Traceback (most recent call last):
    fleetgp.errors.InputError: poe has no option eta: expected one of engine, neighbours; methods with eta: dec-nn-...
    """
    for name, value in given.items():
        if value is not None and name not in method.options:
            having = ", ".join(row.name for row in METHODS.values() if name in row.options)
            own = ", ".join(prefix + option for option in method.options)
            raise InputError(
                f"{method.name} has no option {prefix}{name}: expected one of {own}; "
                f"methods with {prefix}{name}: {having}"
            )
        consensus = given.get("consensus")
        recursive = isinstance(consensus, str) and consensus == "average"
        if value is not None and name in RECURSIVE and not recursive:
            raise InputError(
                f"{prefix}{name} is of the paper's recursions, and sums along the tree are exact: "
                f"leave it out, or give {prefix}consensus average as well"
            )
