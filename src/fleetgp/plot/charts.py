"""Charts of results: how a training converged, which kernels it compared, what was sent, and whether intervals hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.fleet import CrossValidation, Fleet
from fleetgp.graph import Graph, GraphSequence
from fleetgp.metrics import checked_row, coverage
from fleetgp.network import Ledger
from fleetgp.network.ledger import FRAMING, SERVER
from fleetgp.plot.maps import draw_names
from fleetgp.plot.style import COLOURS, COLUMN, PAGE, SMALL, TEXT, agent_colours, axes_of, several_axes, symbol
from fleetgp.prediction import Prediction
from fleetgp.training import Fit
from fleetgp.units import readable_bytes
from fleetgp.validation import as_numbers

#: Points: the widest link.
WIDEST = 5.0
#: Nominal coverages that are drawn.
LEVELS = np.concatenate([np.arange(0.05, 0.951, 0.05), [0.98, 0.99]])
STYLES = ("-", "--", "-.", ":")
#: The share of well calibrated predictions whose curve lies in the band, at each level.
SURE = 0.95


# ---- training -------------------------------------------------------------------------------------------------


def convergence(fit: Fit | Fleet, *, axes: Any = None) -> Any:
    """Plot each agent's hyperparameters over the rounds, one panel per hyperparameter; return the axes (P,).

    fit: a training, or the fleet that was trained, which also knows the names of its agents.
    axes: P of them, to draw on.

    The rounds are those of the start that won. Where agents receive the same sums (dec-fact-gp) all lines are one.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(seen.inputs, seen.observations, agents=3))
    >>> fit = fleet.train("dec-apx-gp", theta0=[2, 0.5, 1, 1], tol=1e-2)
    >>> panels = convergence(fleet)
    >>> [len(ax.lines) for ax in panels], panels[0].get_title()
    ([3, 3, 3, 3], '$\\\\ell_1$')
    """
    training, labels = _trained(fit)
    columns = min(4, len(labels)) if axes is None else len(labels)
    rows = -(-len(labels) // columns)
    panels = several_axes(axes, rows, columns, (PAGE, 0.5 + 1.75 * rows))
    for spare in panels[len(labels) :]:
        spare.set_visible(False)
    for ax, name, values in zip(panels, labels, np.moveaxis(training.history, 2, 0), strict=False):
        draw_history(ax, values, fit.labels if isinstance(fit, Fleet) else None)
        ax.set_title(symbol(name), fontsize=TEXT + 0.5)
        readable_log(ax)
    if len(training.thetas) <= len(COLOURS) and isinstance(fit, Fleet):
        panels[0].legend(fontsize=SMALL - 0.5, frameon=False, handlelength=1.2, labelspacing=0.2)
    return panels[: len(labels)]


def draw_history(ax: Any, values: Array, labels: Sequence[str] | None = None) -> None:
    """One hyperparameter of every agent over the rounds, (R + 1, A)."""
    for number, (own, colour) in enumerate(zip(values.T, agent_colours(values.shape[1]), strict=True)):
        label = "_" if labels is None else labels[number]
        ax.plot(np.arange(len(own)), own, color=colour, linewidth=1.0, alpha=0.9, label=label)
    ax.set(yscale="log", xlim=(0, max(1, len(values) - 1)))
    ax.set_xlabel("round", fontsize=TEXT)
    ax.grid(alpha=0.25, which="both", linewidth=0.4)


def readable_log(ax: Any) -> None:
    """Numbers as people write them along a logarithmic axis, also where it spans less than a decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = ax.get_ylim()
    steps = (1.0, 2.0, 3.0, 5.0) if high / low < 30.0 else (1.0,)
    ax.yaxis.set_major_locator(MaxNLocator(4) if high / low < 3.0 else LogLocator(10.0, steps, numticks=8))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def kernels(fit: Fit | Fleet, *, ax: Any = None) -> Any:
    """Plot how well each kernel that a training compared (`kernel="auto"`) predicts hidden rows.

    fit: a training, or the fleet that was trained.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(seen.inputs, seen.observations, agents=2), kernel=["se", "matern12"])
    >>> fit = fleet.train(tol=1e-2)
    >>> ax = kernels(fit)
    >>> [text.get_text() for text in ax.get_yticklabels()] == [one.kernel for one in fit.compared][::-1]
    True
    """
    training, _ = _trained(fit)
    if not training.compared:
        raise InputError('kernels: expected a training that compared some, got one of a single kernel: kernel="auto"')
    ranked = list(training.compared)[::-1]
    ax = axes_of(ax, COLUMN, 0.8 + 0.28 * len(ranked))
    best = max(one.density for one in ranked)
    sound = [one for one in ranked if np.isfinite(one.density)]
    worst = min(one.density for one in sound)
    left = worst - 0.15 * ((best - worst) or 1.0)
    for place, one in enumerate(ranked):
        chosen = one.kernel == training.kernel
        if not np.isfinite(one.density):
            ax.text(left, place, "  failed", va="center", fontsize=SMALL, color="0.4")
            continue
        colour = COLOURS[1] if chosen else "0.6"
        ax.plot([left, one.density], [place, place], color=colour, linewidth=1.2, zorder=1)
        ax.plot([one.density], [place], "o", color=colour, markersize=5.5, zorder=2)
        label = f"{one.density:.3f}" + (" (chosen)" if chosen else "")
        ax.annotate(label, (one.density, place), (6, 0), textcoords="offset points", va="center", fontsize=SMALL)
    ax.set_yticks(range(len(ranked)), [one.kernel for one in ranked])
    ax.set(xlim=(left, best + 0.45 * (best - left)), ylim=(-0.6, len(ranked) - 0.4))
    ax.set_xlabel(f"log density per hidden row, of {ranked[0].rows:,} (nats)", fontsize=TEXT)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _trained(fit: Any) -> tuple[Fit, tuple[str, ...]]:
    """The training, and the names of its hyperparameters."""
    training = fit.last_fit if isinstance(fit, Fleet) else fit
    if training is None:
        raise InputError("expected a trained fleet, got one that was not trained: call train first")
    if not isinstance(training, Fit):
        raise InputError(f"expected a training (Fit) or a trained fleet, got {type(fit).__name__}")
    unnamed = tuple(f"theta_{number + 1}" for number in range(training.thetas.shape[1]))
    return training, training.names or unnamed


# ---- traffic --------------------------------------------------------------------------------------------------


def traffic(ledger: Ledger, where: Any, *, kind: str | None = None, axes: Any = None, ax: Any = None) -> Any:
    """Plot the bytes over each link, both ways together, and the bytes of each kind of content; return both axes.

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
    left, right = several_axes(axes, 1, 2, (PAGE, 2.8), width_ratios=[1.25, 1.0])
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
    links: dict[tuple[int, int], int] = {}
    for (sender, receiver), everything in ledger.by_edge().items():
        size = everything.bytes if kind is None else ledger.total(kind=kind, sender=sender, receiver=receiver).bytes
        pair = min(sender, receiver), max(sender, receiver)
        links[pair] = links.get(pair, 0) + size
    return {pair: size for pair, size in links.items() if size}


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
    ax.set_title(
        f"{kind + ': ' if kind else ''}{readable_bytes(sum(links.values()))} over {len(links):,} links",
        fontsize=TEXT + 0.5,
    )
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.14)
    return ax


def _key(ax: Any, most: int) -> None:
    """The legend of the widths."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colormaps["cividis"](0.85 * (1.0 - share)), linewidth=max(0.4, WIDEST * share),
               label=readable_bytes(round(share * most)))
        for share in (1.0, 0.5, 0.1)
    ]  # fmt: skip
    where: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 3, "handlelength": 1.4}
    ax.legend(handles=handles, fontsize=SMALL, frameon=False, title="a link, both ways", title_fontsize=SMALL, **where)


def _draw_kinds(ax: Any, ledger: Ledger, kind: str | None) -> None:
    sizes = {name: traffic.bytes for name, traffic in ledger.by_kind().items() if traffic.bytes}
    ranked = sorted(sizes, key=lambda name: sizes[name])
    whole = max(1, sum(sizes.values()))
    for place, name in enumerate(ranked):
        colour = "0.75" if name == FRAMING or kind not in (None, name) else COLOURS[0]
        ax.barh(place, sizes[name], color=colour, height=0.65)
        label = f"{readable_bytes(sizes[name])} ({sizes[name] / whole:.0%})"
        ax.annotate(label, (sizes[name], place), (3, 0), textcoords="offset points", va="center", fontsize=SMALL)
    ax.set_yticks(range(len(ranked)), ["headers" if name == FRAMING else name for name in ranked])
    ax.set_title(f"By kind of content, in {ledger.rounds:,} rounds", fontsize=TEXT + 0.5)
    ax.set(xticks=[], xlim=(0, 1.45 * max(sizes.values(), default=1)), ylim=(-0.6, max(3, len(ranked)) - 0.4))
    ax.spines[["top", "right", "bottom"]].set_visible(False)


# ---- reliability ----------------------------------------------------------------------------------------------


def reliability(what: Any, truth: Any = None, *, ax: Any = None) -> Any:
    """Plot the share of truths in their intervals against the nominal level, with a band for chance.

    what: a `CrossValidation`; with truth (T,) a `Prediction` (of observations) or a pair (mean, variance); or a
        dictionary of such predictions, {"before": .., "after": ..}, of the same truth.

    On the diagonal intervals have their nominal coverage; below it they are too narrow. If they had it and rows were
    independent, which close ones are not, the share would lie in the band with a probability of 95%.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal(300)
    >>> ax = reliability({"right": (np.zeros(300), np.ones(300)), "sure": (np.zeros(300), np.full(300, 0.3))}, truth)
    >>> [line.get_label() for line in ax.lines[1:]]
    ['right', 'sure']
    """
    curves = {str(name): _rows(one, truth) for name, one in (what if isinstance(what, Mapping) else {"": what}).items()}
    if not curves:
        raise InputError("reliability: expected predictions, got an empty dictionary")
    ax = axes_of(ax, COLUMN, 3.4)
    counts = {len(seen) for _, _, seen in curves.values()}
    for count in sorted(counts):
        low, high = band(count)
        ax.fill_between(LEVELS, low, high, color="0.85", linewidth=0, zorder=0)
    ax.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, zorder=1)
    for number, (name, rows) in enumerate(curves.items()):
        shares = [coverage(*rows, float(level)) for level in LEVELS]
        style = {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)]}
        ax.plot(LEVELS, shares, marker=".", markersize=3, linewidth=1.3, label=name or "_", **style)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ticks = np.arange(0.0, 1.01, 0.25)
    ax.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    ax.set_yticks(ticks, [f"{tick:.0%}" for tick in ticks])
    ax.set_xlabel("promised: nominal level of the interval", fontsize=TEXT)
    ax.set_ylabel("held: share of observations inside", fontsize=TEXT)
    many = ", ".join(f"{count:,}" for count in sorted(counts))
    ax.text(0.98, 0.03, f"band: {SURE:.0%} of chance for {many} rows", transform=ax.transAxes, ha="right",
            fontsize=SMALL, color="0.35")  # fmt: skip
    if any(curves):
        ax.legend(fontsize=SMALL, frameon=False, loc="upper left")
    return ax


def band(rows: int) -> tuple[Array, Array]:
    """The lower and upper end of the band for a number of rows, at each of `LEVELS`.

    >>> low, high = band(400)
    >>> float(low[9]), float(high[9])  # at 50%
    (0.45, 0.55)
    """
    from scipy.stats import binom  # which takes a second to load

    low, high = binom.interval(SURE, rows, LEVELS)
    return np.asarray(low / rows), np.asarray(high / rows)


def _rows(what: Any, truth: Any) -> tuple[Array, Array, Array]:
    """Mean, variance and truth."""
    if isinstance(what, CrossValidation):
        mean, variance, seen = (np.concatenate(parts) for parts in (what.means, what.variances, what.truths))
        return mean, variance, seen
    if truth is None:
        raise InputError("reliability: expected the truth beside a prediction, got none: reliability(what, truth)")
    if isinstance(what, Prediction):
        return what.mean, what.std_observed**2, checked_row(truth, "truth")
    if isinstance(what, list | tuple) and len(what) == 2:
        return what[0], what[1], checked_row(truth, "truth")
    raise InputError(
        "reliability: expected a CrossValidation, a Prediction or a pair (mean, variance), or a dictionary of them, "
        f"got {type(what).__name__}"
    )
