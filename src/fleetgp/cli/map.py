"""fleetgp map: mean and standard deviation of a model on a grid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fleetgp.cli import options
from fleetgp.cli.answers import asked, known_model, report_answers, warn_of_outside
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold
from fleetgp.cli.reading import four_sides, values_of
from fleetgp.errors import InputError
from fleetgp.files import check_writable
from fleetgp.io.fields import read_mask

MAP_OUT = Annotated[
    Path, typer.Option(help="The map: a NetCDF file, and a PNG of the same name beside it; or a PNG or PDF.")
]
GRID = Annotated[str, typer.Option(help="Points along the two inputs.")]
MAP_BOX = Annotated[
    list[float] | None,
    typer.Option(help="Lowest first and second input, then the highest. (default: where the data are)"),
]
WITHIN = Annotated[
    float, typer.Option(help="Leave out cells farther than so many length-scales from all observations; inf: none.")
]
UNITS = Annotated[str, typer.Option(help="Of the target, for the labels: for example degC.")]
AT = Annotated[
    list[str] | None,
    typer.Option(help="The values of other inputs, for example: --at depth=5 day=2021-01-05"),
]
MASK = Annotated[
    Path | None,
    typer.Option(
        help="Where the map shall be: a NetCDF field over both inputs, 0 or missing elsewhere.", readable=False
    ),
]


def map_(
    *,
    model: options.MODEL,
    out: MAP_OUT,
    grid: GRID = "200x200",
    box: MAP_BOX = None,
    at: AT = None,
    within: WITHIN = 0.5,
    mask: MASK = None,
    units: UNITS = "",
    asking: options.Asking,
    where: Cluster,
    output: options.Output,
) -> None:
    """Draw a map: mean and standard deviation on a grid, as NetCDF and PNG; --out map.png and map.pdf: a picture alone.

    Cells farther than half a length-scale from all observations are left out: --within 0.2 leaves out more, --within
    inf nothing. --mask leaves out land, say. Cells that are no better known than the prior are hatched in the picture
    too; the file's variable coverage tells all of them apart. A model of more than two inputs needs a value for each
    other one.

    [bold]Examples[/bold]

    [cyan]fleetgp map model/ --grid 200x200 --out map.nc[/cyan]

    [cyan]fleetgp map model/ --at day=2021-01-05 depth=5 --mask land.nc --out map.nc[/cyan]
    """
    from fleetgp.fleet.maps import (
        MASKED,
        PRIOR,
        cells_in_mask,
        check_names,
        check_within,
        chosen_cells,
        grid_of,
        on_all_cells,
    )
    from fleetgp.storage.answers import save_map

    counts, sides, values = _counts(grid), four_sides(box), values_of(at)
    check_within(within, "--within")
    known = known_model(model, where)
    _check(out)
    cells = grid_of(known.fleet, counts, sides, values)
    check_names(cells, known.target)
    kept = cells_in_mask(cells, None if mask is None else read_mask(mask, [cells.names[d] for d in cells.along]))
    chosen, coverage = chosen_cells(known.fleet, cells, within, kept.reshape(cells.shape).T)
    answers = asked(known, cells.cells[chosen], asking, out, output.quiet)
    picture = save_map(out, known, cells, answers, chosen, coverage, units)
    answers.kept.clear()
    far = np.asarray(kept & ~chosen)
    left = f"cells are farther than {within:g} length-scales from all observations: left out, --within inf has them too"
    warn_of_outside(known, cells.cells, far, left)
    unknown = "cells are no better known than the prior: hatched in the picture"
    warn_of_outside(known, cells.cells, on_all_cells(coverage, chosen, answers.uninformed) == PRIOR, unknown)
    masked = int((coverage == MASKED).sum())
    facts = {"out": str(out), "picture": str(picture), "left_out": int(far.sum()), "masked": masked}
    beside = "" if out == picture else f", its picture in {bold(picture)}"
    hidden = f" The mask leaves out {masked:,} of {len(coverage):,} cells." if masked else ""
    report_answers(known, answers, facts, f"The map is in {bold(out)}{beside}.{hidden}", output.as_json)


def _counts(grid: str) -> tuple[int, int]:
    """--grid as two numbers.

    >>> _counts("200x100")
    (200, 100)
    """
    from fleetgp.fleet.maps import check_counts

    found = re.fullmatch(r"(\d{1,18})\s*[xX×]\s*(\d{1,18})", grid.strip())
    first, second = map(int, found.groups()) if found else (0, 0)
    if min(first, second) < 2:
        raise InputError(f"--grid must be like 200x100, two points or more along each input, got {grid!r}")
    return check_counts((first, second), f"--grid {grid.strip()}")


def _check(out: Path) -> None:
    """One clear error for a map that cannot be written."""
    if out.suffix.lower() not in (".nc", ".png", ".pdf"):
        raise InputError(f"{out}: expected a name that ends in .nc (or .png or .pdf, for the picture alone)")
    check_writable(out)
    if out.suffix.lower() == ".nc":
        check_writable(out.with_suffix(".png"))
