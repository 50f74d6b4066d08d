"""Covariance functions: the paper's separable squared exponential, and the Matern family.

A kernel states one scalar rule, its profile phi(s) and slope -phi'(s) of the scaled squared distance
s = sum_d (x_d - x'_d)^2 / l_d^2; the base turns it into matrices and log-gradients.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, unknown_name
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.linalg.threads import cores, spread

Exponential = Callable[[Array], Array]

#: Distances that become covariances at a time: 256 kB stay in a core's cache, and threads seldom meet at the lock.
CHUNK = 1 << 15
#: Below this part of the largest |a|^2 + |b|^2 a squared distance from their difference has lost half its digits: it is
#: computed again, from the coordinates. So many pairs at a time.
CANCELLED = 1e-8
PAIRS = 1 << 16
#: Chunks, of 80 to 160 us each, that are worth waking up other threads for.
WORTH_SPREADING = 16


def scaled_squared_distance(left: Array, right: Array | None = None) -> Array:
    """s_ij between rows that are already divided by the length-scales; (N, D), (N', D) -> (N, N').

    One matrix product; the rows are centred first, since |a|^2 + |b|^2 - 2ab loses digits far from the
    origin. Pairs that are close to each other are computed from their differences: equal rows have distance zero, and
    so in every matrix that they stand in. With `right` the result is Fortran-ordered: LAPACK can solve in its place.
    """
    centre = left.mean(axis=0) if len(left) else 0.0
    a = left - centre
    b = a if right is None else right - centre
    a_square, b_square = np.einsum("nd,nd->n", a, a), np.einsum("nd,nd->n", b, b)
    s = b @ (-2.0 * a.T)
    s += b_square[:, None]
    s += a_square
    if right is None:
        np.fill_diagonal(s, np.inf)  # no pair
    close = np.flatnonzero(s < CANCELLED * (a_square.max(initial=0.0) + b_square.max(initial=0.0)))
    for start in range(0, len(close), PAIRS):
        part = close[start : start + PAIRS]
        j, i = np.divmod(part, s.shape[1])
        s.reshape(-1)[part] = ((left[i] - (left if right is None else right)[j]) ** 2).sum(axis=1)
    if right is None:
        np.fill_diagonal(s, 0.0)
    return s.T if right is not None else s


class Kernel(abc.ABC):
    r"""k(x, x') = sigma_f^2 phi(s), with s the scaled squared distance and phi(0) = 1."""

    name: ClassVar[str]

    @abc.abstractmethod
    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        """phi(s) and -phi'(s), elementwise; where these are one function, one array twice.

        exp: e^x for x <= 0; an engine may have a faster one than NumPy's.
        """

    def profile_in_place(self, s: Array, slope: Array | None = None, exp: Exponential = np.exp) -> bool:
        """Overwrite s with phi(s). If -phi' is another function, write it into `slope` and return True.

        No other array of this size is made. Both arrays are contiguous.
        """
        assert s.flags.c_contiguous
        assert slope is None or slope.flags.c_contiguous
        flat, slopes = s.reshape(-1), None if slope is None else slope.reshape(-1)

        def differ(starts: Iterable[int]) -> bool:
            found = False
            for start in starts:
                chunk = slice(start, start + CHUNK)
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    profile, descent = self.profile_and_slope(flat[chunk], exp)
                flat[chunk] = profile
                found = descent is not profile
                if slopes is not None and found:
                    slopes[chunk] = descent
            return found

        starts = range(0, flat.size, CHUNK)
        parts = cores() if len(starts) >= WORTH_SPREADING else 1
        return any(spread(differ, [starts[part::parts] for part in range(parts)]))

    def __call__(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        """k(left, right), (N, N'), Fortran-ordered; with right=None k(left, left)."""
        scales = np.asarray(h.length_scales)
        s = scaled_squared_distance(left / scales, None if right is None else right / scales)
        self.profile_in_place(s if right is None else s.T)
        s *= h.signal**2
        return s

    def log_gradient(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        """d k(left, right) / d (log l_1 .. log l_D, log sigma_f), (D + 1, N, N'); with right=None d k(left, left).

        For inspection and for checks. The likelihood gradient of an expert never forms these matrices.
        """
        scales = np.asarray(h.length_scales)
        s = scaled_squared_distance(left / scales, None if right is None else right / scales)
        value, slope = self.profile_and_slope(s)
        per_axis = ((left[:, None, :] - (left if right is None else right)) / scales) ** 2
        gradient = 2.0 * h.signal**2 * np.moveaxis(slope[..., None] * per_axis, -1, 0)
        return np.concatenate([gradient, 2.0 * h.signal**2 * value[None]])


class SquaredExponential(Kernel):
    r"""The paper's kernel: sigma_f^2 exp(-sum_d (x_d - x'_d)^2 / l_d^2), without a factor 1/2.

    A length-scale here is sqrt(2) times one of scikit-learn or GPyTorch.

    >>> h = Hyperparameters.from_theta([2.0, 1.5, 0.1])
    >>> round(SquaredExponential()(np.array([[0.0]]), np.array([[2.0]]), h).item() / 1.5**2, 12)
    0.367879441171
    """

    name = "se"

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        value = exp(-s)
        return value, value


class Matern12(Kernel):
    """sigma_f^2 exp(-r), r = sqrt(s): rough fields."""

    name = "matern12"

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(s)
        value = exp(-r)
        # The slope multiplies a squared distance, so its pole at r = 0 never counts.
        return value, np.divide(value, 2.0 * r, out=np.zeros_like(r), where=r > 0.0)


class Matern32(Kernel):
    """sigma_f^2 (1 + sqrt(3) r) exp(-sqrt(3) r)."""

    name = "matern32"

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(3.0 * s)
        decay = exp(-r)
        return (1.0 + r) * decay, 1.5 * decay


class Matern52(Kernel):
    """sigma_f^2 (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""

    name = "matern52"

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(5.0 * s)
        decay = exp(-r)
        return (1.0 + r + r * r / 3.0) * decay, (5.0 / 6.0) * (1.0 + r) * decay


KERNELS: dict[str, Kernel] = {k.name: k for k in (SquaredExponential(), Matern12(), Matern32(), Matern52())}


def as_kernel(kernel: str | Kernel) -> Kernel:
    """A kernel by name or as itself.

    >>> as_kernel("se").name
    'se'
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise InputError(f"expected the name of a kernel or a Kernel, got {type(kernel).__name__}")
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    return KERNELS[kernel]
