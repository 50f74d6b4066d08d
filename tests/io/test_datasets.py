"""One battery for all kinds of data: in memory, in files, and as sums over files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.transforms import Coordinates, Scaling
from fleetgp.engines.basis import Box
from fleetgp.errors import InputError
from fleetgp.io.file_dataset import FileDataset
from fleetgp.model.observations import Observations

RNG = np.random.default_rng(4)
ROWS = [Observations(RNG.uniform(0.0, 2.0, (n, 2)), RNG.standard_normal(n)) for n in (30, 12)]
BOX, SIZES = Box(np.zeros(2), np.full(2, 3.0)), (5, 4)


def of_kind(kind: str, folder: Path) -> Dataset:
    if kind == "memory":
        return InMemory(ROWS)
    for name, own in zip("ab", ROWS, strict=True):
        table = pd.DataFrame({"x": own.inputs[:, 0], "z": own.inputs[:, 1], "y": own.values})
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.17g")
    data = fg.Fleet.from_files(f"{folder}/*.csv", inputs=["x", "z"], target="y", rows=7).data
    assert isinstance(data, FileDataset)
    return data if kind == "files" else data.of_agents([0, 1])


@pytest.mark.parametrize("kind", ["memory", "files", "sums"])
def test_what_is_known_without_rows(kind: str, tmp_path: Path) -> None:
    """As it is given, and as a model sees it."""
    coordinates = Coordinates("scaled", (1.0, 1.0), (0.5, 2.0))
    scaling = Scaling(0.1, 2.0, (0.3, -0.2), (0.0, 0.1))
    data = of_kind(kind, tmp_path)
    seen = data.moved(coordinates).rescaled(scaling)
    assert (len(data), data.counts, data.dimension, data.constant) == (2, [30, 12], 2, False)
    expected = [scaling.scaled(own.at(coordinates.places(own.inputs))) for own in ROWS]
    for one, rows in ((data, ROWS), (seen, expected)):
        alone = InMemory(rows)
        for summary, same in zip(one.summaries, alone.summaries, strict=True):
            np.testing.assert_allclose(summary.packed, same.packed, rtol=1e-10, atol=1e-10)
        for moments, same_moments in zip(one.moments(BOX, SIZES), alone.moments(BOX, SIZES), strict=True):
            np.testing.assert_allclose(moments.packed, same_moments.packed, rtol=1e-10, atol=1e-10)
        for own, same_rows in zip(one.first_rows(), alone, strict=True):
            np.testing.assert_allclose(np.sort(own.values), np.sort(same_rows.values), rtol=1e-12)


@pytest.mark.parametrize("kind", ["memory", "files", "sums"])
def test_rows_and_growth_or_one_clear_error(kind: str, tmp_path: Path) -> None:
    data = of_kind(kind, tmp_path)
    assert data.same(data)
    assert data.changes_since(data) == {}
    if kind == "sums":
        with pytest.raises(InputError, match="expected a method that needs sums over the files alone"):
            data[0]
    else:
        np.testing.assert_array_equal(data[1].inputs, ROWS[1].inputs)
    if kind == "memory":
        grown = data.grown(1, ROWS[0])
        assert (grown.counts, data.counts) == ([30, 42], [30, 12])
        (added,) = grown.changes_since(data).values()
        assert added is not None
        assert len(added) == 30
        assert data.changes_since(grown) == {1: None}
        assert data.replaced(0, ROWS[1]).changes_since(data) == {0: None}
    else:
        with pytest.raises(InputError, match="add a file, and read again"):
            data.grown(1, ROWS[0])
        with pytest.raises(InputError, match="change the files, and read again"):
            data.replaced(1, ROWS[0])
