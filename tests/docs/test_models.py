"""The figures of docs/models.md: the script draws all of them, and the page shows all that it draws."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fleetgp.errors import InputError
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "figures"))
from models import SECTIONS, draw_all  # noqa: E402
from scenes import Size, anywhere, draw, map_points, scene  # noqa: E402

TINY = Size(side=8, share=0.3, most_draws=1)


@pytest.mark.long
def test_every_figure_is_drawn_with_its_numbers(tmp_path: Path) -> None:
    reported: list[str] = []
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "numbers.json").write_text('{"a figure of before": {}}', encoding="utf-8")
    draw_all(tmp_path / "new", TINY, report=reported.append)
    assert [line.split(":")[0] for line in reported] == list(SECTIONS)
    assert list(json.loads((tmp_path / "new" / "numbers.json").read_text(encoding="utf-8"))) == list(SECTIONS)
    for name in SECTIONS:
        with Image.open(tmp_path / "new" / f"{name}.png") as picture:
            assert picture.size[0] == 1204
            assert len(picture.convert("RGB").resize((200, 120)).getcolors(24_000) or []) > 100, "an empty picture"


def test_some_of_them_leave_the_numbers_of_others(tmp_path: Path) -> None:
    (tmp_path / "numbers.json").write_text('{"gap": {"kept": 1}}', encoding="utf-8")
    draw_all(tmp_path, TINY, [])
    assert json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8")) == {"gap": {"kept": 1}}
    with pytest.raises(InputError, match="unknown figure 'shape'"):
        draw_all(tmp_path, TINY, ["shape"])


def test_the_page_shows_them_all_and_no_others() -> None:
    shown = re.findall(r"\(models/([^)]+)\.png\)", (DOCS / "models.md").read_text(encoding="utf-8"))
    assert shown == list(SECTIONS)
    assert {path.stem for path in (DOCS / "models").glob("*.png")} == set(shown)
    assert list(json.loads((DOCS / "models" / "numbers.json").read_text(encoding="utf-8"))) == shown


def test_a_draw_has_the_covariance_of_its_kernel() -> None:
    places = np.array([[0.0], [0.3], [1.0]])
    draws = np.array([draw("matern12", (0.5, 1.5, 0.1), places, seed) for seed in range(4000)])
    expected = 2.25 * np.exp(-np.abs(places - places.T) / 0.5)
    assert np.cov(draws.T) == pytest.approx(expected, abs=0.25)  # five standard errors


def test_what_is_observed_does_not_depend_on_the_map() -> None:
    coarse, fine = (scene("se", (0.5, 0.5, 1.0, 0.1), map_points(side), anywhere(5, 1), 1) for side in (2, 6))
    assert coarse.observations == pytest.approx(fine.observations, abs=1e-12)
