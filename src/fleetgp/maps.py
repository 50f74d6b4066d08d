"""A map on disk: NetCDF with coordinates, mean and standard deviation, and a picture. Needs the extra "cli"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.answers import Answers
from fleetgp.arrays import Array
from fleetgp.data.partition import Shard
from fleetgp.data.sst import LATITUDES, LONGITUDES, xarray
from fleetgp.errors import InputError
from fleetgp.files import whole
from fleetgp.model import Model


def axes_of(shards: Sequence[Shard], grid: str, box: tuple[float, float, float, float] | None) -> tuple[Array, Array]:
    """The coordinates along both inputs, for "200x100" points over a box or over the data.

    >>> axes_of([(np.array([[0.0, 1.0], [2.0, 5.0]]), np.zeros(2))], "3x2", None)
    (array([0., 1., 2.]), array([1., 5.]))
    """
    found = re.fullmatch(r"(\d{1,5})\s*[xX×]\s*(\d{1,5})", grid.strip())
    counts = tuple(map(int, found.groups())) if found else (0, 0)
    if min(counts) < 2:
        raise InputError(f"--grid must be like 200x100, two points or more along each input, but {grid!r} came")
    if box is None:
        inputs = np.concatenate([x for x, _ in shards])
        low, high = inputs.min(axis=0), inputs.max(axis=0)
    else:
        low, high = np.array(box[:2]), np.array(box[2:])
    if not (np.isfinite([low, high]).all() and (low < high).all()):
        raise InputError(f"the map's box must have a width and a height, but it runs from {low} to {high}")
    return np.linspace(low[0], high[0], counts[0]), np.linspace(low[1], high[1], counts[1])


def check_names(model: Model) -> None:
    """One clear error where the map's variables and coordinates would have the same name."""
    label = _identifier(model.target)
    names = [label, f"{label}_standard_deviation", "participants", *(_identifier(name) for name in model.inputs)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two things in the map would be called {name!r}: rename a column and fit again")


def save_map(path: Path, model: Model, axes: tuple[Array, Array], answers: Answers, units: str) -> Path:
    """Write the NetCDF file and the picture, both whole; the picture's path."""
    shape = (len(axes[0]), len(axes[1]))
    mean, deviation = answers.mean.reshape(shape).T, np.sqrt(answers.variance).reshape(shape).T
    x, y = (_identifier(name) for name in model.inputs)
    of_target = {"units": units} if units else {}
    label = _identifier(model.target)
    data = xarray().Dataset(
        {
            label: ((y, x), mean, {"long_name": f"predicted mean of {model.target}", **of_target}),
            f"{label}_standard_deviation": (
                (y, x),
                deviation,
                {"long_name": f"standard deviation of the prediction of {model.target}", **of_target},
            ),
            "participants": (
                (y, x),
                answers.participants.reshape(shape).T.astype(np.int32),
                {"long_name": "number of agents that took part"},
            ),
        },
        coords={y: (y, axes[1], _coordinate(model.inputs[1])), x: (x, axes[0], _coordinate(model.inputs[0]))},
        attrs={
            "Conventions": "CF-1.8",
            "title": f"{model.target}, predicted by a fleet of {len(model.agents)} agents",
            "method": answers.method,
            "status": answers.status,
            "asked_agent": answers.agent,
            "source": "FleetGP",
        },
    )
    picture = path.with_suffix(".png")
    figure = _draw(axes, mean, deviation, model, answers, units)
    with whole(picture) as partial_picture, whole(path) as partial:
        data.to_netcdf(partial)
        figure.savefig(partial_picture, dpi=200, format="png")
    return picture


def _draw(axes: tuple[Array, Array], mean: Array, deviation: Array, model: Model, answers: Answers, units: str) -> Any:
    """Mean and standard deviation side by side; dots are the observations, at most some thousand of them."""
    from matplotlib.figure import Figure

    x, y = axes
    wide = np.ptp(x) >= 0.6 * np.ptp(y)
    figure = Figure(figsize=(7.2, 3.3) if wide else (5.2, 4.4), layout="constrained")
    places = np.concatenate([inputs for inputs, _ in model.fleet.shards])
    places = places[:: max(1, len(places) // 1500)]
    unit = f" ({units})" if units else ""
    what = f"{model.target}{unit}"
    panels = ((f"Mean of {model.target}", mean, "viridis", what), ("Standard deviation", deviation, "magma", what))
    for panel, (title, values, colours, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        image = panel.pcolormesh(x, y, values, cmap=colours, shading="nearest", rasterized=True)
        panel.plot(places[:, 0], places[:, 1], ".", color="white", markersize=0.8, alpha=0.5)
        figure.colorbar(image, ax=panel, label=label, shrink=0.9)
        panel.set(title=title, xlabel=_described(model.inputs[0]), xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    figure.axes[0].set_ylabel(_described(model.inputs[1]))
    ended = "" if answers.status == "converged" else f", {answers.status}"
    figure.suptitle(f"{len(model.agents)} agents, {answers.method}{ended} (dots: observations)", fontsize=9)
    return figure


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
