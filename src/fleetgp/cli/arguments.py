"""From typed arguments to the parameters of a command: options of several values, and families of options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from operator import itemgetter
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from fleetgp.cli.output import Report, print_report
from fleetgp.declarations import Option, options_in

#: What begins with a minus and is no option.
NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?(,.*)?", re.IGNORECASE)
#: The placeholder of an option whose value may be left out, and what is its value if it follows.
OPTIONAL = "[host:port]"
ADDRESS = re.compile(r"(ray://)?[^\s/:]+:\d+|auto")


class VariadicCommand(TyperCommand):
    """A repeatable option may also be given once, with all its values; a comma separates them as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        many = {name for parameter in self.params if getattr(parameter, "multiple", False) for name in parameter.opts}
        may = {name for parameter in self.params if parameter.metavar == OPTIONAL for name in parameter.opts}
        return super().parse_args(ctx, spread_out(completed(args, may), many))


def spread_out(arguments: list[str], many: set[str]) -> list[str]:
    """Repeat an option for each of its values.

    >>> spread_out(["t.csv", "--inputs", "lon", "lat", "--target", "sst"], {"--inputs"})
    ['t.csv', '--inputs', 'lon', '--inputs', 'lat', '--target', 'sst']
    >>> spread_out(["--inputs=lon,lat", "t.csv"], {"--inputs"})
    ['--inputs', 'lon', '--inputs', 'lat', 't.csv']
    >>> spread_out(["--box", "-73", "36.4", "--fill", "-9999", "--out", "m"], {"--box", "--fill"})
    ['--box', '-73', '--box', '36.4', '--fill', '-9999', '--out', 'm']
    """
    result: list[str] = []
    collecting: str | None = None
    for argument in arguments:
        name, given, value = argument.partition("=")
        if name in many:
            collecting = None if given else name
            for part in value.split(",") if given else ():
                result += [name, part]
        elif collecting is not None and (not argument.startswith("-") or NUMBER.fullmatch(argument)):
            for part in argument.split(","):
                result += [collecting, part]
        else:
            collecting = None
            result.append(argument)
    return result


def completed(arguments: list[str], may: set[str]) -> list[str]:
    """Give options that may have no value an empty one.

    >>> completed(["--cluster", "t.csv"], {"--cluster"}), completed(["--cluster", "10.0.0.1:6379"], {"--cluster"})
    (['--cluster=', 't.csv'], ['--cluster=10.0.0.1:6379'])
    """
    result: list[str] = []
    for argument in arguments:
        if result and result[-1] in may and ADDRESS.fullmatch(argument):
            result[-1] += f"={argument}"
        else:
            result.append(argument)
    return [f"{argument}=" if argument in may else argument for argument in result]


@dataclass(frozen=True)
class Family:
    """Marks a parameter that is a dictionary of the typed options of a family. names: of some of them alone."""

    family: type
    names: tuple[str, ...] = ()

    @property
    def options(self) -> list[Option]:
        return [
            one for one in options_in(self.family).values() if one.cli and (one.name in self.names or not self.names)
        ]


def default_of(function: Callable[..., Any], name: str) -> Any:
    """The default of a parameter of a Python function: also that of the option that is passed to it."""
    return inspect.signature(function).parameters[name].default


def option(text: str, *flags: str, **settings: Any) -> Any:
    """An option with its help. flags: how it is typed, if not like its parameter.  settings: of `typer.Option`."""
    return typer.Option(*flags, help=text, **settings)


#: Builds one parameter of a command from the values that Typer has read.
Build = Callable[[dict[str, Any]], Any]
#: An option of each command that returns a `Report`.
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]


def grouped(command: Callable[..., Report | None]) -> Callable[..., None]:
    """Give a command a flat signature for Typer, with one parameter for each option, and print its report.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int = 1
    ...     height: int = 1
    >>> @grouped
    ... def draw(name: str, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> list(inspect.signature(draw).parameters)
    ['name', 'width', 'height']
    >>> draw(name="box", width=2, height=3)
    box 6
    """
    parameters: list[inspect.Parameter] = []
    call = _flattened(command, parameters)
    if get_type_hints(command)["return"] is Report:
        parameters.append(_parameter("as_json", False, Json))

    @wraps(command)
    def run(**given: Any) -> None:
        report = call(given)
        if report is not None:
            print_report(report, as_json=given["as_json"])

    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _flattened(function: Any, parameters: list[inspect.Parameter]) -> Build:
    """Append the typed options of a function or a dataclass, and return how to call it with their values."""
    hints = get_type_hints(function, include_extras=True)
    builds: dict[str, Build] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        family = next((one for one in getattr(hints[name], "__metadata__", ()) if isinstance(one, Family)), None)
        if family is not None:
            parameters += [_parameter(one.name, None, _annotation(one)) for one in family.options]
            builds[name] = partial(_typed_values, family.options)
        elif is_dataclass(hints[name]):
            builds[name] = _flattened(hints[name], parameters)
        else:
            parameters.append(_parameter(name, parameter.default, hints[name]))
            builds[name] = itemgetter(name)
    return lambda given: function(**{name: build(given) for name, build in builds.items()})


def _typed_values(options: list[Option], values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were typed, checked, as methods take them."""
    typed = {one: values[one.name] for one in options if values[one.name] not in (None, [])}
    return {one.name: one.check(one.kind.read(one.flag, value), one.flag) for one, value in typed.items()}


def _annotation(option: Option) -> Any:
    """An option for Typer. Its value is None unless it was typed: methods have the defaults."""
    switch = [option.flag] if option.kind.type is bool and not option.default else []
    default = "" if switch or not option.default_in_words else f" (default: {option.default_in_words})"
    return Annotated[option.kind.type | None, typer.Option(*switch, help=option.help + default)]


def _parameter(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
