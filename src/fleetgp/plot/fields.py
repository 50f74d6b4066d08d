"""Where the agents' data are, and who talks to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.data.longitudes import rows_along_arc, summaries_along_arc
from fleetgp.data.points import names_of
from fleetgp.data.streamed import Streamed
from fleetgp.data.summary import corners
from fleetgp.errors import InputError, shortened
from fleetgp.fleet import Fleet
from fleetgp.given import as_flag
from fleetgp.plot.style import SMALL, agent_colours, aspect_of, axes_of, with_unit

#: Dots in a figure, at most: more are slow to print, and hide each other.
MOST = 5000
#: Agents whose names are written.
NAMED = 30


def field(
    fleet: Fleet, *, ax: Any = None, along: tuple[int, int] = (0, 1), graph: bool = True, names: bool = True
) -> Any:
    """Every agent's observations in a colour of its own, and the graph over the centres of their data.

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
    summaries = summaries_along_arc(fleet.data, fleet.coordinates)
    places = np.stack([one.centre[pair] for one in summaries])
    streamed = isinstance(fleet.data, Streamed)
    rows = [] if streamed else [own.inputs[:, pair] for own in rows_along_arc(fleet.data, fleet.coordinates)]
    draw_dots(ax, rows, colours)
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
    step = -(-total // MOST) if total else 1
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
        ax.annotate(
            name,
            place,
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=SMALL,
            zorder=5,
            path_effects=[withStroke(linewidth=2.0, foreground="white")],
        )


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
