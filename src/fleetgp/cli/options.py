"""Arguments and options that several commands share, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fleetgp.cli.arguments import OPTIONAL, Family, option
from fleetgp.declarations import flag_of
from fleetgp.errors import InputError, PointedError, unknown_name
from fleetgp.fleet.privacy import predictor_of
from fleetgp.io.formats import Reading
from fleetgp.options import PredictionOptions, QueryOptions, RowOptions
from fleetgp.prediction.registry import refuse_foreign
from fleetgp.training.constraints import ParameterConstraints, known_names, meant

Choice = TypeVar("Choice", bound=str)
#: The options of a joint posterior.
JOINT = ("eta", "engine", "n_neighbours", "n_nearest", "min_rows", "budget")

Quiet = Annotated[bool, option("No progress bars.", "--quiet")]

#: How a CSV file is read, and any file of points; a command makes a `Reading` of it.
TABLE_READING = Annotated[dict[str, Any], Family(Reading, ("sep", "decimal", "encoding"))]
FILE_READING = Annotated[dict[str, Any], Family(Reading, ("date", "box", "stride", "sep", "decimal", "encoding", "at"))]
#: Which rows of a file of observations count.
ROWS = Annotated[dict[str, Any], Family(RowOptions)]
SEED = "Draws samples, partitions and geometric graphs."
DEVIATION = Annotated[str | None, option("The column of known standard deviations of the target's noise, one per row.")]

# ---- a model -------------------------------------------------------------------------------------------------------

MODEL = Annotated[Path, typer.Argument(help="The folder that `fleetgp fit` wrote.", readable=False)]
POINTS = Annotated[Path, typer.Argument(help="Where to predict: a table with the model's inputs.", readable=False)]
ANSWER_OUT = Annotated[Path, option("The answer: .csv, .parquet or .npz.")]
LEVEL = Annotated[
    float | None,
    option("Add low and high, the ends of intervals that contain this share of observations."),
]
WHEN = Annotated[dict[str, Any], Family(QueryOptions)]
METHOD = Annotated[
    str | None,
    option("How the agents combine their answers; see `fleetgp methods`. (default: dec-summary, which sends no row)"),
]

# ---- a running fleet -----------------------------------------------------------------------------------------------

FILE = Annotated[Path, typer.Argument(help="The fleet's description, fleet.toml.", readable=False)]
AGENT = Annotated[str, option("The agent that gets the request, by name.", "--agent")]
PORT = Annotated[int | None, option("The port. (default: 8765, or any if it is taken)", min=0, max=65535)]
NO_OPEN = Annotated[bool, option("Do not open a browser.", "--no-open")]
#: The longest that a command waits: a day.
LONGEST = 86_400.0

# ---- a cluster -----------------------------------------------------------------------------------------------------

CLUSTER = Annotated[
    str | None,
    typer.Option(
        metavar=OPTIONAL,
        help="Compute on a Ray cluster instead of in this process: the one at this host:port; without an address the "
        "one that is running here (`ray start --head`), or else a local one, for this command alone.",
    ),
]
WORKERS = Annotated[
    int | None, option("With --cluster: how many processes share the agents. (default: one per core)", min=1)
]


#: What an option is called in `Fleet.train`, and what it looks like.
FORMS = {
    "--bound": ("bounds", "name=lowest:highest"),
    "--prior": ("priors", "name=median:factor"),
    "--fix": ("fixed", "name=value"),
}


@dataclass(frozen=True)
class Constraints:
    """Constraints on hyperparameters as typed, by their names, or by length, signal and noise."""

    bound: Annotated[
        list[str] | None, option("The lowest and the highest value of a hyperparameter: l_lon=0.1:5, noise=:1.")
    ] = None
    prior: Annotated[
        list[str] | None,
        option("A log-normal prior: its median, and a factor that is one standard deviation: noise=0.1:2."),
    ] = None
    fix: Annotated[list[str] | None, option("A fixed value: noise=0.1.")] = None

    def known(self, names: Sequence[str]) -> dict[str, Any]:
        """Return them as `Fleet.train` takes them, checked; an error points at the character that is wrong.

        names: of the hyperparameters.
        """
        known: dict[str, dict[str, Any]] = {}
        for flag, texts in zip(FORMS, (self.bound, self.prior, self.fix), strict=True):
            argument, form = FORMS[flag]
            values = known[argument] = {}
            for text in texts or ():
                name, value = _named_value(flag, text, form, names)
                if name in values:
                    raise PointedError(f"{flag}: {name} was given before", text, 0)
                values[name] = value
                try:
                    ParameterConstraints.of(names, **{argument: values})
                except InputError as error:
                    message = str(error).removeprefix(f"{argument}: ")
                    raise PointedError(f"{flag}: {message}", text, len(name) + 1) from error
        try:
            ParameterConstraints.of(names, **known)
        except InputError as error:  # two options contradict each other
            argument, _, message = str(error).partition(": ")
            flag = next((flag for flag, (its, _) in FORMS.items() if its == argument), argument)
            raise InputError(f"{flag}: {message}") from error
        return known


def _named_value(flag: str, text: str, form: str, names: Sequence[str]) -> tuple[str, Any]:
    """Read name=value or name=first:second."""

    def wrong(message: str, position: int) -> PointedError:
        return PointedError(f"{flag}: {message}", text, position)

    def number(part: str, position: int) -> float:
        try:
            value = float(part)
        except ValueError:
            raise wrong(f"expected a number, got {part!r}", position) from None
        if not 0.0 < value < float("inf"):
            raise wrong(f"expected a number above 0, got {part}", position)
        return value

    name, equals, rest = text.rpartition("=")  # a column's name may have one
    if not equals:
        raise wrong(f"expected {form}, and there is no =", len(text))
    if not meant(name, names):
        raise wrong(f"unknown name {name!r}: choose one of {', '.join(known_names(names))}", 0)
    at = len(name) + 1
    if flag == "--fix":
        return name, number(rest, at)
    first, colon, second = rest.partition(":")
    if not colon:
        raise wrong(f"expected {form.removeprefix('name=')}, and there is no :", len(text))
    parts = (first, at), (second, at + len(first) + 1)
    if flag == "--bound":
        return name, tuple(number(*part) if part[0] else None for part in parts)
    median, factor = number(*parts[0]), number(*parts[1])
    if factor <= 1.0:
        raise wrong(f"expected a factor above 1, got {second}", parts[1][1])
    return name, (median, factor)


def for_predictor(method: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed; one clear error, with their names as typed, for those of other methods."""
    chosen = {name: value for name, value in given.items() if (name, value) != ("engine", "auto")}
    refuse_foreign(predictor_of(method), chosen, flag_of)
    return chosen


@dataclass(frozen=True)
class Asking:
    """How a model is asked."""

    method: METHOD = None
    agent: Annotated[str | None, option("The agent whose answer is written, by name. (default: the first)")] = None
    given: Annotated[dict[str, Any], Family(PredictionOptions)] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, Any]:
        """The options as `ask` takes them."""
        return for_predictor(self.method, self.given)


@dataclass(frozen=True)
class JointAsking:
    """How a joint posterior is asked for."""

    method: METHOD = None
    given: Annotated[dict[str, Any], Family(PredictionOptions, JOINT)] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, Any]:
        """The options as `Fleet.joint` takes them."""
        return {"method": self.method, **for_predictor(self.method, self.given)}


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
