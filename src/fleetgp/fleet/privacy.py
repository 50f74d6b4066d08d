"""Which kinds of content each method may send: the table of docs/privacy.md, as code.

A fleet with `private` refuses by it, `recommend` chooses by it, and `verify` holds ledgers against it. The tests
compare both the table and the document with what runs send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from fleetgp.engines.moments.sums import LARGEST_GRID
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.kernels.stationary import Kernel
from fleetgp.network.ledger import KINDS
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.registry import METHODS as PREDICTORS
from fleetgp.prediction.registry import PREDICTION_METHODS, prediction_method
from fleetgp.training.methods import METHODS as TRAINERS
from fleetgp.training.methods import TRAINING_METHODS, TrainingMethod

#: What must not be told, each with all before it: single rows of the data; sums over them, which of few rows are the
#: rows (moments); values of likelihoods and their derivatives.
Private = Literal["rows", "sums", "likelihoods"]
PRIVATE: tuple[Private, ...] = get_args(Private)
ROWS = ("inputs", "observations")
#: What a fleet can be made with, so far: it refuses what would reveal a row.
PrivateRows = Literal["rows"]
#: The predictor of a fleet that is asked without one, and where rows are private: the most accurate that sends none.
PREDICTOR, PREDICTOR_WITHOUT_ROWS = "dec-nn-grbcm", "dec-nn-rbcm"
#: Rows of an agent below which means and extremes over them reveal them.
FEWEST_ROWS = 5
#: Rows of an agent below which its moments may determine them. No grid has more sums than this, with those of the
#: observations at most twice as many, and every row has two unknown numbers at least.
FEWEST_ROWS_FOR_MOMENTS = LARGEST_GRID


def kinds_of_prediction(
    method: PredictionMethod, kernel: Kernel | None = None, engine: str = "auto", consensus: str = "tree"
) -> tuple[str, ...]:
    """The kinds of content that an answer by this method may send. kernel: None for any.

    NPAE sends inputs but where vectors on the box of all data will do, which needs the squared exponential.

    >>> kinds_of_prediction(PREDICTORS["dec-rbcm"]), kinds_of_prediction(PREDICTORS["dec-full-gp"])
    (('predictions', 'statistics'), ('statistics', 'moments'))
    """
    return _sorted(*method.kinds(kernel, engine, consensus))


def withheld(private: Private | None) -> tuple[str, ...]:
    """The kinds that may not be sent where something is private; see `refusal` for likelihoods.

    >>> withheld("rows"), withheld("sums")
    (('inputs', 'observations'), ('inputs', 'observations', 'moments'))
    """
    check_private(private)
    return () if private is None else ROWS if private == "rows" else (*ROWS, "moments")


def check_private(private: object) -> None:
    """What may be private, or one clear error."""
    if private is not None:
        check_name("private", private, PRIVATE)


def refusal(
    method: TrainingMethod | PredictionMethod,
    private: Private | None,
    kernel: Kernel | None = None,
    engine: str = "auto",
    rows: int | None = None,
) -> str:
    """Why a method may not be used where something is private; empty if it may.

    rows: of the smallest agent, if they are known: moments of few rows determine the rows.
    """
    if isinstance(method, TrainingMethod):
        kinds = method.kinds
    else:
        kinds = kinds_of_prediction(method, kernel, engine)
    told = [kind for kind in withheld(private) if kind in kinds]
    if told:
        return f"it sends {_words(told)}, which are private"
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
    """What a fleet is made with, or one clear error. counts: rows of each agent."""
    if private is None:
        return None
    if not isinstance(private, str) or private != "rows":
        raise InputError(f'private: expected "rows" or None, got {shortened(private)}')
    for agent, count in enumerate(counts):
        if count < FEWEST_ROWS:
            raise InputError(
                f'private="rows": expected at least {FEWEST_ROWS} rows of every agent, got {count} of agent {agent}: '
                "means and extremes over so few reveal them. Leave the agent out until it has more"
            )
    return "rows"


def predictor_of(private: Private | None, method: str | None = None) -> PredictionMethod:
    """The prediction method that was asked for, or the default one.

    >>> predictor_of(None).name, predictor_of("rows").name, predictor_of("rows", "dec-poe").name
    ('dec-nn-grbcm', 'dec-nn-rbcm', 'dec-poe')
    """
    default = PREDICTOR if private is None else PREDICTOR_WITHOUT_ROWS
    return prediction_method(default if method is None else method)


def refuse_private(
    method: TrainingMethod | PredictionMethod,
    private: Private | None,
    kernel: Kernel | None = None,
    engine: str = "auto",
    rows: int | None = None,
) -> None:
    """One clear error for a method that would reveal what is private. It names the methods that do not."""
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


def refuse_queries(private: Private | None, what: str, instead: str) -> None:
    """One clear error for what would ask the fleet about the places of an agent's own rows."""
    if private is not None:
        raise InputError(
            f'{what} is refused by private="{private}": the inputs of rows would be queries, which all agents see. '
            f"{instead}"
        )


def _words(kinds: list[str]) -> str:
    if kinds == ["moments"]:
        return "sums over the data (moments)"
    return " and ".join(kinds) + " of single rows"


def _sorted(*kinds: str) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind in kinds)


def table() -> list[tuple[str, str]]:
    """For docs/privacy.md: the kinds of content, and the methods that may send just these."""
    found: dict[tuple[str, str], list[str]] = {}
    for task, names in (("training", TRAINING_METHODS), ("prediction", PREDICTION_METHODS)):
        for name in names:
            kinds = TRAINERS[name].kinds if task == "training" else kinds_of_prediction(PREDICTORS[name])
            found.setdefault((task, ", ".join(kinds)), []).append(f"`{name}`")
    return [(f"{task}: {', '.join(names)}", kinds) for (task, kinds), names in found.items()]
