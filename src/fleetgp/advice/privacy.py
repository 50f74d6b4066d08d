"""Which kinds of content each method may send: the table of docs/privacy.md, as code.

`recommend` chooses by it, `verify` holds ledgers against it, and the tests hold both it and the document against runs.
"""

from __future__ import annotations

from typing import Literal, get_args

from fleetgp.errors import check_name
from fleetgp.gp.kernels import Kernel, SquaredExponential
from fleetgp.network.ledger import KINDS
from fleetgp.prediction.methods import METHODS as PREDICTORS
from fleetgp.prediction.methods import PREDICTION_METHODS, PredictionMethod
from fleetgp.training.methods import METHODS as TRAINERS
from fleetgp.training.methods import TRAINING_METHODS, TrainingMethod

#: What must not be told, each with all before it: single rows of the data; sums over them, which of few rows are the
#: rows (moments); values of likelihoods and their derivatives.
Private = Literal["rows", "sums", "likelihoods"]
PRIVATE: tuple[Private, ...] = get_args(Private)
ROWS = ("inputs", "observations")

#: How a training meets -> what its messages may hold, besides statistics.
_MEETING: dict[str, tuple[str, ...]] = {
    "moments": ("hyperparameters", "moments"),
    "tree": (),
    "edges": ("hyperparameters", "stopping"),
    "pool": ("hyperparameters", "moments", *ROWS),  # moments of data in files
    "minimize": ("hyperparameters",),
    "server": ("hyperparameters", "stopping"),
}


def kinds_of_training(method: TrainingMethod) -> tuple[str, ...]:
    """The kinds of content that a training by this method may send.

    >>> kinds_of_training(TRAINERS["dec-fact-gp"]), kinds_of_training(TRAINERS["dec-gapx-gp"])
    (('statistics',), ('hyperparameters', 'inputs', 'observations', 'statistics', 'stopping'))
    """
    samples = ROWS if method.augmented else ()
    return _sorted("statistics", *_MEETING[method.meet], *samples)


def kinds_of_prediction(
    method: PredictionMethod, kernel: Kernel | None = None, engine: str = "auto", consensus: str = "tree"
) -> tuple[str, ...]:
    """The kinds of content that an answer by this method may send. kernel: None for any.

    NPAE sends inputs but where vectors on the box of all data will do, which needs the squared exponential.

    >>> kinds_of_prediction(PREDICTORS["dec-rbcm"]), kinds_of_prediction(PREDICTORS["dec-full-gp"])
    (('predictions', 'statistics'), ('statistics', 'moments'))
    """
    found = ["statistics", "predictions"]
    if method.rule == "full-gp":
        found = ["statistics", "moments"] if method.decentralized else [*found, "moments", *ROWS]
    if method.rule in ("grbcm", "nearest"):
        found += ROWS
    if method.rule == "npae":
        vectors = isinstance(kernel, SquaredExponential) and engine != "dense"
        found += () if vectors else ("inputs",)
    if method.nearest:
        found.append("participants")
    if consensus == "average" and method.decentralized and method.rule not in ("full-gp", "nearest"):
        found.append("stopping")
    return _sorted(*found)


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


def refusal(method: TrainingMethod | PredictionMethod, private: Private | None, kernel: Kernel | None = None) -> str:
    """Why a method may not be used where something is private; empty if it may."""
    kinds = kinds_of_training(method) if isinstance(method, TrainingMethod) else kinds_of_prediction(method, kernel)
    told = [kind for kind in withheld(private) if kind in kinds]
    if told:
        return f"it sends {_words(told)}, which are private"
    if private == "likelihoods" and isinstance(method, TrainingMethod) and method.meet in ("tree", "minimize"):
        return "it sends sums of likelihoods and their derivatives, which are private"
    return ""


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
            kinds = kinds_of_training(TRAINERS[name]) if task == "training" else kinds_of_prediction(PREDICTORS[name])
            found.setdefault((task, ", ".join(kinds)), []).append(f"`{name}`")
    return [(f"{task}: {', '.join(names)}", kinds) for (task, kinds), names in found.items()]
