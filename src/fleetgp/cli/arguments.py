"""How typed arguments become a command's parameters: options of several values, and options that belong together."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

from typer.core import TyperCommand

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
    """--inputs a b -> --inputs a --inputs b.

    >>> spread_out(["t.csv", "--inputs", "lon", "lat", "--target", "sst"], {"--inputs"})
    ['t.csv', '--inputs', 'lon', '--inputs', 'lat', '--target', 'sst']
    >>> spread_out(["--inputs=lon,lat", "t.csv"], {"--inputs"})
    ['--inputs', 'lon', '--inputs', 'lat', 't.csv']
    >>> spread_out(["--box", "-73", "36.4", "--fill", "-9999", "--out", "m"], {"--box", "--fill"})
    ['--box', '-73', '--box', '36.4', '--fill', '-9999', '--out', 'm']
    """
    found: list[str] = []
    collecting: str | None = None
    for argument in arguments:
        name, given, value = argument.partition("=")
        if name in many:
            collecting = None if given else name
            for part in value.split(",") if given else ():
                found += [name, part]
        elif collecting is not None and (not argument.startswith("-") or NUMBER.fullmatch(argument)):
            for part in argument.split(","):
                found += [collecting, part]
        else:
            collecting = None
            found.append(argument)
    return found


def completed(arguments: list[str], may: set[str]) -> list[str]:
    """Options without a value with an empty one.

    >>> completed(["--cluster", "t.csv"], {"--cluster"}), completed(["--cluster", "10.0.0.1:6379"], {"--cluster"})
    (['--cluster=', 't.csv'], ['--cluster=10.0.0.1:6379'])
    """
    found: list[str] = []
    for argument in arguments:
        if found and found[-1] in may and ADDRESS.fullmatch(argument):
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return [f"{argument}=" if argument in may else argument for argument in found]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer should see it.

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
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            options = get_type_hints(hints[name], include_extras=True)
            parameters += [
                _typed(option.name, _default(option), options[option.name]) for option in fields(hints[name])
            ]
        else:
            parameters.append(_typed(name, parameter.default, hints[name]))

    @wraps(command)
    def run(**given: Any) -> None:
        values = {
            name: group(**{option.name: given.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **values)

    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _typed(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(option: Field[Any]) -> object:
    return inspect.Parameter.empty if option.default is MISSING else option.default
