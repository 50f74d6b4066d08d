"""Writing files: whole or not at all, and an early word where it cannot be done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetgp.errors import InputError


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes its name when the block ends well, and is gone otherwise."""
    file = Path(path)
    partial = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """One clear error where a file cannot be put, before any work is done for it."""
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{path}: a file was expected, but it is a folder")
    # The name under which it will be written first: a name may be too long.
    _probe(file.parent, f".{file.stem}.{os.getpid()}{file.suffix}", path)


def check_folder(path: str | Path) -> None:
    """One clear error where nothing can be put into a folder, which may not be there yet."""
    _probe(Path(path), f".fleetgp.{os.getpid()}", path)


def _probe(folder: Path, name: str, path: str | Path) -> None:
    """Really make a file there, with the folders above it, and take all of it away again.

    Permissions say too little: a file system may be read-only, full, or none at all, as /proc is.
    """
    made: list[Path] = []
    for part in (*reversed(folder.parents), folder):
        if part.exists() and not part.is_dir():
            raise InputError(f"{part}: a folder was expected, but it is a file")
    try:
        for part in (*reversed(folder.parents), folder):
            if not part.exists():
                part.mkdir()
                made.append(part)
        probe = folder / name
        made.append(probe)
        probe.write_bytes(b"x")
    except OSError as error:
        raise InputError(f"{path}: it cannot be written: {error.strerror}: choose another place") from error
    finally:
        for part in reversed(made):
            if part.is_dir():
                part.rmdir()
            else:
                part.unlink(missing_ok=True)
