"""Mean and uncertainty side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.longitudes import turned_into
from fleetgp.data.points import names_of
from fleetgp.data.streamed import Streamed
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.fleet import Fleet
from fleetgp.fleet.maps import COVERAGE, KNOWN, identifier
from fleetgp.given import as_numbers
from fleetgp.plot.style import SMALL, TEXT, aspect_of, several_axes, with_unit
from fleetgp.prediction import Prediction

#: Deviations that differ by more than this factor are drawn on a logarithmic scale.
WIDE = 10.0
#: Inches: of a panel, at most.
WIDEST, HIGHEST = 3.4, 3.6
#: Observations that are drawn, at most.
MOST = 1500
#: The deviations that a map has, and what they are called.
DEVIATIONS = {"std": "Standard deviation", "std_observed": "Standard deviation of an observation"}


def map_(
    what: Fleet | Prediction | Any,
    *,
    axes: Any = None,
    std: str = "std",
    dots: Fleet | Array | None = None,
    **asked: Any,
) -> Any:
    """Mean and standard deviation side by side; the two axes, whose `figure` has them.

    what: a fleet, which is asked for a map (asked: as of `Fleet.map`); a map as `Fleet.map` and `fleetgp map` make it;
        or a prediction at the points of a grid.
    axes: two, to draw on.
    std: "std" is the deviation of the field, "std_observed" that of an observation.
    dots: a fleet, whose observations are drawn, or places (N, 2); of a fleet that is asked, its own.

    Cells that the data say nothing about are hatched, not coloured: a colour would pass for knowledge. Deviations that
    differ by a factor of ten have a logarithmic scale.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(seen.inputs, seen.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> mean, deviation = map_(fleet, grid=(20, 20))
    >>> mean.get_title(), deviation.get_title()
    ('Mean of y', 'Standard deviation')
    """
    check_name("std", std, DEVIATIONS)
    if isinstance(what, Fleet):
        data, dots = what.map(**asked), what if dots is None else dots
    elif asked:
        raise InputError(
            f"{', '.join(asked)}: expected options of a map where a fleet is asked, got {shortened(what, 40)}"
        )
    else:
        data = what.to_dataset() if isinstance(what, Prediction) else what
    layers, places = Layers.of(data, std), np.zeros((0, 2))
    if dots is not None:
        places = shown_places(dots, layers) if isinstance(dots, Fleet) else as_numbers(dots, "dots")
        if places.ndim != 2 or places.shape[1] != 2:
            raise InputError(f"dots: expected a fleet, or places (N, 2), got the shape {places.shape}")
    width, height = layers.inches
    found = several_axes(axes, 1, 2, (2.0 * (width + 1.3), height + 1.0), sharey=True)
    if axes is None:
        for ax in found:
            _limit_ticks(ax, layers, width, height)
    target, unit = layers.target, layers.units.get(layers.target, "")
    label = f"{target} ({unit})" if unit else target
    panels = (
        (f"Mean of {target}", layers.mean, label),
        (
            DEVIATIONS[std],
            layers.deviation,
            f"std of {label}",
        ),
    )
    for number, (ax, (title, values, told)) in enumerate(zip(found, panels, strict=True)):
        _panel(ax, layers, values, told, deviation=number == 1)
        ax.plot(*places.T, ".", color="white", markersize=0.8, alpha=0.5)
        ax.set_title(title, fontsize=TEXT + 0.5, wrap=True)
        ax.set_xlabel(with_unit(layers.names[0], layers.units))
    found[0].set_ylabel(with_unit(layers.names[1], layers.units))
    return found


@dataclass(frozen=True)
class Layers:
    """A map, whoever made it. names: of the two axes.  x, y: along them.  mean, deviation: (len(y), len(x)).

    known: where the data say something.  units: by name.
    """

    names: tuple[str, str]
    x: Any
    y: Any
    mean: Array
    deviation: Array
    known: BoolArray
    target: str
    units: Mapping[str, str]

    @classmethod
    def of(cls, data: Any, std: str) -> Layers:
        """From a dataset with a variable and one that is called after it: sst and sst_std, or mean and std."""
        names = [str(name) for name in getattr(data, "data_vars", ())]
        pairs = [(name, f"{name}_{std}") for name in names if f"{name}_{std}" in names] or [("mean", std)]
        mean, deviation = pairs[0]
        if mean not in names or deviation not in names or len(data[mean].dims) != 2:
            raise InputError(
                "expected a fleet, a prediction on a grid, or a map as Fleet.map makes it, over two inputs with a "
                f"mean and a variable that ends in {std}, got {type(data).__name__} with "
                f"{', '.join(names) or 'no variables'}"
            )
        y, x = (str(name) for name in data[mean].dims)
        known = np.isfinite(data[mean].values)
        if COVERAGE in names:
            known &= data[COVERAGE].values == KNOWN
        elif "uninformed" in names:
            known &= ~data["uninformed"].values
        units = {str(name): str(one.attrs["units"]) for name, one in data.variables.items() if "units" in one.attrs}
        axes = data[x].values, data[y].values
        return cls((x, y), *axes, data[mean].values, data[deviation].values, known, mean, units)

    @property
    def aspect(self) -> Any:
        if "M" in (self.x.dtype.kind, self.y.dtype.kind):  # times
            return "auto"
        return aspect_of(self.names, (self.x.min(), self.y.min()), (self.x.max(), self.y.max()))

    @property
    def shape_on_ground(self) -> float:
        """Its width over its height, as it is drawn."""
        if self.aspect == "auto":
            return 1.0
        factor = 1.0 if self.aspect == "equal" else float(self.aspect)
        return float(np.ptp(self.x) / max(factor * np.ptp(self.y), 1e-300))

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height of a panel, with the shape of the map; long ones are limited."""
        shape = min(max(self.shape_on_ground, 0.2), 5.0)
        return (WIDEST, WIDEST / shape) if shape * HIGHEST > WIDEST else (shape * HIGHEST, HIGHEST)


def _limit_ticks(ax: Any, layers: Layers, width: float, height: float) -> None:
    """As many tick labels as have room beside each other; times have labels of their own."""
    from matplotlib.ticker import MaxNLocator

    for axis, values, room in ((ax.xaxis, layers.x, width / 0.5), (ax.yaxis, layers.y, height / 0.3)):
        if values.dtype.kind != "M":
            axis.set_major_locator(MaxNLocator(max(1, int(room)), steps=[1, 2, 2.5, 5, 10], min_n_ticks=1))


def shown_places(fleet: Fleet, layers: Layers) -> Array:
    """(n, 2) some of a fleet's observations, along the two inputs of a map; none of data in files."""
    if isinstance(fleet.data, Streamed):
        return np.zeros((0, 2))
    inputs = [identifier(name) for name in names_of(fleet.inputs, fleet.dimension)]
    pair = [inputs.index(name) for name in layers.names]
    everywhere = np.concatenate([own.inputs[:, pair] for own in fleet.data])
    shown = np.array(everywhere[:: max(1, len(everywhere) // MOST)])
    for column, axis in enumerate((layers.x, layers.y)):
        if pair[column] == fleet.coordinates.longitude:
            shown[:, column] = turned_into(shown[:, column], axis.min(), axis.max())
    return shown


def _panel(ax: Any, layers: Layers, values: Array, label: str, *, deviation: bool) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.patch.set(facecolor="0.93", edgecolor="0.75", hatch="////", linewidth=0.0)
    if layers.known.any():
        shown = np.where(layers.known, values, np.nan)
        least, most = np.nanmin(shown), np.nanmax(shown)
        scale = LogNorm(least, most) if deviation and most > WIDE * least > 0.0 else None
        colours = "magma" if deviation else "viridis"
        image = ax.pcolormesh(layers.x, layers.y, shown, cmap=colours, norm=scale, shading="nearest", rasterized=True)
        beside = ax.inset_axes((1.0 + 0.1 / layers.inches[0], 0.0, 0.12 / layers.inches[0], 1.0))
        bar = ax.figure.colorbar(image, cax=beside)
        bar.set_label(label, size=TEXT)
        bar.ax.tick_params(which="both", labelsize=SMALL)
        if scale is not None:
            bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most < 1e3 * least else (1.0,)))
            bar.ax.yaxis.set_major_formatter("{x:g}")
            bar.ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set(xlim=(layers.x[0], layers.x[-1]), ylim=(layers.y[0], layers.y[-1]))
    ax.set_aspect(layers.aspect)
