"""Several outputs trained together: independent given theta, with length-scales that they share.

Given theta the likelihood of all is the sum of theirs. Everything before the first round is agreed for each output
alone: scaling, samples, mean function, floor. Then one training, by any method, minimizes the sum of all likelihoods,
and its result is reported as an ordinary one of each output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import Scaling, agree_on_coordinates
from fleetgp.consensus.reductions import of_fleet
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.transforms import AS_GIVEN
from fleetgp.engines.base import Evaluation, translate_theta_errors
from fleetgp.engines.expert import Expert, evaluate
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training.constraints import Bounds, ParameterConstraints, Prior
from fleetgp.training.fit import Fit
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective, Values
from fleetgp.training.options import TrainingOptions
from fleetgp.training.outer_loops import NOWHERE, Settled, outliers_of, settle
from fleetgp.training.problem import TrainingProblem, first_sizes, prepare
from fleetgp.training.run import Report, with_mean
from fleetgp.training.train import LocalTraining, report_in_user_units, to_user_units


@dataclass(frozen=True)
class Sharing:
    """theta of all: what the outputs share, as many as `shared`, then what each has of its own, one after the other.

    Its own are those in units of the observations: sigma_f of every term, and the noise. Kernels have them last.
    """

    outputs: int
    shared: int
    own: int

    @classmethod
    def of(cls, kernel: Kernel, dimension: int, outputs: int) -> Sharing:
        units = kernel.units(dimension)
        own = int((units == OBSERVED).sum())
        assert (units[len(units) - own :] == OBSERVED).all(), "those of each output come last"
        return cls(outputs, len(units) - own, own)

    @property
    def width(self) -> int:
        return self.shared + self.outputs * self.own

    def places(self, output: int) -> IntArray:
        """Where theta of one output lies, (P,).

        >>> Sharing(2, 1, 2).places(1).tolist()
        [0, 3, 4]
        """
        begin = self.shared + output * self.own
        return np.array([*range(self.shared), *range(begin, begin + self.own)])

    def joined(self, parts: Sequence[Array]) -> Array:
        """One vector from one of each output, (.., P) -> (.., W): what is shared as the first has it.

        >>> Sharing(2, 1, 2).joined([np.array([1.0, 2.0, 3.0]), np.array([9.0, 4.0, 5.0])]).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0]
        """
        return np.concatenate([parts[0][..., : self.shared], *(part[..., self.shared :] for part in parts)], axis=-1)

    def names(self, names: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
        """Of theta of all. names: of one output's.

        >>> Sharing(2, 1, 2).names(("l_lon", "sigma_f", "sigma_eps"), ("t", "s"))
        ('l_lon', 't.sigma_f', 't.sigma_eps', 's.sigma_f', 's.sigma_eps')
        """
        return (*names[: self.shared], *(f"{target}.{name}" for target in targets for name in names[self.shared :]))

    def known(self, parts: Sequence[ParameterConstraints]) -> ParameterConstraints:
        """What is known of all; its names are of no use."""
        rows = ([getattr(part, row) for part in parts] for row in ("lower", "upper", "median", "factor"))
        joined = [tuple(self.joined([np.array(one) for one in row]).tolist()) for row in rows]
        return ParameterConstraints(tuple(map(str, range(self.width))), *joined)


class SharedObjective(Objective):
    """For every hosted agent the sum of its likelihoods of all outputs, each with its part of log theta.

    outputs: those of each; their own priors do not count.
    """

    def __init__(self, outputs: Sequence[Objective], sharing: Sharing, prior: Prior, share: float) -> None:
        super().__init__(outputs[0].experts, prior, share)
        self.outputs, self.sharing = tuple(outputs), sharing

    def with_outputs(self, outputs: Sequence[Objective]) -> SharedObjective:
        return SharedObjective(outputs, self.sharing, self.prior, self.share)

    def changed(self, change: Callable[[Expert], Expert]) -> SharedObjective:
        return self.with_outputs([one.changed(change) for one in self.outputs])

    def reweighed(self, log_thetas: Array) -> SharedObjective:
        pairs = enumerate(self.outputs)
        return self.with_outputs([one.reweighed(log_thetas[:, self.sharing.places(k)]) for k, one in pairs])

    def __call__(self, log_thetas: Array, agents: IntArray | None = None) -> Values:
        """All outputs of all agents side by side."""
        agents = np.arange(len(self.experts)) if agents is None else agents
        experts = [one.experts[i] for one in self.outputs for i in agents]
        every = range(len(self.outputs))
        answers = evaluate(experts, np.concatenate([log_thetas[:, self.sharing.places(k)] for k in every]))
        return self.values(log_thetas, [self._sum(answers[i :: len(agents)]) for i in range(len(agents))])

    def _sum(self, evaluations: Sequence[Evaluation | NumericalError]) -> Evaluation | NumericalError:
        """One agent's. The largest jitter; an engine's name is the first output's."""
        gradient, nll, jitter, engine = np.zeros(self.sharing.width), 0.0, 0.0, ""
        for k, one in enumerate(evaluations):
            if isinstance(one, NumericalError):
                return one
            nll += one.nll
            gradient[self.sharing.places(k)] += one.gradient
            jitter, engine = max(jitter, one.jitter), engine or one.engine
        return Evaluation(nll, gradient, jitter, engine)

    def settle(self, log_thetas: Array) -> None:
        for k, one in enumerate(self.outputs):
            one.settle(log_thetas[:, self.sharing.places(k)])

    @property
    def silent(self) -> BoolArray:
        """(A, W) what says nothing about an agent's data of any output."""
        silent = np.ones((len(self.experts), self.sharing.width), dtype=bool)
        for k, one in enumerate(self.outputs):
            silent[:, self.sharing.places(k)] &= one.silent
        return silent

    @property
    def sizes(self) -> IntArray:
        """(A,) of all outputs."""
        return np.asarray(np.sum([one.sizes for one in self.outputs], axis=0))

    def error_estimates(self, log_thetas: Array, values: Values) -> Array:
        """(A,) summed over the outputs, which are evaluated for it."""
        likelihoods = [self.likelihoods(k, log_thetas) for k in range(len(self.outputs))]
        pairs = zip(self.outputs, likelihoods, strict=True)
        return np.asarray(np.sum([one.error_estimates(*each) for one, each in pairs], axis=0))

    def likelihoods(self, k: int, log_thetas: Array) -> tuple[Array, Values]:
        """Of one output alone, without priors: its log theta, (A, P), and the likelihoods there."""
        own = log_thetas[:, self.sharing.places(k)]
        return own, Objective(self.outputs[k].experts)(own)


def train_together(
    method: TrainingMethod,
    outputs: Sequence[Dataset],
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    report: Report | None = None,
) -> tuple[Fit, ...]:
    """One result for each output. outputs: of each the data of the hosted agents, which may be of different places.

    options: with starts and what is known of theta of all outputs, as `Sharing` has it.
    Each result has its own likelihood, engines and so on. Of all outputs together are the ledger, the jitter and the
    likelihoods of the starts.
    """
    refuse_moments(method)
    dimension = outputs[0].dimension
    sharing = Sharing.of(kernel, dimension, len(outputs))
    called = kernel.names(dimension)[sharing.shared :]
    coordinates = AS_GIVEN
    if options.coordinates.name != "as-given":
        # Of the rows of all outputs: their length-scales are the same in the same coordinates only.
        every = InMemory(Observations.joined(own) for own in zip(*outputs, strict=True))
        with network.phase("coordinates"):
            reduction = of_fleet(network, central=not method.decentralized)
            coordinates = agree_on_coordinates(reduction, every, options.coordinates)
    shift = coordinates.shift(kernel.units(dimension))
    inner_report = report and report_in_user_units(sharing.joined([shift] * len(outputs)), report)
    parts = []
    with translate_theta_errors(units=np.exp(shift)):
        for k, shards in enumerate(outputs):
            own = _of_output(options, sharing, k, called, shift)
            parts.append(prepare(method, shards.moved(coordinates), network, kernel, own))
        training = LocalTraining(JointProblem.of(parts, sharing), options, inner_report)
        training.run()
        settled = settle(training, options.mean, robust=kernel.noise_model.robust)
        whole = training.ended(None)
        fits = [_fit_of(training, whole, k, settled) for k in range(len(outputs))]
        if kernel.noise_model.robust:
            pairs = zip(fits, (shards.moved(coordinates) for shards in outputs), strict=True)
            fits = [replace(fit, outliers=outliers_of(own, network.hosted, kernel, fit, options)) for fit, own in pairs]
    if options.coordinates.name != "as-given":
        fits = [to_user_units(coordinates, shift, fit) for fit in fits]
    return tuple(fits)


def refuse_moments(method: TrainingMethod) -> None:
    """One clear error for the method whose likelihood is that of one output's moments."""
    if method.meet == "moments":
        raise InputError(
            f"{method.name} trains one output at a time: expected another method for several outputs, dec-fact-gp say, "
            "or a fleet for each output, with length-scales of its own"
        )


def _of_output(options: TrainingOptions, sharing: Sharing, k: int, own: Sequence[str], shift: Array) -> TrainingOptions:
    """Those of one output, in the coordinates of the model. own: what its own hyperparameters are called."""
    places, known = sharing.places(k), options.known
    starts = None if options.starts is None else options.starts[:, places] - shift
    if known is not None:
        known = known.part(places.tolist(), (*known.names[: sharing.shared], *own)).rescaled(np.exp(-shift))
    return replace(options, starts=starts, known=known)


@dataclass(frozen=True)
class JointProblem(TrainingProblem):
    """outputs: the problem of each."""

    outputs: tuple[TrainingProblem, ...] = ()

    @classmethod
    def of(cls, outputs: Sequence[TrainingProblem], sharing: Sharing) -> JointProblem:
        first = outputs[0]
        most = max(len(one.starts) for one in outputs)  # bounds may have made one of several
        starts = [np.broadcast_to(one.starts, (most, one.starts.shape[1])) for one in outputs]
        priors = [one.objective.prior for one in outputs]
        prior = Prior(sharing.joined([p.centre for p in priors]), sharing.joined([p.precision for p in priors]))
        return cls(
            method=first.method,
            kernel=first.kernel,
            network=first.network,
            reduction=first.reduction,
            scaling=Scaling(),
            known=sharing.known([one.known for one in outputs]),
            bounds=_joined_bounds(sharing, [one.bounds for one in outputs]),
            floor=0.0,
            objective=SharedObjective([one.objective for one in outputs], sharing, prior, first.objective.share),
            starts=sharing.joined(starts),
            shift=sharing.joined([one.shift for one in outputs]),
            levels=max(one.levels for one in outputs),
            deadline=first.deadline,
            limits=_joined_bounds(sharing, [one.limits for one in outputs]),
            outputs=tuple(outputs),
        )

    @property
    def shared(self) -> SharedObjective:
        assert isinstance(self.objective, SharedObjective)
        return self.objective

    def parts(self, x: Array) -> list[tuple[TrainingProblem, Array]]:
        pairs = enumerate(zip(self.outputs, self.shared.outputs, strict=True))
        return [(replace(one, objective=own), x[:, self.shared.sharing.places(k)]) for k, (one, own) in pairs]

    def corrected(self, step: Sequence[float]) -> JointProblem:
        steps, parts = np.split(np.array(step), len(self.outputs)), self.parts(self.starts)
        outputs = [part.corrected(one.tolist()) for (part, _), one in zip(parts, steps, strict=True)]
        objective = self.shared.with_outputs([one.objective for one in outputs])
        return replace(self, objective=objective, outputs=tuple(outputs))


def _joined_bounds(sharing: Sharing, parts: Sequence[Bounds]) -> Bounds:
    return Bounds(sharing.joined([one.lower for one in parts]), sharing.joined([one.upper for one in parts]))


def _fit_of(training: LocalTraining, whole: Fit, k: int, settled: Settled | None) -> Fit:
    """What the training of all says of one output. whole: the result of all."""
    problem = training.problem
    assert isinstance(problem, JointProblem)
    own, shared = problem.outputs[k], problem.shared
    hosted, places = len(problem.network.hosted), shared.sharing.places(k)
    mean = None
    if settled is not None:
        last = settled.last
        errors = last.errors if last is NOWHERE else np.split(last.errors, len(problem.outputs))[k]
        mean = settled.of(own.scaling, errors)
        if problem.method.meet == "pool":
            with problem.network.phase("pool"):
                problem.network.scatter(mean.coefficients, "statistics")
    x, values = shared.likelihoods(k, training.chosen.outcome.state.local.x)
    broken = not np.isfinite(whole.nlls).all()
    nlls = np.full_like(whole.nlls, np.inf) if broken else values.nll
    estimates = np.zeros(len(x)) if broken else shared.outputs[k].error_estimates(x, values)
    first = first_sizes(own.objective.sizes)
    return replace(
        whole,
        thetas=whole.thetas[:, places],
        history=whole.history[:, :, places],
        status=with_mean(whole.status, mean),
        nll=float(nlls.sum()),
        nlls=nlls,
        rho=whole.rho[places] if len(whole.rho) else whole.rho,
        starts=tuple(replace(start, theta0=start.theta0[places]) for start in whole.starts),
        scaling=own.scaling,
        mean=mean,
        engine=tuple(np.broadcast_to(values.engine, hosted).tolist()),
        noise_floor=own.floor * own.scaling.scale,
        known=own.known,
        used=np.broadcast_to(shared.outputs[k].sizes, hosted),
        sample=np.broadcast_to(first, hosted) if len(whole.sample) else whole.sample,
        approximation=np.broadcast_to(estimates, hosted),
        offset=own.offset,
        flat_numbers=_own_numbers(whole.flat_numbers, places),
        stopped_numbers=_own_numbers(whole.stopped_numbers, places),
    )


def _own_numbers(numbers: tuple[int, ...], places: IntArray) -> tuple[int, ...]:
    """Of hyperparameters of all outputs, those of one output, by their places in its own."""
    return tuple(k for k, place in enumerate(places.tolist()) if place in numbers)
