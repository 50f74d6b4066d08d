"""Maps of a field as xarray datasets: a grid over two inputs, values of the others, and the cells that are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import agree_on_coordinates
from fleetgp.consensus.reductions import Alone
from fleetgp.data.dataset import corners
from fleetgp.data.suspicions import LONGITUDE_NAMES
from fleetgp.data.times import Moment, format_time, format_value, moment, time_unit_of
from fleetgp.data.transforms import coordinate_facts, names_of
from fleetgp.errors import InputError, shortened, unknown_name
from fleetgp.fleet.conditioned import describe_extrapolation
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.io.fields import named_as, nearest_cells, xarray
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.prediction.results import shown_axis
from fleetgp.validation import as_numbers, check_number, check_whole

#: Beyond this many points a map takes days, and more memory than most machines have.
MOST_CELLS = 10_000_000
#: Which cells to predict: a function of points (T, D), an array (second, first input), or a DataArray over both.
Mask = Callable[[Array], Any] | Array | BoolArray | Any | None


@dataclass(frozen=True)
class Grid:
    """A grid over two inputs.

    names: of all inputs.  along: the positions of the two.  axes: their coordinates.
    fixed: the values of the other inputs, by name.
    """

    names: tuple[str, ...]
    along: tuple[int, int]
    axes: tuple[Array, Array]
    fixed: dict[str, float]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.axes[0]), len(self.axes[1])

    @property
    def cells(self) -> Array:
        """(T, D), the first of the two inputs slowest."""
        first, second = np.meshgrid(*self.axes, indexing="ij")
        cells = np.empty((first.size, len(self.names)))
        cells[:, self.along[0]], cells[:, self.along[1]] = first.ravel(), second.ravel()
        for name, value in self.fixed.items():
            cells[:, self.names.index(name)] = value
        return cells


def grid_of(
    snapshot: ModelSnapshot,
    counts: Sequence[int],
    box: Sequence[float] | None,
    at: Mapping[str, Any] | None = None,
    at_time: Moment | None = None,
) -> Grid:
    """Make a grid over the two inputs that have no value in `at`.

    counts: points along each.  box: the lowest first and second of these inputs, then the highest; None for the data's.
    at_time: the value of the time; None for now, where more than two inputs have no value.

    >>> from fleetgp import Fleet
    >>> data = [([[0.0, 7.0, 1.0], [2.0, 9.0, 5.0]], [0.0, 1.0])]
    >>> fleet = Fleet(data, inputs=["x", "day", "y"], theta=[1.0, 1.0, 1.0, 1.0, 0.1])
    >>> grid = grid_of(fleet.snapshot(), (3, 2), None, {"day": 8})
    >>> grid.axes, grid.cells[1].tolist()
    ((array([0., 1., 2.]), array([1., 5.])), [0.0, 8.0, 5.0])
    """
    if at is not None and not isinstance(at, Mapping):
        raise InputError(f'at: expected the values of other inputs by name, {{"day": 5}}, got {shortened(at)}')
    names = names_of(snapshot.inputs, snapshot.shards.dimension)
    fixed = {name: _value(name, value, names, snapshot.units) for name, value in (at or {}).items()}
    time = snapshot.time
    if at_time is not None and time in fixed:
        raise InputError(f"at_time: {time!r} has a value in at already: leave one of them out")
    if at_time is not None or (time is not None and time not in fixed and len(names) - len(fixed) > 2):
        fixed[str(time)] = snapshot.moment(at_time)
    left = [d for d, name in enumerate(names) if name not in fixed]
    if len(left) != 2:
        got = f"{len(left)} ({', '.join(names[d] for d in left)})" if left else "none"
        advice = f": give the others a value, {_example(snapshot, names, left)}" if len(left) > 2 else ""
        raise InputError(f"a map: expected two inputs without a value, got {got}{advice}")
    low, high = _corners(snapshot, left, box)
    first, second = check_counts(counts)
    return Grid(
        names, (left[0], left[1]), (np.linspace(low[0], high[0], first), np.linspace(low[1], high[1], second)), fixed
    )


def _example(snapshot: ModelSnapshot, names: Sequence[str], left: Sequence[int]) -> str:
    """Return an example of `at`: a value in the middle of the data, if possible not of a longitude or latitude."""
    others = [d for d in left if "standard_name" not in coordinate_facts(names[d], snapshot.units)]
    d = (others or list(left))[-1]
    low, high = corners(snapshot.shards.summaries_along_arc(snapshot.rule.longitude))
    units = snapshot.units.get(names[d])
    value = format_value(0.5 * (low[d] + high[d]), units)[: 10 if time_unit_of(units) else None]
    quote = '"' if time_unit_of(units) else ""
    return f'at={{"{names[d]}": {quote}{value}{quote}}} (on the command line --at {names[d]}={value})'


def _corners(snapshot: ModelSnapshot, left: Sequence[int], box: Sequence[float] | None) -> tuple[Array, Array]:
    if box is None:
        low, high = (
            corner[list(left)] for corner in corners(snapshot.shards.summaries_along_arc(snapshot.rule.longitude))
        )
    elif not isinstance(box, list | tuple | np.ndarray) or len(box) != 4:
        raise InputError(f"box: expected four numbers, the lowest two and the highest two, got {shortened(box)}")
    else:
        for side in box:
            check_number("box", side)
        low, high = np.array(box[:2], dtype=float), np.array(box[2:], dtype=float)
        if snapshot.rule.longitude in left:  # from 170 to -170 is across 180 degrees
            d = list(left).index(snapshot.rule.longitude)
            high[d] += 360.0 * (high[d] < low[d] <= high[d] + 360.0)
    if not (np.isfinite([low, high]).all() and (low < high).all()):
        raise InputError(f"the map's box must have a width and a height, but it runs from {low} to {high}")
    return low, high


def check_counts(counts: Sequence[int], name: str = "grid") -> tuple[int, int]:
    """Return valid numbers of points along the two inputs. name: what the caller calls them."""
    if not isinstance(counts, list | tuple) or len(counts) != 2:
        raise InputError(f"{name}: expected two numbers of points, (200, 100), got {shortened(counts)}")
    for count in counts:
        check_whole(name, count, least=2)
    first, second = int(counts[0]), int(counts[1])
    if first * second > MOST_CELLS:
        raise InputError(f"{name}: {first * second:,} points are too many: give at most {MOST_CELLS:,} in all")
    return first, second


def _value(name: str, value: Any, names: Sequence[str], units: Mapping[str, str]) -> float:
    """Return the value of an input as a number; a caller may give a date where the input is a time."""
    if name not in names:
        raise unknown_name("input in at", name, names)
    if time_unit_of(units.get(name)) is not None:
        return moment(value, units[name], f"at: {name}")
    if isinstance(value, str | date | np.datetime64):
        raise InputError(f"at: expected a number for {name}, which is no time, got {value!r}")
    check_number(f"at: {name}", value)
    return float(value)


# ---- cells that are left out ------------------------------------------------------------------------------------


def check_within(within: object, name: str = "within") -> None:
    """Refuse what is not a distance. name: what the caller calls it."""
    if not isinstance(within, int | float | np.integer | np.floating) or isinstance(within, bool) or not within > 0.0:
        raise InputError(f"{name} must be a number of length-scales above 0, or inf, got {shortened(within)}")


def cells_within(snapshot: ModelSnapshot, cells: Array, within: float) -> BoolArray:
    """Return (T,) which cells lie within this many length-scales of an observation; infinity keeps all cells.

    Observations count that are at most one length-scale of the time away: a map of the near future is a forecast.
    Kept groups of forgotten rows count as observations at their mean places.
    """
    from scipy.spatial import cKDTree

    check_within(within)
    if not snapshot.shards.in_memory:
        if within < np.inf:
            raise InputError(
                "the model knows its data by their moments, not where every observation is: expected within=inf "
                f"(--within inf), got {within:g}"
            )
        return np.ones(len(cells), dtype=bool)
    coordinates, kernel, dimension = snapshot.coordinates, snapshot.kernel, snapshot.shards.dimension
    if coordinates is None:  # the agents have not agreed on them yet
        coordinates = agree_on_coordinates(Alone(), snapshot.shards, snapshot.rule)
    known = [*(own.inputs for own in snapshot.shards), *(own.places for own in snapshot.kept)]
    places = coordinates.places(np.concatenate(known))
    theta = snapshot.mean_theta / np.exp(coordinates.shift(kernel.units(dimension)))
    scales, _ = kernel.scales(Hyperparameters.from_theta(theta), places.shape[1])
    rows, asked = places / scales, coordinates.places(cells) / scales
    if snapshot.inputs is None or snapshot.time is None or within == np.inf:
        return np.asarray(cKDTree(rows).query(asked)[0] <= within)
    axis, near = list(snapshot.inputs).index(snapshot.time), np.zeros(len(cells), dtype=bool)
    for moment_asked in np.unique(asked[:, axis]):
        recent, then = np.abs(rows[:, axis] - moment_asked) <= 1.0, asked[:, axis] == moment_asked
        if recent.any():
            tree = cKDTree(np.delete(rows[recent], axis, axis=1))
            near[then] = tree.query(np.delete(asked[then], axis, axis=1))[0] <= within
    return near


def cells_in_mask(grid: Grid, mask: Mask) -> BoolArray:
    """Return (T,) which cells a mask keeps: where it is not 0, False or NaN."""
    count = grid.shape[0] * grid.shape[1]
    if mask is None:
        return np.ones(count, dtype=bool)
    if hasattr(mask, "dims") and hasattr(mask, "coords"):
        values = _of_field(grid, mask)
    elif callable(mask):
        values = _as_array(mask(grid.cells))
        if values.shape != (count,):
            raise InputError(f"mask: expected a value for each of {count} points, got the shape {values.shape}")
    else:
        values, expected = _as_array(mask), grid.shape[::-1]
        if values.shape != expected:
            x, y = (grid.names[d] for d in grid.along)
            raise InputError(f"mask: expected the shape {expected}, {y} and {x}, got {values.shape}")
        values = values.T.ravel()
    if values.dtype.kind not in "biuf":
        raise InputError(f"mask: expected true and false, or numbers, got {values.dtype}")
    kept = (values != 0) & ~np.isnan(values.astype(float))
    if not kept.any():
        raise InputError(
            "mask: it leaves out all cells of the map: expected 1 (or True) where cells are to be predicted"
        )
    return np.asarray(kept)


def _as_array(mask: Any) -> Any:
    """Return a mask as an array; entries that are masked themselves count as 0."""
    try:
        return np.ma.filled(mask, 0) if isinstance(mask, np.ma.MaskedArray) else np.asarray(mask)
    except ValueError as error:
        raise InputError(f"mask: expected an array, or a function of points, got {shortened(mask)}") from error


def _of_field(grid: Grid, mask: Any) -> Any:
    """Return a field's value at every cell, by its nearest cell; NaN beyond its edge."""
    names = [grid.names[d] for d in grid.along]
    field = named_as(mask.squeeze(drop=True), names)
    if set(map(str, field.dims)) != set(names) or not all(name in field.coords for name in names):
        raise InputError(
            f"mask: expected a field over {' and '.join(names)}, with their coordinates, got one over "
            f"{', '.join(map(str, field.dims)) or 'nothing'}"
        )
    have = [as_numbers(field[name], f"mask: {name}") for name in names]
    places = [_nearest(name, own, axis) for name, own, axis in zip(names, have, grid.axes, strict=True)]
    values = np.asarray(field.transpose(*names).values)[np.ix_(*(np.maximum(place, 0) for place in places))]
    outside = np.logical_or.outer(places[0] < 0, places[1] < 0)
    return np.where(outside, np.nan, values.astype(float)).ravel()


def _nearest(name: str, have: Array, wanted: Array) -> IntArray:
    """Return the positions of the nearest cells, -1 outside; longitudes may be whole turns away."""
    positions = nearest_cells(have, wanted)
    for turn in (-360.0, 360.0) if name.strip().lower() in LONGITUDE_NAMES else ():
        positions = np.where(positions < 0, nearest_cells(have, wanted + turn), positions)
    return positions


#: The values of the variable "cell_status" of a map, and their meanings.
KNOWN, PRIOR, LEFT_OUT, MASKED = 0, 1, 2, 3
MEANINGS = "known no_better_than_the_prior left_out masked"
CELL_STATUS, N_AGENTS = "cell_status", "n_agents"


def chosen_cells(snapshot: ModelSnapshot, grid: Grid, within: float, mask: Mask) -> tuple[BoolArray, Array]:
    """Return (T,) which cells to predict, and the status of the others."""
    masked = ~cells_in_mask(grid, mask)
    near = cells_within(snapshot, grid.cells, within)
    status = np.where(masked, MASKED, np.where(near, KNOWN, LEFT_OUT))
    if not (near & ~masked).any():
        what = f"cells are masked, or farther than {within:g} length-scales from all observations"
        outside = describe_extrapolation(grid.cells, np.ones_like(near), replace(snapshot, inputs=grid.names), what)
        raise InputError(
            f"the map is empty, choose another box or other values, or a larger within (--within): {outside}"
        )
    return np.asarray(near & ~masked), status


def on_all_cells(status: Array, chosen: BoolArray, prior_only: BoolArray) -> Array:
    """Return the status (T,) with that of the predicted cells."""
    result = status.copy()
    result[chosen] = np.where(prior_only, PRIOR, KNOWN)
    return result


def identifier(name: str) -> str:
    """Return a name without characters that NetCDF programs may refuse."""
    return re.sub(r"\W", "_", name)


def variable_names(target: str) -> dict[str, str]:
    """Return the names of a map's variables by the columns of an answer."""
    label = identifier(target)
    return {"mean": label, "std": f"{label}_std", "std_observed": f"{label}_std_observed", N_AGENTS: N_AGENTS}


def check_names(grid: Grid, target: str) -> None:
    """Refuse a map whose variables or coordinates would have the same name."""
    names = [*variable_names(target).values(), CELL_STATUS, *(identifier(name) for name in grid.names)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two things in the map would be called {name!r}: rename a column and fit again")


def map_dataset(
    snapshot: ModelSnapshot,
    grid: Grid,
    columns: Mapping[str, Any],
    status: Array,
    chosen: BoolArray,
    facts: Mapping[str, str],
    units: str = "",
) -> Any:
    """Return the map. columns: of the answer, at the chosen cells.  status: (T,).  units: of the target, if changed."""
    x, y = (identifier(grid.names[d]) for d in grid.along)
    target, points = snapshot.target, snapshot.points(grid.cells)
    unit = units or snapshot.units.get(target, "")
    of_target = {"units": unit} if unit else {}
    attributes = {
        "mean": {"long_name": f"predicted mean of {target}", **of_target},
        "std": {"long_name": f"standard deviation of {target}", **of_target},
        "std_observed": {"long_name": f"standard deviation of an observation of {target}", **of_target},
        N_AGENTS: {"long_name": "number of agents that took part"},
    }

    def over(values: Any, kind: type, empty: float) -> Any:
        everywhere: Any = np.full(len(chosen), empty, dtype=kind)
        everywhere[chosen] = values
        return everywhere.reshape(grid.shape).T

    names = variable_names(target)
    variables: dict[str, Any] = {
        names[name]: ((y, x), over(values, *((np.int32, 0) if name == N_AGENTS else (float, np.nan))), attributes[name])
        for name, values in columns.items()
    }
    flags: dict[str, Any] = {
        "flag_values": np.array([KNOWN, PRIOR, LEFT_OUT, MASKED], dtype=np.int8),
        "flag_meanings": MEANINGS,
        "long_name": "what is known of this cell",
    }
    variables[CELL_STATUS] = (y, x), status.astype(np.int8).reshape(grid.shape).T, flags
    along = {grid.names[d]: axis for d, axis in zip(grid.along, grid.axes, strict=True)}
    coordinates: dict[str, tuple[Any, ...]] = {}
    for name in reversed(grid.names):
        key, facts_of_name = identifier(name), coordinate_facts(name, snapshot.units)
        if name in along:
            coordinates[key] = key, shown_axis(points, along[name], name), facts_of_name
        else:
            coordinates[key] = (), shown_axis(points, np.array([grid.fixed[name]]), name)[0], facts_of_name
    agents = "1 agent" if len(snapshot.shards) == 1 else f"{len(snapshot.shards)} agents"
    title = {"Conventions": "CF-1.8", "title": f"{target}, predicted by a fleet of {agents}", "source": "FleetGP"}
    if snapshot.time in grid.fixed:
        title["map_time"] = format_time(grid.fixed[str(snapshot.time)], snapshot.units.get(str(snapshot.time)))
    return xarray().Dataset(variables, coords=coordinates, attrs={**title, **facts})
