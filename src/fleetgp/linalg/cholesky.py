"""Cholesky factorization whose jitter is escalated, reported and never hidden; LAPACK without the interpreter lock.

SciPy's own wrappers hold the lock, so that threads over agents gain nothing. The same compiled routines are
exported by `scipy.linalg.cython_lapack` as function pointers; a call through ctypes releases the lock. All
matrices are square, Fortran-ordered doubles of which the lower triangle counts. The functions on addresses know nothing
of Python's objects, so that Numba can compile them as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
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
    if len(lower):
        solve_at(_address(lower), len(lower), _address(right), right.size // len(lower))


def half_solve_in_place(lower: Array, right: Array) -> None:
    """right -> L^-1 right."""
    _from_the_left(_DTRSM, lower, right)


def multiply_triangle_in_place(lower: Array, right: Array) -> None:
    """right -> L right."""
    _from_the_left(_DTRMM, lower, right)


def _from_the_left(routine: Callable[..., None], lower: Array, right: Array) -> None:
    if not len(lower):
        return
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


#: Tried in turn, relative to the mean of the diagonal.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
#: Squared pivots must be at least this part of the noise variance, which is what they are without any rounding.
CERTAIN = 0.9


@dataclass(frozen=True)
class Cholesky:
    """C + jitter I = L L'. `lower` is Fortran-ordered; its upper triangle holds no meaning."""

    lower: Array
    jitter: float

    @property
    def log_determinant(self) -> float:
        return 2.0 * float(np.log(np.diagonal(self.lower)).sum())

    def solve(self, right: Array) -> Array:
        """C^-1 right, for a vector or the columns of a matrix."""
        solution = np.array(right, dtype=float, order="F")
        solve_in_place(self.lower, solution)
        return solution

    def half_solve(self, right: Array) -> Array:
        """L^-1 right: squared column norms are quadratic forms with C^-1."""
        return self.half_solve_in_place(np.array(right, dtype=float, order="F"))

    def half_solve_in_place(self, right: Array) -> Array:
        """L^-1 right, written over `right`, which is Fortran-ordered: no copy of it is made."""
        half_solve_in_place(self.lower, right)
        return right

    def certain(self, noise_variance: float | Array) -> bool:
        """Whether no squared pivot is below the noise: else rounding is larger than that, and nothing is certain."""
        return self.jitter == 0.0 and not (np.diagonal(self.lower) ** 2 < CERTAIN * noise_variance).any()

    def extended(self, cross: Array, corner: Array, noise_variance: Array) -> Cholesky | None:
        r"""That of more points, of which only the new ones are worked on; None where it is not certain to be so.

            [C       cross ]   [L 0] [L 0]'
            [cross'  corner] = [B S] [B S]      B = cross' L'^-1      S S' = corner - B B'

        cross: (N, k).  corner: (k, k) without its noise, of which noise_variance is (k,). Both stay as they are.

        >>> points = np.random.default_rng(0).standard_normal((5, 9))
        >>> whole = points @ points.T
        >>> first = factorize(whole[:3, :3], 1.0)
        >>> more = first.extended(whole[:3, 3:], whole[3:, 3:], np.ones(2))
        >>> bool(np.allclose(np.tril(more.lower), np.tril(factorize(whole, 1.0).lower)))
        True
        """
        if self.jitter > 0.0:
            return None
        below = self.half_solve(cross)
        last = factorize(corner - below.T @ below, noise_variance)
        if last is None or not last.certain(noise_variance):
            return None
        old, size = len(self.lower), len(self.lower) + len(corner)
        lower = np.empty((size, size), order="F")
        lower[:old, :old], lower[old:, :old], lower[old:, old:] = self.lower, below.T, last.lower
        return Cholesky(lower, 0.0)

    def inverse_in_place(self) -> Array:
        """The lower triangle of C^-1, written over the factor, which is lost."""
        inverse_in_place(self.lower)
        return self.lower


def factorize(covariance: Array, noise_variance: float | Array, *, pivot: float = 0.0) -> Cholesky | None:
    """Factorize covariance + noise_variance I, with the smallest jitter that works; None if none does.

    noise_variance: of all points, or of each its own, (N,).
    `covariance` (N, N) is symmetric and stays as it is. A squared pivot below `pivot` times the mean of the
    diagonal counts as a failure: rounding can let a singular matrix pass. No points have an empty factor.
    """
    if not len(covariance):
        return Cholesky(np.zeros((0, 0), order="F"), 0.0)
    scale = float(np.trace(covariance)) / len(covariance) + float(np.mean(noise_variance))
    work = np.empty_like(covariance, order="C")
    return factorize_in_place(work.T, lambda: np.copyto(work, covariance), noise_variance, scale, pivot=pivot)


def factorize_in_place(
    work: Array, fill: Callable[[], object], noise_variance: float | Array, scale: float, *, pivot: float = 0.0
) -> Cholesky | None:
    """As `factorize`, in `work` (Fortran-ordered), which `fill` fills with the covariance before each attempt.

    scale: what jitter is relative to, the mean of the diagonal with noise.
    """
    if not np.isfinite(scale):
        return None
    diagonal = work.ravel(order="K")[:: len(work) + 1]
    for relative in JITTERS:
        fill()
        diagonal += noise_variance + relative * scale
        if not cholesky_in_place(work):
            continue
        # A NaN anywhere ends up in the last pivot.
        if np.isfinite(diagonal[-1]) and diagonal.min() ** 2 >= pivot * scale:
            return Cholesky(work, relative * scale)
    return None
