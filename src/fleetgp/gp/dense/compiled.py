"""The inner part of many small likelihoods as one compiled call without the interpreter lock. Needs Numba.

Threads over agents then scale with the cores: in NumPy each step of a small matrix is so short that handing over
the interpreter lock costs more than the step. Without Numba the dense engine does the same in NumPy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import njit
from numba.extending import get_cython_function_address

from fleetgp.arrays import Array

#: Below this size LAPACK inverts a triangle; above, by halves.
LEAF = 32


def _routine(module: str, name: str, arguments: int) -> Any:
    address = get_cython_function_address(f"scipy.linalg.{module}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


_dpotrf = _routine("cython_lapack", "dpotrf", 5)
_dpotrs = _routine("cython_lapack", "dpotrs", 8)
_dtrtri = _routine("cython_lapack", "dtrtri", 6)
_dlauum = _routine("cython_lapack", "dlauum", 5)
_dtrmm = _routine("cython_blas", "dtrmm", 11)

#: "L", "R" and "N" for LAPACK, and the numbers 1 and -1.
_LETTERS = np.frombuffer(b"LRN", dtype=np.uint8).copy()
_SIGNS = np.array([1.0, -1.0])


@njit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def likelihoods(
    value: Array, slope: Array, work: Array, z: Array, y: Array, noise: Array, nll: Array, gradient: Array
) -> None:
    """nll (B,) and gradient (B, P) from K and S (B, N, N), z (B, N, D), y (B, N) and sigma_eps^2 (B,).

    The formulas are those of `dense.evaluate_batch`. nll is NaN where K + sigma_eps^2 I is not positive definite.
    work (B, N, N) is overwritten; row j, column i >= j of it is LAPACK's lower triangle.
    """
    left, right, none = _LETTERS[0:], _LETTERS[1:], _LETTERS[2:]
    plus, minus = _SIGNS[0:], _SIGNS[1:]
    batch, size, dimension = z.shape
    n, one, info = np.array([size], np.int32), np.array([1], np.int32), np.zeros(1, np.int32)
    rows, columns = np.zeros(1, np.int32), np.zeros(1, np.int32)
    for b in range(batch):
        a = work[b]
        for j in range(size):
            for i in range(j, size):
                a[j, i] = value[b, j, i]
            a[j, j] += noise[b]
        nll[b] = np.nan
        _dpotrf(left.ctypes, n.ctypes, a.ctypes, n.ctypes, info.ctypes)
        if info[0] != 0 or not np.isfinite(a[size - 1, size - 1]):
            continue
        log_determinant = 0.0
        for j in range(size):
            log_determinant += 2.0 * np.log(a[j, j])
        alpha = y[b].copy()
        _dpotrs(left.ctypes, n.ctypes, one.ctypes, a.ctypes, n.ctypes, alpha.ctypes, n.ctypes, info.ctypes)
        for start in range(0, size, LEAF):
            rows[0] = min(LEAF, size - start)
            _dtrtri(left.ctypes, none.ctypes, rows.ctypes, a[start:, start:].ctypes, n.ctypes, info.ctypes)
        width = LEAF
        while width < size:  # [A 0; C D]^-1 = [A^-1 0; -D^-1 C A^-1  D^-1], from the leaves up
            for start in range(0, size - width, 2 * width):
                middle = start + width
                rows[0], columns[0] = min(width, size - middle), width
                below, first, second = a[start:, middle:], a[start:, start:], a[middle:, middle:]
                _dtrmm(
                    right.ctypes, left.ctypes, none.ctypes, none.ctypes, rows.ctypes, columns.ctypes,
                    minus.ctypes, first.ctypes, n.ctypes, below.ctypes, n.ctypes,
                )  # fmt: skip
                _dtrmm(
                    left.ctypes, left.ctypes, none.ctypes, none.ctypes, rows.ctypes, columns.ctypes,
                    plus.ctypes, second.ctypes, n.ctypes, below.ctypes, n.ctypes,
                )  # fmt: skip
            width *= 2
        _dlauum(left.ctypes, n.ctypes, a.ctypes, n.ctypes, info.ctypes)
        quadratic, trace, total = 0.0, 0.0, 0.0
        scales = np.zeros(dimension)
        for j in range(size):
            quadratic += y[b, j] * alpha[j]
            trace += a[j, j] - alpha[j] * alpha[j]
            total += 0.5 * (a[j, j] - alpha[j] * alpha[j]) * value[b, j, j]
            for i in range(j + 1, size):
                a[j, i] -= alpha[j] * alpha[i]
                total += a[j, i] * value[b, j, i]
                a[j, i] *= slope[b, j, i]
            for d in range(dimension):
                here, share = z[b, j, d], 0.0
                for i in range(j + 1, size):
                    share += a[j, i] * (z[b, i, d] - here) ** 2
                scales[d] += share
        nll[b] = 0.5 * (quadratic + log_determinant)
        for d in range(dimension):
            gradient[b, d] = 2.0 * scales[d]
        gradient[b, dimension] = 2.0 * total
        gradient[b, dimension + 1] = noise[b] * trace
