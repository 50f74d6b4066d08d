"""The demo, small: it prints every method and leaves a picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

import fleetgp as fg
from fleetgp import demo


def test_demo_prints_every_method_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "AGENTS", 4)
    demo.run(100, 1, 12, tmp_path / "new", Console())
    printed = capsys.readouterr().out
    for method in (*fg.TRAINING_METHODS, *fg.PREDICTION_METHODS):
        assert re.search(rf"^ *{method} ", printed, re.MULTILINE), method
    assert "and none with the others" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80
    for name in ("training.png", "map.png"):
        check_picture(tmp_path / "new" / name)


def check_picture(path: Path) -> None:
    with Image.open(path) as picture:
        assert picture.size[0] > 1000
        assert len(picture.convert("RGB").resize((200, 120)).getcolors(24_000) or []) > 200, "an empty picture"
