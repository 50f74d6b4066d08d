"""Places to write to: found out before any work, without a trace."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from fleetgp.errors import InputError
from fleetgp.files import check_folder, check_writable

NOWHERE = pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")


@NOWHERE
def test_probes_are_real_and_leave_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "c.csv")
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "old.csv").write_text("old", encoding="utf-8")
    check_writable(tmp_path / "old.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert (tmp_path / "old.csv").read_text(encoding="utf-8") == "old"
    for place in ("/proc/x.csv", tmp_path / "old.csv" / "x.csv", tmp_path / ("x" * 300 + ".csv")):
        with pytest.raises(InputError, match=r"cannot be written|expected a folder, got a file"):
            check_writable(place)
    with pytest.raises(InputError, match="expected a folder, got a file"):
        check_folder(tmp_path / "old.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]


def test_probes_that_run_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Agents that start at once have their folders in one that is not there yet."""
    places = [tmp_path / "state" / "deep" / f"boat{number % 3}" for number in range(120)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check_folder, places))
    assert not list(tmp_path.iterdir())


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write anywhere: within this, it is nobody."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_folders_without_permission_are_found() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for mode, writable in ((0o555, False), (0o777, True)):
            Path(folder).chmod(mode)
            with ordinary_user(), nullcontext() if writable else pytest.raises(InputError, match="cannot be written"):
                check_writable(Path(folder) / "x.csv")
