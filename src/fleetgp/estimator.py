"""FleetGPRegressor: a fleet as an estimator of scikit-learn, to replace its GaussianProcessRegressor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, Self

import numpy as np
import scipy

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.partition import By, Shard, partition, partition_by_label
from fleetgp.data.transforms import Scaling
from fleetgp.engines.expert import MOST_DENSE, Expert
from fleetgp.errors import InputError, NotConvergedWarning, NumericalError, listed, warn
from fleetgp.fleet import Fleet
from fleetgp.fleet.privacy import PREDICTOR
from fleetgp.fleet.shards import check_theta_of
from fleetgp.kernels.stationary import Kernel
from fleetgp.options import ModelOptions, TrainerOptions
from fleetgp.training.constraints import Ends, MedianAndFactor
from fleetgp.validation import check_finite, check_whole

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import kernels as theirs
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise InputError('FleetGPRegressor needs scikit-learn 1.6 or newer: pip install "fleetgp[sklearn]"') from error

#: Up to this many rows one agent has them all: with engine="auto" it is exact.
ONE_AGENT = MOST_DENSE
#: Rows per agent where the data are split automatically.
ROWS = 1000
#: `status_` where all observations are the same, and sigma_f and sigma_eps then, in units of y.
UNTRAINED = "untrained"
UNTRAINED_SIGNAL, UNTRAINED_NOISE = 1.0, 0.1
#: Keywords of scikit-learn's Gaussian processes, and what to give instead.
EQUIVALENTS = {
    "alpha": 'the noise is learned; for a known one give fixed={"noise": alpha**0.5}, and observed=False for std of f',
    "normalize_y": "give normalize, which is True by default",
    "optimizer": "give trainer, or fixed values for all hyperparameters",
    "n_restarts_optimizer": "training starts at three points",
    "copy_X_train": "data are always copied",
    "n_targets": "there is one target; for several see fleetgp.Outputs",
    "n_jobs": "all cores are used; OMP_NUM_THREADS and OPENBLAS_NUM_THREADS limit them",
}


P = ParamSpec("P")


def refusing_keywords(init: Callable[P, None]) -> Callable[P, None]:
    """Refuse keywords of scikit-learn, naming the equivalent; `wraps` keeps the signature, which it inspects."""

    @wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        for name in given:
            if name in EQUIVALENTS:
                raise InputError(f"FleetGPRegressor has no parameter {name!r}: {EQUIVALENTS[name]}")
        init(*args, **given)

    return checked


class FleetGPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Gaussian-process regression by a fleet, for scikit-learn.

    n_agents: over how many agents `fit` splits the rows. None for one up to 1,500 rows, which is the exact GP of all
        data; beyond, one per 1,000 rows.
    partition: how rows are split, "kmeans", "stripes", "grid" or "random": see `fleetgp.partition`.
    kernel: see `Fleet`; None is "matern32". With data frames kernels may name columns: "matern32(lon, lat)". Or one
        of scikit-learn: RBF, Matern (nu 0.5, 1.5 or 2.5) or RationalQuadratic, times a ConstantKernel, plus a
        WhiteKernel; with one length-scale for all inputs or one for each. Hyperparameters that are "fixed" there, and
        the variance of 1 without a ConstantKernel, are fixed here, in the units of the data. Other bounds and starting
        values are ignored: see `bounds`. The noise is learned with and without a WhiteKernel.
    graph, mean, normalize: see `Fleet`.
    trainer: the method of `Fleet.train`. With one agent the default maximizes the exact likelihood.
    predictor: the method of `Fleet.predict`. With one agent all but dec-nearest are the exact posterior.
    noise_floor, bounds, priors, fixed: see `Fleet.train`.
    engine: "auto" is exact for agents of up to 1,500 rows; see `Fleet.train`.
    observed: whether return_std, return_cov and sample_y are of observations (the default), as with a WhiteKernel in
        GaussianProcessRegressor; or, with False, of f, as with its alpha.
    random_state: draws the partition and samples of the data; a whole number, a RandomState, or None.

    Attributes after `fit`:
    theta_, theta_names_: (P,) the hyperparameters in the units of the data, and their names.  noise_: sigma_eps.
    status_: how the training ended: "converged", "round limit" or, if all observations are the same, "untrained".
    agents_: (M,) the labels of the agents, or their numbers.  n_agents_: M.
    fleet_: the `Fleet`; its `last_fit` has everything about the training.
    n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    Unlike GaussianProcessRegressor it learns the noise, standardizes y (normalize=True), has a length-scale for each
    input, takes one target, and cannot predict before `fit`. Keywords such as alpha and normalize_y are refused with
    the name of the equivalent.

    >>> from fleetgp import synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> model = FleetGPRegressor().fit(field.inputs[1:], field.observations[1:])
    >>> mean, std = model.partial_fit(field.inputs[:1], field.observations[:1]).predict([[0.4, 1.1]], return_std=True)
    >>> model.score(field.inputs, field.observations) > 0.9, std.shape, model.sample_y([[0.4, 1.1]], 3).shape
    (True, (1,), (1, 3))
    """

    @refusing_keywords
    def __init__(
        self,
        kernel: str | Kernel | Sequence[str | Kernel] | None = None,
        *,
        n_agents: int | None = None,
        partition: By = "kmeans",
        graph: object = "places",
        mean: MeanName = ModelOptions.mean,
        normalize: bool = ModelOptions.normalize,
        trainer: str = "dec-fact-gp",
        predictor: str = PREDICTOR,
        engine: str = TrainerOptions.engine,
        noise_floor: float = TrainerOptions.noise_floor,
        bounds: Mapping[str, Ends] | None = None,
        priors: Mapping[str, MedianAndFactor] | None = None,
        fixed: Mapping[str, float] | None = None,
        observed: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.n_agents = n_agents
        self.partition = partition
        self.graph = graph
        self.mean = mean
        self.normalize = normalize
        self.trainer = trainer
        self.predictor = predictor
        self.engine = engine
        self.noise_floor = noise_floor
        self.bounds = bounds
        self.priors = priors
        self.fixed = fixed
        self.observed = observed
        self.random_state = random_state

    def fit(self, X: Any, y: Any, agents: Any = None) -> Self:
        """Split the rows (N, D) over agents, and train.

        agents: (N,) the label of each row's agent; then n_agents and partition are not used.
        """
        inputs, observations = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        seed = self._seed()
        shards, labels = self._split(inputs, observations, agents, seed)
        names = getattr(self, "feature_names_in_", None)
        kernel, self._fixed = converted_kernel(self.kernel, range(1, inputs.shape[1] + 1) if names is None else names)
        fleet = Fleet(
            shards,
            self.graph,
            normalize=self.normalize,
            mean=self.mean,
            kernel=kernel,
            seed=seed,
            inputs=None if names is None else names.tolist(),
        )
        self._learn(fleet)
        self.agents_, self.n_agents_, self._labelled = labels, len(shards), agents is not None
        return self

    def partial_fit(self, X: Any, y: Any, agents: Any = None) -> Self:
        """Add rows to a fitted model; the first call is `fit`.

        Hyperparameters, mean function and scale stay: predictions are as if these rows had been there from the start.
        Only an "untrained" model is trained now. Call `fit` with all rows to train again.

        agents: the labels of the new rows, of agents that `fit` knows; needed if the model was fitted with labels.
            Without labels a row goes to the agent with the nearest observation, in units of the inputs' standard
            deviations.
        """
        if not hasattr(self, "fleet_"):
            return self.fit(X, y, agents)
        inputs, observations = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=False)
        check_finite(inputs, "X")  # all rows, before any is added
        check_finite(observations, "y")
        owners = self._owners(inputs, agents)
        for agent in np.unique(owners).tolist():
            self.fleet_.observe(agent, inputs[owners == agent], observations[owners == agent])
        if self.status_ == UNTRAINED:
            self._learn(self.fleet_)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, agent: Any = None) -> Any:
        """Predict the mean (T,), with return_std also the standard deviation (T,), with return_cov the covariance.

        They are of observations, whose variance has noise_**2 more than that of f; with observed=False of f.
        agent: who asks, by its label or, unless labels are numbers, its number in `agents_`; without it all agents do.
        A covariance is by `Fleet.joint`, which limits the number of points: 500 where several agents answer as a
        committee. Its diagonal is then from the joint answer, and differs from return_std.
        """
        check_is_fitted(self, "fleet_")
        if return_std and return_cov:
            raise InputError(
                "expected one of return_std and return_cov, got both: the diagonal of a covariance is std**2"
            )
        queries = validate_data(self, X, dtype=np.float64, reset=False)
        asker = None if agent is None else self._number(agent)
        if return_cov:
            joint = self.fleet_.joint(queries, self.predictor, engine=self.engine, agent=asker)
            noise = self.noise_**2 if self.observed else 0.0
            return joint.mean.copy(), joint.covariance + noise * np.eye(len(queries))
        answer = self.fleet_.predict(queries, self.predictor, engine=self.engine, agent=asker)
        if answer.status != "converged":
            warn(f"{self.predictor} ended by {answer.status}", ConvergenceWarning)
        mean = answer.mean.copy()
        return (mean, (answer.std_observed if self.observed else answer.std).copy()) if return_std else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw (T, n_samples) from the joint posterior of observations, with observed=False of f; see `predict`."""
        check_whole("n_samples", n_samples, least=1)
        mean, covariance = self.predict(X, return_cov=True)
        values, vectors = np.linalg.eigh(covariance)
        draws = check_random_state(random_state).standard_normal((len(mean), n_samples))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(mean[:, None] + root @ draws)

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """Return log p(y | X, theta) of the rows, in the units of the data.

        theta: (P,) hyperparameters in the order of `theta_names_`, not their logarithms; by default `theta_`.
        eval_gradient: also return the gradient (P,) by log theta.
        Mean function and offset are those of the training. With several agents it is the sum over the agents, each with
        its own rows: the likelihood that all trainers but full-gp maximize. scikit-learn's, with normalize_y, is of the
        scaled y: it is larger by len(y) log(std of y).

        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 0.8, 0.9, 0.1]
        >>> model = FleetGPRegressor().fit(X, y)
        >>> model.log_marginal_likelihood() >= model.log_marginal_likelihood(2.0 * model.theta_)
        True
        """
        check_is_fitted(self, "fleet_")
        fleet = self.fleet_
        at = np.log(check_theta_of(fleet.data, self.theta_ if theta is None else theta, fleet.names))
        observed = np.concatenate([own.values for own in fleet.data])
        centred = (
            fleet.last_fit.scaling if fleet.last_fit is not None else Scaling(float(observed.mean()) * self.normalize)
        )
        total, slope = -0.5 * len(observed) * np.log(2.0 * np.pi), np.zeros(len(at))
        for agent, own in enumerate(fleet.data):
            apart = own.with_values(own.values - centred.mean(own.inputs))
            own_likelihood = Expert(apart, fleet.kernel, agent, self.engine).evaluate(at)
            total, slope = total - own_likelihood.nll, slope - own_likelihood.gradient
        return (float(total), slope) if eval_gradient else float(total)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer) and not isinstance(self.random_state, bool):
            check_whole("random_state", self.random_state, least=0)
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _split(self, X: Array, y: Array, agents: Any, seed: int) -> tuple[list[Shard], Any]:
        if agents is None:
            count = self.n_agents
            if count is None:
                count = 1 if len(X) <= ONE_AGENT else -(-len(X) // ROWS)
            check_whole("n_agents", count, least=1)
            if count > len(X):
                raise InputError(f"n_agents: expected at most one agent for each of the {len(X)} rows, got {count}")
            return partition(X, y, agents=count, by=self.partition, seed=seed), np.arange(count)
        labels = np.asarray(agents)
        if labels.shape != y.shape:
            raise InputError(f"agents: expected one label for each of the {len(y)} rows, got shape {labels.shape}")
        names, shards = partition_by_label(X, y, labels)
        given = {str(label).strip(): label for label in labels.tolist()}
        return shards, np.array([given[name] for name in names])

    def _learn(self, fleet: Fleet) -> None:
        """Train the fleet, or warn that all observations are the same."""
        observed = np.concatenate([own.values for own in fleet.data])
        if np.ptp(observed) == 0.0 and (self.normalize or self.mean != "zero"):
            warn(
                f"y has one value only, {observed[0]:g}: there is nothing to train on. The model has this mean, and "
                f"hyperparameters that were not learned (sigma_f = {UNTRAINED_SIGNAL:g})"
            )
            status = UNTRAINED
            fleet.kernel = fleet.first_kernel.name
            fleet.theta = np.append(_guess(fleet, UNTRAINED_SIGNAL), UNTRAINED_NOISE)
        else:
            fixed = {**self._fixed, **(self.fixed or {})} if isinstance(self.fixed, Mapping | None) else self.fixed
            options: dict[str, Any] = {"bounds": self.bounds, "priors": self.priors, "fixed": fixed}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)  # ConvergenceWarning below
                fit = fleet.train(self.trainer, engine=self.engine, noise_floor=self.noise_floor, **options)
            if fit.status == "diverged":
                raise NumericalError(
                    f"{self.trainer} diverged on these data: give bounds, priors, another kernel or another trainer"
                )
            if fit.status != "converged":
                warn(
                    f"{self.trainer} ended by {fit.status} after {fit.rounds} rounds: the hyperparameters may be off. "
                    "Give bounds or priors, another kernel or another trainer",
                    ConvergenceWarning,
                )
            status = fit.status
        assert fleet.theta is not None
        self.fleet_, self.status_ = fleet, status
        self.theta_, self.theta_names_ = fleet.theta.copy(), fleet.names
        self.noise_ = float(self.theta_[-1])

    def _owners(self, X: Array, agents: Any) -> IntArray:
        if agents is not None:
            labels = np.asarray(agents)
            if labels.shape != (len(X),):
                raise InputError(f"agents: expected one label for each of the {len(X)} rows, got shape {labels.shape}")
            return np.array([self._number(label) for label in labels.tolist()])
        if self._labelled:
            raise InputError("expected agents, a label for each row, since the model was fitted with labels: got none")
        if self.n_agents_ == 1:
            return np.zeros(len(X), dtype=np.int64)
        own = [each.inputs for each in self.fleet_.data]
        known, whose = np.concatenate(own), np.repeat(np.arange(len(own)), [len(x) for x in own])
        deviation = known.std(axis=0)
        unit = np.where(deviation > 0.0, deviation, 1.0)
        _, nearest = scipy.spatial.cKDTree(known / unit).query(X / unit)
        return np.asarray(whose[nearest])

    def _number(self, agent: Any) -> int:
        labels = self.agents_.tolist()
        wanted = agent.strip() if isinstance(agent, str) else agent
        stripped = [label.strip() if isinstance(label, str) else label for label in labels]
        if wanted in stripped:
            return int(stripped.index(wanted))
        whole = isinstance(agent, int | np.integer) and not isinstance(agent, bool)
        if whole and isinstance(labels[0], str) and 0 <= agent < len(labels):
            return int(agent)
        raise InputError(f"agent: expected one of {listed(map(str, labels))}, got {agent!r}: `fit` knows all agents")


def converted_kernel(kernel: Any, inputs: Sequence[object]) -> tuple[Any, dict[str, float]]:
    """Convert a kernel of scikit-learn, and return the fixed values; return any other kernel as it is.

    inputs: their names, or numbers from 1.

    >>> converted_kernel(theirs.ConstantKernel(2.0) * theirs.RBF([1.0, 2.0]) + theirs.WhiteKernel(), ["a", "b"])
    ('se', {})
    >>> converted_kernel(theirs.Matern(0.5, length_scale_bounds="fixed", nu=2.5), [1, 2])
    ('iso-matern52', {'signal': 1.0, 'l': 0.5})
    """
    if not isinstance(kernel, theirs.Kernel):
        return kernel, {}
    fixed: dict[str, float] = {}
    dimension = len(inputs)
    terms = [kernel.k1, kernel.k2] if isinstance(kernel, theirs.Sum) else [kernel]
    for noise in [term for term in terms if isinstance(term, theirs.WhiteKernel)]:
        fixed |= {"noise": noise.noise_level**0.5} if noise.hyperparameter_noise_level.fixed else {}
    smooth = [term for term in terms if not isinstance(term, theirs.WhiteKernel)]
    factors = [smooth[0].k1, smooth[0].k2] if smooth and isinstance(smooth[0], theirs.Product) else smooth[:1]
    constants = [factor for factor in factors if isinstance(factor, theirs.ConstantKernel)]
    shapes = [factor for factor in factors if not isinstance(factor, theirs.ConstantKernel)]
    name = _name_of(shapes[0]) if len(smooth) == len(shapes) == 1 else None
    if name is None:
        raise InputError(
            f"kernel: {kernel} has no equivalent. Expected RBF, Matern (nu 0.5, 1.5 or 2.5) or RationalQuadratic, "
            'times a ConstantKernel, plus a WhiteKernel; or an expression as text, "matern32(1) + linear(2)" say'
        )
    for constant in constants or [theirs.ConstantKernel(1.0, "fixed")]:
        fixed |= {"signal": constant.constant_value**0.5} if constant.hyperparameter_constant_value.fixed else {}
    shape, longer = shapes[0], 2.0**0.5 if name in ("se", "rq") else 1.0
    lengths = longer * np.atleast_1d(shape.length_scale)
    if len(lengths) not in (1, dimension):
        raise InputError(f"kernel: expected 1 or {dimension} length-scales, one for each input, got {len(lengths)}")
    alike = not np.ndim(shape.length_scale) and dimension > 1
    if shape.hyperparameter_length_scale.fixed:
        names = ["l"] if alike else [f"l_{name}" for name in inputs]
        fixed |= dict(zip(names, lengths.tolist(), strict=True))
    if name == "rq" and shape.hyperparameter_alpha.fixed:
        fixed["alpha"] = float(shape.alpha)
    return f"iso-{name}" if alike else name, fixed


def _name_of(shape: Any) -> str | None:
    """Return our name of a kernel of scikit-learn, where a Matern is an RBF."""
    if isinstance(shape, theirs.Matern):
        return {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}.get(shape.nu)
    return {theirs.RBF: "se", theirs.RationalQuadratic: "rq"}.get(type(shape))


def _guess(fleet: Fleet, size: float) -> Array:
    """Return theta without the noise: length-scales of half the extent of the data, and this sigma_f."""
    reach = np.ptp(np.concatenate([own.inputs for own in fleet.data]), axis=0)
    return fleet.first_kernel.start(np.where(reach > 0.0, reach, 1.0), 0.5, size)
