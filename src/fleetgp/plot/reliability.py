"""Whether intervals hold what they promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.fleet import CrossValidation
from fleetgp.metrics import coverage
from fleetgp.metrics.scores import checked_row
from fleetgp.plot.style import COLOURS, COLUMN, SMALL, TEXT, axes_of
from fleetgp.prediction import Prediction

#: Nominal coverages that are drawn.
LEVELS = np.concatenate([np.arange(0.05, 0.951, 0.05), [0.98, 0.99]])
STYLES = ("-", "--", "-.", ":")
#: The share of well calibrated predictions whose curve lies in the band, at each level.
SURE = 0.95


def reliability(what: Any, truth: Any = None, *, ax: Any = None) -> Any:
    """The share of truths in their intervals against the nominal one, with what chance would allow.

    what: a `CrossValidation`; a `Prediction`, whose deviation of an observation is taken, or a pair (mean, variance),
        with truth (T,); or a dictionary of such, {"before": .., "after": ..}, of the same truth.

    On the diagonal intervals hold what they promise; below it they are too narrow. The band is where the share would
    lie with a probability of 95 % if they held it and rows were independent, which close ones are not.

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
    """The shares of so many rows between which chance alone would leave them, at each of `LEVELS`.

    >>> low, high = band(400)
    >>> float(low[9]), float(high[9])  # at 50 %
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
