"""LAPACK without the interpreter lock: the routines behind a likelihood, callable from several threads at once.

SciPy's own wrappers hold the lock, so that threads over agents gain nothing. The same compiled routines are
exported by `scipy.linalg.cython_lapack` as function pointers; a call through ctypes releases the lock. All
matrices are square, Fortran-ordered doubles of which the lower triangle counts.

The functions on addresses know nothing of Python's objects, so that Numba can compile them as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from fleetgp.arrays import Array

#: Up to this size LAPACK's unblocked inverse of a triangle is the fastest.
LEAF = 32
#: Bytes of a double, and of an integer of LAPACK.
DOUBLE, INTEGER = 8, 4

_NAME = ctypes.pythonapi.PyCapsule_GetName
_NAME.restype, _NAME.argtypes = ctypes.c_char_p, [ctypes.py_object]
_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _routine(module: Any, name: str) -> Callable[..., None]:
    """A routine that takes addresses as integers: Numba, too, can compute with these."""
    capsule = module.__pyx_capi__[name]
    signature = _NAME(capsule)
    arguments = signature.count(b",") + 1
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_ssize_t] * arguments)
    return prototype(_POINTER(capsule, signature))


_DPOTRF = _routine(cython_lapack, "dpotrf")
_DPOTRS = _routine(cython_lapack, "dpotrs")
_DTRTRI = _routine(cython_lapack, "dtrtri")
_DLAUUM = _routine(cython_lapack, "dlauum")
_DTRSM = _routine(cython_blas, "dtrsm")
_DTRMM = _routine(cython_blas, "dtrmm")

_LETTERS = {letter: ctypes.c_char(letter.encode()) for letter in "LRN"}
_L, _R, _N = (ctypes.addressof(_LETTERS[letter]) for letter in "LRN")
_NUMBERS = (ctypes.c_double(1.0), ctypes.c_double(-1.0))
_ONE, _MINUS_ONE = (ctypes.addressof(number) for number in _NUMBERS)


# ---- on addresses: Python, or compiled by Numba -----------------------------------------------------------------


def cholesky_at(matrix: int, size: int) -> int:
    """C -> L; LAPACK's info, which is 0 if C is positive definite."""
    integers = np.array([size, 0], np.int32)
    n = integers.ctypes.data
    _DPOTRF(_L, n, matrix, n, n + INTEGER)
    return int(integers[1])


def solve_at(lower: int, size: int, right: int, columns: int) -> int:
    """right -> (L L')^-1 right; LAPACK's info."""
    integers = np.array([size, columns, 0], np.int32)
    n = integers.ctypes.data
    _DPOTRS(_L, n, n + INTEGER, lower, n, right, n, n + 2 * INTEGER)
    return int(integers[2])


def invert_triangle_at(lower: int, size: int) -> int:
    """L -> L^-1 by [A 0; C D]^-1 = [A^-1 0; -D^-1 C A^-1  D^-1], from leaves up; LAPACK's info.

    This turns it into matrix products: up to four times faster below N = 1000 than OpenBLAS's dtrtri, which is not
    blocked there.
    """
    integers = np.array([size, 0, 0, 0], np.int32)
    n = integers.ctypes.data
    rows, columns, info = n + INTEGER, n + 2 * INTEGER, n + 3 * INTEGER
    along = DOUBLE * (size + 1)  # from one element of the diagonal to the next
    for start in range(0, size, LEAF):
        integers[1] = min(LEAF, size - start)
        _DTRTRI(_L, _N, rows, lower + start * along, n, info)
    width = LEAF
    while width < size:
        for start in range(0, size - width, 2 * width):
            integers[1], integers[2] = min(width, size - start - width), width
            first = lower + start * along
            below, second = first + width * DOUBLE, first + width * along
            _DTRMM(_R, _L, _N, _N, rows, columns, _MINUS_ONE, first, n, below, n)
            _DTRMM(_L, _L, _N, _N, rows, columns, _ONE, second, n, below, n)
        width *= 2
    return int(integers[3])


def square_triangle_at(lower: int, size: int) -> int:
    """L -> L'L; LAPACK's info."""
    integers = np.array([size, 0], np.int32)
    n = integers.ctypes.data
    _DLAUUM(_L, n, lower, n, n + INTEGER)
    return int(integers[1])


# ---- on arrays --------------------------------------------------------------------------------------------------


def _address(array: Array) -> int:
    if array.dtype != float or not array.flags.f_contiguous or not array.flags.writeable:
        raise TypeError(
            "expected a Fortran-ordered, writeable array of doubles, got "
            f"{array.dtype} of shape {array.shape} with strides {array.strides}"
        )
    return array.ctypes.data


def cholesky_in_place(matrix: Array) -> bool:
    """C -> L with C = L L' in the lower triangle; False where C is not positive definite."""
    return cholesky_at(_address(matrix), len(matrix)) == 0


def solve_in_place(lower: Array, right: Array) -> None:
    """right -> (L L')^-1 right, for a vector or the columns of a Fortran-ordered matrix."""
    solve_at(_address(lower), len(lower), _address(right), right.size // len(lower))


def half_solve_in_place(lower: Array, right: Array) -> None:
    """right -> L^-1 right."""
    _from_the_left(_DTRSM, lower, right)


def multiply_triangle_in_place(lower: Array, right: Array) -> None:
    """right -> L right."""
    _from_the_left(_DTRMM, lower, right)


def _from_the_left(routine: Callable[..., None], lower: Array, right: Array) -> None:
    integers = np.array([len(lower), right.size // len(lower)], np.int32)
    n = integers.ctypes.data
    routine(_L, _L, _N, _N, n, n + INTEGER, _ONE, _address(lower), n, _address(right), n)


def invert_triangle_in_place(lower: Array) -> None:
    """L -> L^-1."""
    invert_triangle_at(_address(lower), len(lower))


def square_triangle_in_place(lower: Array) -> None:
    """L -> the lower triangle of L'L; of L^-1 it makes (L L')^-1."""
    square_triangle_at(_address(lower), len(lower))


def inverse_in_place(lower: Array) -> None:
    """L -> the lower triangle of (L L')^-1: what dpotri does."""
    invert_triangle_in_place(lower)
    square_triangle_in_place(lower)
