"""fleetgp demo: a fleet that learns and maps a synthetic field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fleetgp.cli.options import Json
from fleetgp.cli.output import console, emit
from fleetgp.cli.watch import NO_OPEN, PORT, check_page, show
from fleetgp.files import check_folder


def demo(
    points: Annotated[int, typer.Option(help="Observations of the whole fleet.")] = 2000,
    seed: Annotated[int, typer.Option(help="Which field is drawn.")] = 1,
    grid: Annotated[int, typer.Option(help="The map's points along each axis.")] = 80,
    out: Annotated[Path, typer.Option(help="Where the pictures go.")] = Path("demo-output"),
    page: Annotated[bool, typer.Option("--page", help="Watch such a fleet in the browser instead.")] = False,
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
        emit(facts, as_json=True)
