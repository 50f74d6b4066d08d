"""Draws of a Gaussian-process field with known hyperparameters: the paper's synthetic data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.basis import coefficients, nodes, polynomials
from fleetgp.errors import InputError, shortened, unknown_name
from fleetgp.model.hyperparameters import Hyperparameters, check_theta
from fleetgp.validation import as_numbers, check_finite, check_whole

#: The hyperparameters of the paper's synthetic experiments, on [0, 2]^2.
PAPER_THETA = (1.2, 0.3, 1.3, 0.1)
PAPER_THETA0 = (2.0, 0.5, 1.0, 1.0)

#: More do not fit into any machine.
MOST_POINTS = 10_000_000_000
#: The largest tensor of 1-D features of a draw; beyond it the length-scales are too short.
MAX_FEATURES = 20_000_000


@dataclass(frozen=True)
class Field:
    """inputs (N, D), noisy observations (N,), and the noise-free values of f behind them (N,).

    >>> field = synthetic_field(9, seed=1)
    >>> field.inputs.shape, field.truth.shape, field.theta.tolist()
    ((9, 2), (9,), [1.2, 0.3, 1.3, 0.1])
    """

    inputs: Array
    observations: Array
    truth: Array
    theta: Array


def synthetic_field(
    n: int = 8100,
    theta: Sequence[float] = PAPER_THETA,
    *,
    seed: int = 0,
    box: tuple[float, float] = (0.0, 2.0),
    inputs: Literal["uniform", "grid"] | Array = "uniform",
) -> Field:
    r"""Draw f ~ GP(0, k) with the paper's kernel on a box, and y = f + noise.

    Exact in distribution to rounding, without an N x N matrix: each 1-D kernel is expanded on the box,
    k_d = Phi_d Phi_d', and f(x) = sigma_f sum_ab.. Phi_1a(x_1) Phi_2b(x_2) .. z_ab.. with z standard
    normal. The field depends on (theta, seed, box) alone: another n or other inputs sample the same field,
    and so does another processor, to 1e-7 of its size.

    >>> field = synthetic_field(500, seed=1)
    >>> field.inputs.shape, field.observations.shape
    ((500, 2), (500,))
    """
    dimension = as_numbers(theta, "theta").size - 2
    if dimension < 1:
        raise InputError(
            f"theta must be (l_1, .., l_D, sigma_f, sigma_eps), with at least one length-scale, got {shortened(theta)}"
        )
    check_whole("n", n, least=1, most=MOST_POINTS)
    check_whole("seed", seed, least=0)
    ends = as_numbers(box, "box")
    if not (ends.shape == (2,) and np.isfinite(ends).all() and ends[0] < ends[1]):
        raise InputError(f"box must be (low, high) with low < high, got {shortened(box)}")
    box = float(ends[0]), float(ends[1])
    h = Hyperparameters.from_theta(check_theta(theta, dimension))
    places = _places(n, dimension, box, inputs, seed)
    width = box[1] - box[0]
    counts = [_feature_count(width / scale) for scale in h.length_scales]
    if np.prod(np.array(counts, dtype=float)) > MAX_FEATURES:
        raise InputError(
            f"a draw with length-scales {list(h.length_scales)} on a box of width {width:g} needs "
            f"{' x '.join(map(str, counts))} features: use longer length-scales, a smaller box or fewer dimensions"
        )
    roots = [_square_root(width / scale, count) for scale, count in zip(h.length_scales, counts, strict=True)]
    weights = np.random.default_rng([seed, 1]).standard_normal(counts)[tuple(slice(r.shape[1]) for r in roots)]
    scaled = 2.0 * (places - box[0]) / width - 1.0
    chunks = np.array_split(scaled, max(1, len(scaled) // 4096))
    truth = h.signal * np.concatenate([_evaluate(chunk, roots, weights) for chunk in chunks])
    noise = np.random.default_rng([seed, 2]).standard_normal(len(places))
    return Field(places, truth + h.noise * noise, truth, h.theta)


def _places(n: int, dimension: int, box: tuple[float, float], inputs: object, seed: int) -> Array:
    if not isinstance(inputs, str):
        places = as_numbers(inputs, "inputs")
        if places.ndim != 2 or places.shape[1] != dimension:
            raise InputError(f"inputs must have shape (N, {dimension}), got {places.shape}")
        check_finite(places, "the array of inputs")
        if places.size and (places.min() < box[0] or places.max() > box[1]):
            raise InputError(f"inputs must lie in the box [{box[0]:g}, {box[1]:g}]: give a larger box")
        return places
    if inputs == "uniform":
        return np.random.default_rng([seed, 0]).uniform(*box, (n, dimension))
    if inputs == "grid":
        side = round(n ** (1 / dimension))
        if side**dimension != n:
            raise InputError(f"grid inputs need n = side^{dimension}, got n = {n}: use {side**dimension}")
        axes = np.meshgrid(*[np.linspace(*box, side)] * dimension, indexing="ij")
        return np.stack([axis.ravel() for axis in axes], axis=1)
    raise unknown_name("inputs", inputs, ("uniform", "grid"))


def _feature_count(width_over_scale: float) -> int:
    """Return how many polynomials represent exp(-(x - x')^2 / l^2) to rounding. Draws depend on it: do not change."""
    return int(np.ceil(24 + 7.5 * width_over_scale))


def _square_root(width_over_scale: float, count: int) -> Array:
    """S with T S S' T' = exp(-(x - x')^2 / l^2) on the interval, (count, rank); the largest part comes first.

    A processor determines the sign of an eigenvector, and how many eigenvalues rounding leaves above zero. Neither
    changes the draw: the largest component is positive, and the weights of what is negligible are drawn too.
    """
    x = nodes(count) * width_over_scale / 2.0
    values, vectors = np.linalg.eigh(coefficients(np.exp(-((x[:, None] - x) ** 2))))
    order = np.flatnonzero(values > values[-1] * 1e-15)[::-1]
    values, vectors = values[order], vectors[:, order]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return np.asarray(vectors * np.sign(largest) * np.sqrt(values))


def _evaluate(scaled: Array, roots: list[Array], weights: Array) -> Array:
    features = [polynomials(scaled[:, d], len(root)).T @ root for d, root in enumerate(roots)]
    values = np.tensordot(features[0], weights, axes=1)
    for feature in features[1:]:
        values = np.einsum("na,na...->n...", feature, values)
    return np.asarray(values)
