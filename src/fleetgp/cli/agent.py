"""fleetgp agent: one agent of a fleet, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetgp.cli.options import FILE
from fleetgp.cli.running import description_of
from fleetgp.errors import FleetGPError, InputError


def agent(
    file: FILE,
    name: Annotated[str, typer.Option(help="Which of the file's agents this is.")],
    log: Annotated[Path | None, typer.Option(help="Write the log to a file. (default: stderr)")] = None,
) -> None:
    """Run one agent: find the neighbours, train with them, then answer, until it is stopped.

    It logs one JSON document a line. Ctrl-C, SIGTERM and `fleetgp down` end it; started again, it goes on from its last
    checkpoint and rejoins the others.

    [bold]Example[/bold]

    [cyan]fleetgp agent fleet.toml --name auv3[/cyan]
    """
    from fleetgp.agent.process import run_agent

    try:
        run_agent(description_of(file), name, log_file=log)
    except FleetGPError as error:
        if log is not None or isinstance(error, InputError):
            raise
        raise typer.Exit(1) from error  # the log has told it
