"""One likelihood with gradient by other libraries: the same data, the same theta, float64, two threads.

Each function takes inputs, observations and theta (the paper's convention, exp(-d^2 / l^2)) and returns a call that
evaluates once and gives the negative log-likelihood without (N/2) log 2 pi, for comparison; or None where it has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Call = Callable[[], float]


def scikit_learn(inputs: np.ndarray, observations: np.ndarray, theta: np.ndarray) -> Call:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as k

    kernel = k.ConstantKernel(theta[-2] ** 2) * k.RBF(theta[:-2] / math.sqrt(2)) + k.WhiteKernel(theta[-1] ** 2)
    model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    model.X_train_, model.y_train_, model.kernel_ = inputs, observations, kernel
    constant = 0.5 * len(observations) * math.log(2 * math.pi)

    def call() -> float:
        value, _ = model.log_marginal_likelihood(kernel.theta, eval_gradient=True, clone_kernel=False)
        return -float(value) - constant

    return call


def gpytorch(inputs: np.ndarray, observations: np.ndarray, theta: np.ndarray) -> Call:
    import gpytorch as g
    import torch

    torch.set_num_threads(2)
    x, y = torch.tensor(inputs), torch.tensor(observations)

    class Model(g.models.ExactGP):
        def __init__(self, likelihood: object) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = g.means.ZeroMean()
            self.covar_module = g.kernels.ScaleKernel(g.kernels.RBFKernel(ard_num_dims=x.shape[1]))

        def forward(self, points: object) -> object:
            return g.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))

    likelihood = g.likelihoods.GaussianLikelihood()
    model = Model(likelihood).double()
    likelihood.double()
    model.covar_module.base_kernel.lengthscale = torch.tensor(theta[:-2] / math.sqrt(2))
    model.covar_module.outputscale = theta[-2] ** 2
    likelihood.noise = theta[-1] ** 2
    marginal = g.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    constant = 0.5 * math.log(2 * math.pi)

    def call() -> float:
        with (
            g.settings.fast_computations(False, False, False),
            g.settings.max_cholesky_size(1_000_000),
            g.settings.cholesky_max_tries(6),
        ):
            model.zero_grad()
            loss = -marginal(model(x), y)
            loss.backward()
        return (float(loss.detach()) - constant) * len(y)

    return call


def jax(inputs: np.ndarray, observations: np.ndarray, theta: np.ndarray) -> Call:
    import jax as j
    import jax.numpy as jnp

    j.config.update("jax_enable_x64", True)

    def nll(log_theta: object, x: object, y: object) -> object:
        t = jnp.exp(log_theta)
        z = x / t[:-2]
        square = (z**2).sum(axis=1)
        s = jnp.maximum(square[:, None] + square[None, :] - 2 * z @ z.T, 0.0)
        c = t[-2] ** 2 * jnp.exp(-s) + t[-1] ** 2 * jnp.eye(len(y))
        lower = jnp.linalg.cholesky(c)
        half = j.scipy.linalg.solve_triangular(lower, y, lower=True)
        return 0.5 * half @ half + jnp.log(jnp.diag(lower)).sum()

    step = j.jit(j.value_and_grad(nll))
    x, y, log_theta = jnp.asarray(inputs), jnp.asarray(observations), jnp.log(jnp.asarray(theta))

    def call() -> float:
        value, gradient = step(log_theta, x, y)
        gradient.block_until_ready()
        return float(value)

    return call


def libkriging(inputs: np.ndarray, observations: np.ndarray, theta: np.ndarray) -> Call:
    """Its model with known noise: one derivative less, that of the noise."""
    import pylibkriging as lk

    point = np.r_[theta[:-2] / math.sqrt(2), theta[-2] ** 2]
    fixed = {"theta": point[None, :-1], "sigma2": point[-1]}
    noise = np.full(len(observations), theta[-1] ** 2)
    model = lk.Kriging(observations, inputs, "gauss", regmodel="none", optim="none", parameters=fixed, noise=noise)
    constant = 0.5 * len(observations) * math.log(2 * math.pi)

    def call() -> float:
        value, *_ = model.logLikelihoodFun(point, True, False)
        return -float(value) - constant

    return call


PEERS = {"scikit-learn": scikit_learn, "GPyTorch": gpytorch, "JAX": jax, "libKriging": libkriging}
