"""fleetgp demo, download and reproduce: a demonstration, data to try, and the paper's experiments."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fleetgp.cli.arguments import Json, option
from fleetgp.cli.options import CLUSTER, NO_OPEN, PORT, Quiet
from fleetgp.cli.output import Report, bold, console, plain_table, print_json
from fleetgp.cli.running import check_page, show
from fleetgp.declarations import four_sides
from fleetgp.errors import InputError, unknown_name
from fleetgp.files import check_folder, check_writable, whole
from fleetgp.fleet.backends import check_ray
from fleetgp.io import download_mur, load_sst
from fleetgp.io.erddap import SERVER
from fleetgp.progress import listening

if TYPE_CHECKING:
    from reproduction.cells import Place
    from reproduction.report import Report as Page


def demo(
    points: Annotated[int, option("Observations of the whole fleet.")] = 2000,
    seed: Annotated[int, option("Which field is drawn.")] = 1,
    grid: Annotated[int, option("The map's points along each axis.")] = 80,
    out: Annotated[Path, option("Where the pictures go.")] = Path("demo-output"),
    page: Annotated[bool, option("Watch such a fleet in the browser instead.", "--page")] = False,
    port: PORT = None,
    no_open: NO_OPEN = False,
    as_json: Json = False,
) -> None:
    """Ten agents on a path learn the paper's synthetic field and map it, by every method.

    [bold]Example[/bold]

    [cyan]fleetgp demo --seed 3 --out pictures/[/cyan]

    [cyan]fleetgp demo --page[/cyan]
    """
    if page:
        check_page()
        from fleetgp.page.simulated import demo_fleet

        show(demo_fleet(points, seed), "127.0.0.1", port, no_open=no_open)
        return
    from fleetgp.demo import run

    check_folder(out)
    facts = run(points, seed, grid, out, Console(stderr=True, highlight=False) if as_json else console())
    if as_json:
        print_json(facts)


def download(
    box: Annotated[list[float], option("West, south, east, north, in degrees.")],
    date: Annotated[str, option("The day: YYYY-MM-DD, from 2002-06-01 on.")],
    stride: Annotated[int, option("Every nth point of the 0.01 degree grid.")] = 1,
    out: Annotated[Path | None, option("Copy the file here; it stays in the cache too.")] = None,
    server: Annotated[str, option("An ERDDAP server that has jplMURSST41.")] = SERVER,
    quiet: Quiet = False,
) -> Report:
    """Fetch a box of the MUR v4.1 sea-surface temperature analysis.

    A fetched file stays in the cache (~/.cache/fleetgp) with its checksum; an interrupted download continues.

    [bold]Example[/bold]

    [cyan]fleetgp download --box -73 36.4 -69.4 40 --date 2021-01-03 --stride 2 --out gulf_stream.nc[/cyan]

    [cyan]fleetgp fit gulf_stream.nc --inputs lon lat --target sst --n-agents 10 --out model/[/cyan]
    """
    sides = four_sides("--box", box)
    if out is not None:
        check_writable(out)
    path = download_mur(sides, date, stride=stride, server=server, progress=not quiet)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with whole(out) as partial:
            shutil.copyfile(path, partial)
        path = out
    field = load_sst(path)
    rows, columns = field.celsius.shape
    known = int((field.celsius == field.celsius).sum())
    facts = {"file": str(path), "product": field.product, "date": field.date, "shape": [rows, columns], "known": known}
    summary = f"{escape(field.product)}, {field.date}: {rows} × {columns} points, {known:,} with a temperature."
    return Report(facts, [summary, f"The file is {bold(path)}."])


def reproduce(
    experiment: Annotated[str, typer.Argument(help="training, prediction or communication.")],
    quick: Annotated[bool, option("A small version: N = 2,000, two replications.", "--quick")] = False,
    sst: Annotated[
        Path | None, option("prediction: a NetCDF field of 73.0-69.4 W, 36.4-40.0 N. Without it a synthetic field.")
    ] = None,
    out: Annotated[Path | None, option("The folder. (default: reproduction-output/EXPERIMENT[-quick])")] = None,
    cluster: CLUSTER = None,
    workers: Annotated[
        int | None, option("How many processes, here or on the cluster. (default: one per core)", min=1)
    ] = None,
    quiet: Quiet = False,
) -> Report:
    """Run one of the paper's experiments and write a page about it. They come with the repository, not with the wheel.

    The results are CSV, JSON, figures as PNG and PDF, and one HTML page. Finished work is kept: the same command
    continues after an interruption.

    [bold]Examples[/bold]

    [cyan]fleetgp reproduce training --quick[/cyan]

    [cyan]fleetgp reproduce prediction --sst gulf_stream.nc[/cyan]

    [cyan]fleetgp reproduce training --cluster 10.0.0.1:6379[/cyan]
    """
    names, run = _experiments()
    if experiment not in names:
        raise unknown_name("experiment", experiment, names)
    if sst is not None and experiment != "prediction":
        raise InputError(f"--sst is for the prediction experiment, but {experiment} was asked for")
    folder = out or Path("reproduction-output") / (experiment + ("-quick" if quick else ""))
    check_folder(folder)
    field = "" if sst is None else str(sst.resolve())  # a process elsewhere has another working directory
    with closing(_place(cluster, workers)) as place, listening(not quiet) as listener:
        report = run(experiment, folder, quick=quick, sst=field, listener=listener, place=place)
    table = plain_table("", "the paper says", "", "we see", left=3)
    for finding in report.facts["findings"]:
        colour = {"agrees": "green", "differs": "red", "in part": "yellow"}[finding["verdict"]]
        table.add_row(finding["claim"], f"[{colour}]{finding['verdict']}[/{colour}]", finding["seen"])
    table.columns[0].no_wrap = False
    page = folder / "report.html"
    last = f"The page is {bold(page)}; results.csv, results.json and figures/ are beside it."
    return Report({"report": str(page), **report.facts}, [table, last])


def _experiments() -> tuple[tuple[str, ...], Callable[..., Page]]:
    """Return the experiments' names and the function that runs one: they are in the repository, not in the wheel."""
    root = Path(__file__).resolve().parents[3]
    if (root / "reproduction" / "__init__.py").exists() and str(root) not in sys.path:
        sys.path.append(str(root))
    try:
        from reproduction import EXPERIMENTS, reproduce
    except ImportError as error:
        if error.name is None or not error.name.startswith("reproduction"):
            raise
        raise InputError(
            "the paper's experiments are not in the wheel: clone the repository, and run `python -m reproduction` there"
        ) from error
    return EXPERIMENTS, reproduce


def _place(cluster: str | None, workers: int | None) -> Place:
    """Where the cells are computed."""
    from reproduction.cells import OnCluster, Processes

    if cluster is None:
        return Processes(workers)
    check_ray("--cluster")
    return OnCluster(workers, cluster or None)
