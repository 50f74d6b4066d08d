"""Writing files: whole or not at all, and an early word where it cannot be done.

Finished pieces of long work, kept on disk: what was interrupted goes on where it was.
"""

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
        raise InputError(f"{path}: expected a file, got a folder")
    # The name under which it will be written first: a name may be too long.
    check_place(file.parent, f".{file.stem}.{os.getpid()}{file.suffix}", path)


def check_folder(path: str | Path, *, may_be_full: bool = False) -> None:
    """One clear error where nothing can be put into a folder, which may not be there yet.

    may_be_full: a disk without room is no reason.
    """
    check_place(Path(path), f".fleetgp.{os.getpid()}", path, may_be_full=may_be_full)


def check_place(folder: Path, name: str, path: str | Path, *, may_be_full: bool = False) -> None:
    """Really make such a file, with the folders that are missing above it, and take all of it away again.

    path: what the error is about. Permissions say too little: a file system may be read-only, full, or none at all, as
    /proc is. All happens in a folder of its own, so that processes that start together do not get in each other's way.
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
    """Make a folder, and what is missing above it, for the owner alone; it is there after a power cut, too."""
    folder, missing = Path(path), []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(mode=0o700, exist_ok=True)
        sync_folder(new.parent)


def own_folder(path: str | Path) -> None:
    """A folder of one's own, for the owner alone, with all that is in it; one clear error where it cannot be."""
    folder = Path(path)
    check_folder(folder, may_be_full=True)
    private_folder(folder)
    folder.chmod(0o700)
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o077:
            Path(entry.path).chmod(0o600)


def sync_folder(folder: Path) -> None:
    """A new file is there after a power cut only if its folder says so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Write or replace a file for its owner alone; it is safely on disk when this returns."""
    private_folder(path.parent)
    with whole(path) as partial, open(partial, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_private(path: Path, most: int) -> bytes | None:
    """What is in a file, at most one byte more than `most`; None if there is none. It is its owner's alone then."""
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


class ResumableCache:
    """Pieces by name, for one set of settings: other settings are other work, and find nothing.

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
        """The piece, or None. One that cannot be read counts as missing."""
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, name: str, piece: Any) -> None:
        """Whole or not at all, whenever the power goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        with whole(path) as partial:
            partial.write_text(json.dumps(piece), encoding="utf-8")

    def clear(self) -> None:
        """Forget all pieces, of other settings too."""
        shutil.rmtree(self.root, ignore_errors=True)
