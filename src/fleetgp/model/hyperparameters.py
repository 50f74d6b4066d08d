"""The hyperparameters as named fields, and the log vector that every optimizer works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, shortened
from fleetgp.validation import LARGEST, as_numbers

#: |log theta| beyond this cannot be an estimate. Data go up to 1e100 (log: 230); exp(2 * 250) is still finite.
LOG_RANGE = 250.0


@dataclass(frozen=True)
class Hyperparameters:
    r"""theta = (l_1, ..., l_D, sigma_f, sigma_eps), in natural units and in the paper's order.

    All training acts on log theta, which needs no positivity constraint (the paper's Remark 1; with the
    paper's constants the raw theta diverges).

    >>> h = Hyperparameters.from_theta([1.2, 0.3, 1.3, 0.1])
    >>> h.signal, h.noise
    (1.3, 0.1)
    >>> Hyperparameters.from_log(h.log).theta.round(12).tolist()
    [1.2, 0.3, 1.3, 0.1]
    """

    length_scales: tuple[float, ...]
    signal: float
    noise: float

    def __post_init__(self) -> None:
        """Raise an InputError for anything but numbers. `check_theta` checks their values."""
        sound = isinstance(self.length_scales, tuple | list)
        for value in (*(self.length_scales if sound else ()), self.signal, self.noise):
            sound = sound and isinstance(value, int | float) and not isinstance(value, bool)
        if not sound:
            given = shortened((self.length_scales, self.signal, self.noise))
            raise InputError(f"expected length-scales (l_1, .., l_D), sigma_f and sigma_eps as numbers, got {given}")

    @classmethod
    def from_theta(cls, theta: Array | Sequence[float]) -> Hyperparameters:
        """From a vector (P,), in the paper's order."""
        try:
            values = [float(v) for v in theta]
        except (TypeError, ValueError):
            values = []
        if len(values) < 2:
            raise InputError(f"expected theta = (l_1, .., l_D, sigma_f, sigma_eps), got {shortened(theta)}")
        return cls(tuple(values[:-2]), values[-2], values[-1])

    @classmethod
    def from_log(cls, log_theta: Array) -> Hyperparameters:
        """From the logarithms of such a vector."""
        return cls.from_theta(np.exp(as_numbers(log_theta, "log theta")))

    @property
    def theta(self) -> Array:
        """(P,) in the paper's order."""
        return np.array([*self.length_scales, self.signal, self.noise])

    @property
    def log(self) -> Array:
        """(P,) their logarithms."""
        return np.log(self.theta)


def names(inputs: int | Sequence[str]) -> tuple[str, ...]:
    """The names of the D + 2 hyperparameters of a stationary kernel, in order.

    Length-scales go by number, or under the inputs' names.

    >>> names(2), names(["lon"])
    (('l_1', 'l_2', 'sigma_f', 'sigma_eps'), ('l_lon', 'sigma_f', 'sigma_eps'))
    """
    labels = range(1, inputs + 1) if isinstance(inputs, int) else inputs
    return (*(f"l_{label}" for label in labels), "sigma_f", "sigma_eps")


def check_theta(theta: object, labels: int | Sequence[str], name: str = "theta") -> Array:
    """Return theta as a float vector; raise an InputError unless all are positive and finite.

    labels: the names of the P hyperparameters, or the number of inputs D of a stationary kernel.

    >>> check_theta([1.2, 0.3, 1.3, -0.1], 2, "theta0")
    Traceback (most recent call last):
    fleetgp.errors.InputError: theta0 must be positive and finite, got sigma_eps = -0.1
    """
    labels = names(labels) if isinstance(labels, int) else labels
    expected = f"{name} must be {len(labels)} positive numbers ({', '.join(labels)})"
    vector = as_numbers(theta, name)
    if vector.shape != (len(labels),):
        raise InputError(f"{expected}, got an array of shape {vector.shape}")
    for label, value in zip(labels, vector.tolist(), strict=True):
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"{name} must be positive and finite, got {label} = {value:g}")
        if not 1.0 / LARGEST <= value <= LARGEST:
            raise InputError(f"{name} must lie between 1e-100 and 1e100, got {label} = {value:g}: use other units")
    return vector


def sound_log_theta(values: object, width: int) -> bool:
    """Whether these can be hyperparameters: one log theta or rows of them, P wide, finite, within LOG_RANGE.

    For values from a disk or the network; it never raises.

    >>> sound_log_theta([0.2, -1.2, 0.3, -2.3], 4), sound_log_theta([[0.2, -1.2, 0.3, -2.3]] * 3, 4)
    (True, True)
    >>> sound_log_theta([0.2, -1.2, 0.3, -800.0], 4), sound_log_theta([0.2, -1.2, 0.3], 4), sound_log_theta("abcd", 4)
    (False, False, False)
    """
    try:
        result = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return False
    if result.ndim not in (1, 2) or result.shape[-1] != width:
        return False
    return bool((np.abs(result) <= LOG_RANGE).all())  # False for NaN
