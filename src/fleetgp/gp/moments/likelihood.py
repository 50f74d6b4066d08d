"""Value and gradient of the likelihood from a solution; the formulas are those of `reference.py`."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.evaluation import Evaluation
from fleetgp.gp.moments.certificate import certificate
from fleetgp.gp.moments.solution import Solution
from fleetgp.linalg import lapack
from fleetgp.linalg.threads import scratch


def evaluation(s: Solution, expansion: float) -> Evaluation:
    """The negative log-likelihood, its gradient in log theta, and the certificate as `error`.

    expansion: what the polynomials on the grid may miss of the kernel, as a part of sigma_f^2.
    """
    u, count, rank, noise2 = s.coefficients, s.grid.moments.count, s.grid.basis.rank, s.noise**2
    log_determinant = 2.0 * float(np.log(np.diagonal(s.lower)).sum()) + (count - rank) * np.log(noise2)
    nll = 0.5 * (s.misfit / noise2 + float(u @ u) + log_determinant)

    (work,) = scratch((rank, rank))
    inverse_lower = work.T
    np.copyto(inverse_lower, s.lower)
    lapack.invert_triangle_in_place(inverse_lower)
    spread = _spread(s, inverse_lower)
    lapack.square_triangle_in_place(inverse_lower)
    inverse = np.tril(inverse_lower)
    inverse += np.tril(inverse, -1).T
    trace = float(np.trace(inverse))

    scales = 2.0 * np.array([axis.h**2 for axis in s.grid.basis.axes]) * (spread - _weighed(s, inverse))
    signal = rank - noise2 * trace - float(u @ u)
    noise = count - rank + noise2 * trace - s.misfit / noise2
    error = certificate(s, expansion, inverse, nll)
    return Evaluation(nll, np.array([*scales, signal, noise]), 0.0, "moments", error)


def _spread(s: Solution, inverse_lower: Array) -> Array:
    """(D,) tr(Phi'X Phi A^-1 Phi'X Phi) / sigma^2 = |L^-1 Phi'X Phi|^2 / sigma^2."""
    found = []
    for d in range(len(s.grid.positions)):
        first = s.grid.products(s.grid.along(d, 1, s.grid.moments.weights)).T
        lapack.multiply_triangle_in_place(inverse_lower, first)
        found.append(np.einsum("ij,ij->", first, first) / s.noise**2)
    return np.array(found)


def _weighed(s: Solution, inverse: Array) -> Array:
    """(D,) tr(X^2 Phi (I / sigma^2 - A^-1) Phi') + a'X^2 Phi u - |Phi'X a|^2, with a = C^-1 y."""
    grid, kept = s.grid, s.grid.basis.flat
    rest = -inverse
    rest.flat[:: len(rest) + 1] += 1.0 / s.noise**2
    certain = grid.moments.weights * grid.quadratic(rest)
    found = []
    for d in range(len(grid.positions)):
        first = s.correlations(grid.along(d, 1, s.residuals))[kept]
        second = s.correlations(grid.along(d, 2, s.residuals))[kept] @ s.coefficients
        found.append(grid.along(d, 2, certain).sum() + second - first @ first)
    return np.array(found)
