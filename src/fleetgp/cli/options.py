"""Arguments and options that several commands have, their checks, and what they mean together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fleetgp.cli.arguments import OPTIONAL, Given
from fleetgp.data.partition import BY
from fleetgp.errors import InputError, PointedError, unknown_name
from fleetgp.fleet.privacy import predictor_of
from fleetgp.graph import graph_names
from fleetgp.options import PredictionOptions
from fleetgp.prediction.methods import refuse_foreign
from fleetgp.training.constraints import Known, known_names, meant

Choice = TypeVar("Choice", bound=str)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]

# ---- fit ---------------------------------------------------------------------------------------------------

OBSERVATIONS = Annotated[
    list[Path],
    typer.Argument(
        help="Observations: CSV, Parquet, NPZ, or any variable of NetCDF and Zarr. Several files are read in chunks.",
        readable=False,
    ),
]
SAMPLE = Annotated[
    int | None,
    typer.Option(help="Files: methods that need rows get so many of each agent's, drawn at random.", min=1),
]
MEMORY = Annotated[float | None, typer.Option(help="Files: bytes of observations that may be loaded. (default: 1e9)")]
INPUTS = Annotated[list[str], typer.Option(help="The columns of the inputs, for example: --inputs lon lat")]
MODEL_OUT = Annotated[Path, typer.Option(help="The folder for the model.")]
AGENT_COLUMN = Annotated[str | None, typer.Option(help="The column that names the agent of each row.")]
AGENTS = Annotated[
    int | None,
    typer.Option(help="Without such a column: how many agents, called 0, 1, ..., to split over. (default: 1)"),
]
PARTITION = Annotated[
    str | None, typer.Option("--partition", help=f"How to split: {', '.join(BY)}. (default: stripes)")
]
AXIS = Annotated[str | None, typer.Option(help="The input along which stripes follow. (default: the first)")]
GRAPH = Annotated[str, typer.Option(help=f"{', '.join(graph_names())}, or a file with two agents' names a line.")]
TRAINING = Annotated[str, typer.Option(help="The training method; see `fleetgp methods`.")]
PRESET = Annotated[
    str | None,
    typer.Option(help="paper: the paper's kernel, constants, rounds and tolerance, for whatever is not given."),
]
START = Annotated[Path | None, typer.Option("--from", help="Start at the hyperparameters of this model.")]
SEED = Annotated[int, typer.Option(help="Draws samples, partitions and geometric graphs.")]
OVERWRITE = Annotated[bool, typer.Option("--overwrite", help="Replace a model of that name.")]
# ---- predict, map and others ---------------------------------------------------------------------------------------

MODEL = Annotated[Path, typer.Argument(help="The folder that `fleetgp fit` wrote.", readable=False)]
POINTS = Annotated[Path, typer.Argument(help="Where to predict: a table with the model's inputs.", readable=False)]
ANSWER_OUT = Annotated[Path, typer.Option(help="The answer: .csv, .parquet or .npz.")]
LEVEL = Annotated[
    float | None,
    typer.Option(help="Also the ends low and high of the intervals that hold so much, 0.95 say, of observations."),
]
METHOD = Annotated[
    str | None,
    typer.Option(
        help="How the agents combine their answers; see `fleetgp methods`. "
        "(default: dec-nn-grbcm, which sends rows; dec-nn-rbcm after fit --private rows)"
    ),
]
HOLDOUT = Annotated[
    str, typer.Option(help="What agents hide: rows (among the data), blocks (gaps that nobody observes) or both.")
]
ASKED = Annotated[str | None, typer.Option(help="Whose answer to write: an agent's name. (default: the first)")]
# ---- a running fleet ---------------------------------------------------------------------------------------

FILE = Annotated[Path, typer.Argument(help="The fleet's description, fleet.toml.", readable=False)]
AGENT = Annotated[str, typer.Option("--agent", help="Whom to talk to: an agent's name.")]
#: The longest that a command waits: a day.
LONGEST = 86_400.0
BOUND = Annotated[
    list[str] | None, typer.Option(help="The lowest and the highest value of a hyperparameter: l_lon=0.1:5, noise=:1.")
]
PRIOR = Annotated[
    list[str] | None, typer.Option(help="A log-normal prior, its median and a factor, one deviation: noise=0.1:2.")
]
FIX = Annotated[list[str] | None, typer.Option(help="A value that stays: noise=0.1.")]
CLUSTER = Annotated[
    str | None,
    typer.Option(
        metavar=OPTIONAL,
        help="Compute on a Ray cluster instead of in this process: the one at this host:port; without an address the "
        "one that is running here (`ray start --head`), or else a local one, for this command alone.",
    ),
]
WORKERS = Annotated[
    int | None,
    typer.Option(help="With --cluster: how many processes share the agents. (default: one per core)", min=1),
]
DEVIATION = Annotated[
    str | None, typer.Option(help="The column of known standard deviations of the target's noise, row by row.")
]


@dataclass(frozen=True)
class Constraints:
    """As typed. The names are the hyperparameters', or length, signal and noise."""

    bound: BOUND = None
    prior: PRIOR = None
    fix: FIX = None

    def known(self, names: Sequence[str]) -> dict[str, Any]:
        """What `Fleet.train` takes, checked; an error points at the character that is wrong.

        names: of the hyperparameters.
        """
        given = {"--bound": self.bound, "--prior": self.prior, "--fix": self.fix}
        found = {FORMS[option][0]: _values_by_name(option, texts, names) for option, texts in given.items()}
        try:
            Known.of(names, **found)
        except InputError as error:  # of two options together: each has been checked
            argument, _, said = str(error).partition(": ")
            option = next((typed for typed, form in FORMS.items() if form[0] == argument), argument)
            raise InputError(f"{option}: {said}") from error
        return found


class Typed:
    """The value of an option, name=..., that is read from the left."""

    def __init__(self, option: str, text: str, names: Sequence[str], form: str) -> None:
        self.option, self.text = option, text
        self.name, given, self.rest = text.rpartition("=")  # a column's name may have one
        self.at = len(self.name) + len(given)
        if not given:
            raise self.wrong(f"expected {form}, and there is no =", len(text))
        if not meant(self.name, names):
            raise self.wrong(f"unknown name {self.name!r}: choose one of {', '.join(known_names(names))}", 0)

    def wrong(self, said: str, position: int) -> PointedError:
        return PointedError(f"{self.option}: {said}", self.text, position)

    def number(self, text: str, position: int) -> float:
        """A part of the text that begins at a position, as a number above 0."""
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(f"expected a number, got {text!r}", position) from None
        if not 0.0 < value < float("inf"):
            raise self.wrong(f"expected a number above 0, got {text}", position)
        return value

    def pair(self, form: str) -> tuple[tuple[str, int], tuple[str, int]]:
        """The two parts around the colon, and where they begin."""
        first, colon, second = self.rest.partition(":")
        if not colon:
            raise self.wrong(f"expected {form}, and there is no :", len(self.text))
        return (first, self.at), (second, self.at + len(first) + 1)


def _ends(typed: Typed) -> tuple[float | None, float | None]:
    low, high = (typed.number(*part) if part[0] else None for part in typed.pair("lowest:highest"))
    return low, high


def _median_and_factor(typed: Typed) -> tuple[float, float]:
    median, (factor, position) = typed.pair("median:factor")
    found = typed.number(*median), typed.number(factor, position)
    if found[1] <= 1.0:
        raise typed.wrong(f"expected a factor above 1, got {factor}", position)
    return found


def _value(typed: Typed) -> float:
    return typed.number(typed.rest, typed.at)


#: What an option is called in `Fleet.train`, what it looks like, and how it is read.
Form = tuple[str, str, Callable[[Typed], Any]]
FORMS: dict[str, Form] = {
    "--bound": ("bounds", "name=lowest:highest", _ends),
    "--prior": ("priors", "name=median:factor", _median_and_factor),
    "--fix": ("fixed", "name=value", _value),
}


def _values_by_name(option: str, texts: Iterable[str] | None, names: Sequence[str]) -> dict[str, Any]:
    """What an option was given for, by name."""
    argument, form, read = FORMS[option]
    found: dict[str, Any] = {}
    for text in texts or ():
        typed = Typed(option, text, names, form)
        if typed.name in found:
            raise typed.wrong(f"{typed.name} was given before", 0)
        found[typed.name] = read(typed)
        try:
            Known.of(names, **{argument: found})
        except InputError as error:
            raise typed.wrong(str(error).removeprefix(f"{argument}: "), typed.at) from error
    return found


def for_predictor(method: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed; one clear error, with their names as typed, for those of other methods."""
    chosen = {name: value for name, value in given.items() if (name, value) != ("engine", "auto")}
    refuse_foreign(predictor_of(None, method), chosen, prefix="--")
    return chosen


@dataclass(frozen=True)
class Asking:
    """How a model is asked."""

    method: METHOD = None
    agent: ASKED = None
    given: Annotated[dict[str, Any], Given(PredictionOptions)] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, Any]:
        """The options as `ask` takes them."""
        return for_predictor(self.method, self.given)


@dataclass(frozen=True)
class Output:
    """What is printed."""

    as_json: Json = False
    quiet: Quiet = False


def one_of(option: str, given: str, choices: Sequence[Choice]) -> Choice:
    """The choice that was given, or one clear error."""
    for choice in choices:
        if choice == given:
            return choice
    raise unknown_name(option, given, choices)


def check_seconds(seconds: float) -> None:
    if not 0.0 < seconds <= LONGEST:
        raise InputError(f"--seconds must lie above 0 and up to {LONGEST:g}, got {seconds}")


@dataclass(frozen=True)
class Cluster:
    """cluster: an address, or nothing for any; None: this process."""

    cluster: CLUSTER = None
    workers: WORKERS = None

    @property
    def backend(self) -> dict[str, Any]:
        """What `Fleet` takes."""
        if self.cluster is None:
            if self.workers is not None:
                raise InputError("--workers is for --cluster: give that as well, or leave it out")
            return {}
        return {"backend": "ray", "workers": self.workers, "address": self.cluster or None}
