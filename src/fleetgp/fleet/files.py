"""A fleet whose data are in files: which files these are, and what is said of them."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from fleetgp.errors import FleetGPWarning, InputError, unknown_name
from fleetgp.files import check_folder
from fleetgp.given import as_names, as_numbers, check_number, check_whole
from fleetgp.io.columns import Columns
from fleetgp.io.file_shards import FileShards, Source
from fleetgp.io.formats import Reading
from fleetgp.io.survey import Scan
from fleetgp.io.tables import Missing

#: Rows that are read at once.
ROWS = 1 << 18
#: Bytes of observations that may be loaded.
MEMORY = 10**9


def read_files(
    files: str | Path | Sequence[str | Path],
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
    seed: int = 0,
    stacklevel: int = 1,
) -> FileShards:
    """The agents' data, after a first pass over the files; see `Fleet.from_files`."""
    if missing not in get_args(Missing):
        raise unknown_name("missing", missing, get_args(Missing))
    names = as_names(inputs, "inputs")
    if not isinstance(target, str) or len({*names, target, agent}) < len(names) + 2:
        raise InputError(f"inputs, target and agent must be different columns, got {[*names, target, agent]}")
    check_whole("rows", rows, least=1)
    check_whole("seed", seed, least=0)
    check_number("memory", memory, above=0.0)
    if sample is not None:
        check_whole("sample", sample, least=1)
    if cache is not None:
        check_folder(cache)
    paths = found_files(files)
    values = () if fill is None else tuple(as_numbers(list(fill), "fill").tolist())
    columns = Columns(names, target, agent, values, fill is None or len(values) > 0, reading or Reading())
    scan = Scan(columns, rows, missing == "drop", sample or 0, seed)
    owners = owners_of(paths) if agent is None else ("",) * len(paths)
    source = Source(paths, owners, scan, None if cache is None else Path(cache))
    found = FileShards(source, source.survey(), int(memory))
    for told in found.told:
        warnings.warn(told, FleetGPWarning, stacklevel=stacklevel + 1)
    return found


def found_files(given: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """The files of a pattern, in the order of their names, or of a list of files and patterns; each one once."""
    found: list[Path] = []
    for one in [given] if isinstance(given, str | Path) else given:
        if not isinstance(one, str | Path):
            raise InputError(f"files: expected a pattern, or a list of paths, got {one!r:.60}")
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
