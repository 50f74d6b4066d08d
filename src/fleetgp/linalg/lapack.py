"""LAPACK without the interpreter lock: the routines behind a likelihood, callable from several threads at once.

SciPy's own wrappers hold the lock, so that threads over agents gain nothing. The same compiled routines are
exported by `scipy.linalg.cython_lapack` as function pointers; a call through ctypes releases the lock. All
matrices are square, Fortran-ordered doubles of which the lower triangle counts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from scipy.linalg import cython_blas, cython_lapack

from fleetgp.arrays import Array

#: Below this size LAPACK's unblocked inverse of a triangle is the fastest.
LEAF = 48

_NAME = ctypes.pythonapi.PyCapsule_GetName
_NAME.restype, _NAME.argtypes = ctypes.c_char_p, [ctypes.py_object]
_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _routine(module: object, name: str) -> Callable[..., None]:
    capsule = module.__pyx_capi__[name]  # type: ignore[attr-defined]
    signature = _NAME(capsule)
    arguments = signature.count(b",") + 1
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
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


@cache
def _integer(value: int) -> ctypes.c_int:
    return ctypes.c_int(value)


def _size(value: int) -> int:
    """The address of an integer that stays alive."""
    return ctypes.addressof(_integer(value))


def _check(*arrays: Array) -> None:
    for array in arrays:
        if array.dtype != float or not array.flags.f_contiguous or not array.flags.writeable:
            raise TypeError("LAPACK needs Fortran-ordered, writeable arrays of doubles")


def cholesky_in_place(matrix: Array) -> bool:
    """C -> L with C = L L' in the lower triangle; False where C is not positive definite."""
    _check(matrix)
    n, info = _size(len(matrix)), ctypes.c_int()
    _DPOTRF(_L, n, matrix.ctypes.data, n, ctypes.addressof(info))
    return info.value == 0


def solve_in_place(lower: Array, right: Array) -> None:
    """right -> (L L')^-1 right, for a vector or the columns of a Fortran-ordered matrix."""
    _check(lower, right)
    n, columns, info = _size(len(lower)), _size(right.size // len(lower)), ctypes.c_int()
    _DPOTRS(_L, n, columns, lower.ctypes.data, n, right.ctypes.data, n, ctypes.addressof(info))


def half_solve_in_place(lower: Array, right: Array) -> None:
    """right -> L^-1 right."""
    _check(lower, right)
    n, columns = _size(len(lower)), _size(right.size // len(lower))
    _DTRSM(_L, _L, _N, _N, n, columns, _ONE, lower.ctypes.data, n, right.ctypes.data, n)


def invert_triangle_in_place(lower: Array) -> None:
    """L -> L^-1, by halves, which turns it into matrix products.

    Up to four times faster below N = 1000 than OpenBLAS's dtrtri, which is not blocked there.
    """
    _check(lower)
    _invert_triangle(lower.ctypes.data, len(lower), len(lower))


def multiply_triangle_in_place(lower: Array, right: Array) -> None:
    """right -> L right."""
    _check(lower, right)
    n, columns = _size(len(lower)), _size(right.size // len(lower))
    _DTRMM(_L, _L, _N, _N, n, columns, _ONE, lower.ctypes.data, n, right.ctypes.data, n)


def square_triangle_in_place(lower: Array) -> None:
    """L -> the lower triangle of L'L; of L^-1 it makes (L L')^-1."""
    _check(lower)
    n, info = _size(len(lower)), ctypes.c_int()
    _DLAUUM(_L, n, lower.ctypes.data, n, ctypes.addressof(info))


def inverse_in_place(lower: Array) -> None:
    """L -> the lower triangle of (L L')^-1: what dpotri does."""
    invert_triangle_in_place(lower)
    square_triangle_in_place(lower)


def _invert_triangle(address: int, n: int, stride: int) -> None:
    """[A 0; B D]^-1 = [A^-1 0; -D^-1 B A^-1  D^-1], by halves."""
    leading = _size(stride)
    if n <= LEAF:
        info = ctypes.c_int()
        _DTRTRI(_L, _N, _size(n), address, leading, ctypes.addressof(info))
        return
    m = n // 2
    below, corner = address + 8 * m, address + 8 * (m + m * stride)
    _invert_triangle(address, m, stride)
    _invert_triangle(corner, n - m, stride)
    rows, columns = _size(n - m), _size(m)
    _DTRMM(_R, _L, _N, _N, rows, columns, _MINUS_ONE, address, leading, below, leading)
    _DTRMM(_L, _L, _N, _N, rows, columns, _ONE, corner, leading, below, leading)
