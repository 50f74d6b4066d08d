"""A map on disk: NetCDF with coordinates, mean and standard deviations, and a picture. Needs the extra "cli"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.points import coordinate_facts
from fleetgp.data.streamed import Streamed
from fleetgp.files import whole
from fleetgp.fleet.grids import Grid
from fleetgp.fleet.maps import AGENTS, COVERAGE, KNOWN, identifier, map_dataset, on_all_cells, variable_names
from fleetgp.storage.answers import Answers
from fleetgp.storage.model import Model

#: Deviations that differ by more than this factor are drawn on a logarithmic scale.
WIDE = 10.0
PICTURE = ".png"


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
    picture = path.with_suffix(PICTURE)
    figure = _draw(grid, data, model, answers)
    with whole(picture) as partial_picture:
        if path != picture:
            with whole(path) as partial:
                data.to_netcdf(partial)
        figure.savefig(partial_picture, dpi=200, format="png")
    return picture


def _draw(grid: Grid, data: Any, model: Model, answers: Answers) -> Any:
    """Mean and standard deviation side by side; dots are the observations, at most some thousand of them.

    Cells that the data say nothing about are hatched, not coloured: a colour would pass for knowledge. Deviations that
    differ much have a logarithmic scale.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    x, y = grid.axes
    names = variable_names(model.target)
    known = data[COVERAGE].values == KNOWN
    mean, deviation = (np.where(known, data[names[name]].values, np.nan) for name in ("mean", "std"))
    units = data[names["mean"]].attrs.get("units", "")
    labels = [_described(grid.names[d], model) for d in grid.along]
    wide = np.ptp(x) >= 0.6 * np.ptp(y)
    figure = Figure(figsize=(7.2, 3.3) if wide else (5.2, 4.4), layout="constrained")
    rows = [] if isinstance(model.fleet.shards, Streamed) else model.fleet.seen
    everywhere = np.concatenate([np.empty((0, 2)), *(inputs[:, list(grid.along)] for inputs, _ in rows)])
    places = everywhere[:: max(1, len(everywhere) // 1500)]
    what = f"{model.target} ({units})" if units else model.target
    panels = (
        (f"Mean of {model.target}", mean, "viridis"),
        ("Standard deviation", deviation, "magma"),
    )
    for panel, (title, values, colours) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        panel.patch.set(facecolor="0.93", edgecolor="0.75", hatch="////", linewidth=0.0)
        if known.any():
            least, most = np.nanmin(deviation), np.nanmax(deviation)
            scale = LogNorm(least, most) if values is deviation and most > WIDE * least > 0.0 else None
            image = panel.pcolormesh(x, y, values, cmap=colours, norm=scale, shading="nearest", rasterized=True)
            what_is = what if values is mean else f"deviation of {what}"
            figure.colorbar(image, ax=panel, label=what_is, shrink=0.9)
        panel.plot(places[:, 0], places[:, 1], ".", color="white", markersize=0.8, alpha=0.5)
        panel.set(title=title, xlabel=labels[0], xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    figure.axes[0].set_ylabel(labels[1])
    ended = "" if answers.status == "converged" else f", {answers.status}"
    blank = "" if known.all() else "; hatched: nothing known"
    dots = "observations" if len(places) == len(everywhere) else f"{len(places):,} of {len(everywhere):,} observations"
    said = f"dots: {dots}" if len(places) else "the model knows no single observations"
    chosen = "".join(f", {name} = {_shown(data, name)}" for name in grid.fixed)
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


def _described(name: str, model: Model) -> str:
    unit = model.fleet.units.get(name) or coordinate_facts(name, {}).get("units", "")
    unit = {"degrees_east": "°E", "degrees_north": "°N"}.get(unit, unit)
    return f"{name} ({unit})" if unit else name
