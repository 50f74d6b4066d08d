"""The files and sections of a model folder, which may come from anywhere: sizes are checked before anything is read.

JSON for people, safetensors for numbers, nothing that runs. Needs the extra "data".

model.json               what it is: agents, graph, hyperparameters, how it was trained
training.safetensors     every agent's estimate, and how it came there
ledger.json              what was sent in training, by edge and kind of content
agents/0000.safetensors  inputs and observations of one agent, a file each, which rows are in groups that it has sent
                         and which request brought them, and the groups of rows that it has forgotten; not of data
                         larger than memory
moments.safetensors      after dec-full-gp the moments of all data, and what each agent's data are like
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import Coordinates, Scaling, coordinate_rule
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments, fits, response_sizes
from fleetgp.errors import InputError
from fleetgp.fleet import Fleet
from fleetgp.model.observations import Summary
from fleetgp.prediction import Calibration, Holding, PredictionOptions, prediction_method
from fleetgp.prediction.calibration import Knot
from fleetgp.training import Compared, MeanFit

#: Longer texts are not read: no fleet has a description, or a ledger, of this many bytes.
LONGEST_DESCRIPTION, LONGEST_LEDGER = 1 << 26, 1 << 28
#: A shape, with None for any number.
Shape = tuple[int | None, ...]


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write the file, safely on disk; its SHA-256."""
    data: bytes = _safetensors().save(
        {name: np.ascontiguousarray(array, dtype=float) for name, array in arrays.items()}
    )
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def load_arrays(folder: Path, name: str, digest: object, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """Load the arrays of a file that `save_arrays` wrote, if it has this SHA-256 and the arrays have these shapes.

    The library checks that the header of the file fits its bytes.
    """
    library = _safetensors()
    path = inside(folder, name)
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"{path}: the file is not the one that was written (its SHA-256 differs)")
    try:
        arrays: dict[str, Array] = library.load(data)
    except Exception as error:  # the library has errors of its own, which are no ValueErrors
        raise InputError(f"{path}: it is no safetensors file: {error}") from error
    if set(arrays) != set(shapes):
        raise InputError(f"{path}: expected the arrays {', '.join(shapes)}, got {', '.join(arrays) or 'none'}")
    for array_name, array in arrays.items():
        wanted = shapes[array_name]
        fits = array.ndim == len(wanted) and all(w in (None, n) for n, w in zip(array.shape, wanted, strict=True))
        if not fits or array.dtype != np.float64:
            expected = ", ".join("any" if w is None else str(w) for w in wanted)
            raise InputError(
                f"{path}: {array_name}: expected numbers of shape ({expected}), got {array.dtype} of {array.shape}"
            )
    return arrays


def read_inside(folder: Path, name: str, most: int) -> str:
    """The text of a file of the folder, if it is not too long."""
    path = inside(folder, name)
    if path.stat().st_size > most:
        raise InputError(f"{path}: expected at most {most:,} bytes, got {path.stat().st_size:,}: it is damaged")
    return path.read_text(encoding="utf-8")


def inside(folder: Path, name: str) -> Path:
    """The path of a plain file that lies in the folder and fits into memory; links may not lead out of it."""
    path = folder / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):  # loops are left to stat
        raise InputError(f"{path}: it is a link that leads out of the folder: put the file itself there")
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(f"{path}: expected a file, got a folder or a device")
    if facts.st_size > _memory():
        raise InputError(f"{path}: it has {facts.st_size / 1e9:.3g} GB, more than the memory of this machine")
    return path


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return 1 << 40


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise InputError('a model folder needs safetensors: pip install "fleetgp[data]"') from error
    return safetensors.numpy


FORMAT = "fleetgp-model"
#: Raised when an older FleetGP could not read the folder any more.
VERSION = 5
#: Of folders without groups that were sent: with private rows; without, with all rows, and with moments, whose mean is
#: zero, whose inputs are as given and whose noise is one for all; and with another mean, other inputs or noise.
VERSION_WITH_ROWS, VERSION_WITH_MOMENTS, VERSION_WITH_MEAN, VERSION_WITH_PRIVATE_ROWS = 1, 2, 3, 4
DESCRIPTION = "model.json"
TRAINING = "training.safetensors"
LEDGER = "ledger.json"
MOMENTS = "moments.safetensors"
AGENTS = "agents"
FILES = (DESCRIPTION, TRAINING, LEDGER, MOMENTS)


def agent_file(number: int) -> str:
    return f"{AGENTS}/{number:04d}.safetensors"


def group_numbers(groups: Sequence[IntArray], rows: int) -> Array:
    """(N,) the number of the group of each row, -1 for none.

    >>> group_numbers([np.array([0, 3]), np.array([1, 2])], 5).tolist()
    [0.0, 1.0, 1.0, 0.0, -1.0]
    """
    result = np.full(rows, -1.0)
    for number, members in enumerate(groups):
        result[members] = number
    return result


def read_groups(numbers: Array) -> tuple[IntArray, ...]:
    """Read what `group_numbers` wrote, checked.

    >>> [rows.tolist() for rows in read_groups(np.array([0.0, 1.0, 1.0, 0.0, -1.0]))]
    [[0, 3], [1, 2]]
    """
    every = np.unique(numbers[numbers != -1.0])
    if not np.array_equal(every, np.arange(len(every))):
        raise ValueError("groups: expected the numbers of groups from 0, or -1, got others")
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(every) + 1))
    return tuple(order[start:end] for start, end in itertools.pairwise(ends.tolist()))


T = TypeVar("T")


def to_json(value: float) -> float | None:
    """A number for JSON, which has no infinity: None stands for it."""
    return float(value) if np.isfinite(value) else None


def from_json(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def typed(facts: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A value of a description, if it is of the kind that it was written as."""
    value = facts[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name}: expected {kind.__name__}, got {value!r:.60}")
    return value


def mean_facts(mean: MeanFit) -> dict[str, Any]:
    return {**asdict(mean), "errors": [to_json(error) for error in mean.errors]}


def read_mean(facts: Mapping[str, Any] | None, dimension: int) -> MeanFit | None:
    """What `mean_facts` wrote, checked."""
    if facts is None:
        return None
    slopes, at = (_numbers(facts[name], f"mean: {name}", dimension) for name in ("slopes", "at"))
    errors = tuple(np.nan if error is None else float(error) for error in facts["errors"])
    turns, settled = typed(facts, "turns", int), typed(facts, "settled", bool)
    return MeanFit(typed(facts, "constant", float), slopes, at, errors, turns, settled)


def read_scaling(facts: Mapping[str, Any], dimension: int) -> Scaling:
    offset, scale = (float(facts[name]) for name in ("offset", "scale"))
    if not (np.isfinite([offset, scale]).all() and scale > 0.0):
        raise ValueError(f"scaling: expected a number and a positive number, got {offset} and {scale}")
    slope, centre = (_numbers(facts.get(name, ()), f"scaling: {name}", dimension) for name in ("slope", "centre"))
    if len(slope) != len(centre):
        raise ValueError("scaling: expected a slope with its centre, got one of them")
    return Scaling(offset, scale, slope, centre)


def read_coordinates(facts: Mapping[str, Any] | None, inputs: Sequence[str], model: str) -> Coordinates:
    """model: the name of the model's own."""
    if facts is None:
        return Coordinates()
    rule = coordinate_rule(facts["name"], inputs)
    if rule.name != model:
        raise ValueError(f"coordinates: expected {model}, as the model has them, got {rule.name}")
    origin, unit = (_numbers(facts[name], f"coordinates: {name}", len(inputs)) for name in ("origin", "unit"))
    if bool(origin) != (rule.name != "as-given") or len(unit) != len(origin) or min(unit, default=1.0) <= 0.0:
        raise ValueError(f"coordinates: expected an origin and units of {rule.name}, got {origin} and {unit}")
    latitude = rule.latitude if rule.name == "sphere" else -1
    return Coordinates(rule.name, origin, unit, rule.longitude, float(facts["distortion"]), latitude)


def _numbers(values: Sequence[Any], what: str, dimension: int) -> tuple[float, ...]:
    result = tuple(float(value) for value in values)
    if len(result) not in (0, dimension) or not np.isfinite(result).all():
        raise ValueError(f"{what}: expected none or {dimension} numbers, got {len(result)}")
    return result


def calibration_facts(calibration: Calibration) -> dict[str, Any]:
    names = ("method", "eta", "n_neighbours", "holdout", "level", "cells", "min_rows", "budget")
    sent = {} if calibration.ledger is None else calibration.ledger.by_kind()
    return {
        **{name: getattr(calibration, name) for name in names},
        "knots": [asdict(knot) for knot in calibration.knots],
        "sent": {kind: asdict(traffic) for kind, traffic in sent.items()},
    }


def read_calibration(facts: Mapping[str, Any], fleet: Fleet) -> Calibration:
    """Read what `calibration_facts` wrote; wrong values raise a ValueError, KeyError, TypeError or InputError."""
    assert fleet.theta is not None, "every model has one"
    facts = _renamed(facts) | {"knots": [_renamed(knot) for knot in facts["knots"]]}
    holding = Holding(typed(facts, "holdout", str), typed(facts, "level", float), typed(facts, "cells", int))
    given = {name: facts.get(name) for name in ("eta", "n_neighbours", "min_rows", "budget")}  # older ones lack some
    options = PredictionOptions().changed(given)
    method = prediction_method(typed(facts, "method", str)).name
    knots = tuple(Knot(**knot) for knot in facts["knots"])
    if tuple(knot.holdout for knot in knots) != holding.holds:
        raise ValueError(f"calibration: expected knots for {', '.join(holding.holds)}")
    numbers = np.array([[knot.factor, knot.deviation, knot.rows, knot.before, knot.after] for knot in knots], float)
    if not (np.isfinite(numbers).all() and (numbers[:, :3] > 0.0).all()):
        raise ValueError(f"calibration: expected positive factors, deviations and rows, got {numbers[:, :3].tolist()}")
    facts_of_it = holding.holdout, holding.level, holding.cells_for(fleet.agents), knots
    theta, groups = np.array(fleet.theta), (options.min_rows, options.budget)
    return Calibration(method, options.eta, options.n_neighbours, *facts_of_it, theta, None, *groups)


def _renamed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Older folders call a holdout hold, and n_neighbours neighbours."""
    names = {"hold": "holdout", "neighbours": "n_neighbours"}
    return {names.get(name, name): value for name, value in dict(facts).items()}


def compared_facts(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    return [
        {**asdict(one), "density": to_json(one.density), "theta": [to_json(value) for value in one.theta]}
        for one in compared
    ]


def read_compared(facts: Sequence[Mapping[str, Any]]) -> tuple[Compared, ...]:
    result = []
    for one in facts:
        density = -np.inf if one["density"] is None else float(one["density"])
        theta = tuple(np.nan if value is None else float(value) for value in one["theta"])
        result.append(Compared(typed(one, "kernel", str), density, typed(one, "rows", int), theta))
    return tuple(result)


class Remembered(Dataset):
    """The agents of a fleet whose rows are in files elsewhere. method: the one that it was trained with."""

    def __init__(self, names: tuple[str, ...], summaries: Sequence[Summary], method: str) -> None:
        self.names, self._summaries, self._method = names, summaries, method

    @property
    def summaries(self) -> Sequence[Summary]:
        return self._summaries

    def load(self) -> NoReturn:
        raise self._gone("its rows")

    def first_rows(self) -> NoReturn:
        raise self._gone("its rows")

    def moments(self, box: Box, sizes: tuple[int, ...]) -> NoReturn:
        raise self._gone("other moments than it has")

    def rescaled(self, scaling: Scaling) -> Remembered:
        return Remembered(self.names, [scaling.summary(one) for one in self.summaries], self._method)

    def moved(self, coordinates: Coordinates) -> Remembered:
        return Remembered(self.names, [coordinates.summary(one) for one in self.summaries], self._method)

    def _gone(self, what: str) -> InputError:
        count = sum(one.count for one in self.summaries)
        return InputError(
            f"the model knows its {count:,} observations by their moments alone, and {what} are needed: predict with "
            f"{self._method} and the theta that it was trained to (on the command line --method {self._method}), or "
            "read the files again"
        )


def save_moments(folder: Path, moments: FleetMoments, summaries: Sequence[Summary]) -> dict[str, Any]:
    """Write the file; what the description says of it."""
    arrays = {
        "moments": moments.packed,
        "box": np.stack([moments.box.centre, moments.box.half]),
        "summaries": np.stack([one.packed for one in summaries]),
    }
    return {"sizes": list(moments.sizes), "sha256": save_arrays(folder / MOMENTS, arrays)}


def load_moments(
    folder: Path, facts: Mapping[str, Any], names: tuple[str, ...], dimension: int, method: str
) -> tuple[Remembered, FleetMoments]:
    """What `save_moments` wrote, checked. method: whose moments they are."""
    sizes = tuple(int(size) for size in facts["sizes"])
    if len(sizes) != dimension or min(sizes) < 1 or not fits(sizes):
        raise ValueError(f"moments: expected the sizes of a grid along {dimension} inputs, got {sizes}")
    length = 1 + int(np.prod(sizes)) + int(np.prod(response_sizes(sizes)))
    shapes: dict[str, Shape] = {"moments": (length,), "box": (2, dimension), "summaries": (len(names), None)}
    arrays = load_arrays(folder, MOMENTS, facts["sha256"], shapes)
    if not all(np.isfinite(array).all() for array in arrays.values()) or not (arrays["box"][1] > 0.0).all():
        raise ValueError("moments: expected finite numbers, and a box with widths above 0")
    if arrays["summaries"].shape[1] not in Summary.widths(dimension):  # older folders have the short ones
        raise ValueError(f"moments: expected summaries of {dimension} inputs, got rows of other lengths")
    summaries = [Summary.unpacked(row, dimension) for row in arrays["summaries"]]
    return Remembered(names, summaries, method), FleetMoments.unpacked(Box(*arrays["box"]), sizes, arrays["moments"])
