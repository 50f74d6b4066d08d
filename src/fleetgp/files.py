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
    check_folder(file.parent)


def check_folder(path: str | Path) -> None:
    """One clear error where nothing can be put into a folder, which may not be there yet."""
    folder = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{folder}: a folder was expected, but it is a file")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: it may not be written to")
