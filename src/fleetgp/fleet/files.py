"""A fleet whose data are in files: which files these are, and what is said of them."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fleetgp.arrays import Array
from fleetgp.consensus.scaling import MeanName
from fleetgp.data.coordinates import CoordinatesName
from fleetgp.errors import FleetGPWarning, InputError, check_name, shortened
from fleetgp.files import check_folder
from fleetgp.fleet.backends import BackendName, check_backend
from fleetgp.fleet.privacy import PrivateRows
from fleetgp.given import as_fills, as_names, as_path, check_number, check_whole
from fleetgp.gp.kernels import Kernel
from fleetgp.io.columns import Columns
from fleetgp.io.file_shards import FileShards
from fleetgp.io.file_source import Source
from fleetgp.io.formats import Reading, checked_reading
from fleetgp.io.passes import passes_told_to
from fleetgp.io.survey import Scan
from fleetgp.io.tables import Missing
from fleetgp.options import ModelOptions
from fleetgp.progress import Listener, listening

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


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
    missing, fill, reading: as in `fleetgp.io.read_observations`. With date, box and stride only a part of NetCDF and
        Zarr fields is read: all times of that day, longitudes from -180 to 180 with a box. Cells that hold nothing are
        no rows. `fleet.data.dropped` and `fleet.data.empty` count what was left out.
    sample: methods that need rows get so many of each agent's, drawn at random by the seed: `fit.held` tells of how
        many. dec-full-gp and full-gp still take all of them.
    memory: bytes of observations that may be loaded, 1 GB.
    rows: at most so many are read at once, for each core. Memory is then some 50 MB a core, and some 0.5 MB for each
        agent's moments, besides libraries and the training itself, whatever the size of the files.
    cache: a folder for what was found out of each file. A second call reads only files that are new or have changed:
        also where the first one ended with an error, or was interrupted.
    graph, theta, normalize, mean, coordinates, kernel, private, seed, backend, workers, address: as of a `Fleet`. With
        "ray" its workers read the files: each is an agent's, under the same path on all machines, for dec-full-gp and
        full-gp.
    progress: as of `Fleet.train`, for the first pass over the files.
    """
    where: dict[str, Any] = {"backend": backend, "workers": workers, "address": address}
    what: dict[str, Any] = {"inputs": inputs, "target": target, "agent": agent, "missing": missing, "fill": fill}
    what |= {"reading": reading, "sample": sample, "memory": memory, "rows": rows, "cache": cache, "seed": seed}
    shards = read_files(files, **what, **where, progress=progress)
    model: dict[str, Any] = {"theta": theta, "normalize": normalize, "mean": mean, "coordinates": coordinates}
    model |= {"private": private, "kernel": kernel}
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
    rows: int = ROWS,
    backend: BackendName = "in-process",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Listener = False,
) -> FileShards:
    """The agents' data, after the first pass over the files; see `from_files`."""
    _check(missing, sample, memory, rows, seed)
    if cache is not None:
        check_folder(as_path(cache, "cache"))
    paths = found_files(files)
    scan = Scan(_columns(inputs, target, agent, fill, reading), rows, missing == "drop", sample or 0, seed)
    owners = owners_of(paths) if agent is None else ("",) * len(paths)
    source = Source(paths, owners, scan, None if cache is None else as_path(cache, "cache"))
    if backend == "ray":
        source = _for_workers(source)
    check_backend(backend, len(paths), workers, address)
    with listening(progress) as listener, passes_told_to(listener):
        shards = _surveyed(source, int(memory), backend, workers, address)
    for told in shards.told:
        warnings.warn(told, FleetGPWarning, stacklevel=3)
    return shards


def _surveyed(source: Source, limit: int, backend: BackendName, workers: int | None, address: str | None) -> FileShards:
    """After the first pass, here or at the workers."""
    if backend == "in-process":
        return FileShards(source, source.survey(), limit)
    from fleetgp.fleet.surveys import survey_on_cluster

    known, elsewhere = survey_on_cluster(source, workers, address)
    return FileShards(source, known, limit, elsewhere)


def _for_workers(source: Source) -> Source:
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
    inputs: Sequence[str], target: str, agent: str | None, fill: Sequence[float] | None, reading: Reading | None
) -> Columns:
    names = as_names(inputs, "inputs")
    others = [target] if agent is None else [target, agent]
    if not all(isinstance(name, str) for name in others) or len({*names, *others}) < len(names) + len(others):
        raise InputError(f"expected different columns as inputs, target and agent, got {[*names, *others]}")
    if not all((*names, *others)):
        raise InputError(f"expected the names of columns as inputs, target and agent, got {[*names, *others]}")
    if not names:
        raise InputError("inputs: expected the names of one column or more, got none")
    values = () if fill is None else tuple(as_fills(fill))
    return Columns(names, target, agent, values, fill is None or len(values) > 0, checked_reading(reading))


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
