"""The one pass over the data: sums over them of Chebyshev polynomials, from which every grid is made.

The sums of T_j(x_n) and of y_n T_j(x_n), j the degrees along the axes, come from a Fourier transform (`transform.py`)
or from products of tables (`tiles.py`), whichever is faster. Their bits depend on the data and the sizes of the grid
alone: not on what was asked before, and not on the batches in which the data came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.moments import transform
from fleetgp.gp.moments.rows import Rows
from fleetgp.gp.moments.tiles import Tiles


class DataSums(Protocol):
    """What the moments engine needs to know of data: sums over them of Chebyshev polynomials on a box that holds them.

    squares: sum_n y_n^2.
    """

    @property
    def box(self) -> Box: ...

    @property
    def count(self) -> int: ...

    @property
    def squares(self) -> float: ...

    def covers(self, sizes: Sequence[int]) -> bool:
        """Whether the sums of all degrees below the sizes are there."""
        ...

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n."""
        ...


class ChebyshevSums:
    """Sums over rows of data of Chebyshev polynomials on their box, or on a given one that holds them."""

    def __init__(self, inputs: Array, observations: Array, box: Box | None = None) -> None:
        self._given = box
        self._check_inside(inputs)
        self._start(Rows(inputs, observations, Box.around(inputs) if box is None else box))

    def _start(self, rows: Rows) -> None:
        self.rows = rows
        self._tiles, self._transforms = Tiles(), transform.Transforms()

    @property
    def box(self) -> Box:
        return self.rows.box

    @property
    def count(self) -> int:
        return self.rows.count

    @property
    def squares(self) -> float:
        return float(self.rows.observations @ self.rows.observations)

    @property
    def passes(self) -> int:
        """How often the data were read for new sums."""
        return self._tiles.passes + self._transforms.passes

    def covers(self, sizes: Sequence[int]) -> bool:
        """Always: the data are here."""
        return True

    def grow(self, inputs: Array, observations: Array) -> None:
        """All rows, the old ones first: only new ones are read, unless the box grows, which changes every sum. A given
        one does not grow.
        """
        old = self.rows
        self._check_inside(inputs[old.count :])
        rows = Rows(inputs, observations, self._given or Box.around(inputs))
        if rows.box.same(old.box):
            self.rows = rows
        else:
            self._start(rows)

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n."""
        chosen = self._transforms if transform.worthwhile(sizes, self.count) else self._tiles
        return chosen.up_to(self.rows, sizes)

    def _check_inside(self, inputs: Array) -> None:
        if self._given is not None and not self._given.holds(inputs):
            raise InputError("expected inputs inside the given box, got one outside: sums over it need a larger box")
