"""fleetgp verify: check on a model's own data that what must be true is true."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from fleetgp.advice import verify as verified
from fleetgp.advice.verification import told
from fleetgp.cli import options
from fleetgp.cli.answers import known_model
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import emit, plain_table

METHODS = Annotated[
    list[str] | None,
    typer.Option(
        help="Prediction methods to check, for example: --method dec-rbcm dec-nearest (default: that of predict)"
    ),
]
SHARE = Annotated[float, typer.Option(help="The share of rows that is hidden, to see what intervals cover.")]
COLOURS = {"passed": "green", "failed": "red", "not applicable": "dim"}


def verify(
    *,
    model: options.MODEL,
    method: METHODS = None,
    hold: SHARE = 0.1,
    seed: options.SEED = 0,
    as_json: options.Json = False,
) -> None:
    """Check a model on its own data: agents agree, methods equal their central twins, intervals cover enough.

    Ends with exit code 1 if a check has failed. Nothing is changed, and nothing is sent anywhere.

    [bold]Example[/bold]

    [cyan]fleetgp verify model/ --method dec-rbcm dec-nearest[/cyan]
    """
    known = known_model(model, Cluster())
    found = verified(known.fleet, hold=hold, seed=seed, methods=method)
    table = plain_table("", "check", "verdict", "measured", "at most", left=2)
    for check in found.checks:
        colour = COLOURS[check.verdict]
        table.add_row(check.name, f"[{colour}]{check.verdict}[/{colour}]", told(check.measured), told(check.limit))
    emit({"model": str(model), **found.facts}, table, *map(escape, found.sentences), as_json=as_json)
    if not found.passed:
        raise typer.Exit(1)
