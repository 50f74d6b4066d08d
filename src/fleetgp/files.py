"""Files that are written completely or not at all, early checks that they can be, and a cache to resume long work."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError, StorageError


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it is renamed when the block ends well, and removed otherwise."""
    file = Path(path)
    partial = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Refuse a path where a file cannot be written, before any work is done for it."""
    file = Path(path)
    if os.path.isdir(file):  # which, unlike Path, has no error for a name that is too long
        raise InputError(f"{path}: expected a file, got a folder")
    # The name of the temporary file: it may be too long.
    check_place(file.parent, f".{file.stem}.{os.getpid()}{file.suffix}", path)


def check_folder(path: str | Path, *, may_be_full: bool = False) -> None:
    """Refuse a folder where nothing can be written; it need not exist yet. may_be_full: accept a full disk."""
    check_place(Path(path), f".fleetgp.{os.getpid()}", path, may_be_full=may_be_full)


def check_place(folder: Path, name: str, path: str | Path, *, may_be_full: bool = False) -> None:
    """Write such a file, with the folders that are missing above it, and remove everything again.

    path: for the error. Permissions are not enough: a file system may be read-only, full, or virtual, as /proc. The
    trial is in a folder of its own, so that processes that start together do not disturb each other.
    """
    try:
        there = folder
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise InputError(f"{there}: expected a folder, got a file")
        with tempfile.TemporaryDirectory(prefix=".fleetgp-", dir=there) as own:
            trial = Path(own) / folder.relative_to(there)
            trial.mkdir(parents=True, exist_ok=True)
            (trial / name).write_bytes(b"x")
    except OSError as error:
        if may_be_full and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return
        raise InputError(f"{path}: it cannot be written: {error.strerror}: choose another place") from error


def private_folder(path: str | Path) -> None:
    """Make a folder, and those that are missing above it, for the owner only; it survives a power cut."""
    folder, missing = Path(path), []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(mode=0o700, exist_ok=True)
        sync_folder(new.parent)


def own_folder(path: str | Path) -> None:
    """Make a folder, and restrict it and the files in it to the owner."""
    folder = Path(path)
    check_folder(folder, may_be_full=True)
    private_folder(folder)
    folder.chmod(0o700)
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o077:
            Path(entry.path).chmod(0o600)


def sync_folder(folder: Path) -> None:
    """Sync a folder: without it a new file may be lost in a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Write or replace a file for its owner only; it is safely on disk when this returns."""
    private_folder(path.parent)
    with whole(path) as partial, open(partial, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_private(path: Path, most: int) -> bytes | None:
    """Read at most one byte more than `most` of a file, and restrict it to its owner; None if there is no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe may never have a writer
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


class ResumableCache:
    """Results on disk by name, for one set of settings. With other settings none of them is there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> ResumableCache(folder, {"seed": 1}).put("a", {"x": 0.1})
    >>> ResumableCache(folder, {"seed": 1}).get("a"), ResumableCache(folder, {"seed": 2}).get("a")
    ({'x': 0.1}, None)
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, sort_keys=True, default=str)
        self.root = Path(folder)
        self.folder = self.root / hashlib.sha256(text.encode()).hexdigest()[:16]

    def get(self, name: str) -> Any:
        """Return a result, or None if it is missing or cannot be read."""
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, name: str, piece: Any) -> None:
        """Store a result, completely or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        with whole(path) as partial:
            partial.write_text(json.dumps(piece), encoding="utf-8")

    def clear(self) -> None:
        """Remove all results, also those of other settings."""
        shutil.rmtree(self.root, ignore_errors=True)
