"""Covariance functions: the interface, the paper's separable squared exponential, and the Matern family.

A stationary kernel states one scalar rule, its profile phi(s) and slope -phi'(s) of the scaled squared distance
s = sum_d (x_d - x'_d)^2 / l_d^2; the base turns it into matrices and log-gradients. `composite` has sums and products.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import InputError, shortened
from fleetgp.linalg.threads import cores, spread
from fleetgp.model.hyperparameters import Hyperparameters, names
from fleetgp.model.noise import SAME, NoiseModel
from fleetgp.model.observations import Observations
from fleetgp.registry import Registry

Exponential = Callable[[Array], Array]
#: A function of distances r, elementwise.
Profile = Callable[[Array], Array]

#: Distances that become covariances at a time: 256 kB stay in a core's cache, and threads seldom meet at the lock.
CHUNK = 1 << 15
#: Below this part of the largest |a|^2 + |b|^2 a squared distance has lost half its digits to cancellation: it is
#: recomputed from the coordinates, so many pairs at a time.
CANCELLED, PAIRS = 1e-8, 1 << 16
#: With fewer chunks, of 80 to 160 us each, other threads are not worth waking.
WORTH_SPREADING = 16


def scaled_squared_distance(left: Array, right: Array | None = None) -> Array:
    """s_ij between rows that are already divided by the length-scales; (N, D), (N', D) -> (N, N').

    One matrix product of centred rows, since |a|^2 + |b|^2 - 2ab loses digits far from the origin. Close pairs are
    computed from their differences, so that equal rows have distance zero. With `right` the result is Fortran-ordered,
    so that LAPACK can solve in place.
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


#: In `Kernel.units`: hyperparameters in units of the observations, and without units.
OBSERVED, PURE = -1, -2


class Kernel(abc.ABC):
    """A covariance function k(x, x') with hyperparameters theta = (its own, .., sigma_eps), P positive numbers."""

    name: str

    @abc.abstractmethod
    def names(self, inputs: int | Sequence[str]) -> tuple[str, ...]:
        """Of the hyperparameters, in the order of theta. inputs: how many there are, or their names."""

    def count(self, dimension: int) -> int:
        """P, the number of hyperparameters for inputs of this dimension."""
        return len(self.names(dimension))

    #: How the noise of observations differs.
    noise_model: NoiseModel = SAME

    @property
    def has_basis(self) -> bool:
        """Whether the covariance is a short sum over smooth functions on a box, see `engines.basis`."""
        return False

    @property
    def has_moments(self) -> bool:
        """Whether moments stand for data with this covariance and noise."""
        return self.has_basis and not self.noise_model.differs

    @property
    def noise_count(self) -> int:
        """Q, the number of hyperparameters of the noise, the last of theta."""
        return len(self.noise_model.names)

    def sigmas(self, theta: Array) -> Array:
        """The last Q of theta (.., P), which are of the noise."""
        return np.asarray(theta[..., -self.noise_count :])

    @abc.abstractmethod
    def units(self, dimension: int) -> IntArray:
        """(P,) what each hyperparameter is measured in: the number of an input, OBSERVED, or PURE for a number."""

    @abc.abstractmethod
    def __call__(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        """k(left, right), (N, N'), Fortran-ordered; with right=None k(left, left)."""

    @abc.abstractmethod
    def log_gradient(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        """d k(left, right) / d log theta without the noise, (P - Q, N, N'), for checks; right=None: d k(left, left)."""

    @abc.abstractmethod
    def variance(self, points: Array, h: Hyperparameters) -> Array:
        """k(x, x) at the points (.., N, D), (.., N)."""

    @abc.abstractmethod
    def slopes(self, left: Array, right: Array, h: Hyperparameters) -> Array:
        """d k(left, right) / d right along each column of it, (D, N, N').

        At a kink, which matern12 has where two points are equal, the mean of the slopes on either side: zero.
        """

    def rough_axes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        """Groups of inputs: it has a kink where two points are equal in all inputs of a group."""
        return ()

    @abc.abstractmethod
    def curvature(self, points: Array, h: Hyperparameters) -> tuple[Array, Array]:
        """d k(x, x) / dx, (N, D), and d^2 k(x, x') / dx dx' at x' = x, (N, D, D): the covariance of f's derivatives.

        Infinite along the inputs of `rough_axes`, along which f has no derivative.
        """

    def noise_differs(self, data: Observations) -> bool:
        """Whether these observations do not all have the same noise."""
        return self.noise_model.differs or data.weight is not None

    def noise(self, data: Observations, h: Hyperparameters) -> Array:
        """The variance of the noise of each observation, (N,)."""
        if self.noise_differs(data):
            return self.noise_model.variance(data, self.sigmas(h.theta))
        return np.full(len(data), h.noise**2)

    def noise_slopes(self, data: Observations, h: Hyperparameters) -> Array:
        """Its derivatives by the logarithms of the last hyperparameters, which are of the noise, (Q, N)."""
        if self.noise_differs(data):
            return self.noise_model.slopes(data, self.sigmas(h.theta))
        return 2.0 * self.noise(data, h)[None]

    @abc.abstractmethod
    def scales(self, h: Hyperparameters, dimension: int) -> tuple[Array, IntArray]:
        """(D,) the length-scales by which near points are the correlated ones, and their positions in theta; infinity
        and -1 for inputs that do not matter for this.
        """

    @abc.abstractmethod
    def start(self, reach: Array, span: float, size: float) -> Array:
        """Where a training may start, without the noise.

        reach: (D,) of the inputs.  size: of the observations.  span: a length-scale as a share of the reach.
        """


class Stationary(Kernel):
    r"""k(x, x') = sigma_f^2 phi(s), with s the scaled squared distance and phi(0) = 1. theta: l_1 .. l_D, sigma_f,
    sigma_eps.
    """

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and vars(self) == vars(other))

    def __hash__(self) -> int:
        return hash((type(self), self.noise_model))

    def names(self, inputs: int | Sequence[str]) -> tuple[str, ...]:
        return (*names(inputs)[:-1], *self.noise_model.names)

    def units(self, dimension: int) -> IntArray:
        return np.array([*range(dimension), OBSERVED, *(OBSERVED,) * self.noise_count])

    def split(self, h: Hyperparameters) -> tuple[Array, float]:
        """The length-scales (D,) and sigma_f."""
        *scales, signal = h.theta[: -self.noise_count].tolist()
        return np.array(scales), signal

    def variance(self, points: Array, h: Hyperparameters) -> Array:
        return np.full(points.shape[:-1], self.split(h)[1] ** 2)

    def scales(self, h: Hyperparameters, dimension: int) -> tuple[Array, IntArray]:
        return self.split(h)[0], np.arange(dimension)

    def start(self, reach: Array, span: float, size: float) -> Array:
        return np.array([*(span * reach), size])

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
            result = False
            for start in starts:
                chunk = slice(start, start + CHUNK)
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    profile, descent = self.profile_and_slope(flat[chunk], exp)
                flat[chunk] = profile
                result = descent is not profile
                if slopes is not None and result:
                    slopes[chunk] = descent
            return result

        starts = range(0, flat.size, CHUNK)
        parts = cores() if len(starts) >= WORTH_SPREADING else 1
        return any(spread(differ, [starts[part::parts] for part in range(parts)]))

    def __call__(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        scales, signal = self.split(h)
        s = scaled_squared_distance(left / scales, None if right is None else right / scales)
        self.profile_in_place(s if right is None else s.T)
        s *= signal**2
        return s

    def log_gradient(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        scales, signal = self.split(h)
        s = scaled_squared_distance(left / scales, None if right is None else right / scales)
        value, slope = self.profile_and_slope(s)
        per_axis = ((left[:, None, :] - (left if right is None else right)) / scales) ** 2
        gradient = 2.0 * signal**2 * np.moveaxis(slope[..., None] * per_axis, -1, 0)
        return np.concatenate([gradient, 2.0 * signal**2 * value[None]])

    #: Whether the profile has a kink at 0, and whether it is known never to rise.
    kinked = False
    decreasing = False

    def slopes(self, left: Array, right: Array, h: Hyperparameters) -> Array:
        scales, signal = self.split(h)
        _, slope = self.profile_and_slope(scaled_squared_distance(left / scales, right / scales))
        apart = np.moveaxis((left[:, None, :] - right) / scales**2, -1, 0)
        return np.asarray(2.0 * signal**2 * slope * apart)

    def curvature(self, points: Array, h: Hyperparameters) -> tuple[Array, Array]:
        scales, signal = self.split(h)
        bent = 2.0 * signal**2 * self.steepness / scales**2
        return np.zeros(points.shape), np.tile(np.diag(bent), (len(points), 1, 1))

    @property
    def steepness(self) -> float:
        """-phi'(0); infinite for one with a kink."""
        return np.inf if self.kinked else float(self.profile_and_slope(np.zeros(1))[1][0])

    def rough_axes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(dimension)),) if self.kinked else ()


class SquaredExponential(Stationary):
    r"""The paper's kernel: sigma_f^2 exp(-sum_d (x_d - x'_d)^2 / l_d^2), without a factor 1/2.

    A length-scale here is sqrt(2) times one of scikit-learn or GPyTorch.

    >>> h = Hyperparameters.from_theta([2.0, 1.5, 0.1])
    >>> round(SquaredExponential()(np.array([[0.0]]), np.array([[2.0]]), h).item() / 1.5**2, 12)
    0.367879441171
    """

    name = "se"
    decreasing = True

    @property
    def has_basis(self) -> bool:
        return True

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        value = exp(-s)
        return value, value


class Matern12(Stationary):
    """sigma_f^2 exp(-r), r = sqrt(s): rough fields."""

    name = "matern12"
    decreasing = True
    kinked = True

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(s)
        value = exp(-r)
        # The slope multiplies a squared distance, so its pole at r = 0 never counts.
        return value, np.divide(value, 2.0 * r, out=np.zeros_like(r), where=r > 0.0)


class Matern32(Stationary):
    """sigma_f^2 (1 + sqrt(3) r) exp(-sqrt(3) r)."""

    name = "matern32"
    decreasing = True

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(3.0 * s)
        decay = exp(-r)
        return (1.0 + r) * decay, 1.5 * decay


class Matern52(Stationary):
    """sigma_f^2 (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""

    name = "matern52"
    decreasing = True

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(5.0 * s)
        decay = exp(-r)
        return (1.0 + r + r * r / 3.0) * decay, (5.0 / 6.0) * (1.0 + r) * decay


class Correlation(Stationary):
    """sigma_f^2 rho(r), for rho as `register_kernel` gets it."""

    def __init__(self, name: str, correlation: Profile, derivative: Profile) -> None:
        self.name, self.correlation, self.derivative = name, correlation, derivative
        self.kinked = bool(derivative(np.full(1, NEAR))[0] < -KINK)

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        r = np.sqrt(s)
        near = np.maximum(r, NEAR)
        slope = -0.5 * self.derivative(near) / near
        return np.asarray(self.correlation(r)), np.where(r > 0.0, slope, 0.0) if self.kinked else slope


#: The distance at which a slope at zero is taken, and from which slope there on a correlation has a kink.
NEAR, KINK = 1e-9, 1e-4
#: Where a new correlation is compared with its derivative, and how well they agree relative to the largest slope.
PLACES, SAME_SLOPE = np.linspace(0.05, 4.0, 80), 1e-5

KERNELS: Registry[Stationary] = Registry(
    "kernel", {k.name: k for k in (SquaredExponential(), Matern12(), Matern32(), Matern52())}
)


def register_kernel(name: str, correlation: Profile, derivative: Profile) -> Stationary:
    """Add a stationary kernel sigma_f^2 rho(r), r^2 = sum_d (x_d - x'_d)^2 / l_d^2.

    From then on its name works alone, in expressions, in lists of kernels to choose from, on the command line and in a
    fleet.toml (if the package that registers it declares it in its entry points).

    name: letters, digits, "_", "-" and ".".
    correlation: rho of an array of distances r >= 0, elementwise; rho(0) = 1, and positive definite in as many inputs
        as it is used with.
    derivative: rho' of the same. If rho'(0) is not 0 the field has a kink everywhere, as with matern12.

    >>> import fleetgp as fg
    >>> kernel = fg.register_kernel("cauchy", lambda r: 1 / (1 + r**2), lambda r: -2 * r / (1 + r**2) ** 2)
    >>> fg.Fleet([([[0.0], [1.0]], [1.0, 2.0])], kernel="cauchy").names
    ('l_1', 'sigma_f', 'sigma_eps')
    """
    kernel = Correlation(name, correlation, derivative)
    _check_correlation(kernel)
    KERNELS.add(name, kernel)
    return kernel


def _check_correlation(kernel: Correlation) -> None:
    """Raise an InputError for what cannot be a correlation, or not with this derivative."""
    step = 1e-5
    values, slopes = kernel.correlation(PLACES), np.asarray(kernel.derivative(PLACES))
    differences = (kernel.correlation(PLACES + step) - kernel.correlation(PLACES - step)) / (2.0 * step)
    at_zero = np.asarray(kernel.correlation(np.zeros(1)))
    if at_zero.shape != (1,) or abs(at_zero[0] - 1.0) > 1e-12:
        raise InputError(f"kernel {kernel.name!r}: expected a correlation of 1 at distance 0, got {shortened(at_zero)}")
    if np.shape(values) != PLACES.shape or not np.isfinite(values).all():
        raise InputError(f"kernel {kernel.name!r}: expected a finite correlation of each distance, elementwise")
    wrong = np.abs(differences - slopes) > SAME_SLOPE * max(1.0, float(np.abs(slopes).max()))
    if slopes.shape != PLACES.shape or wrong.any():
        raise InputError(
            f"kernel {kernel.name!r}: the derivative is not that of the correlation: at distance "
            f"{PLACES[np.argmax(wrong)]:.3g} it should be about {differences[np.argmax(wrong)]:.4g}"
        )
    covariance = kernel(np.linspace(0.0, 10.0, 60)[:, None], None, Hyperparameters.from_theta([1.0, 1.0, 1.0]))
    if np.linalg.eigvalsh(covariance)[0] < -1e-8 * len(covariance):
        raise InputError(f"kernel {kernel.name!r}: the correlation is not positive definite, not even on a line")
