"""All commands, and how their errors become one line and an exit code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperGroup

from fleetgp.cli import INTERRUPTED, INTERRUPTION
from fleetgp.cli.arguments import VariadicCommand, grouped
from fleetgp.cli.output import print_error, warn
from fleetgp.errors import FleetGPError, FleetGPWarning, InputError, PointedError

#: Exit codes: done; failed, though the input was valid; wrong input.
DONE, FAILED, WRONG = 0, 1, 2


#: The commands, in the order of the help page, each with the module of `fleetgp.cli` that has it as a function.
COMMANDS = {
    "fit": "fit",
    "calibrate": "evaluation",
    "predict": "predict",
    "map": "predict",
    "score": "evaluation",
    "sample": "predict",
    "suggest": "predict",
    "verify": "evaluation",
    "info": "info",
    "download": "examples",
    "reproduce": "examples",
    "certs": "running",
    "plan": "plan",
    "agent": "running",
    "up": "running",
    "down": "running",
    "join": "members",
    "leave": "members",
    "status": "running",
    "watch": "running",
    "ask": "requests",
    "observe": "requests",
    "remove": "memory",
    "forget": "memory",
    "retrain": "requests",
    "methods": "plan",
    "demo": "examples",
}


class Commands(TyperGroup):
    """Commands that are imported when they are first used: every agent is a process that needs one of them.

    Errors that a user can do something about are one line and an exit code, never a traceback.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            module = import_module(f"fleetgp.cli.{COMMANDS[cmd_name]}")
            function = next(vars(module)[name] for name in (cmd_name, f"{cmd_name}_") if name in vars(module))
            alone = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", add_completion=False)
            alone.command(cmd_name, cls=VariadicCommand, help=_unwrapped(function))(grouped(function))
            self.commands[cmd_name] = typer.main.get_command(alone)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        command = super().resolve_command(ctx, args)
        INTERRUPTION.starting = False
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            with _printed_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            code = _interrupted(ctx, str(error))
        except BrokenPipeError:  # `main` ends it quietly
            raise
        except (FleetGPError, OSError, MemoryError, ImportError) as error:
            if INTERRUPTION.came:  # inside an import, which made something else of it
                code = _interrupted(ctx, "")
            elif isinstance(error, ImportError):
                raise
            else:
                print_error(_message(error), error.shown if isinstance(error, PointedError) else "")
                code = WRONG if isinstance(error, InputError | OSError) else FAILED
        raise typer.Exit(code)


def _unwrapped(function: Callable[..., Any]) -> str:
    """The docstring with one line per paragraph, which the help page wraps to the width of the terminal."""
    return "\n\n".join(part.replace("\n", " ") for part in (getdoc(function) or "").split("\n\n"))


def _message(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this: {error or 'ask for less at once'}"
    if isinstance(error, OSError) and not isinstance(error, FleetGPError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return error.message if isinstance(error, PointedError) else str(error)


def _interrupted(ctx: Any, message: str) -> int:
    """Print what happens to unfinished work, in the words of the command if it has any."""
    continuing = ctx.invoked_subcommand in ("ask", "observe", "remove", "forget", "retrain")
    default = "agents continue with what they received" if continuing else "finished work, if any, is kept"
    print_error(f"interrupted; {message or default}")
    INTERRUPTION.printed = True
    return INTERRUPTED


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Print warnings of FleetGP in one line each."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, FleetGPWarning):
            warn(str(message))
        else:
            shown(message, category, *place, **more)

    with warnings.catch_warnings():
        shown = warnings.showwarning
        warnings.simplefilter("always", FleetGPWarning)
        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Gaussian-process regression for fleets: every agent keeps its data, all agree on one model.

    [bold]From measurements to a map[/bold]

    [cyan]fleetgp fit field.csv --inputs lon lat --target sst --out model/[/cyan]

    [cyan]fleetgp fit observations.csv --inputs lon lat --target sst --agent-column boat --out model/[/cyan]

    [cyan]fleetgp predict model/ points.csv --out answer.csv[/cyan]

    [cyan]fleetgp map model/ --grid 200x200 --out map.nc[/cyan]

    Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.
    """,
)


def _version(wanted: bool) -> None:
    if wanted:
        from fleetgp import __version__

        typer.echo(f"fleetgp {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass
