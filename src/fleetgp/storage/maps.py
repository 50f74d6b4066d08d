"""A map on disk: NetCDF with coordinates, mean and standard deviations, and a picture. Needs the extra "cli"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetgp import plot
from fleetgp.arrays import Array, BoolArray
from fleetgp.data.streamed import counts_of
from fleetgp.files import whole
from fleetgp.fleet.grids import Grid
from fleetgp.fleet.maps import AGENTS, COVERAGE, KNOWN, identifier, map_dataset, on_all_cells
from fleetgp.storage.answers import Answers
from fleetgp.storage.model import Model

PICTURE = ".png"
#: A map of such a name is a picture alone.
PICTURES = (PICTURE, ".pdf")


def save_map(
    path: Path, model: Model, grid: Grid, answers: Answers, chosen: BoolArray, coverage: Array, units: str
) -> Path:
    """Write the NetCDF file and the picture, both whole; the picture's path. Where `path` is a picture's, it alone.

    answers: at the chosen cells.  coverage: (T,) what is said of the others.  units: of the target, if they are given.
    """
    columns: dict[str, Any] = {"mean": answers.mean, "std": answers.std, "std_observed": answers.std_observed}
    columns |= {AGENTS: answers.participants}
    facts = {"method": answers.method, "status": answers.status, "asked_agent": answers.agent}
    known = on_all_cells(coverage, chosen, answers.uninformed)
    data = map_dataset(model.fleet, grid, columns, known, chosen, facts, units)
    picture = path if path.suffix.lower() in PICTURES else path.with_suffix(PICTURE)
    figure = _draw(grid, data, model, answers)
    with whole(picture) as partial_picture:
        if path != picture:
            with whole(path) as partial:
                data.to_netcdf(partial)
        figure.savefig(partial_picture, dpi=200, format=picture.suffix[1:].lower())
    return picture


def _draw(grid: Grid, data: Any, model: Model, answers: Answers) -> Any:
    """Mean and standard deviation side by side; dots are the observations, at most some thousand of them."""
    panels = plot.map(data, dots=model.fleet)
    everywhere, shown = sum(counts_of(model.fleet.data)), len(panels[0].lines[0].get_xdata())
    ended = "" if answers.status == "converged" else f", {answers.status}"
    blank = "" if (data[COVERAGE].values == KNOWN).all() else "; hatched: nothing known"
    dots = "observations" if shown == everywhere else f"{shown:,} of {everywhere:,} observations"
    said = f"dots: {dots}" if shown else "the model knows no single observations"
    chosen = "".join(f", {name} = {_shown(data, name)}" for name in grid.fixed)
    figure = panels[0].figure
    figure.suptitle(f"{_agents(model)}, {answers.method}{ended}{chosen} ({said}{blank})", fontsize=9)
    return figure


def _agents(model: Model) -> str:
    return "1 agent" if len(model.agents) == 1 else f"{len(model.agents)} agents"


def _shown(data: Any, name: str) -> str:
    """The value that an input has in the whole map."""
    value = data[identifier(name)].values
    if value.dtype.kind != "M":
        return f"{float(value):.6g}"
    return str(value.astype("datetime64[s]")).removesuffix("T00:00:00")
