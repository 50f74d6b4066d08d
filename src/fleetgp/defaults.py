"""Default settings of a model: the same in Python, on the command line, in fleet.toml and in the estimator."""

from __future__ import annotations

from typing import Final

#: The paper's "se" is infinitely smooth, and most measured fields are not.
KERNEL: Final = "matern32"
#: dec-full-gp works with the moments of the data, and only the squared exponential has them.
KERNEL_OF_MOMENTS: Final = "se"
#: Whether the observations are centred and scaled by the fleet's own mean and standard deviation.
NORMALIZE: Final = True
MEAN: Final = "zero"
COORDINATES: Final = "as-given"


def default_kernel(*methods: object) -> str:
    """The kernel of a model for which none was chosen. methods: of its training and prediction, where they are known.

    >>> default_kernel(), default_kernel("dec-full-gp")
    ('matern32', 'se')
    """
    return KERNEL_OF_MOMENTS if "dec-full-gp" in methods else KERNEL
