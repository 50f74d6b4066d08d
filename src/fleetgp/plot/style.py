"""What all figures share: axes to draw on, colours, and names with their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgp.data.transforms import coordinate_facts
from fleetgp.errors import InputError

#: Of Okabe and Ito (2008), which stay apart for everybody; the darkest ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: Inches: a column of text, and a page.
COLUMN, PAGE = 3.5, 7.2
#: Points.
SMALL, TEXT = 7.0, 8.0
SYMBOLS = {"sigma_f": r"$\sigma_f$", "sigma_eps": r"$\sigma_\epsilon$"}


def figure_of(width: float, height: float) -> Any:
    """An empty one, which pyplot does not know of; or one clear error without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('figures need matplotlib: pip install "fleetgp[cli]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def axes_of(ax: Any, width: float = COLUMN, height: float = 3.0) -> Any:
    """The axes that were given, or new ones."""
    if ax is None:
        return styled(figure_of(width, height).subplots())
    if not hasattr(ax, "transAxes"):  # data frames have a plot, too
        raise InputError(f"ax: expected the axes of a matplotlib figure, got {type(ax).__name__}")
    return ax


def several_axes(axes: Any, rows: int, columns: int, size: tuple[float, float], **how: Any) -> Any:
    """(n,) axes that were given, as many as are needed, or new ones."""
    if axes is None:
        new = figure_of(*size).subplots(rows, columns, squeeze=False, **how).ravel()
        return np.array([styled(ax) for ax in new], dtype=object)
    given = np.ravel(np.asarray(axes, dtype=object))
    if len(given) != rows * columns or not all(hasattr(ax, "transAxes") for ax in given):
        raise InputError(f"axes: expected {rows * columns} axes of a matplotlib figure, got {len(given)} things")
    return given


def styled(ax: Any) -> Any:
    """New axes, for print: small text, thin lines."""
    ax.tick_params(labelsize=SMALL, width=0.6)
    ax.xaxis.label.set_size(TEXT)
    ax.yaxis.label.set_size(TEXT)
    ax.title.set_size(TEXT + 0.5)
    for spine in ax.spines.values():
        spine.set_linewidth(0.6)
    return ax


def agent_colours(agents: int) -> list[Any]:
    """One for each: Okabe and Ito's where they are enough, else along viridis.

    >>> agent_colours(2), len(agent_colours(40))
    (['#0072B2', '#D55E00'], 40)
    """
    if agents <= len(COLOURS):
        return list(COLOURS[:agents])
    from matplotlib import colormaps

    return list(colormaps["viridis"](np.linspace(0.0, 0.95, agents)))


def symbol(name: str) -> str:
    """A hyperparameter's name as maths.

    >>> symbol("l_2"), symbol("l_lon"), symbol("sigma_eps_Ada"), symbol("rq.alpha")
    ('$\\\\ell_2$', '$\\\\ell_{\\\\mathrm{lon}}$', '$\\\\sigma_\\\\epsilon$ Ada', 'rq.alpha')
    """
    if name in SYMBOLS:
        return SYMBOLS[name]
    if name.startswith("sigma_eps_"):
        return f"{SYMBOLS['sigma_eps']} {name.removeprefix('sigma_eps_')}"
    if name.startswith("l_") and name[2:].isalnum():
        return rf"$\ell_{name[2:]}$" if len(name) == 3 else rf"$\ell_{{\mathrm{{{name[2:]}}}}}$"
    return name


def with_unit(name: str, units: Mapping[str, str]) -> str:
    """A name with its unit, for an axis.

    >>> with_unit("lon", {}), with_unit("sst", {"sst": "degC"}), with_unit("x", {})
    ('lon (°E)', 'sst (degC)', 'x')
    """
    unit = units.get(name) or coordinate_facts(name, {}).get("units", "")
    unit = {"degrees_east": "°E", "degrees_north": "°N"}.get(unit, unit)
    return f"{name} ({unit})" if unit else name


def aspect_of(names: Sequence[str], low: Any, high: Any) -> Any:
    """As on the ground for longitudes and latitudes; else what fits, unless both axes are of one size."""
    kinds = [coordinate_facts(name, {}).get("standard_name") for name in names]
    if kinds == ["longitude", "latitude"]:
        return 1.0 / max(0.05, float(np.cos(np.radians(0.5 * (low[1] + high[1])))))
    widths = np.asarray(high) - np.asarray(low)
    return "equal" if 0.5 <= widths[0] / max(widths[1], 1e-300) <= 2.0 else "auto"
