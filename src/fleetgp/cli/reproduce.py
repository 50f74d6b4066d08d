"""fleetgp reproduce: the paper's experiments, beside the paper's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetgp.cli.options import Json, Quiet
from fleetgp.cli.output import bold, emit, plain_table
from fleetgp.errors import InputError, unknown_name
from fleetgp.files import check_folder
from fleetgp.progress import listening


def reproduce(
    experiment: Annotated[str, typer.Argument(help="training, prediction or communication.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version: N = 2,000, two replications.")] = False,
    sst: Annotated[
        Path | None,
        typer.Option(help="prediction: a NetCDF field of 73.0-69.4 W, 36.4-40.0 N. Without it a synthetic field."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder. (default: reproduction/EXPERIMENT[-quick])")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. (default: one per core)", min=1)] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments and write a page about it.

    CSV, JSON, PNG and PDF figures and one HTML page that needs nothing else. What is finished is kept: the same command
    goes on after an interruption.

    [bold]Examples[/bold]

    [cyan]fleetgp reproduce training --quick[/cyan]

    [cyan]fleetgp reproduce prediction --sst gulf_stream.nc[/cyan]
    """
    from fleetgp.experiments.reproduce import EXPERIMENTS
    from fleetgp.experiments.reproduce import reproduce as run

    if experiment not in EXPERIMENTS:
        raise unknown_name("experiment", experiment, EXPERIMENTS)
    if sst is not None and experiment != "prediction":
        raise InputError(f"--sst is for the prediction experiment, but {experiment} was asked for")
    folder = out or Path("reproduction") / (experiment + ("-quick" if quick else ""))
    check_folder(folder)
    with listening(not quiet) as listener:
        report = run(experiment, folder, quick=quick, sst=str(sst or ""), listener=listener, workers=workers)
    table = plain_table("", "the paper says", "", "we see", left=3)
    for finding in report.facts["findings"]:
        colour = {"agrees": "green", "differs": "red", "in part": "yellow"}[finding["verdict"]]
        table.add_row(finding["claim"], f"[{colour}]{finding['verdict']}[/{colour}]", finding["seen"])
    table.columns[0].no_wrap = False
    page = folder / "report.html"
    emit(
        {"report": str(page), **report.facts},
        table,
        f"The page is {bold(page)}; results.csv, results.json and figures/ are beside it.",
        as_json=as_json,
    )
