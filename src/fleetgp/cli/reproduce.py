"""fleetgp reproduce: the paper's experiments, beside the paper's numbers."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from fleetgp.cli.options import CLUSTER, Json, Quiet
from fleetgp.cli.output import bold, emit, plain_table
from fleetgp.errors import InputError, unknown_name
from fleetgp.files import check_folder
from fleetgp.fleet.backends import check_ray
from fleetgp.progress import listening

if TYPE_CHECKING:
    from reproduction.cells import Place


def reproduce(
    experiment: Annotated[str, typer.Argument(help="training, prediction or communication.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version: N = 2,000, two replications.")] = False,
    sst: Annotated[
        Path | None,
        typer.Option(help="prediction: a NetCDF field of 73.0-69.4 W, 36.4-40.0 N. Without it a synthetic field."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder. (default: reproduction-output/EXPERIMENT[-quick])")
    ] = None,
    cluster: CLUSTER = None,
    workers: Annotated[
        int | None, typer.Option(help="How many processes, here or on the cluster. (default: one per core)", min=1)
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments and write a page about it. They come with the repository, not with the wheel.

    CSV, JSON, PNG and PDF figures and one HTML page that needs nothing else. What is finished is kept: the same command
    goes on after an interruption.

    [bold]Examples[/bold]

    [cyan]fleetgp reproduce training --quick[/cyan]

    [cyan]fleetgp reproduce prediction --sst gulf_stream.nc[/cyan]

    [cyan]fleetgp reproduce training --cluster 10.0.0.1:6379[/cyan]
    """
    experiments = _experiments()
    if experiment not in experiments.EXPERIMENTS:
        raise unknown_name("experiment", experiment, experiments.EXPERIMENTS)
    if sst is not None and experiment != "prediction":
        raise InputError(f"--sst is for the prediction experiment, but {experiment} was asked for")
    folder = out or Path("reproduction-output") / (experiment + ("-quick" if quick else ""))
    check_folder(folder)
    field = "" if sst is None else str(sst.resolve())  # a process elsewhere has another working directory
    with closing(_place(cluster, workers)) as place, listening(not quiet) as listener:
        report = experiments.reproduce(experiment, folder, quick=quick, sst=field, listener=listener, place=place)
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


def _experiments() -> ModuleType:
    """From the package `reproduction`, which lies beside src/ in a clone of the repository, and in no wheel."""
    root = Path(__file__).resolve().parents[3]
    if (root / "reproduction" / "experiments.py").exists() and str(root) not in sys.path:
        sys.path.append(str(root))
    try:
        from reproduction import experiments
    except ImportError as error:
        if error.name is None or not error.name.startswith("reproduction"):
            raise
        raise InputError(
            "the paper's experiments are not in the wheel: clone the repository, and run `python -m reproduction` there"
        ) from error
    return experiments


def _place(cluster: str | None, workers: int | None) -> Place:
    """Where the cells are computed."""
    from reproduction.cells import OnCluster, Processes

    if cluster is None:
        return Processes(workers)
    check_ray("--cluster")
    return OnCluster(workers, cluster or None)
