"""What was sent over which link, and of what kind it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.fleet import Fleet
from fleetgp.graph import Graph, GraphSequence
from fleetgp.network import Ledger
from fleetgp.network.ledger import FRAMING, SERVER
from fleetgp.plot.maps import draw_names
from fleetgp.plot.style import COLOURS, COLUMN, PAGE, SMALL, TEXT, axes_of, several_axes
from fleetgp.units import readable_bytes
from fleetgp.validation import as_numbers

#: Points: the widest link.
WIDEST = 5.0


def traffic(ledger: Ledger, where: Any, *, kind: str | None = None, axes: Any = None, ax: Any = None) -> Any:
    """Bytes over each link as its width, both ways together, and bytes by kind of content beside it; both axes.

    ledger: of a training or a prediction.
    where: who is where: the fleet (the centres of its data), places (M, 2), or a graph, which is laid out on a circle.
    kind: of content, "hyperparameters" for example; without it all.
    axes: two, to draw on.  ax: one, for the links alone; then these axes are the result.

    What went to a central node is drawn to a square in the middle.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(seen.inputs, seen.observations, agents=3), "path", theta=[1.2, 0.3, 1.3, 0.1])
    >>> links, kinds = traffic(fleet.predict([[0.5, 0.5]], "dec-rbcm").ledger, fleet)
    >>> len(links.lines)
    2
    """
    if not isinstance(ledger, Ledger):
        raise InputError(f"ledger: expected that of a fit or a prediction, fit.ledger, got {shortened(ledger)}")
    if kind is not None:
        check_name("kind of content in this ledger", kind, ledger.kinds)
    places, links = _places(where), _links(ledger, kind)
    names = where.labels if isinstance(where, Fleet) else ()
    agents = max((max(pair) for pair in links), default=0)
    if agents >= len(places):
        raise InputError(f"where: expected the places of all agents, got {len(places)}, and agent {agents} sends")
    if ax is not None:
        return _draw_links(axes_of(ax, COLUMN), places, links, kind, names)
    how = {"width_ratios": [1.25, 1.0]}
    left, right = several_axes(axes, 1, 2, (PAGE, 2.8), **how)
    _draw_links(left, places, links, kind, names)
    _draw_kinds(right, ledger, kind)
    return np.array([left, right], dtype=object)


def _places(where: Any) -> Array:
    """(M, 2)."""
    if isinstance(where, Fleet):
        centres = np.stack([one.centre for one in where.data.summaries])
        return centres[:, :2] if centres.shape[1] > 1 else _circle(len(centres))
    if isinstance(where, Graph | GraphSequence):
        return _circle(where.agents)
    places = as_numbers(where, "where")
    if places.ndim != 2 or places.shape[1] != 2:
        raise InputError(f"where: expected a fleet, a graph or places (M, 2), got the shape {places.shape}")
    return places


def _circle(agents: int) -> Array:
    turn = 0.5 * np.pi - 2.0 * np.pi * np.arange(agents) / agents
    return np.column_stack([np.cos(turn), np.sin(turn)])


def _links(ledger: Ledger, kind: str | None) -> dict[tuple[int, int], int]:
    """Bytes between two, both ways together."""
    found: dict[tuple[int, int], int] = {}
    for (sender, receiver), everything in ledger.by_edge().items():
        size = everything.bytes if kind is None else ledger.total(kind=kind, sender=sender, receiver=receiver).bytes
        pair = min(sender, receiver), max(sender, receiver)
        found[pair] = found.get(pair, 0) + size
    return {pair: size for pair, size in found.items() if size}


def _draw_links(
    ax: Any, places: Array, links: dict[tuple[int, int], int], kind: str | None, names: Sequence[str]
) -> Any:
    from matplotlib import colormaps

    most, central = max(links.values(), default=1), places.mean(axis=0)
    for (first, second), size in sorted(links.items(), key=lambda link: link[1]):
        ends = np.array([central if one == SERVER else places[one] for one in (first, second)])
        share = size / most
        colour = colormaps["cividis"](0.85 * (1.0 - share))
        ax.plot(*ends.T, color=colour, linewidth=max(0.4, WIDEST * share), solid_capstyle="round", zorder=1)
    ax.scatter(*places.T, s=22, color="white", edgecolors="black", linewidths=0.9, zorder=3)
    if any(SERVER in pair for pair in links):
        ax.scatter(*central, s=60, marker="s", color="white", edgecolors="black", linewidths=0.9, zorder=3)
        ax.annotate("server", central, (0, 7), textcoords="offset points", ha="center", fontsize=SMALL)
    draw_names(ax, places, names)
    _key(ax, most)
    told = f"{kind}: " if kind else ""
    ax.set_title(f"{told}{readable_bytes(sum(links.values()))} over {len(links):,} links", fontsize=TEXT + 0.5)
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.14)
    return ax


def _key(ax: Any, most: int) -> None:
    """What widths mean."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    shares = (1.0, 0.5, 0.1)
    handles = [
        Line2D([], [], color=colormaps["cividis"](0.85 * (1.0 - share)), linewidth=max(0.4, WIDEST * share),
               label=readable_bytes(round(share * most)))
        for share in shares
    ]  # fmt: skip
    ax.legend(
        handles=handles,
        fontsize=SMALL,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3,
        handlelength=1.4,
        title="a link, both ways",
        title_fontsize=SMALL,
    )


def _draw_kinds(ax: Any, ledger: Ledger, kind: str | None) -> None:
    sizes = {name: traffic.bytes for name, traffic in ledger.by_kind().items() if traffic.bytes}
    ranked = sorted(sizes, key=lambda name: sizes[name])
    whole = max(1, sum(sizes.values()))
    for place, name in enumerate(ranked):
        colour = "0.75" if name == FRAMING or kind not in (None, name) else COLOURS[0]
        ax.barh(place, sizes[name], color=colour, height=0.65)
        told = f"{readable_bytes(sizes[name])} ({sizes[name] / whole:.0%})"
        ax.annotate(told, (sizes[name], place), (3, 0), textcoords="offset points", va="center", fontsize=SMALL)
    ax.set_yticks(range(len(ranked)), ["headers" if name == FRAMING else name for name in ranked])
    ax.set_title(f"By kind of content, in {ledger.rounds:,} rounds", fontsize=TEXT + 0.5)
    ax.set(xticks=[], xlim=(0, 1.45 * max(sizes.values(), default=1)), ylim=(-0.6, max(3, len(ranked)) - 0.4))
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)
