"""Figures of places: where the agents' data are and who talks to whom; mean and uncertainty side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.data.dataset import corners
from fleetgp.data.transforms import names_of, turned_into
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.fleet import Fleet
from fleetgp.fleet.maps import CELL_STATUS, KNOWN, identifier
from fleetgp.plot.style import SMALL, TEXT, agent_colours, aspect_of, axes_of, several_axes, with_unit
from fleetgp.prediction import Prediction
from fleetgp.validation import as_flag, as_numbers

#: Dots in a figure, at most: more are slow to print, and hide each other.
MOST_POINTS = 5000
#: Agents whose names are written.
NAMED = 30
#: Standard deviations that differ by more than this factor are drawn on a logarithmic scale.
WIDE = 10.0
#: Inches: of a panel, at most.
WIDEST, HIGHEST = 3.4, 3.6
#: Observations that are drawn, at most.
MOST = 1500
#: The standard deviations of a map, and their titles.
DEVIATIONS = {"std": "Standard deviation", "std_observed": "Standard deviation of an observation"}


def field(
    fleet: Fleet, *, ax: Any = None, along: tuple[int, int] = (0, 1), graph: bool = True, names: bool = True
) -> Any:
    """Plot each agent's observations in its own colour, and the graph over the centres of their data.

    along: the numbers of the two inputs that are drawn.  graph: with its links; of one that varies, all of them.
    names: of the agents, at their centres, where they are at most 30.

    Of more than 5,000 observations so many are drawn, and of data in files the centres alone.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> ax = field(Fleet(partition(seen.inputs, seen.observations, agents=4)))
    >>> len(ax.collections), ax.get_xlabel()  # the dots of four agents, links, centres
    (6, 'x1')
    """
    if not isinstance(fleet, Fleet):
        raise InputError(f"field: expected a Fleet, got {type(fleet).__name__}: of a Model give model.fleet")
    graph, names = as_flag(graph, "graph"), as_flag(names, "names")
    pair = _checked(along, fleet.dimension)
    ax, colours, labels = axes_of(ax), agent_colours(fleet.agents), names_of(fleet.inputs, fleet.dimension)
    summaries = fleet.data.summaries_along_arc(fleet.coordinates.longitude)
    places = np.stack([one.centre[pair] for one in summaries])
    if fleet.data.in_memory:
        rows = fleet.data.along_arc(fleet.coordinates.longitude)
        draw_dots(ax, [own.inputs[:, pair] for own in rows], colours)
    if graph:
        draw_graph(ax, places, fleet.graph.union.edges, colours, fleet.labels if names else ())
    low, high = corners(summaries)
    shown = [labels[d] for d in pair]
    ax.set(xlabel=with_unit(shown[0], fleet.units), ylabel=with_unit(shown[1], fleet.units))
    ax.set_aspect(aspect_of(shown, low[pair], high[pair]))
    ax.margins(0.03)
    return ax


def draw_dots(ax: Any, rows: Sequence[Array], colours: Sequence[Any]) -> None:
    """(N_i, 2) of each agent, in its colour; of very many only some."""
    total = sum(map(len, rows))
    step = -(-total // MOST_POINTS) if total else 1
    size = float(np.clip(1500.0 / max(1, total), 1.5, 12.0))
    for own, colour in zip(rows, colours, strict=True) if rows else ():
        ax.scatter(*own[::step].T, s=size, color=[colour], linewidths=0, alpha=0.8, rasterized=total > 1000)


def draw_graph(ax: Any, places: Array, edges: IntArray, colours: Sequence[Any], names: Sequence[str] = ()) -> None:
    """Links between places (M, 2), and the agents on them, with their names where there is room."""
    from matplotlib.collections import LineCollection

    ax.add_collection(LineCollection(list(places[edges]), colors="0.15", linewidths=1.0, zorder=3))
    size = 36 if 0 < len(names) <= NAMED else 14
    ax.scatter(*places.T, s=size, c=list(colours), edgecolors="black", linewidths=0.8, zorder=4)
    draw_names(ax, places, names)


def draw_names(ax: Any, places: Array, names: Sequence[str]) -> None:
    """Names above places, where there is room for all."""
    from matplotlib.patheffects import withStroke

    for place, name in zip(places, names, strict=True) if 0 < len(names) <= NAMED else ():
        white = [withStroke(linewidth=2.0, foreground="white")]
        above: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "va": "bottom"}
        ax.annotate(name, place, fontsize=SMALL, zorder=5, path_effects=white, **above)


def _checked(along: Any, dimension: int) -> list[int]:
    pair = list(along) if isinstance(along, list | tuple) else []
    if dimension < 2:
        raise InputError("a figure of the field: expected a fleet of two inputs or more, got one")
    whole = all(isinstance(d, int | np.integer) and not isinstance(d, bool) and 0 <= d < dimension for d in pair)
    if not whole or len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(
            f"along: expected the numbers of two inputs, from 0 to {dimension - 1}, got {shortened(along)}"
        )
    return pair


def map_(
    what: Fleet | Prediction | Any,
    *,
    axes: Any = None,
    std: str = "std",
    dots: Fleet | Array | None = None,
    **asked: Any,
) -> Any:
    """Plot mean and standard deviation side by side; return the two axes.

    what: a fleet, which is asked for a map (asked: as of `Fleet.map`); a map as `Fleet.map` and `fleetgp map` make it;
        or a prediction at the points of a grid.
    axes: two, to draw on.
    std: "std" for the field, "std_observed" for an observation.
    dots: a fleet, whose observations are drawn, or places (N, 2); of a fleet that is asked, its own.

    Cells that are no better known than the prior are hatched, not coloured. Standard deviations that differ by a factor
    of ten have a logarithmic scale.

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
    panels = several_axes(axes, 1, 2, (2.0 * (width + 1.3), height + 1.0), sharey=True)
    if axes is None:
        for ax in panels:
            _limit_ticks(ax, layers, width, height)
    target, unit = layers.target, layers.units.get(layers.target, "")
    label = f"{target} ({unit})" if unit else target
    contents = ((f"Mean of {target}", layers.mean, label), (DEVIATIONS[std], layers.deviation, f"std of {label}"))
    for number, (ax, (title, values, text)) in enumerate(zip(panels, contents, strict=True)):
        _panel(ax, layers, values, text, deviation=number == 1)
        ax.plot(*places.T, ".", color="white", markersize=0.8, alpha=0.5)
        ax.set_title(title, fontsize=TEXT + 0.5, wrap=True)
        ax.set_xlabel(with_unit(layers.names[0], layers.units))
    panels[0].set_ylabel(with_unit(layers.names[1], layers.units))
    return panels


@dataclass(frozen=True)
class Layers:
    """A map. names: of the two axes.  x, y: along them.  mean, deviation: (len(y), len(x)).

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
        """Take a variable of a dataset and its standard deviation: sst and sst_std, or mean and std."""
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
        if CELL_STATUS in names:
            known &= data[CELL_STATUS].values == KNOWN
        elif "prior_only" in names:
            known &= ~data["prior_only"].values
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
    if not fleet.data.in_memory:
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
