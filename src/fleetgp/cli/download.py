"""fleetgp download: sea-surface temperature from a public server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fleetgp.cli.options import Json, Quiet
from fleetgp.cli.output import bold, emit
from fleetgp.declarations import four_sides
from fleetgp.files import check_writable, whole
from fleetgp.io import download_mur, load_sst
from fleetgp.io.erddap import SERVER


def download(
    box: Annotated[list[float], typer.Option(help="West, south, east, north, in degrees.")],
    date: Annotated[str, typer.Option(help="The day: YYYY-MM-DD, from 2002-06-01 on.")],
    stride: Annotated[int, typer.Option(help="Every so many-th point of the 0.01 degree grid.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Copy the file here; it stays in the cache too.")] = None,
    server: Annotated[str, typer.Option(help="An ERDDAP server that has jplMURSST41.")] = SERVER,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a box of the MUR v4.1 sea-surface temperature analysis.

    What was fetched once is in the cache (~/.cache/fleetgp) with its checksum; an interrupted download goes on.

    [bold]Example[/bold]

    [cyan]fleetgp download --box -73 36.4 -69.4 40 --date 2021-01-03 --stride 2 --out gulf_stream.nc[/cyan]

    [cyan]fleetgp fit gulf_stream.nc --inputs lon lat --target sst --agents 10 --out model/[/cyan]
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
    emit(
        {
            "file": str(path),
            "product": field.product,
            "date": field.date,
            "shape": [rows, columns],
            "known": known,
        },
        f"{escape(field.product)}, {field.date}: {rows} × {columns} points, {known:,} with a temperature.",
        f"The file is {bold(path)}.",
        as_json=as_json,
    )
