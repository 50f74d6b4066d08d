"""All commands, and how their errors become one line and an exit code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from fleetgp.cli import INTERRUPTED, INTERRUPTION
from fleetgp.cli.arguments import VariadicCommand, grouped
from fleetgp.cli.evaluation import calibrate, score, verify
from fleetgp.cli.examples import demo, download, reproduce
from fleetgp.cli.fit import fit
from fleetgp.cli.info import info
from fleetgp.cli.output import print_error, warn
from fleetgp.cli.plan import methods, plan
from fleetgp.cli.predict import map_, predict, sample, suggest
from fleetgp.cli.requests import ask, observe, retrain
from fleetgp.cli.running import agent, certs, down, status, up, watch
from fleetgp.errors import FleetGPError, FleetGPWarning, InputError, PointedError

#: Exit codes: done; failed, though the input was valid; wrong input.
DONE, FAILED, WRONG = 0, 1, 2


class Commands(TyperGroup):
    """Errors that a user can do something about are one line and an exit code, never a traceback."""

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


def _message(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this: {error or 'ask for less at once'}"
    if isinstance(error, OSError) and not isinstance(error, FleetGPError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return error.message if isinstance(error, PointedError) else str(error)


def _interrupted(ctx: Any, message: str) -> int:
    """Print what became of the work: in the command's own words, where it has any."""
    continuing = ctx.invoked_subcommand in ("ask", "observe", "retrain")
    default = "agents continue with what they received" if continuing else "finished work, if any, is kept"
    print_error(f"interrupted; {message or default}")
    INTERRUPTION.printed = True
    return INTERRUPTED


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Print our own warnings as the commands print theirs."""

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


COMMANDS = (
    fit,
    calibrate,
    predict,
    map_,
    score,
    sample,
    suggest,
    verify,
    info,
    download,
    reproduce,
    certs,
    plan,
    agent,
    up,
    down,
    status,
    watch,
    ask,
    observe,
    retrain,
    methods,
    demo,
)
for command in COMMANDS:
    app.command(command.__name__.rstrip("_"), cls=VariadicCommand)(grouped(command))
