"""The demo, small: it prints every method and leaves a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import fleetgp as fg
from fleetgp.experiments import demo
from fleetgp.experiments.demo import run


def test_demo_prints_every_method_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(120, 1, 12, tmp_path / "new", Console())
    printed = capsys.readouterr().out
    for method in (*fg.TRAINING_METHODS, *fg.PREDICTION_METHODS):
        assert f" {method} " in printed
    assert "and none with dec-apx-gp" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80
    for name in ("training.png", "map.png"):
        check_picture(tmp_path / "new" / name)


def test_a_slow_method_has_a_star_and_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """dec-nn-npae, stopped early, answers the prior at some points; the suite makes errors of warnings."""
    monkeypatch.setattr(demo, "SLOW_ROUNDS", 300)
    field = fg.synthetic_field(60, seed=1)
    fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=10), theta=fg.PAPER_THETA)
    points = np.random.default_rng(9).uniform(0.0, 2.0, (20, 2))
    with pytest.warns(fg.FleetGPWarning, match="no better known than the prior"):
        fleet.predict(points, "dec-nn-npae", eta=demo.ETA, rounds=300)
    found = demo._predict(fleet, points, "dec-nn-npae")
    assert found.status == "round limit"
    full = fleet.predict(points, "full-gp")
    table = demo.prediction_table(np.zeros(20), {"full-gp": full, "dec-nn-npae": found})
    assert list(table.columns[6].cells) == ["", "300*"]


def check_picture(path: Path) -> None:
    with Image.open(path) as picture:
        assert picture.size[0] > 1000
        assert len(picture.convert("RGB").resize((200, 120)).getcolors(24_000) or []) > 200, "an empty picture"
