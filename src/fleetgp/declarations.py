"""How an option is declared: as a field of a dataclass with its values, its help and where it can be given.

The dataclasses are those of `fleetgp.options`, and `Reading`. Docstrings, the command line and fleet.toml derive from
them.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from fleetgp.errors import InputError, check_name, shortened
from fleetgp.validation import as_flag, check_number, check_whole


@dataclass(frozen=True)
class Kind:
    """The values that an option takes.

    type: of a value typed in a terminal.  check: returns the value as methods take it, or raises an InputError.
    values: in words.  read: converts what was typed; like check it gets the option's name for messages.
    """

    type: Any
    check: Callable[[str, Any], Any]
    values: str
    read: Callable[[str, Any], Any] = lambda _, typed: typed


@dataclass(frozen=True)
class Option:
    """One option of a family.

    default: None where the method or the data decide; then `otherwise` says how, in words.
    detail: what docstrings add to the help.
    cli, toml: whether the command line and fleet.toml have it.
    """

    name: str
    default: Any
    kind: Kind
    help: str
    otherwise: str = ""
    detail: str = ""
    cli: bool = True
    toml: bool = True

    @property
    def flag(self) -> str:
        """The option as it is typed in a terminal."""
        return flag_of(self.name)

    @property
    def default_in_words(self) -> str:
        """What is taken if the option is not given.

        >>> Option("tol", 1e-5, number(least=0.0), "").default_in_words
        '1e-5'
        """
        if self.otherwise or self.default is None:
            return self.otherwise
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        return f"{self.default:g}".replace("e-0", "e-") if isinstance(self.default, float) else str(self.default)

    def check(self, value: object, name: str | None = None) -> Any:
        """Return the value as methods take it, or raise an InputError. name: what the user calls the option."""
        if value is None and self.default is None:
            return None
        return self.kind.check(name or self.name, value)


def flag_of(name: str) -> str:
    """Return an option's name as it is typed in a terminal.

    >>> flag_of("nested_iterations")
    '--nested-iterations'
    """
    return "--" + name.replace("_", "-")


def whole(*, least: int) -> Kind:
    def check(name: str, value: Any) -> int:
        check_whole(name, value, least=least)
        return int(value)

    return Kind(int, check, f"a whole number of at least {least}")


def number(*, above: float = -np.inf, least: float = -np.inf) -> Kind:
    def check(name: str, value: Any) -> float:
        check_number(name, value, above=above, least=least)
        return float(value)

    return Kind(float, check, f"a number above {above:g}" if above > -np.inf else f"a number of at least {least:g}")


def one_of(names: Collection[str]) -> Kind:
    """One of these names. Those of a registry may become more, since other packages can add some."""

    def check(name: str, value: Any) -> str:
        check_name(name, value, names)
        return cast(str, value)

    return Kind(str, check, ", ".join(names))


def declared(default: Any, kind: Kind, text: str, **more: Any) -> Any:
    """Declare an option as a field of a dataclass. text: its help.  more: other fields of `Option`."""
    return field(default=default, metadata={"option": {"kind": kind, "help": text, **more}})


@cache
def options_in(family: type) -> dict[str, Option]:
    return {
        one.name: Option(one.name, one.default, **one.metadata["option"])
        for one in fields(family)
        if "option" in one.metadata
    }


Function = TypeVar("Function", bound=Callable[..., Any])


def takes(keywords: type, *families: type) -> Callable[[Function], Function]:
    """Show the keywords of a function with `**options: Unpack[keywords]` in its signature and its docstring.

    keywords: a TypedDict.  families: the dataclasses that declare its keys; of several the first one counts. The text
    replaces "{options}" in the docstring.

    >>> import fleetgp as fg
    >>> "beta: The weights of agents with grBCM." in fg.Fleet.predict.__doc__
    True
    """

    def decorate(function: Function) -> Function:
        known = {name: option for family in reversed(families) for name, option in options_in(family).items()}
        plain = inspect.signature(function)
        own = [one for one in plain.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if known[name].otherwise else known[name].default,
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in keywords.__annotations__.items()
        ]
        function.__dict__["__signature__"] = plain.replace(parameters=[*own, *more])
        if function.__doc__:
            text = "\n".join(paragraph(known[name]) for name in keywords.__annotations__)
            function.__doc__ = function.__doc__.replace("{options}", text.lstrip())
        return function

    return decorate


@cache
def paragraph(option: Option) -> str:
    """Return what a docstring says about an option."""
    default = option.default_in_words
    text = f"{option.name}: {option.help}{f' {option.detail}' if option.detail else ''}"
    text += f" Default: {default}." if default else ""
    return textwrap.fill(text, 120, initial_indent=" " * 8, subsequent_indent=" " * 12)


def given_in(options: Mapping[str, Any], keywords: type, caller: str) -> dict[str, Any]:
    """Return the options that are not None; refuse names that `keywords` does not have.

    >>> from fleetgp.options import CalibrateKeywords
    >>> given_in({"engine": "dense", "n_neighbours": None}, CalibrateKeywords, "calibrate")
    {'engine': 'dense'}
    """
    for name in options:
        if name not in keywords.__annotations__:
            expected = ", ".join(keywords.__annotations__)
            raise InputError(f"{caller} has no option {shortened(name)}: expected one of {expected}")
    return {name: value for name, value in options.items() if value is not None}


def checked(family: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a family's options as methods take them, or raise an InputError."""
    known = options_in(family)
    return {name: known[name].check(value) for name, value in given.items()}


def as_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name}: expected a text, got {shortened(value)}")
    return value


def unchecked(_: str, value: Any) -> Any:
    """Return the value as it is: the function that uses it checks it."""
    return value


#: Any text; the function that uses it checks it.
TEXT = Kind(str, as_text, "a text")
FLAG = Kind(bool, lambda name, value: as_flag(value, name), "true or false")


# ---- values that are typed -----------------------------------------------------------------------------------


def number_or_text(_: str, text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def four_sides(name: str, box: Sequence[float]) -> tuple[float, float, float, float]:
    if len(box) != 4:
        sides = " ".join(f"{side:g}" for side in box)
        raise InputError(f"{name}: expected four numbers (west south east north), got {len(box)}: {sides}")
    west, south, east, north = box
    return west, south, east, north


def values_by_name(name: str, texts: Sequence[str]) -> dict[str, float | str]:
    """Return values by name.

    >>> values_by_name("--at", ["depth=5", "time=2021-01-05"])
    {'depth': 5.0, 'time': '2021-01-05'}
    """
    values: dict[str, float | str] = {}
    for text in texts:
        key, given, value = text.partition("=")
        if not given or not key or not value:
            raise InputError(f"{name}: expected a name and a value, like depth=5, got {text!r}")
        values[key] = number_or_text(name, value)
    return values


def numbers_or_none(name: str, texts: Sequence[str]) -> list[float]:
    """Return numbers; the text "none" stands for an empty list."""
    if list(texts) == ["none"]:
        return []
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise InputError(f"{name}: expected numbers, or none, got {' '.join(texts)}") from error
