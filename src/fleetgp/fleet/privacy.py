"""Which kinds of content each method may send: the table of docs/privacy.md as code.

A fleet with `private` refuses methods by it, `recommend` chooses by it, and `verify` compares ledgers with it. Tests
compare the document and this module with what methods send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from fleetgp.consensus.agreements import FEWEST_ROWS
from fleetgp.engines.moments.sums import LARGEST_GRID
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.kernels.stationary import Kernel
from fleetgp.network.ledger import KINDS
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.registry import METHODS as PREDICTORS
from fleetgp.prediction.registry import prediction_method
from fleetgp.training.methods import METHODS as TRAINERS
from fleetgp.training.methods import TrainingMethod

#: What must stay private, each with all before it: single rows; sums over rows (moments), which of few rows are the
#: rows; values of likelihoods and their derivatives.
Private = Literal["rows", "sums", "likelihoods"]
PRIVATE: tuple[Private, ...] = get_args(Private)
ROWS = ("inputs", "observations")
#: What `Fleet` takes: it refuses what would reveal a row.
PrivateRows = Literal["rows"]
#: The predictor of a fleet that is asked without one. It sends no row.
PREDICTOR = "dec-summary"
#: Moments of fewer rows may determine them: no grid has more sums than this, with those of the observations at most
#: twice as many, and every row has at least two unknown numbers.
FEWEST_ROWS_FOR_MOMENTS = LARGEST_GRID


def kinds_of_prediction(
    method: PredictionMethod, kernel: Kernel | None = None, engine: str = "auto", consensus: str = "tree"
) -> tuple[str, ...]:
    """Return the kinds of content that an answer by this method may send. kernel: None for any.

    NPAE sends inputs unless vectors on the box of all data suffice, which needs the squared exponential.

    >>> kinds_of_prediction(PREDICTORS["dec-rbcm"]), kinds_of_prediction(PREDICTORS["dec-full-gp"])
    (('predictions', 'statistics'), ('statistics', 'moments', 'participants'))
    """
    sent = method.kinds(kernel, engine, consensus)
    return tuple(kind for kind in KINDS if kind in sent)


def withheld(private: Private | None) -> tuple[str, ...]:
    """Return the kinds of content that may not be sent; see `refusal` for likelihoods.

    >>> withheld("rows"), withheld("sums")
    (('inputs', 'observations'), ('inputs', 'observations', 'moments', 'groups'))
    """
    check_private(private)
    return () if private is None else ROWS if private == "rows" else (*ROWS, "moments", "groups")


def check_private(private: object) -> None:
    if private is not None:
        check_name("private", private, PRIVATE)


def refusal(
    method: TrainingMethod | PredictionMethod,
    private: Private | None,
    kernel: Kernel | None = None,
    engine: str = "auto",
    rows: int | None = None,
) -> str:
    """Return why a method may not be used where something is private; empty if it may.

    rows: of the smallest agent, if they are known: moments of few rows determine the rows.
    """
    kinds = method.kinds if isinstance(method, TrainingMethod) else kinds_of_prediction(method, kernel, engine)
    refused = [kind for kind in withheld(private) if kind in kinds]
    if refused == ["moments"]:
        return "it sends sums over the data (moments), which are private"
    if refused == ["groups"]:
        return "it sends means of a few rows each (groups), which are private"
    if refused:
        return f"it sends {' and '.join(refused)} of single rows, which are private"
    if private is not None and isinstance(method, PredictionMethod) and method.reveals:
        return method.reveals
    if private == "rows" and "moments" in kinds and rows is not None and rows < FEWEST_ROWS_FOR_MOMENTS:
        return (
            "it sends so many sums over an agent's rows (moments) that they may determine the rows of an agent with "
            f"fewer than {FEWEST_ROWS_FOR_MOMENTS:,}"
        )
    if private == "likelihoods" and isinstance(method, TrainingMethod) and method.reveals_likelihoods:
        return "it sends sums of likelihoods and their derivatives, which are private"
    return ""


# ---- a fleet whose rows are private --------------------------------------------------------------------------------


def check_private_rows(private: object, counts: Sequence[int] = ()) -> PrivateRows | None:
    """Return a valid `private` of a fleet. counts: rows of each agent."""
    if private is None:
        return None
    if not isinstance(private, str) or private != "rows":
        raise InputError(f'private: expected "rows" or None, got {shortened(private)}')
    for agent, count in enumerate(counts):
        if 0 < count < FEWEST_ROWS:
            raise InputError(
                f'private="rows": expected at least {FEWEST_ROWS} rows of every agent, got {count} of agent {agent}: '
                "means and extremes over so few reveal them. Leave the agent out until it has more"
            )
    return "rows"


def predictor_of(method: str | None = None) -> PredictionMethod:
    """Return the prediction method of this name, or the default one.

    >>> predictor_of().name, predictor_of("dec-poe").name
    ('dec-summary', 'dec-poe')
    """
    return prediction_method(PREDICTOR if method is None else method)


def refuse_private(
    method: TrainingMethod | PredictionMethod,
    private: Private | None,
    kernel: Kernel | None = None,
    engine: str = "auto",
    rows: int | None = None,
) -> None:
    """Refuse a method that would reveal what is private. The error names the methods that do not."""
    if why := refusal(method, private, kernel, engine, rows):
        others = TRAINERS if isinstance(method, TrainingMethod) else PREDICTORS
        allowed = [
            name
            for name, row in others.items()
            if row.decentralized and not refusal(row, private, kernel, engine, rows)
        ]
        raise InputError(
            f'{method.name} is refused by private="{private}": {why}. Use one of {", ".join(allowed)}, or a fleet '
            "without private"
        )


def refuse_small_groups(method: PredictionMethod, private: Private | None, min_rows: int) -> None:
    """Raise one clear error for groups of so few rows that they reveal them."""
    if private is not None and "min_rows" in method.options and min_rows < FEWEST_ROWS:
        raise InputError(
            f'min_rows={min_rows} is refused by private="{private}": a group of so few rows reveals them. Give at '
            f"least {FEWEST_ROWS}"
        )


def refuse_queries(private: Private | None, what: str, instead: str) -> None:
    """Refuse what would ask the fleet about the places of an agent's own rows."""
    if private is not None:
        raise InputError(
            f'{what} is refused by private="{private}": the inputs of rows would be queries, which all agents see. '
            f"{instead}"
        )
