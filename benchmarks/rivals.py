"""FleetGP and other libraries on the same observations: each function trains, and returns its ways of predicting.

A way of predicting maps queries (T, D) to means and standard deviations of an observation, (T,) each. Observations come
with mean 0 and deviation 1. Two threads and float64, where a library can.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


@dataclass(frozen=True)
class Trained:
    """ways: by name, or by "" where there is one.  said: how the training ended."""

    ways: dict[str, Predict]
    said: str = ""


def fleetgp(x: np.ndarray, y: np.ndarray, kernel: str, engine: str = "vecchia", n_neighbours: int = 30) -> Trained:
    """One agent with all data."""
    import fleetgp as fg

    fleet = fg.Fleet([(x, y)], kernel=kernel, normalize=False)
    fit = fleet.train("full-gp", engine=engine, n_neighbours=n_neighbours)
    if engine != "vecchia":
        return Trained({"": _asked(fleet, "full-gp", engine=engine)}, _said(fit))
    # It answers from four times as many observations.
    asked = _asked(fleet, "full-gp", engine=engine, n_neighbours=n_neighbours)
    return Trained({f"answers from {4 * n_neighbours}": asked}, _said(fit))


def fleet(x: np.ndarray, y: np.ndarray, kernel: str, trainer: str = "dec-fact-gp", agents: int = 16) -> Trained:
    """Agents with the data of a cell each, linked to those nearby."""
    import fleetgp as fg

    fleet = fg.Fleet(fg.partition(x, y, agents=agents), "places", kernel=kernel, normalize=False)
    fit = fleet.train(trainer, engine="vecchia")
    ways = {
        "dec-nn-grbcm": _asked(fleet, "dec-nn-grbcm", engine="vecchia"),
        "dec-nn-grbcm, eta auto": _asked(fleet, "dec-nn-grbcm", engine="vecchia", eta="auto"),
        "dec-nearest": _asked(fleet, "dec-nearest", n_nearest=60),
    }
    return Trained(ways, _said(fit))


def _asked(fleet: object, method: str, **options: object) -> Predict:
    def predict(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = fleet.predict(queries, method, observed=True, agent=0, **options)
        return out.mean, np.sqrt(out.variance)

    return predict


def _said(fit: object) -> str:
    floor = ", sigma_eps at its floor" if fit.at_floor.any() else ""
    return f"{'+'.join(sorted(set(fit.engine)))}, {fit.status}{floor}"


def gpboost(x: np.ndarray, y: np.ndarray, kernel: str, neighbours: int = 20, each: bool = False) -> Trained:
    """Vecchia's approximation.  each: a length-scale for each input instead of one for all."""
    import gpboost as g

    cov = {"cov_function": "gaussian_ard" if each else "gaussian"}
    if kernel != "se":
        cov = {"cov_function": "matern_ard" if each else "matern", "cov_fct_shape": SMOOTHNESS[kernel]}
    model = g.GPModel(
        gp_coords=x, gp_approx="vecchia", num_neighbors=neighbours, num_parallel_threads=THREADS, seed=0, **cov
    )
    model.fit(y=y)

    def from_nearest(most: int) -> Predict:
        def predict(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            model.set_prediction_data(num_neighbors_pred=most)
            out = model.predict(gp_coords_pred=queries, predict_var=True, predict_response=True)
            return out["mu"], np.sqrt(out["var"])

        return predict

    return Trained({f"answers from {most}": from_nearest(most) for most in (2 * neighbours, 120)})


def scikit_learn(x: np.ndarray, y: np.ndarray, kernel: str, most: int = 3000) -> Trained:
    """The exact GP of as many observations, the first of a random order."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as k

    shape = k.Matern(np.full(x.shape[1], np.ptp(x, axis=0).max() / 8), (1e-3, 1e3), nu=SMOOTHNESS[kernel])
    covariance = k.ConstantKernel(1.0, (1e-3, 1e3)) * shape + k.WhiteKernel(1e-2, (1e-8, 1e1))
    model = GaussianProcessRegressor(covariance, alpha=0.0).fit(x[:most], y[:most])
    return Trained({"": lambda queries: model.predict(queries, return_std=True)}, f"of {min(most, len(y)):,}")


def svgp(x: np.ndarray, y: np.ndarray, kernel: str, inducing: int = 500, steps: int = 500) -> Trained:
    """GPyTorch, a variational GP: natural gradients for its distribution, Adam for the rest, steps of 1,024 rows."""
    import gpytorch as g
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    inputs, seen = torch.tensor(x), torch.tensor(y)

    class Model(g.models.ApproximateGP):
        def __init__(self) -> None:
            distribution = g.variational.NaturalVariationalDistribution(inducing)
            super().__init__(g.variational.VariationalStrategy(self, inputs[:inducing].clone(), distribution))
            self.mean_module = g.means.ConstantMean()
            self.covar_module = _torch_kernel(kernel, x)

        def forward(self, points: object) -> object:
            return g.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))

    model, likelihood = Model().double(), g.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01
    bound = g.mlls.VariationalELBO(likelihood, model, num_data=len(seen))
    natural = g.optim.NGD(model.variational_parameters(), num_data=len(seen), lr=0.1)
    adam = torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=0.02)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    model.train(), likelihood.train()
    order = torch.cat([torch.randperm(len(seen)) for _ in range(1 + steps * 1024 // len(seen))])
    for step in range(steps):
        rows = order[1024 * step : 1024 * (step + 1)]
        natural.zero_grad(), adam.zero_grad()
        (-bound(model(inputs[rows]), seen[rows])).backward()
        natural.step(), adam.step(), falling.step()
    return Trained({"": _torch_predict(model, likelihood)}, f"{steps * 1024 / len(y):.3g} epochs")


def ski(x: np.ndarray, y: np.ndarray, kernel: str, grid: int = 100, steps: int = 10) -> Trained:
    """GPyTorch, structured kernel interpolation on a grid (a product of kernels, one for each input), Adam."""
    import gpytorch as g
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    inputs, seen = torch.tensor(x), torch.tensor(y)

    class Model(g.models.ExactGP):
        def __init__(self, likelihood: object) -> None:
            super().__init__(inputs, seen, likelihood)
            self.mean_module = g.means.ConstantMean()
            self.covar_module = g.kernels.GridInterpolationKernel(
                _torch_kernel(kernel, x), grid_size=grid, num_dims=x.shape[1]
            )

        def forward(self, points: object) -> object:
            return g.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))

    likelihood = g.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01
    model = Model(likelihood).double()
    marginal = g.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train(), likelihood.train()
    for _ in range(steps):
        adam.zero_grad()
        (-marginal(model(inputs), seen)).backward()
        adam.step()
    return Trained({"": _torch_predict(model, likelihood)}, f"{steps} steps, grid of {grid}")


def _torch_kernel(kernel: str, x: np.ndarray) -> object:
    import gpytorch as g
    import torch

    each = {"ard_num_dims": x.shape[1]}
    base = g.kernels.RBFKernel(**each) if kernel == "se" else g.kernels.MaternKernel(nu=SMOOTHNESS[kernel], **each)
    base.lengthscale = torch.tensor(np.ptp(x, axis=0) / 16)
    return g.kernels.ScaleKernel(base)


def _torch_predict(model: object, likelihood: object) -> Predict:
    def predict(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import gpytorch as g
        import torch

        model.eval(), likelihood.eval()
        means, variances = [], []
        with torch.no_grad(), g.settings.fast_pred_var():
            for part in np.array_split(queries, max(1, len(queries) // 1000)):
                out = likelihood(model(torch.tensor(part)))
                means.append(out.mean.numpy())
                variances.append(out.variance.numpy())
        return np.concatenate(means), np.sqrt(np.concatenate(variances))

    return predict


#: What each of them imports.
MODULES = {"fleetgp": "fleetgp", "fleet": "fleetgp", "gpboost": "gpboost", "svgp": "gpytorch", "ski": "gpytorch",
           "scikit_learn": "sklearn.gaussian_process"}  # fmt: skip
RIVALS = {f.__name__: f for f in (fleetgp, fleet, gpboost, scikit_learn, svgp, ski)}
