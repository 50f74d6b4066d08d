"""The kernel of `fit` as it is typed, and what is said of those that were compared."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from fleetgp.cli.output import plain_table
from fleetgp.training import Fit

KERNEL = Annotated[
    str | None,
    typer.Option(
        help="se (the smoothest), matern52, matern32, matern12 (the roughest), rq; of them, with periodic and linear, "
        'an expression over the inputs: "matern32(lon, lat) * matern12(day)"; or auto: the best. '
        "(default: matern32; se with --training dec-full-gp)"
    ),
]


def told_of_kernels(fit: Fit) -> list[str | Table]:
    """A table and the rule; nothing where there was no choice."""
    if not fit.compared:
        return []
    rows = max(one.rows for one in fit.compared)
    title = f"[bold]Kernels, by the log predictive density of {rows:,} rows that the agents held out in blocks[/bold]"
    table = plain_table("", "kernel", "per row", "")
    for one in fit.compared:
        table.add_row(one.kernel, f"{one.density:.4f}", "chosen" if one.kernel == fit.kernel else "")
    return [title, table]
