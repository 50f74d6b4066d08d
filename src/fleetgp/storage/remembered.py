"""Data that a model folder has no rows of: the moments of the whole fleet, and what each agent's data are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fleetgp.data.coordinates import Coordinates
from fleetgp.data.scaling import Scaling
from fleetgp.data.streamed import Streamed
from fleetgp.data.summary import Summary
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.moments.fleet import FleetMoments, response_sizes
from fleetgp.gp.moments.sizes import fits
from fleetgp.storage.layout import MOMENTS
from fleetgp.storage.tensors import Shape, load_arrays, save_arrays


class Remembered(Streamed):
    """The agents of a fleet whose rows are in files elsewhere. method: the one that it was trained with."""

    def __init__(self, names: tuple[str, ...], summaries: Sequence[Summary], method: str) -> None:
        self.names, self.summaries, self._method = names, summaries, method

    def load(self) -> NoReturn:
        raise self._gone("its rows")

    def first_rows(self) -> NoReturn:
        raise self._gone("its rows")

    def moments(self, box: Box, sizes: tuple[int, ...]) -> NoReturn:
        raise self._gone("other moments than it has")

    def rescaled(self, scaling: Scaling) -> Remembered:
        return Remembered(self.names, [one.rescaled(scaling) for one in self.summaries], self._method)

    def moved(self, coordinates: Coordinates) -> Remembered:
        return Remembered(self.names, [coordinates.summary(one) for one in self.summaries], self._method)

    def _gone(self, what: str) -> InputError:
        count = sum(one.count for one in self.summaries)
        return InputError(
            f"the model knows its {count:,} observations by their moments alone, and {what} are needed: predict with "
            f"{self._method} and the theta that it was trained to (on the command line --method {self._method}), or "
            "read the files again"
        )


def save_moments(folder: Path, moments: FleetMoments, summaries: Sequence[Summary]) -> dict[str, Any]:
    """Write the file; what the description says of it."""
    arrays = {
        "moments": moments.packed,
        "box": np.stack([moments.box.centre, moments.box.half]),
        "summaries": np.stack([one.packed for one in summaries]),
    }
    return {"sizes": list(moments.sizes), "sha256": save_arrays(folder / MOMENTS, arrays)}


def load_moments(
    folder: Path, facts: Mapping[str, Any], names: tuple[str, ...], dimension: int, method: str
) -> tuple[Remembered, FleetMoments]:
    """What `save_moments` wrote, checked. method: whose moments they are."""
    sizes = tuple(int(size) for size in facts["sizes"])
    if len(sizes) != dimension or min(sizes) < 1 or not fits(sizes):
        raise ValueError(f"moments: expected the sizes of a grid along {dimension} inputs, got {sizes}")
    length = 1 + int(np.prod(sizes)) + int(np.prod(response_sizes(sizes)))
    shapes: dict[str, Shape] = {"moments": (length,), "box": (2, dimension), "summaries": (len(names), None)}
    arrays = load_arrays(folder, MOMENTS, facts["sha256"], shapes)
    if not all(np.isfinite(array).all() for array in arrays.values()) or not (arrays["box"][1] > 0.0).all():
        raise ValueError("moments: expected finite numbers, and a box with widths above 0")
    if arrays["summaries"].shape[1] not in Summary.widths(dimension):  # older folders have the short ones
        raise ValueError(f"moments: expected summaries of {dimension} inputs, got rows of other lengths")
    summaries = [Summary.unpacked(row, dimension) for row in arrays["summaries"]]
    return Remembered(names, summaries, method), FleetMoments.unpacked(Box(*arrays["box"]), sizes, arrays["moments"])
