"""An agent's own files: for their owner alone, and whole or as they were before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fleetgp.errors import StorageError
from fleetgp.files import private_folder, whole


def write_private(path: Path, content: bytes) -> None:
    """In the place of what was there, safely on disk."""
    private_folder(path.parent)
    with whole(path) as partial, open(partial, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_private(path: Path, most: int) -> bytes | None:
    """What is in a file, of one that is too long so much as to see it: one byte more. None if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # of a pipe nobody may ever write to
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path}: it cannot be read: {error.strerror}") from error
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise StorageError(f"{path}: expected a file, got a folder, a device or a pipe: move it away")
        if mode & 0o077:
            os.fchmod(file, 0o600)
        with open(file, "rb", closefd=False) as stream:
            return stream.read(most + 1)
    finally:
        os.close(file)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
