"""Arrays in safetensors files, and other files of a folder that may come from anywhere: sizes are checked first.

A trained fleet as a folder: JSON for people, safetensors for numbers, nothing that runs. Needs the extra "data".

model.json               what it is: agents, graph, hyperparameters, how it was trained
training.safetensors     every agent's estimate, and how it came there
ledger.json              what was sent in training, by edge and kind of content
agents/0000.safetensors  inputs and observations of one agent, a file each; not of data larger than memory
moments.safetensors      after dec-full-gp the moments of all data, and what each agent's data are like

Values in JSON: what it cannot hold, and what must be of the kind that it was written as.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError

#: The description at the head of a file has a few hundred bytes.
LONGEST_HEADER = 1 << 20
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
    """The arrays of a file that `save_arrays` wrote, if it has this SHA-256 and the arrays have these shapes."""
    library = _safetensors()
    path = inside(folder, name)
    _check_header(path, shapes)
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"{path}: the file is not the one that was written (its SHA-256 differs)")
    try:
        arrays: dict[str, Array] = library.load(data)
    except Exception as error:  # the library has errors of its own, which are no ValueErrors
        raise InputError(f"{path}: it is no safetensors file: {error}") from error
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


def _check_header(path: Path, shapes: Mapping[str, Shape]) -> None:
    """One clear error where the file's own description does not fit its size, or is not of these arrays."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise InputError(f"{path}: it is no safetensors file: its head is damaged")
        try:
            header = json.loads(file.read(length))
            told = {name: (tuple(a["shape"]), a["dtype"], *a["data_offsets"]) for name, a in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path}: it is no safetensors file: its head is damaged") from error
    if set(told) != set(shapes):
        raise InputError(f"{path}: expected the arrays {', '.join(shapes)}, got {', '.join(told) or 'none'}")
    end = 0
    for name, (shape, kind, *places) in told.items():
        wanted = shapes[name]
        fits = len(shape) == len(wanted) and all(isinstance(n, int) and n >= 0 for n in shape)
        if not fits or kind != "F64" or any(w not in (None, n) for n, w in zip(shape, wanted, strict=True)):
            expected = ", ".join("any" if w is None else str(w) for w in wanted)
            raise InputError(
                f"{path}: {name}: expected numbers of shape ({expected}), got {kind!r:.20} of {shape!r:.80}"
            )
        count = 8
        for n in shape:
            count *= n
        if len(places) != 2 or not all(isinstance(p, int) for p in places) or places[1] - places[0] != count:
            raise InputError(f"{path}: {name}: its place in the file does not fit its shape: it is damaged")
        end = max(end, places[1])
    if end != size - 8 - length:
        raise InputError(f"{path}: expected {8 + length + end:,} bytes, got {size:,}: it is damaged")


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
VERSION = 4
#: Of folders without private rows: with all rows, and with moments, whose mean is zero, whose inputs are as given and
#: whose noise is one for all; and with another mean, other inputs or noise.
VERSION_WITH_ROWS, VERSION_WITH_MOMENTS, VERSION_WITH_MEAN = 1, 2, 3
DESCRIPTION = "model.json"
TRAINING = "training.safetensors"
LEDGER = "ledger.json"
MOMENTS = "moments.safetensors"
AGENTS = "agents"
FILES = (DESCRIPTION, TRAINING, LEDGER, MOMENTS)


def agent_file(number: int) -> str:
    return f"{AGENTS}/{number:04d}.safetensors"


T = TypeVar("T")


def to_json(value: float) -> float | None:
    """A number as JSON has it: none for infinity."""
    return float(value) if np.isfinite(value) else None


def from_json(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def typed(facts: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A value of a description, if it is of the kind that it was written as."""
    value = facts[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name}: expected {kind.__name__}, got {value!r:.60}")
    return value
