"""What the browser computes, against Python and other libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")

from fleetgp.page import server
from fleetgp.page.events import ago
from fleetgp.page.server import PageServer
from tests.page.browsers import tab
from tests.page.fakes import FakeFleet, applied


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    fleet = FakeFleet(2)
    fleet.tell()
    with PageServer(fleet, port=0) as served, tab(browser) as one:
        yield one.open(served.address)


def catmull_rom(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Along axis 0, by the spline's matrix; beyond the border values go on in a straight line."""
    padded = np.concatenate([[2 * values[0] - values[1]], values, [2 * values[-1] - values[-2]]])
    cells = np.minimum(places.astype(int), len(values) - 2)
    t = places - cells
    powers = np.stack([np.ones_like(t), t, t**2, t**3])
    matrix = 0.5 * np.array([[0, 2, 0, 0], [-1, 0, 1, 0], [2, -5, 4, -1], [-1, 3, -3, 1]])
    around = np.stack([padded[cells + k] for k in range(4)])
    return np.asarray(np.einsum("pn,pk,kn...->n...", powers, matrix, around))


@pytest.mark.parametrize("shape", [(8, 17), (2, 5), (40, 40)])
def test_a_coarse_map_is_made_smooth(page: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    columns, rows = shape
    values = rng.standard_normal((rows, columns))
    script = """async ([values, shape]) => {
        const { smooth } = await import("/static/field.js");
        return Array.from(smooth(Float32Array.from(values), shape, 100, 120));
    }"""
    found = np.array(page.evaluate(script, [values.ravel().tolist(), list(shape)])).reshape(120, 100)
    wide = catmull_rom(values.T, np.linspace(0.0, columns - 1.0, 100)).T
    np.testing.assert_allclose(found, catmull_rom(wide, np.linspace(0.0, rows - 1.0, 120)), atol=1e-5)


def test_a_browser_applies_patches_as_python_does(page: Any) -> None:
    rng = np.random.default_rng(2)

    def drawn(depth: int, nothing: bool) -> Any:
        kind = rng.integers(0, 4 if depth else 3)
        if kind == 3:
            return {str(k): drawn(depth - 1, nothing) for k in rng.integers(0, 4, rng.integers(0, 4))}
        return [None if nothing else 0, [1, 2], f"x{rng.integers(0, 3)}"][kind]

    pairs = [({"a": drawn(3, False)}, {"a": drawn(3, True), "b": drawn(2, True)}) for _ in range(200)]
    script = """async pairs => {
        const { merge } = await import("/static/state.js");
        return pairs.map(([state, patch]) => merge(state, patch));
    }"""
    assert page.evaluate(script, pairs) == [applied(state, patch) for state, patch in pairs]


def test_times_are_told_as_in_python(page: Any) -> None:
    seconds = [0.2, 1.0, 119.0, 121.0, 3_700.0, 9_000.0, 400_000.0]
    script = """async all => { const { ago } = await import("/static/words.js"); return all.map(ago); }"""
    assert page.evaluate(script, seconds) == [ago(one) for one in seconds]


def test_colours_are_viridis_and_cividis() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    text = (Path(server.__file__).parent / "static" / "colours.js").read_text(encoding="utf-8")
    for mode, name in (("mean", "viridis"), ("deviation", "cividis")):
        codes = re.findall(r'"([0-9a-f]{6})"', re.search(rf"{mode}: \[(.*?)\]", text, re.DOTALL).group(1))  # type: ignore[union-attr]
        found = np.array([[int(code[k : k + 2], 16) for k in (0, 2, 4)] for code in codes])
        expected = 255 * matplotlib.colormaps[name](np.linspace(0.0, 1.0, len(codes)))[:, :3]
        np.testing.assert_allclose(found, expected, atol=6)
