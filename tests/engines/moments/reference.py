"""The likelihood by moments as its formulas read: sums over the data, one matrix for each letter.

It takes N r^2 operations where the engine takes none that grow with N, and serves to test the engine.

With K = Phi Phi', C = K + sigma^2 I, A = Phi'Phi + sigma^2 I and u = A^-1 Phi'y:

    C^-1 = (I - Phi A^-1 Phi') / sigma^2                      a = C^-1 y = (y - Phi u) / sigma^2
    y'C^-1 y = (|y - Phi u|^2 + sigma^2 |u|^2) / sigma^2      log|C| = log|A| + (N - r) log sigma^2

A hyperparameter changes the likelihood by (tr(C^-1 dC) - a'dC a) / 2, with

    dC/d log l_d = 2 h^2 (X^2 K + K X^2 - 2 X K X)            dC/d log sigma_f = 2 K        dC/d log sigma = 2 sigma^2 I

where X holds the positions of the data along axis d, on a box of half-width one, and h is half the box over l_d.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.basis import Basis


def likelihood(basis: Basis, noise: float, inputs: Array, observations: Array) -> tuple[float, Array]:
    """The negative log-likelihood of data under the kernel Phi Phi' of a basis, and its gradient in log theta."""
    phi, y, sigma2 = basis.at(inputs), observations, noise**2
    count, rank = phi.shape
    a_matrix = phi.T @ phi + sigma2 * np.eye(rank)
    inverse = np.linalg.inv(a_matrix)
    u = inverse @ phi.T @ y
    misfit = y - phi @ u
    a = misfit / sigma2
    quadratic = (misfit @ misfit + sigma2 * u @ u) / sigma2
    log_determinant = np.linalg.slogdet(a_matrix)[1] + (count - rank) * np.log(sigma2)

    gradient = []
    for axis, x in zip(basis.axes, basis.box.positions(inputs).T, strict=True):
        x_phi, x2_phi = x[:, None] * phi, x[:, None] ** 2 * phi
        # tr(C^-1 X^2 K) = tr(A^-1 Phi'X^2 Phi), and C^-1 as above in tr(C^-1 X K X)
        first = phi.T @ x_phi
        trace = np.sum(inverse * (phi.T @ x2_phi)) - (np.sum(x_phi**2) - np.sum((inverse @ first) * first)) / sigma2
        data = (x2_phi.T @ a) @ (phi.T @ a) - np.sum((x_phi.T @ a) ** 2)
        gradient.append(2.0 * axis.h**2 * (trace - data))
    explained = np.sum(inverse * (phi.T @ phi))  # tr(C^-1 K)
    gradient.append(explained - np.sum((phi.T @ a) ** 2))
    gradient.append(count - explained - sigma2 * (a @ a))  # sigma^2 tr C^-1 = tr(C^-1 (C - K))
    return 0.5 * float(quadratic + log_determinant), np.array(gradient)
