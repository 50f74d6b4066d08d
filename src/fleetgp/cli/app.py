"""The commands together, and what becomes of their errors."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fleetgp.cli import about, asking, fetch, fleet, models, reproduce
from fleetgp.cli.output import complain
from fleetgp.errors import FleetGPError, InputError

#: How a command ends: well; failed, though what was asked made sense; asked for something impossible; interrupted.
DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


class Commands(TyperGroup):
    """Errors that a user can do something about are one line and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            complain(str(error))
            code = WRONG
        except FleetGPError as error:
            complain(str(error))
            code = FAILED
        except OSError as error:
            named = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            complain(named)
            code = WRONG
        except KeyboardInterrupt:
            going_on = ctx.invoked_subcommand in ("ask", "observe", "retrain")
            kept = (
                "agents go on with what they were told" if going_on else "finished pieces, if there are any, are kept"
            )
            complain(f"interrupted; {kept}")
            code = INTERRUPTED
        raise typer.Exit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Gaussian-process regression for fleets: every agent keeps its data, all agree on one model.

    [bold]From measurements to a map[/bold]

    [cyan]fleetgp fit observations.csv --inputs lon lat --target sst --agent boat --out model/[/cyan]

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


for module in (models, fetch, reproduce, fleet, asking, about):
    module.register(app)
