"""Options that take as many values as follow them, --inputs lon lat depth, or one or none: --cluster [host:port]."""

from __future__ import annotations

import re
from typing import Any

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
