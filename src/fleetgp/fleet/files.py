"""Fleets from files, data frames and datasets.

A fleet whose data are in files: which files these are, and what is said of them.

`Fleet.from_frame` and `Fleet.from_dataset`: data by name, split over the agents. They need the extra "data".
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.partition import By, partition, partition_by_label
from fleetgp.data.times import TimeUnit, are_times
from fleetgp.data.transforms import CoordinatesName
from fleetgp.errors import InputError, check_name, shortened, warn
from fleetgp.files import check_folder
from fleetgp.fleet.backends import BackendName, check_backend
from fleetgp.fleet.privacy import PrivateRows
from fleetgp.fleet.shards import AGENTS, NoiseName
from fleetgp.io.fields import table_of
from fleetgp.io.file_dataset import FileDataset, FileReader
from fleetgp.io.formats import Columns, Reading, Table, check_names, checked_reading
from fleetgp.io.survey import Scan, passes_told_to
from fleetgp.io.tables import Missing, ObservationTable, Wanted, observations_of
from fleetgp.kernels.stationary import Kernel
from fleetgp.options import ModelOptions
from fleetgp.progress import Listener, listening
from fleetgp.validation import as_fills, as_names, as_path, check_number, check_whole, column_names

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def from_frame(
    fleet: type[Fleet],
    /,
    frame: Any,
    graph: object = "path",
    *,
    inputs: Sequence[str],
    target: str,
    agent: str | None = None,
    agents: int | None = None,
    by: By | None = None,
    axis: str | None = None,
    deviation: str | None = None,
    units: Mapping[str, str] | None = None,
    missing: Missing = "refuse",
    fill: Sequence[float] | None = None,
    time_unit: TimeUnit = "days",
    seed: int = 0,
    **options: Any,
) -> Fleet:
    """A fleet from the columns of a data frame (pandas).

    inputs, target: columns, or levels of the index. Inputs may be times, or dates as text: they are counted in
        `time_unit` ("days", "hours" or "seconds") since 1970, `fleet.units` says so, and queries may have times, too.
    agent: the column that names the agent of each row: `fleet.labels` has their names. Without it `agents` says over
        how many to split (1), `by` and `axis` how ("stripes" along an input's name; see `partition`).
    deviation: the column of the known standard deviations of the target.
    units: of columns, {"sst": "°C"}, for maps and figures.
    missing: rows with missing or infinite values are an error, or with "drop" left out: `fleet.dropped` counts them.
    fill: values that stand for nothing, [-9999]; without it one that looks like it is an error, [] says that all are
        real.
    graph, seed, options: as of a `Fleet`. With noise="agents" every sigma_eps has its agent's name.

    >>> import pandas as pd
    >>> from fleetgp import Fleet
    >>> table = pd.DataFrame({"day": pd.to_datetime(["2021-01-01", "2021-01-02", "2021-01-03"]), "t": [3.0, 4.0, None]})
    >>> fleet = Fleet.from_frame(table.assign(boat=["Ada", "Bo", "Bo"]), inputs=["day"], target="t", agent="boat",
    ...                          missing="drop", theta=[1.0, 1.0, 0.1])
    >>> fleet.labels, fleet.units, fleet.dropped
    (('Ada', 'Bo'), {'day': 'days since 1970-01-01'}, 1)
    """
    what = Wanted(inputs, target, agent, deviation)
    if not isinstance(target, str):
        raise InputError(f"target: expected the name of one column, got {shortened(target)}: for several see Outputs")
    what.check(missing)
    check_names("units", list(units or ()), what.all)
    table = Table(_frame_columns(frame, what.all), units=units or {})
    reading = Reading(time_unit=time_unit)
    data = observations_of(table, "the data frame", what, missing=missing, fill=fill, reading=reading)
    return _made(fleet, data, what, graph, Splitting(agents, by, axis, seed), options)


def from_dataset(
    fleet: type[Fleet],
    /,
    data: Any,
    graph: object = "path",
    *,
    inputs: Sequence[str] | None = None,
    target: str | None = None,
    agent: str | None = None,
    agents: int | None = None,
    by: By | None = None,
    axis: str | None = None,
    deviation: str | None = None,
    date: str | None = None,
    box: Sequence[float] | None = None,
    stride: int | None = None,
    at: Mapping[str, float | str] | None = None,
    celsius: bool = False,
    missing: Missing = "refuse",
    fill: Sequence[float] | None = None,
    time_unit: TimeUnit = "days",
    seed: int = 0,
    **options: Any,
) -> Fleet:
    """A fleet from an xarray DataArray, or from a variable of a Dataset: an observation for each cell with a value.

    target: the variable; of a DataArray its name, and of a Dataset with one variable that one.
    inputs: coordinates, or variables over the target's axes. Without them the coordinates of its axes with more than
        one chosen cell, the last axis first: lon, lat, time. Times are as in `from_frame`.
    date, box, stride: a day, west, south, east and north in degrees, and every so many-th row and column of a map.
    at: one value of other axes, {"depth": 5, "time": "2021-01-05"}: the nearest cell, within half a cell.
        Cells that hold nothing are no observations; `fleet.notes` tells how many, and what was chosen.
    celsius: convert a target in kelvin to degrees Celsius. Without it the values stay as they are; `fleet.units` has
        their unit.
    agent, agents, by, axis, deviation, missing, fill, time_unit, seed, graph, options: as in `from_frame`.

    >>> import xarray as xr
    >>> from fleetgp import Fleet
    >>> sst = xr.DataArray([[14.0, 15.0], [np.nan, 16.0]], {"lat": [40.0, 41.0], "lon": [1.0, 2.0]}, ("lat", "lon"),
    ...                    name="sst", attrs={"units": "degC"})
    >>> fleet = Fleet.from_dataset(sst, theta=[1.0, 1.0, 1.0, 0.1], normalize=True)
    >>> fleet.inputs, fleet.shards[0][1].tolist(), fleet.units["sst"]
    (('lon', 'lat'), [14.0, 15.0, 16.0], 'degC')
    """
    reading = Reading(date=date, box=box, stride=stride, at=at, time_unit=time_unit, celsius=celsius)
    data, name = _dataset(data, target)
    chosen = _axes_of(data[name], at) if inputs is None else inputs
    what = Wanted(chosen, name, agent, deviation)
    what.check(missing)
    table = table_of(data, what.all, what.targets, reading, "the dataset")
    found = observations_of(table, "the dataset", what, missing=missing, fill=fill, reading=reading)
    return _made(fleet, found, what, graph, Splitting(agents, by, axis, seed), options)


# ---- who has which rows -----------------------------------------------------------------------------------------


class Splitting:
    """How rows that no label gives to an agent are split."""

    def __init__(self, agents: int | None, by: By | None, axis: str | None, seed: int) -> None:
        self.agents, self.by, self.axis, self.seed = agents, by, axis, seed

    def split(self, data: ObservationTable, inputs: Sequence[str]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The agents' names, and (X, y) or (X, y, s) of each."""
        every = np.arange(len(data.observations))
        if data.labels is not None:
            if any(given is not None for given in (self.agents, self.by, self.axis)):
                raise InputError("agents, by and axis split rows that have no agent: leave them out, or agent")
            names, parts = partition_by_label(data.inputs, every, data.labels)
        else:
            if self.axis is not None:
                check_name("axis", self.axis, inputs)
            along = 0 if self.axis is None else list(inputs).index(self.axis)
            agents, by = 1 if self.agents is None else self.agents, "stripes" if self.by is None else self.by
            parts = partition(data.inputs, every, agents=agents, by=by, axis=along, seed=self.seed)
            names = [str(number) for number in range(len(parts))]
        columns = [data.observations] if data.deviations is None else [data.observations, data.deviations]
        return names, [(x, *(column[rows.astype(int)] for column in columns)) for x, rows in parts]


def _made(
    fleet: type[Fleet], data: ObservationTable, what: Wanted, graph: object, how: Splitting, options: dict[str, Any]
) -> Fleet:
    names, shards = how.split(data, what.inputs)
    if options.get("noise") == AGENTS:
        options = {**options, "noise": names}
    made = fleet(shards, graph, inputs=what.inputs, seed=how.seed, **options)
    return made.call(names, what.targets[0], data.units, data.dropped, data.notes)


def _frame_columns(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """Columns of a data frame, or levels of its index."""
    if column_names(frame, "the data frame") is None:
        raise InputError(f"expected a data frame whose columns have names, got {type(frame).__name__}")
    levels = list(getattr(getattr(frame, "index", None), "names", []))
    if any(name in levels and name not in frame.columns for name in names):
        frame = frame.reset_index()
    check_names("the data frame", names, [str(name) for name in frame.columns])
    return {name: frame[name] if are_times(frame[name]) else frame[name].to_numpy() for name in names}


def _dataset(data: Any, target: str | None) -> tuple[Any, str]:
    """A dataset, and the variable that is the target."""
    if target is not None and (not isinstance(target, str) or not target):
        raise InputError(f"target: expected the name of a variable, got {shortened(target)}")
    if hasattr(data, "to_dataset") and hasattr(data, "dims") and not hasattr(data, "data_vars"):
        name = target or data.name or "y"
        return data.to_dataset(name=name), str(name)
    if not hasattr(data, "data_vars"):
        raise InputError(f"expected an xarray DataArray or Dataset, got {type(data).__name__}")
    have = [str(name) for name in data.data_vars]
    if target is None and len(have) != 1:
        raise InputError(f"target: expected one of the variables {', '.join(have)}: name it")
    check_names("the dataset", [target or have[0]], have)
    return data, target or have[0]


def _axes_of(field: Any, at: Mapping[str, Any] | None) -> list[str]:
    """The coordinates along a field's axes, but for those that have one cell, or one value."""
    axes = [str(axis) for axis in reversed(field.dims) if field.sizes[axis] > 1 and axis not in (at or {})]
    bare = [axis for axis in axes if axis not in field.coords]
    if bare or not axes:
        raise InputError(
            f"inputs: expected their names, since {', '.join(bare) or field.name} "
            f"{'has no coordinates' if bare else 'has no axis of several cells'}"
        )
    return axes


#: Rows that are read at once.
ROWS = 1 << 17
#: Bytes of observations that may be loaded.
MEMORY = 10**9


def from_files(
    fleet: type[Fleet],
    files: str | Path | Sequence[str | Path],
    graph: object = "path",
    *,
    inputs: Sequence[str],
    target: str,
    agent: str | None = None,
    deviation: str | None = None,
    missing: Missing = "refuse",
    fill: Sequence[float] | None = None,
    reading: Reading | None = None,
    sample: int | None = None,
    memory: float = MEMORY,
    rows: int = ROWS,
    cache: str | Path | None = None,
    theta: Sequence[float] | Array | None = None,
    normalize: bool = ModelOptions.normalize,
    mean: MeanName = ModelOptions.mean,
    coordinates: CoordinatesName = ModelOptions.coordinates,
    kernel: str | Kernel | Sequence[str | Kernel] | None = None,
    noise: NoiseName = None,
    robust: bool = False,
    private: PrivateRows | None = None,
    seed: int = 0,
    backend: BackendName = "in-process",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Listener = False,
) -> Fleet:
    """A fleet whose data are in files, which may be larger than memory: CSV, Parquet, NetCDF and Zarr.

    dec-full-gp and full-gp read the files in chunks: they were read once for the fleet's box, and are read again for
    moments, and for those on a finer grid if need be. Every other method loads all rows when it first needs them, up to
    a limit.

    files: a pattern ("data/*.parquet"), a path, or a list of them.
    inputs, target, agent: columns. Without agent, every file is an agent's; `fleet.data.names` has their names.
        Those of NetCDF and Zarr are coordinates and variables. Times become days since 1970. sst, lon and lat are also
        what other names stand for, as in `fleetgp.io.load_sst`; a temperature in kelvin stays so, unless
        `reading` has celsius=True. `fleet.data.notes` has what was done.
    deviation: the column of the known standard deviations of the target.
    missing, fill, reading: as in `fleetgp.io.read_observations`. With date, box and stride only a part of NetCDF and
        Zarr fields is read: all times of that day, longitudes from -180 to 180 with a box. Cells that hold nothing are
        no rows. `fleet.data.dropped` and `fleet.data.empty` count what was left out.
    sample: methods that need rows get so many of each agent's, drawn at random by the seed: `last_fit.held` has how
        many there are. dec-full-gp and full-gp still take all of them.
    memory: bytes of observations that may be loaded, 1 GB.
    rows: at most so many are read at once, for each core. Memory is then some 50 MB a core, and some 0.5 MB for each
        agent's moments, besides libraries and the training itself, whatever the size of the files.
    cache: a folder for what was found out of each file. A second call reads only files that are new or have changed:
        also where the first one ended with an error, or was interrupted.
    graph, theta, normalize, mean, coordinates, kernel, noise, robust, private, seed, backend, workers, address: as of a
        `Fleet`. Noise that differs needs the rows: dec-full-gp, and "ray", have one noise for all. With
        "ray" its workers read the files: each is an agent's, under the same path on all machines, for dec-full-gp and
        full-gp.
    progress: as of `Fleet.train`, for the first pass over the files.
    """
    where: dict[str, Any] = {"backend": backend, "workers": workers, "address": address}
    if backend == "ray" and (deviation is not None or noise is not None or robust):
        raise InputError(
            "deviation, noise and robust need rows, and a cluster knows files by sums over them: leave them out, "
            "or compute in this process"
        )
    what: dict[str, Any] = {"inputs": inputs, "target": target, "agent": agent, "missing": missing, "fill": fill}
    what |= {"reading": reading, "sample": sample, "memory": memory, "rows": rows, "cache": cache, "seed": seed}
    what |= {"deviation": deviation}
    shards = read_files(files, **what, **where, progress=progress)
    model: dict[str, Any] = {"theta": theta, "normalize": normalize, "mean": mean, "coordinates": coordinates}
    model |= {"private": private, "kernel": kernel, "robust": robust}
    model["noise"] = shards.names if noise == AGENTS else noise
    made = fleet(shards, graph, **model, seed=seed, inputs=inputs, **where)
    return made.call(shards.names, target, shards.units, shards.dropped, shards.notes)


def read_files(
    files: str | Path | Sequence[str | Path],
    *,
    inputs: Sequence[str],
    target: str,
    agent: str | None,
    missing: Missing,
    fill: Sequence[float] | None,
    reading: Reading | None,
    sample: int | None,
    memory: float,
    cache: str | Path | None,
    seed: int,
    deviation: str | None = None,
    rows: int = ROWS,
    backend: BackendName = "in-process",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Listener = False,
) -> FileDataset:
    """The agents' data, after the first pass over the files; see `from_files`."""
    _check(missing, sample, memory, rows, seed)
    if cache is not None:
        check_folder(as_path(cache, "cache"))
    paths = found_files(files)
    scan = Scan(_columns(inputs, target, agent, deviation, fill, reading), rows, missing == "drop", sample or 0, seed)
    owners = owners_of(paths) if agent is None else ("",) * len(paths)
    source = FileReader(paths, owners, scan, None if cache is None else as_path(cache, "cache"))
    if backend == "ray":
        source = _for_workers(source)
    check_backend(backend, len(paths), workers, address)
    with listening(progress) as listener, passes_told_to(listener):
        shards = _surveyed(source, int(memory), backend, workers, address)
    for told in shards.suspicions:
        warn(told)
    return shards


def _surveyed(
    source: FileReader, limit: int, backend: BackendName, workers: int | None, address: str | None
) -> FileDataset:
    """After the first pass, here or at the workers."""
    if backend == "in-process":
        return FileDataset(source, source.survey(), limit)
    from fleetgp.fleet.ray_tasks import survey_on_cluster

    known, elsewhere = survey_on_cluster(source, workers, address)
    return FileDataset(source, known, limit, elsewhere)


def _for_workers(source: FileReader) -> FileReader:
    """The same for processes that are elsewhere; one clear error for what they do not have."""
    if not source.apart:
        raise InputError(
            "expected a file for each agent on a cluster, got a column that names the agents: leave it out, or compute "
            "in this process"
        )
    if source.scan.sample:
        raise InputError(
            "sample is for methods that need rows, and on a cluster files are for dec-full-gp and full-gp, which take "
            "all of them: leave it out, or compute in this process"
        )
    cache = None if source.cache is None else source.cache.resolve()
    return replace(source, files=tuple(file.resolve() for file in source.files), cache=cache)


def _check(missing: str, sample: int | None, memory: float, rows: int, seed: int) -> None:
    check_name("missing", missing, get_args(Missing))
    check_whole("rows", rows, least=1)
    check_whole("seed", seed, least=0)
    check_number("memory", memory, above=0.0)
    if sample is not None:
        check_whole("sample", sample, least=1)


def _columns(
    inputs: Sequence[str],
    target: str,
    agent: str | None,
    deviation: str | None,
    fill: Sequence[float] | None,
    reading: Reading | None,
) -> Columns:
    names = as_names(inputs, "inputs")
    others = [target, *(name for name in (agent, deviation) if name is not None)]
    what = "inputs, target and agent" if deviation is None else "inputs, target, agent and deviation"
    if not all(isinstance(name, str) for name in others) or len({*names, *others}) < len(names) + len(others):
        raise InputError(f"expected different columns as {what}, got {[*names, *others]}")
    if not all((*names, *others)):
        raise InputError(f"expected the names of columns as {what}, got {[*names, *others]}")
    if not names:
        raise InputError("inputs: expected the names of one column or more, got none")
    values = () if fill is None else tuple(as_fills(fill))
    return Columns(names, target, agent, values, fill is None or len(values) > 0, checked_reading(reading), deviation)


def found_files(given: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """The files of a pattern, in the order of their names, or of a list of files and patterns; each one once."""
    if not isinstance(given, str | Path | Sequence):
        raise InputError(f"files: expected a pattern, or a list of paths, got {shortened(given)}")
    found: list[Path] = []
    for one in [given] if isinstance(given, str | Path) else given:
        if not isinstance(one, str | Path):
            raise InputError(f"files: expected a pattern, or a list of paths, got {shortened(one)}")
        matched = sorted(glob.glob(str(one), recursive=True)) if glob.has_magic(str(one)) else []
        if not matched and not Path(one).exists():
            raise InputError(f"{one}: there is no such file")
        found += [Path(path) for path in matched] or [Path(one)]
    if not found:
        raise InputError("files: expected at least one, got none")
    resolved = [path.resolve() for path in found]
    for number, path in enumerate(resolved):
        if path in resolved[:number]:
            raise InputError(f"{found[number]}: it is given twice: expected every file once")
    return tuple(found)


def owners_of(files: Sequence[Path]) -> tuple[str, ...]:
    """A name for each file's agent: as short as tells them apart.

    >>> owners_of([Path("data/a.csv"), Path("data/b.csv")]), owners_of([Path("x/a.csv"), Path("y/a.csv")])
    (('a', 'b'), ('x/a.csv', 'y/a.csv'))
    """
    for names in ([file.stem for file in files], [file.name for file in files]):
        if len(set(names)) == len(files):
            return tuple(names)
    return tuple(file.as_posix() for file in files)
