"""What a dense evaluation is expected to cost, in seconds on one core.

The constants, like those of the moments engine, are fits to times on an AMD EPYC (Zen 3) core, one process, one BLAS
thread. They are not measured where the program runs: agents on different machines must choose the same engine.
"""

from __future__ import annotations

#: Floating-point operations per second of the factorization and the inverse of a large matrix.
LARGE_RATE = 3.5e10
#: Seconds per entry of a matrix: an exponential, the gradient, and what LAPACK is slower by on small matrices.
ENTRY = 9e-9
#: Seconds for the calls themselves.
CALLS = 1e-4


def expected_seconds(size: int) -> float:
    """Of a likelihood with its gradient: N^3 operations for the factor and the inverse, N^2 for all else."""
    return size**3 / LARGE_RATE + ENTRY * size**2 + CALLS
