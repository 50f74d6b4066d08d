"""What a listener hears of passes over files: every row once, and how many there will be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.data.transforms import View
from fleetgp.engines.basis import Box
from fleetgp.io import survey
from fleetgp.io.file_dataset import FileDataset
from fleetgp.io.survey import Pass, guessed_rows, report_passes_to
from fleetgp.progress import Progress

pytestmark = [
    pytest.mark.usefixtures("uncompiled"),
    pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning"),
]

WHAT: dict[str, Any] = {"inputs": ["a", "b"], "target": "y", "rows": 50}
START = [1.0, 0.5, 1.0, 0.2]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two of 200 rows, one of them with a row that cannot be used; every chunk is told."""
    monkeypatch.setattr(survey, "OFTEN", 0.0)
    field = fg.synthetic_field(400, seed=1)
    found = [tmp_path / "one.csv", tmp_path / "two.parquet"]
    for file, part in zip(found, (slice(0, 200), slice(200, 400)), strict=True):
        x, y = field.inputs[part], field.observations[part].copy()
        y[7] = np.nan if file.suffix == ".csv" else y[7]
        table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})
        table.to_csv(file, index=False) if file.suffix == ".csv" else table.to_parquet(file)
    return found


def heard_of(seen: list[Progress]) -> dict[str, list[Progress]]:
    """By pass, checked: rows do not get fewer, the last thing told is the only one with as many as there are."""
    found: dict[str, list[Progress]] = {}
    for progress in seen:
        if progress.unit == "row":
            found.setdefault(progress.task, []).append(progress)
    for told in found.values():
        rows = [progress.round for progress in told]
        assert rows == sorted(rows)
        assert [progress.round == progress.rounds for progress in told] == [False] * (len(told) - 1) + [True]
    return found


def test_every_pass_is_told(files: list[Path], tmp_path: Path) -> None:
    seen: list[Progress] = []
    given: dict[str, Any] = {**WHAT, "missing": "drop", "cache": tmp_path / "cache"}
    fleet = fg.Fleet.from_files(files, **{"kernel": "se", "normalize": False, **given}, progress=seen.append)
    fleet.train("dec-full-gp", theta0=START, progress=seen.append)
    first, *moments = heard_of(seen).values()
    assert first[0].task == "first pass"
    assert 390 < (first[0].rounds or 0) < 430
    assert first[0].detail.startswith("of about ")
    assert "left" in first[1].detail
    assert (first[-1].round, len(first)) == (400, 2 + 8)
    assert moments
    for told in moments:
        assert (told[0].task[:8], told[0].rounds, told[-1].round) == ("moments ", 399, 399)

    seen.clear()
    again = fg.Fleet.from_files(files, **{"kernel": "se", "normalize": False, **given}, progress=seen.append)
    assert heard_of(seen)["first pass"][-1].round == 0, "nothing was read"
    again.train("dec-fact-gp", theta0=START, rounds=1, progress=seen.append)
    assert heard_of(seen)["loading"][-1].round == 399


def test_kept_moments_are_no_rows_to_be_read(files: list[Path], tmp_path: Path) -> None:
    fleet = fg.Fleet.from_files(files[1:], **{"kernel": "se", "normalize": False, **WHAT}, cache=tmp_path / "cache")
    assert isinstance(fleet.data, FileDataset)
    source = fleet.data.reader
    box = Box(np.ones(2), 2.0 * np.ones(2))
    seen: list[Progress] = []
    for expected in (200, 0):
        with report_passes_to(seen.append):
            source.moments(box, (3, 3), View(), 200)
        assert heard_of(seen)["moments 3x3"][-1].round == expected
        seen.clear()


def test_a_pass_that_breaks_has_no_end() -> None:
    seen: list[Progress] = []
    with pytest.raises(ValueError, match="broken"), report_passes_to(seen.append), Pass("loading", 10):
        raise ValueError("broken")
    assert [(progress.round, progress.rounds) for progress in seen] == [(0, 10)]
    with Pass("loading", 10) as nobody_hears:
        nobody_hears.read(10)
    assert len(seen) == 1


def test_rows_are_guessed_from_the_start_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text("a,b,y\n" + "0.125,0.25,1.5\n" * 20_000, encoding="utf-8")
    assert guessed_rows(file) == pytest.approx(20_001, rel=1e-3)
    (tmp_path / "broken.parquet").write_text("nothing", encoding="utf-8")
    assert guessed_rows(tmp_path / "broken.parquet") is None
    assert guessed_rows(tmp_path / "none.csv") is None
    assert guessed_rows(tmp_path / "field.nc") is None
