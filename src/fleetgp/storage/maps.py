"""A map on disk: NetCDF with coordinates, mean and standard deviation, and a picture. Needs the extra "cli"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.coordinates import agree_on_coordinates
from fleetgp.consensus.reductions import Alone
from fleetgp.data.coordinates import Coordinates
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Streamed, summaries_of
from fleetgp.data.summary import corners
from fleetgp.errors import InputError
from fleetgp.files import whole
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.io.selection import LATITUDES, LONGITUDES
from fleetgp.io.sst import xarray
from fleetgp.storage.answers import Answers
from fleetgp.storage.model import Model

#: Beyond this many points a map takes days, and more memory than most machines have.
MOST_CELLS = 10_000_000
#: What the variable "coverage" of a map says of a cell.
KNOWN, PRIOR, LEFT_OUT = 0, 1, 2
COVERAGE = "coverage"
#: Deviations that differ by more than this factor are drawn on a logarithmic scale.
WIDE = 10.0


def axes_of(shards: Sequence[Shard], grid: str, box: tuple[float, float, float, float] | None) -> tuple[Array, Array]:
    """The coordinates along both inputs, for "200x100" points over a box or over the data.

    >>> axes_of([(np.array([[0.0, 1.0], [2.0, 5.0]]), np.zeros(2))], "3x2", None)
    (array([0., 1., 2.]), array([1., 5.]))
    """
    found = re.fullmatch(r"(\d{1,18})\s*[xX×]\s*(\d{1,18})", grid.strip())
    counts = tuple(map(int, found.groups())) if found else (0, 0)
    if min(counts) < 2:
        raise InputError(f"--grid must be like 200x100, two points or more along each input, got {grid!r}")
    if counts[0] * counts[1] > MOST_CELLS:
        raise InputError(
            f"--grid {grid}: {counts[0] * counts[1]:,} points are too many: give at most {MOST_CELLS:,} in all"
        )
    if box is None:
        low, high = corners(summaries_of(shards))
    else:
        low, high = np.array(box[:2]), np.array(box[2:])
    if not (np.isfinite([low, high]).all() and (low < high).all()):
        raise InputError(f"the map's box must have a width and a height, but it runs from {low} to {high}")
    return np.linspace(low[0], high[0], counts[0]), np.linspace(low[1], high[1], counts[1])


def cells_within(model: Model, cells: Array, within: float) -> BoolArray:
    """(T,) which cells lie at most so many length-scales from an observation; infinity takes all of them."""
    from scipy.spatial import cKDTree

    if not within > 0.0:
        raise InputError(f"--within must be a number of length-scales above 0, got {within:g}")
    if isinstance(model.fleet.shards, Streamed):
        if within < np.inf:
            raise InputError(
                "the model knows its data by their moments, not where every observation is: expected --within inf, "
                f"got --within {within:g}"
            )
        return np.ones(len(cells), dtype=bool)
    coordinates, kernel, dimension = _coordinates(model), model.fleet.kernel, len(model.inputs)
    places = coordinates.places(np.concatenate([x for x, _ in model.fleet.seen]))
    theta = np.array(list(model.theta.values())) / np.exp(coordinates.shift(kernel.units(dimension)))
    scales, _ = kernel.scales(Hyperparameters.from_theta(theta), places.shape[1])
    distance, _ = cKDTree(places / scales).query(coordinates.places(cells) / scales)
    return np.asarray(distance <= within)


def _coordinates(model: Model) -> Coordinates:
    """Those of its training, or as they would be agreed on."""
    fleet = model.fleet
    if fleet.fit is not None:
        return fleet.fit.coordinates
    return agree_on_coordinates(Alone(), fleet.seen, fleet.coordinates)


def on_all_cells(answers: Answers, chosen: BoolArray) -> tuple[Answers, Array]:
    """The answers with NaN in the cells that were left out, and the coverage of every cell, (T,)."""

    def spread(values: Array, empty: float) -> Array:
        whole_map = np.full(len(chosen), empty)
        whole_map[chosen] = values
        return whole_map

    coverage = spread(np.where(answers.uninformed, float(PRIOR), float(KNOWN)), float(LEFT_OUT))
    everywhere = replace(
        answers,
        mean=spread(answers.mean, np.nan),
        variance=spread(answers.variance, np.nan),
        participants=spread(answers.participants.astype(float), 0.0).astype(np.int64),
        uninformed=coverage == PRIOR,
    )
    return everywhere, coverage


def check_names(model: Model) -> None:
    """One clear error where the map's variables and coordinates would have the same name."""
    label = _identifier(model.target)
    names = [
        label,
        f"{label}_standard_deviation",
        "participants",
        COVERAGE,
        *(_identifier(name) for name in model.inputs),
    ]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two things in the map would be called {name!r}: rename a column and fit again")


def save_map(
    path: Path, model: Model, axes: tuple[Array, Array], answers: Answers, coverage: Array, units: str
) -> Path:
    """Write the NetCDF file and the picture, both whole; the picture's path. coverage: (T,) what is known of a cell."""
    data = _dataset(model, axes, answers, coverage, units)
    picture = path.with_suffix(".png")
    figure = _draw(axes, data, model, answers, units)
    with whole(picture) as partial_picture, whole(path) as partial:
        data.to_netcdf(partial)
        figure.savefig(partial_picture, dpi=200, format="png")
    return picture


def _dataset(model: Model, axes: tuple[Array, Array], answers: Answers, coverage: Array, units: str) -> Any:
    shape = (len(axes[0]), len(axes[1]))
    x, y = (_identifier(name) for name in model.inputs)
    label = _identifier(model.target)
    of_target = {"units": units} if units else {}

    def variable(values: Any, **attributes: Any) -> tuple[Any, ...]:
        return (y, x), values.reshape(shape).T, attributes

    flags = {
        "flag_values": np.array([KNOWN, PRIOR, LEFT_OUT], dtype=np.int8),
        "flag_meanings": "known no_better_than_the_prior left_out",
    }
    return xarray().Dataset(
        {
            label: variable(answers.mean, long_name=f"predicted mean of {model.target}", **of_target),
            f"{label}_standard_deviation": variable(
                np.sqrt(answers.variance),
                long_name=f"standard deviation of the prediction of {model.target}",
                **of_target,
            ),
            "participants": variable(
                answers.participants.astype(np.int32), long_name="number of agents that took part"
            ),
            COVERAGE: variable(coverage.astype(np.int8), long_name="what the data say of this cell", **flags),
        },
        coords={y: (y, axes[1], _coordinate(model.inputs[1])), x: (x, axes[0], _coordinate(model.inputs[0]))},
        attrs={
            "Conventions": "CF-1.8",
            "title": f"{model.target}, predicted by a fleet of {_agents(model)}",
            "method": answers.method,
            "status": answers.status,
            "asked_agent": answers.agent,
            "source": "FleetGP",
        },
    )


def _draw(axes: tuple[Array, Array], data: Any, model: Model, answers: Answers, units: str) -> Any:
    """Mean and standard deviation side by side; dots are the observations, at most some thousand of them.

    Cells that the data say nothing about are hatched, not coloured: a colour would pass for knowledge. Deviations that
    differ much have a logarithmic scale.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    x, y = axes
    label = _identifier(model.target)
    known = data[COVERAGE].values == KNOWN
    mean, deviation = (np.where(known, data[name].values, np.nan) for name in (label, f"{label}_standard_deviation"))
    wide = np.ptp(x) >= 0.6 * np.ptp(y)
    figure = Figure(figsize=(7.2, 3.3) if wide else (5.2, 4.4), layout="constrained")
    rows = [] if isinstance(model.fleet.shards, Streamed) else model.fleet.seen
    everywhere = np.concatenate([np.empty((0, 2)), *(inputs for inputs, _ in rows)])
    places = everywhere[:: max(1, len(everywhere) // 1500)]
    what = f"{model.target} ({units})" if units else model.target
    panels = ((f"Mean of {model.target}", mean, "viridis"), ("Standard deviation", deviation, "magma"))
    for panel, (title, values, colours) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        panel.patch.set(facecolor="0.93", edgecolor="0.75", hatch="////", linewidth=0.0)
        if known.any():
            least, most = np.nanmin(deviation), np.nanmax(deviation)
            scale = LogNorm(least, most) if values is deviation and most > WIDE * least > 0.0 else None
            image = panel.pcolormesh(x, y, values, cmap=colours, norm=scale, shading="nearest", rasterized=True)
            what_is = what if values is mean else f"deviation of {what}"
            figure.colorbar(image, ax=panel, label=what_is, shrink=0.9)
        panel.plot(places[:, 0], places[:, 1], ".", color="white", markersize=0.8, alpha=0.5)
        panel.set(title=title, xlabel=_described(model.inputs[0]), xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    figure.axes[0].set_ylabel(_described(model.inputs[1]))
    ended = "" if answers.status == "converged" else f", {answers.status}"
    blank = "" if known.all() else "; hatched: nothing known"
    dots = "observations" if len(places) == len(everywhere) else f"{len(places):,} of {len(everywhere):,} observations"
    said = f"dots: {dots}" if len(places) else "the model knows no single observations"
    figure.suptitle(f"{_agents(model)}, {answers.method}{ended} ({said}{blank})", fontsize=9)
    return figure


def _agents(model: Model) -> str:
    return "1 agent" if len(model.agents) == 1 else f"{len(model.agents)} agents"


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _coordinate(name: str) -> dict[str, str]:
    if name.lower() in LONGITUDES[:2]:
        return {"units": "degrees_east", "standard_name": "longitude"}
    if name.lower() in LATITUDES[:2]:
        return {"units": "degrees_north", "standard_name": "latitude"}
    return {"long_name": name}


def _described(name: str) -> str:
    unit = {"degrees_east": "°E", "degrees_north": "°N"}.get(_coordinate(name).get("units", ""))
    return name if unit is None else f"{name} ({unit})"
