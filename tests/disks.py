"""A small disk that can be filled, or made read-only: 64 kB. Needs root; without it tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, timeout=20)


@contextmanager
def tiny_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(place))
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"a file system can be mounted by root alone: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True, timeout=20)


def writable(disk: Path, yes: bool) -> None:
    """Processes that have nothing open for writing there do not keep it from becoming read-only."""
    _mount("-o", f"remount,{'rw' if yes else 'ro'}", str(disk))
