"""`Fleet.map`: mean and deviations on a grid, as an xarray dataset. Needs the extra "data"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.points import coordinate_facts
from fleetgp.errors import InputError
from fleetgp.fleet.grids import Grid, Mask, cells_in_mask, cells_within, grid_of, points_of
from fleetgp.fleet.outside import told_of_outside
from fleetgp.io.sst import xarray
from fleetgp.prediction.frames import shown_axis

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet

#: What the variable "coverage" of a map says of a cell.
KNOWN, PRIOR, LEFT_OUT, MASKED = 0, 1, 2, 3
MEANINGS = "known no_better_than_the_prior left_out masked"
COVERAGE, AGENTS = "coverage", "agents"


def map_(
    fleet: Fleet,
    grid: Sequence[int] = (200, 200),
    *,
    box: Sequence[float] | None = None,
    at: Mapping[str, Any] | None = None,
    within: float = 0.5,
    mask: Mask = None,
    method: str | None = None,
    **options: Any,
) -> Any:
    """Mean and deviations on a grid over two inputs: an xarray Dataset with coordinates and units.

    Its variables are called after the target: sst (the mean), sst_std (the standard deviation of f), sst_std_observed
    (that of an observation); agents (how many took part) and coverage (what the data say of a cell: 0 known, 1 no
    better than the prior, 2 left out, 3 masked). Cells that are left out or masked are NaN.

    grid: how many points along the two inputs.
    box: the lowest first and second input, then the highest; without it where the data are.
    at: a value for each other input, {"day": 5}; a date where an input is a time.
    within: cells farther than so many length-scales from all observations are left out; inf takes all of them.
    mask: where the map shall be: a function of points (T, D), an array over the second and the first input, or a
        DataArray over both, whose nearest cell counts. 0, False and NaN leave a cell out, as does what is outside.
    method, options: as of `predict`.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> sea = fleet.map((5, 4), mask=lambda points: points[:, 0] > 0.6)
    >>> dict(sea["y"].sizes), int((sea["coverage"] == 3).sum())
    ({'x2': 4, 'x1': 5}, 8)
    """
    found = grid_of(fleet, grid, box, at)
    check_names(found, fleet.target)
    cells = found.cells
    chosen, coverage = chosen_cells(fleet, found, within, mask)
    answer = fleet.predict(cells[chosen], method, **options)
    columns = {
        "mean": answer.mean,
        "std": answer.std,
        "std_observed": answer.std_observed,
        AGENTS: np.asarray(answer.participants.sum(axis=0)),
    }
    facts = {"method": answer.method, "status": answer.status, "asked_agent": fleet.labels[answer.asked]}
    return map_dataset(fleet, found, columns, on_all_cells(coverage, chosen, answer.uninformed), chosen, facts)


def chosen_cells(fleet: Fleet, grid: Grid, within: float, mask: Mask) -> tuple[BoolArray, Array]:
    """(T,) the cells that are predicted, and what the coverage says of the others."""
    masked = ~cells_in_mask(grid, mask)
    near = cells_within(fleet, grid.cells, within)
    coverage = np.where(masked, MASKED, np.where(near, KNOWN, LEFT_OUT))
    if not (near & ~masked).any():
        what = f"cells are masked, or farther than {within:g} length-scales from all observations"
        outside = told_of_outside(
            grid.cells, np.ones_like(near), fleet.data, grid.names, fleet.units, fleet.coordinates, what
        )
        raise InputError(
            f"the map is empty, choose another box or other values, or a larger within (--within): {outside}"
        )
    return np.asarray(near & ~masked), coverage


def on_all_cells(coverage: Array, chosen: BoolArray, uninformed: BoolArray) -> Array:
    """The coverage (T,), with what the answers at the chosen cells say."""
    found = coverage.copy()
    found[chosen] = np.where(uninformed, PRIOR, KNOWN)
    return found


def identifier(name: str) -> str:
    """A name as NetCDF programs like it."""
    return re.sub(r"\W", "_", name)


def variable_names(target: str) -> dict[str, str]:
    """What the columns of an answer are called in a map."""
    label = identifier(target)
    return {"mean": label, "std": f"{label}_std", "std_observed": f"{label}_std_observed", AGENTS: AGENTS}


def check_names(grid: Grid, target: str) -> None:
    """One clear error where the map's variables and coordinates would have the same name."""
    names = [*variable_names(target).values(), COVERAGE, *(identifier(name) for name in grid.names)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two things in the map would be called {name!r}: rename a column and fit again")


def map_dataset(
    fleet: Fleet,
    grid: Grid,
    columns: Mapping[str, Any],
    coverage: Array,
    chosen: BoolArray,
    facts: Mapping[str, str],
    units: str = "",
) -> Any:
    """The map. columns: the answer at the chosen cells.  coverage: (T,).  units: of the target, if not the fleet's."""
    x, y = (identifier(grid.names[d]) for d in grid.along)
    target, points = fleet.target, points_of(fleet, grid.cells)
    unit = units or fleet.units.get(target, "")
    of_target = {"units": unit} if unit else {}
    told = {
        "mean": {"long_name": f"predicted mean of {target}", **of_target},
        "std": {"long_name": f"standard deviation of {target}", **of_target},
        "std_observed": {"long_name": f"standard deviation of an observation of {target}", **of_target},
        AGENTS: {"long_name": "number of agents that took part"},
    }

    def over(values: Any, kind: type, empty: float) -> Any:
        everywhere: Any = np.full(len(chosen), empty, dtype=kind)
        everywhere[chosen] = values
        return everywhere.reshape(grid.shape).T

    names = variable_names(target)
    variables: dict[str, Any] = {
        names[name]: ((y, x), over(values, *((np.int32, 0) if name == AGENTS else (float, np.nan))), told[name])
        for name, values in columns.items()
    }
    flags: dict[str, Any] = {
        "flag_values": np.array([KNOWN, PRIOR, LEFT_OUT, MASKED], dtype=np.int8),
        "flag_meanings": MEANINGS,
    }
    flags["long_name"] = "what the data say of this cell"
    variables[COVERAGE] = (y, x), coverage.astype(np.int8).reshape(grid.shape).T, flags
    along = {grid.names[d]: axis for d, axis in zip(grid.along, grid.axes, strict=True)}
    coordinates = {
        identifier(name): (
            identifier(name) if name in along else (),
            shown_axis(points, along[name], name)
            if name in along
            else shown_axis(points, np.array([grid.fixed[name]]), name)[0],
            coordinate_facts(name, fleet.units),
        )
        for name in reversed(grid.names)
    }
    agents = "1 agent" if fleet.agents == 1 else f"{fleet.agents} agents"
    title = {"Conventions": "CF-1.8", "title": f"{target}, predicted by a fleet of {agents}", "source": "FleetGP"}
    return xarray().Dataset(variables, coords=coordinates, attrs={**title, **facts})
