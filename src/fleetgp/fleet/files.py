"""The agents' rows from files, data frames and datasets, and how rows are split over agents."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, get_args

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.partition import By, partition, partition_by_label
from fleetgp.data.times import are_times
from fleetgp.data.transforms import CoordinatesName
from fleetgp.errors import InputError, check_name, shortened, warn
from fleetgp.files import check_folder
from fleetgp.fleet.backends import BackendName, check_backend
from fleetgp.fleet.privacy import PrivateRows
from fleetgp.fleet.shards import NoiseName
from fleetgp.io.fields import table_of
from fleetgp.io.file_dataset import FileDataset, FileReader
from fleetgp.io.formats import Columns, Reading, Table, check_names, checked_reading
from fleetgp.io.survey import Scan, report_passes_to
from fleetgp.io.tables import Missing, ObservationTable, observations_of
from fleetgp.kernels.stationary import Kernel
from fleetgp.options import Keep
from fleetgp.progress import Listener, listening
from fleetgp.validation import as_fills, as_names, as_path, check_number, check_whole, column_names


class ModelKeywords(TypedDict, total=False):
    """What a `Fleet` takes, wherever its rows are from."""

    theta: Sequence[float] | Array | None
    normalize: bool
    mean: MeanName
    coordinates: CoordinatesName
    kernel: str | Kernel | Sequence[str | Kernel] | None
    noise: NoiseName
    robust: bool
    private: PrivateRows | None
    time: str | None
    window: float | str | None
    max_rows: int | None
    keep: Keep
    backend: BackendName
    workers: int | None
    address: str | None


def rows_of_frame(frame: Any, columns: Columns, units: Mapping[str, str] | None, missing: Missing) -> ObservationTable:
    """Read the rows of a data frame (pandas); see `Fleet.from_frame`."""
    if not isinstance(columns.target, str):
        raise InputError(
            f"target: expected the name of one column, got {shortened(columns.target)}: for several see Outputs"
        )
    check_name("missing", missing, get_args(Missing))
    columns.check()
    check_names("units", list(units or ()), columns.all)
    table = Table(_frame_columns(frame, columns.all), units=units or {})
    return observations_of(table, "the data frame", columns, missing=missing)


def rows_of_dataset(
    data: Any,
    inputs: Sequence[str] | None,
    target: str | None,
    agent: str | None,
    deviation: str | None,
    missing: Missing,
    fill: Any,
    reading: Reading,
) -> tuple[ObservationTable, Columns]:
    """Read the cells of an xarray DataArray or Dataset, and return their columns; see `Fleet.from_dataset`."""
    data, name = _dataset(data, target)
    names = _axes_of(data[name], reading.at) if inputs is None else inputs
    columns = Columns(names, name, agent, deviation, fill, reading)
    check_name("missing", missing, get_args(Missing))
    columns.check()
    table = table_of(data, columns.all, columns.targets, reading, "the dataset")
    return observations_of(table, "the dataset", columns, missing=missing), columns


def split_rows(
    data: ObservationTable, inputs: Sequence[str], agents: int | None, by: By | None, axis: str | None, seed: int
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Split rows by their labels, else by `partition`; return the agents' names, and (X, y) or (X, y, s) of each."""
    every = np.arange(len(data.observations))
    if data.labels is not None:
        if any(given is not None for given in (agents, by, axis)):
            raise InputError("agents, by and axis split rows that have no agent: leave them out, or agent")
        names, parts = partition_by_label(data.inputs, every, data.labels)
    else:
        if axis is not None:
            check_name("axis", axis, inputs)
        along = 0 if axis is None else list(inputs).index(axis)
        count = 1 if agents is None else agents
        parts = partition(data.inputs, every, agents=count, by="stripes" if by is None else by, axis=along, seed=seed)
        names = [str(number) for number in range(len(parts))]
    columns = [data.observations] if data.deviations is None else [data.observations, data.deviations]
    return names, [(x, *(column[rows.astype(int)] for column in columns)) for x, rows in parts]


def _frame_columns(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return columns of a data frame, or levels of its index."""
    if column_names(frame, "the data frame") is None:
        raise InputError(f"expected a data frame whose columns have names, got {type(frame).__name__}")
    levels = list(getattr(getattr(frame, "index", None), "names", []))
    if any(name in levels and name not in frame.columns for name in names):
        frame = frame.reset_index()
    check_names("the data frame", names, [str(name) for name in frame.columns])
    return {name: frame[name] if are_times(frame[name]) else frame[name].to_numpy() for name in names}


def _dataset(data: Any, target: str | None) -> tuple[Any, str]:
    """Return a dataset, and the name of the variable that is the target."""
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
    """Return the coordinates along a field's axes, except axes with one cell or one chosen value."""
    axes = [str(axis) for axis in reversed(field.dims) if field.sizes[axis] > 1 and axis not in (at or {})]
    bare = [axis for axis in axes if axis not in field.coords]
    if bare or not axes:
        raise InputError(
            f"inputs: expected their names, since {', '.join(bare) or field.name} "
            f"{'has no coordinates' if bare else 'has no axis of several cells'}"
        )
    return axes


#: Rows that are read at once, and bytes of observations that may be loaded.
ROWS, MEMORY = 1 << 17, 10**9


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
    """Make the first pass over the files, here or at the workers; see `Fleet.from_files`."""
    check_name("missing", missing, get_args(Missing))
    check_whole("rows", rows, least=1)
    check_whole("seed", seed, least=0)
    check_number("memory", memory, above=0.0)
    if sample is not None:
        check_whole("sample", sample, least=1)
    folder = None if cache is None else as_path(cache, "cache")
    if folder is not None:
        check_folder(folder)
    paths = matching_files(files)
    scan = Scan(_columns(inputs, target, agent, deviation, fill, reading), rows, missing == "drop", sample or 0, seed)
    owners = owners_of(paths) if agent is None else ("",) * len(paths)
    reader, limit = FileReader(paths, owners, scan, folder), int(memory)
    if backend == "ray":
        reader = _for_workers(reader)
    check_backend(backend, len(paths), workers, address)
    with listening(progress) as listener, report_passes_to(listener):
        if backend == "in-process":
            data = FileDataset(reader, reader.survey(), limit)
        else:
            from fleetgp.fleet.ray_tasks import survey_on_cluster

            survey, elsewhere = survey_on_cluster(reader, workers, address)
            data = FileDataset(reader, survey, limit, elsewhere)
    for suspicion in data.suspicions:
        warn(suspicion)
    return data


def _for_workers(reader: FileReader) -> FileReader:
    """Return the reader with absolute paths, for other processes; refuse what the workers cannot do."""
    if not reader.apart:
        raise InputError(
            "expected a file for each agent on a cluster, got a column that names the agents: leave it out, or compute "
            "in this process"
        )
    if reader.scan.sample:
        raise InputError(
            "sample is for methods that need rows, and on a cluster files are for dec-full-gp and full-gp, which take "
            "all of them: leave it out, or compute in this process"
        )
    cache = None if reader.cache is None else reader.cache.resolve()
    return replace(reader, files=tuple(file.resolve() for file in reader.files), cache=cache)


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
    values = None if fill is None else tuple(as_fills(fill))
    return Columns(names, target, agent, deviation, values, checked_reading(reading))


def matching_files(given: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """Return the files of a pattern, sorted by name, or of a list of files and patterns, each once."""
    if not isinstance(given, str | Path | Sequence):
        raise InputError(f"files: expected a pattern, or a list of paths, got {shortened(given)}")
    paths: list[Path] = []
    for one in [given] if isinstance(given, str | Path) else given:
        if not isinstance(one, str | Path):
            raise InputError(f"files: expected a pattern, or a list of paths, got {shortened(one)}")
        matched = sorted(glob.glob(str(one), recursive=True)) if glob.has_magic(str(one)) else []
        if not matched and not Path(one).exists():
            raise InputError(f"{one}: there is no such file")
        paths += [Path(path) for path in matched] or [Path(one)]
    if not paths:
        raise InputError("files: expected at least one, got none")
    resolved = [path.resolve() for path in paths]
    for number, path in enumerate(resolved):
        if path in resolved[:number]:
            raise InputError(f"{paths[number]}: it is given twice: expected every file once")
    return tuple(paths)


def owners_of(files: Sequence[Path]) -> tuple[str, ...]:
    """Return a name for each file's agent: stems if they differ, else names, else paths.

    >>> owners_of([Path("data/a.csv"), Path("data/b.csv")]), owners_of([Path("x/a.csv"), Path("y/a.csv")])
    (('a', 'b'), ('x/a.csv', 'y/a.csv'))
    """
    for names in ([file.stem for file in files], [file.name for file in files]):
        if len(set(names)) == len(files):
            return tuple(names)
    return tuple(file.as_posix() for file in files)
