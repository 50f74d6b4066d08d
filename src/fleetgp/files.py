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
    if os.path.isdir(file):  # which, unlike Path, has no error for a name that is too long
        raise InputError(f"{path}: a file was expected, but it is a folder")
    # The name under which it will be written first: a name may be too long.
    check_place(file.parent, f".{file.stem}.{os.getpid()}{file.suffix}", path)


def check_folder(path: str | Path) -> None:
    """One clear error where nothing can be put into a folder, which may not be there yet."""
    check_place(Path(path), f".fleetgp.{os.getpid()}", path)


def check_place(folder: Path, name: str, path: str | Path) -> None:
    """Really make a file of that name there, with the folders above it, and take all of it away again.

    path: what the error is about. Permissions say too little: a file system may be read-only, full, or none at all, as
    /proc is.
    """
    made: list[Path] = []
    probe: Path | None = None
    try:
        for part in (*reversed(folder.parents), folder):
            if part.exists() and not part.is_dir():
                raise InputError(f"{part}: a folder was expected, but it is a file")
            if not part.exists():
                part.mkdir()
                made.append(part)
        with (folder / name).open("xb") as file:
            probe = folder / name
            file.write(b"x")
    except OSError as error:
        raise InputError(f"{path}: it cannot be written: {error.strerror}: choose another place") from error
    finally:
        if probe is not None:
            probe.unlink()
        for part in reversed(made):
            part.rmdir()
