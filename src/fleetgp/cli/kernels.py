"""What `fit` says of the kernels that were compared."""

from __future__ import annotations

from rich.table import Table

from fleetgp.cli.output import plain_table
from fleetgp.training import Fit


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
