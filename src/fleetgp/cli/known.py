"""--bound, --prior and --fix: what is known of the hyperparameters before any data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fleetgp.errors import InputError, PointedError
from fleetgp.training.constraints import Known, known_names, meant

BOUND = Annotated[
    list[str] | None, typer.Option(help="The lowest and the highest value of a hyperparameter: l_lon=0.1:5, noise=:1.")
]
PRIOR = Annotated[
    list[str] | None, typer.Option(help="A log-normal prior, its median and a factor, one deviation: noise=0.1:2.")
]
FIX = Annotated[list[str] | None, typer.Option(help="A value that stays: noise=0.1.")]


@dataclass(frozen=True)
class Knowing:
    """As typed. The names are the hyperparameters', or length, signal and noise."""

    bound: BOUND = None
    prior: PRIOR = None
    fix: FIX = None

    def known(self, names: Sequence[str]) -> dict[str, Any]:
        """What `Fleet.train` takes, checked; an error points at the character that is wrong.

        names: of the hyperparameters.
        """
        given = {"--bound": self.bound, "--prior": self.prior, "--fix": self.fix}
        found = {FORMS[option][0]: _all(option, texts, names) for option, texts in given.items()}
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


def _all(option: str, texts: Iterable[str] | None, names: Sequence[str]) -> dict[str, Any]:
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
