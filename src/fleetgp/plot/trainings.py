"""How a training came to its end, and which kernels it compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.fleet import Fleet
from fleetgp.plot.style import COLOURS, COLUMN, PAGE, SMALL, TEXT, agent_colours, axes_of, several_axes, symbol
from fleetgp.training import Fit


def convergence(fit: Fit | Fleet, *, axes: Any = None) -> Any:
    """Every agent's hyperparameters over the rounds, a panel for each; the axes (P,).

    fit: a training, or the fleet that was trained, which also knows the names of its agents.
    axes: P of them, to draw on.

    The rounds are those of the start that won. Where agents hear the same sums (dec-fact-gp) all lines are one.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(seen.inputs, seen.observations, agents=3))
    >>> fit = fleet.train("dec-apx-gp", theta0=[2, 0.5, 1, 1], tol=1e-2)
    >>> panels = convergence(fleet)
    >>> [len(ax.lines) for ax in panels], panels[0].get_title()
    ([3, 3, 3, 3], '$\\\\ell_1$')
    """
    found, labels = _trained(fit)
    columns = min(4, len(labels)) if axes is None else len(labels)
    rows = -(-len(labels) // columns)
    panels = several_axes(axes, rows, columns, (PAGE, 0.5 + 1.75 * rows))
    for spare in panels[len(labels) :]:
        spare.set_visible(False)
    for ax, name, values in zip(panels, labels, np.moveaxis(found.history, 2, 0), strict=False):
        draw_history(ax, values, fit.labels if isinstance(fit, Fleet) else None)
        ax.set_title(symbol(name), fontsize=TEXT + 0.5)
        readable_log(ax)
    if len(found.thetas) <= len(COLOURS) and isinstance(fit, Fleet):
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
    """The kernels that a training compared (`kernel="auto"`), by how well each predicts rows that it has not seen.

    fit: a training, or the fleet that was trained.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> seen = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(seen.inputs, seen.observations, agents=2), kernel=["se", "matern12"])
    >>> fit = fleet.train(tol=1e-2)
    >>> ax = kernels(fit)
    >>> [text.get_text() for text in ax.get_yticklabels()] == [one.kernel for one in fit.compared][::-1]
    True
    """
    found, _ = _trained(fit)
    if not found.compared:
        raise InputError('kernels: expected a training that compared some, got one of a single kernel: kernel="auto"')
    ranked = list(found.compared)[::-1]
    ax = axes_of(ax, COLUMN, 0.8 + 0.28 * len(ranked))
    best = max(one.density for one in ranked)
    sound = [one for one in ranked if np.isfinite(one.density)]
    worst = min(one.density for one in sound)
    left = worst - 0.15 * ((best - worst) or 1.0)
    for place, one in enumerate(ranked):
        chosen = one.kernel == found.kernel
        if not np.isfinite(one.density):
            ax.text(left, place, "  failed", va="center", fontsize=SMALL, color="0.4")
            continue
        colour = COLOURS[1] if chosen else "0.6"
        ax.plot([left, one.density], [place, place], color=colour, linewidth=1.2, zorder=1)
        ax.plot([one.density], [place], "o", color=colour, markersize=5.5, zorder=2)
        told = f"{one.density:.3f}" + (" (chosen)" if chosen else "")
        ax.annotate(told, (one.density, place), (6, 0), textcoords="offset points", va="center", fontsize=SMALL)
    ax.set_yticks(range(len(ranked)), [one.kernel for one in ranked])
    ax.set(xlim=(left, best + 0.45 * (best - left)), ylim=(-0.6, len(ranked) - 0.4))
    ax.set_xlabel(f"log density a hidden row, of {ranked[0].rows:,} (nats)", fontsize=TEXT)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _trained(fit: Any) -> tuple[Fit, tuple[str, ...]]:
    """The training, and what its hyperparameters are called."""
    found = fit.last_fit if isinstance(fit, Fleet) else fit
    if found is None:
        raise InputError("expected a fleet that was trained, got one that was not: call train first")
    if not isinstance(found, Fit):
        raise InputError(f"expected a training (Fit) or a trained fleet, got {type(fit).__name__}")
    unnamed = tuple(f"theta_{number + 1}" for number in range(found.thetas.shape[1]))
    return found, found.names or unnamed
