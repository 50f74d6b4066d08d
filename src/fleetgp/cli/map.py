"""fleetgp map: mean and standard deviation of a model on a grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fleetgp.cli import options
from fleetgp.cli.answers import asked, known_model, report_answers, warn_of_outside
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold
from fleetgp.errors import InputError
from fleetgp.files import check_writable
from fleetgp.storage.model import Model


def map_(
    *,
    model: options.MODEL,
    out: options.MAP_OUT,
    grid: options.GRID = "200x200",
    box: options.MAP_BOX = None,
    within: options.WITHIN = 0.5,
    units: options.UNITS = "",
    asking: options.Asking,
    where: Cluster,
    output: options.Output,
) -> None:
    """Draw a map: mean and standard deviation on a grid, as NetCDF and PNG.

    Cells farther than half a length-scale from all observations are left out: --within 0.2 leaves out more, land, say,
    that the model would paint over; --within inf nothing. Of the others, those that are no better known than the prior
    are hatched in the picture too. The file's variable coverage tells them apart.

    [bold]Examples[/bold]

    [cyan]fleetgp map model/ --grid 200x200 --out map.nc[/cyan]

    [cyan]fleetgp map model/ --grid 200x200 --within 0.2 --out map.nc[/cyan]
    """
    from fleetgp.storage.maps import axes_of, cells_within, on_all_cells, save_map

    known = known_model(model, where)
    _check(known, out)
    first, second = axes_of(known.fleet.seen, grid, options.four_sides(box))
    cells = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
    near = cells_within(known, cells, within)
    found = asked(known, cells[near], asking, out, output.quiet)
    answers, coverage = on_all_cells(found, near)
    picture = save_map(out, known, (first, second), answers, coverage, units)
    answers.kept.clear()
    left = f"cells are farther than {within:g} length-scales from all observations: left out, --within inf has them too"
    warn_of_outside(known, cells, ~near, left)
    unknown = "cells are no better known than the prior: hatched in the picture"
    warn_of_outside(known, cells, answers.uninformed, unknown)
    facts = {"out": str(out), "picture": str(picture), "left_out": int((~near).sum())}
    told = f"The map is in {bold(out)}, its picture in {bold(picture)}."
    report_answers(known, answers, facts, asking.noisy, told, output.as_json)


def _check(model: Model, out: Path) -> None:
    """One clear error for a map that cannot be drawn or written."""
    from fleetgp.storage.maps import check_names

    if model.fleet.dimension != 2:
        raise InputError(f"a map: expected a model of two inputs, got {len(model.inputs)}: {', '.join(model.inputs)}")
    if out.suffix.lower() != ".nc":
        raise InputError(f"{out}: expected a name that ends in .nc")
    check_writable(out)
    check_writable(out.with_suffix(".png"))
    check_names(model)
