"""Experts: the GP of one agent, robust to outliers if asked, and the GP of a whole fleet by its moments.

An expert has several engines: at each theta the cheapest one that is certified, or the one for any size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.base import LARGEST_LOG, Engine, Evaluation, Posterior, ThetaError, Trend, WeightedPosterior, owner
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.moments.engine import MomentsEngine, SumsEngine
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.vecchia.engine import NEIGHBOURS, VecchiaEngine
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import share
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.registry import Registry

#: Makes an engine from an agent's data, a kernel, and the agent's number for messages; whether it is one for them.
Make = Callable[[Observations, Kernel, int | None], Engine]
Applies = Callable[[Observations, Kernel], bool]
#: What "auto" means with a kernel that every engine can have. The tests set another.
AUTO = "auto"
Result = TypeVar("Result")

#: Below this many rows the dense engine takes at most a millisecond: no other is tried.
FEW = 250
#: Above this many points the dense engine takes seconds for an evaluation: it is used only if it is asked for.
MOST_DENSE = 1500
#: The moments engine may take so many seconds where the Vecchia engine is faster, or twice as long as that.
AFFORDABLE = 1.0
#: The tolerance of likelihoods grows up to this many rows.
MANY = 20_000
#: An engine that was settled on must still answer if log theta falls by this much.
ROOM = np.log(1.5)
#: Exact enough, relative to the likelihood, where the Vecchia engine would answer instead: it has fewer digits.
TEN_DIGITS = 1e-10


def tolerance(size: int) -> float:
    """The largest certified error, in nats, of a likelihood that counts as exact: 1e-6, more for large agents.

    Rounding grows with the number of rows in the dense engine too, and a fixed limit would send large agents to slow
    engines for a digit without meaning. With 20,000 rows it is 4e-4 of some ten thousand nats.
    """
    return 1e-6 * max(1.0, min(size, MANY) / 1000.0) ** 2


class OtherEngine(str):
    """The name of an engine that was registered, with how it is made; see `register_engine`."""

    make: Make
    applies: Applies | None

    @classmethod
    def of(cls, name: str, make: Make, applies: Applies | None = None) -> OtherEngine:
        engine = cls(name)
        engine.make, engine.applies = make, applies
        return engine


#: By name; None for those that an `Expert` has itself.
ENGINES: Registry[OtherEngine | None] = Registry("engine", dict.fromkeys(("auto", "dense", "moments", "vecchia")))


def register_engine(name: str, make: Make, applies: Applies | None = None) -> None:
    """Add an engine: a way to compute the Gaussian process of one agent's data.

    From then on `train`, `predict`, the command line and a fleet.toml take its name for `engine`.

    name: letters, digits, "_", "-" and ".".
    make: of an agent's data, a kernel, and the agent's number for error messages, an `Engine`; a subclass of
        `DataEngine` is such a function. The engine must answer for all data and every theta that has an answer.
    applies: whether "auto" may choose it, for some data and a kernel; then it does where `cost` is the lowest, and
        where the `error` of an evaluation is as small as that of our own engines. None: only who names it gets it.

    >>> import fleetgp as fg
    >>> from fleetgp.engines import DenseEngine, register_engine
    >>> class Plain(DenseEngine):
    ...     name = "plain"
    >>> register_engine("plain", Plain)
    >>> fg.Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1]).predict([[0.5]], engine="plain").mean.round(2)
    array([1.5])
    """
    ENGINES.add(name, OtherEngine.of(name, make, applies))


def other_engine(engine: str) -> OtherEngine | None:
    """The engine of this name if it was registered; None if it is built in."""
    return engine if isinstance(engine, OtherEngine) else ENGINES[engine]


def may_be_another(engine: str) -> bool:
    """Whether evaluations with this choice may come from an engine that was registered."""
    offered = any(other is not None and other.applies is not None for other in ENGINES.values())
    return other_engine(engine) is not None or (engine == "auto" and offered)


def check_engine(engine: str, kernel: Kernel) -> None:
    """Raise an InputError for an unknown engine, or one that does not work with this kernel."""
    ENGINES.check(engine)
    if engine == "moments" and kernel.noise_model.differs:
        raise InputError('the moments engine needs one noise for all observations, and here it differs: use "auto"')
    if engine == "moments" and not kernel.has_moments:
        raise InputError(
            f"the moments engine needs the squared exponential, got the kernel {kernel.name!r}: "
            'use engine="auto", or kernel="se"'
        )


class Expert:
    """One agent's GP.

    engine: "dense"; "vecchia", an approximation, each observation given its n_neighbours nearest earlier ones;
        "moments" wherever its certificate holds; "auto", the cheaper of "dense" and "moments" at each theta. Without a
        certificate the last two use "dense" up to 1,500 points and "vecchia" beyond. Every evaluation and every
        posterior names its engine.
    moments: False for posteriors that need the weights of single observations.
    """

    def __init__(
        self,
        data: Observations,
        kernel: Kernel,
        agent: int | None,
        engine: str = "auto",
        n_neighbours: int = NEIGHBOURS,
        *,
        moments: bool = True,
    ) -> None:
        check_engine(engine, kernel)
        self._settings: tuple[Any, ...] = (kernel, agent, engine, n_neighbours, moments)
        other = other_engine(engine)
        self._other = None if other is None else other.make(data, kernel, agent)
        self._offers = _offers(data, kernel, agent) if engine == "auto" and other is None else []
        smooth = kernel.has_moments and self._other is None
        if engine == "auto" and smooth:
            engine = AUTO
        self.agent = agent
        self._dense = DenseEngine(data, kernel, agent)
        self._vecchia = VecchiaEngine(data, kernel, agent, n_neighbours)
        single = data.points is None and data.weight is None
        if engine == "moments" and not single:
            raise InputError('the moments engine needs observations at single places with one noise: use "auto"')
        certified = smooth and moments and single and len(data) > 0 and engine in ("auto", "moments")
        self._moments = MomentsEngine(data, agent) if certified else None
        self._engine = engine
        self._settled: Engine | None = None

    @property
    def size(self) -> int:
        return self._dense.size

    @property
    def data(self) -> Observations:
        return self._dense.data

    @property
    def kernel(self) -> Kernel:
        return self._dense.kernel

    @property
    def dimension(self) -> int:
        """Of the inputs."""
        return self.data.dimension

    @property
    def silent(self) -> BoolArray:
        """(P,) the hyperparameters that do not matter for its data: noises of others."""
        result = np.zeros(self.kernel.count(self.dimension), dtype=bool)
        result[-self.kernel.noise_count :] = self.kernel.noise_model.absent(self.data)
        return result

    def part(self, rows: IntArray) -> Expert:
        """The GP of some of the observations, with the same settings; approximated if that of all would be."""
        kernel, agent, engine, n_neighbours, moments = self._settings
        if self.large and self._moments is None:
            engine = "vecchia"
        return Expert(self.data.rows(rows), kernel, agent, engine, n_neighbours, moments=moments)

    def reobserved(self, data: Observations) -> Expert:
        """The GP of the same places with other values, and another noise of them."""
        kernel, agent, engine, n_neighbours, moments = self._settings
        result = Expert(data, kernel, agent, engine, n_neighbours, moments=moments)
        result._vecchia = self._vecchia.reobserved(data)
        return result

    def grow(self, data: Observations) -> None:
        """Take all observations, of which the first are the present ones. The engines share the arrays."""
        if not self.size:  # which engines there are depends on the first rows
            kernel, agent, name, n_neighbours, moments = self._settings
            self.__init__(data, kernel, agent, name, n_neighbours, moments=moments)  # type: ignore[misc]
            return
        if data.points is not None:
            self._moments = None
        for engine in (self._dense, self._vecchia, self._moments, self._other, *self._offers):
            if engine is not None:
                engine.grow(data)

    def settle(self, log_theta: Array) -> None:
        """Use one engine for all further evaluations where two could alternate as theta moves: a minimizer would stop
        at the step between their likelihoods. It is "moments" if that has room around log theta.
        """
        self._vecchia.settle(log_theta)
        if self._engine == "auto" and self._moments is not None and self.large:
            harder = log_theta.copy()
            harder[:-2] -= ROOM
            harder[-1] -= ROOM
            result = self._moments.evaluate(harder) if self._affordable(np.exp(harder)) else None
            self._settled = self._moments if result is not None and self.accepts(result) else self._vecchia

    def _affordable(self, theta: Array) -> bool:
        """Whether the moments engine is fast enough where the dense engine is too slow."""
        assert self._moments is not None
        return self._moments.cost(theta) <= max(AFFORDABLE, 2.0 * self._vecchia.cost(theta))

    @property
    def large(self) -> bool:
        """Whether the dense engine is not tried."""
        if self._other is not None:
            return False
        return self._engine == "vecchia" or (self._engine != "dense" and len(self.data.places) > MOST_DENSE)

    def preferred(self, theta: Array) -> Sequence[Engine]:
        """The engines to try, in this order; unless one was settled on, the last always answers. A function of the data
        and theta alone.
        """
        if self._settled is not None:
            return [self._settled]
        ours = self._ours(theta)
        cheaper = [engine for engine in self._offers if engine.cost(theta) < ours[0].cost(theta)]
        return [*sorted(cheaper, key=lambda engine: engine.cost(theta)), *ours] if cheaper else ours

    def _ours(self, theta: Array) -> Sequence[Engine]:
        last = self.always
        if self._moments is None or (self._engine == "auto" and self.size < FEW):
            return [last]
        if self._engine == "moments":
            return [self._moments, last]
        if self.large:
            return [self._moments, last] if self._affordable(theta) else [last]
        return sorted((self._moments, last), key=lambda engine: engine.cost(theta))

    def accepts(self, result: Evaluation | NumericalError) -> bool:
        """Whether an evaluation is as good as exact. A failure is final: every engine would fail."""
        if isinstance(result, NumericalError):
            return True
        return result.error <= max(tolerance(self.size), TEN_DIGITS * abs(result.nll) if self.large else 0.0)

    def evaluate(self, log_theta: Array) -> Evaluation:
        """NLL, its log-gradient, and the engine they came from."""
        (result,) = evaluate([self], log_theta[None])
        if isinstance(result, NumericalError):
            raise result
        return result

    def condition(self, theta: Array, before: Posterior | None = None) -> Posterior:
        """The posterior at fixed hyperparameters (natural units), ready for queries. before: see `Engine.condition`."""
        for engine in self.preferred(theta):
            result = engine.condition(theta, before)
            if result is not None:
                return result
        raise self.failure(theta)

    def products(self, theta: Array, trend: Trend) -> Array:
        """Z'C^-1 Z for Z = (H, y) at theta (natural units), see `Engine.products`."""
        for engine in (*self.preferred(theta), self.always):
            result = engine.products(theta, trend)
            if result is not None:
                return result
        raise self.failure(theta)

    @property
    def always(self) -> Engine:
        """The engine that has an answer wherever there is one."""
        return self._other or (self._vecchia if self.large else self._dense)

    def failure(self, theta: Array) -> NumericalError:
        """Why there is no answer at theta."""
        return ThetaError(f"{owner(self.agent)}: no engine has an answer", theta, "give another one")

    def error_estimate(self, log_theta: Array) -> float:
        """See `VecchiaEngine.error_estimate`."""
        return self._vecchia.error_estimate(log_theta)


def _offers(data: Observations, kernel: Kernel, agent: int | None) -> list[Engine]:
    """The registered engines that apply to these data and this kernel."""
    if data.points is not None:  # they may not know about points
        return []
    others = [other for other in ENGINES.values() if other is not None and other.applies is not None]
    return [other.make(data, kernel, agent) for other in others if other.applies and other.applies(data, kernel)]


def evaluate(experts: Sequence[Expert], log_thetas: Array) -> list[Evaluation | NumericalError]:
    """Every expert at its own log theta, on all cores; a failure in its place."""
    with np.errstate(over="ignore", under="ignore"):
        thetas = np.exp(log_thetas)
    result: dict[int, Evaluation | NumericalError] = {}
    untried = {i: iter(expert.preferred(theta)) for i, (expert, theta) in enumerate(zip(experts, thetas, strict=True))}
    while untried:
        # All that try the same engine now go together: each engine knows best how to use the cores.
        turns: dict[type[Engine], dict[int, Engine]] = defaultdict(dict)
        for i, engines in untried.items():
            engine = next(engines, None)
            if engine is None:
                result[i] = experts[i].failure(thetas[i])
            else:
                turns[type(engine)][i] = engine
        for kind, turn in turns.items():
            answers = zip(turn, kind.evaluate_many(list(turn.values()), log_thetas[list(turn)]), strict=True)
            result |= {i: answer for i, answer in answers if answer is not None and experts[i].accepts(answer)}
        untried = {i: engines for i, engines in untried.items() if i not in result}
    return [result[i] for i in range(len(experts))]


def condition(
    experts: Sequence[Expert],
    thetas: Array,
    use: Callable[[Posterior], Result],
    before: Sequence[Posterior | None] = (),
) -> list[Result]:
    """use(posterior) of every expert at its own theta, on all cores.

    before: posteriors of the first rows of some, at the same thetas.
    """
    result: dict[int, Result] = {}

    def one(i: int) -> None:
        result[i] = use(experts[i].condition(thetas[i], before[i] if before else None))

    # Threads inside BLAS are for large matrices: the short steps of other engines would only wait for each other.
    first = [expert.preferred(theta)[0] for expert, theta in zip(experts, thetas, strict=True)]
    share(one, range(len(experts)), largest=max(e.size if isinstance(e, DenseEngine) else 0 for e in first))
    return [result[i] for i in range(len(experts))]


#: Standard deviations beyond which an observation is weighed down to this distance.
FARTHEST = 2.5
#: Turns of weights and predictions from the other observations.
TURNS = 5
#: The standard deviation of a normal distribution over the median of its size.
NORMAL = 1.4826
#: The median is not believed to be smaller than this, and not of fewer observations.
SMALLEST, FEWEST = 0.01, 10


def reweighed(expert: Expert, theta: Array) -> Expert:
    """Weigh outliers down, at theta (natural units): the GP of the same observations. Raises NumericalError.

    Each observation is compared with its prediction from all others: e_n is the error, v_n the variance of f there, and
    z_n = e_n / sqrt(v_n + s_n^2 + sigma_g^2), with its noise if it is no outlier. If |z_n| is more than 2.5, its noise
    becomes s_n^2 + w_n sigma_g^2 with the w_n that makes it 2.5:

        w_n = 1 + ((z_n / 2.5)^2 - 1) (v_n + s_n^2 + sigma_g^2) / sigma_g^2

    Predictions depend on the others' weights, so this takes a few turns, from w = 1. Outliers may have made sigma_g too
    large, which would hide them: where the median of |z| is smaller than a normal distribution's, z is scaled by it.
    Weights are a function of the observations and of theta: nothing is sent.
    """
    if expert.data.points is not None:
        raise InputError("outliers cannot be weighed down among means over several points: only among single rows")
    kernel, noise = expert.kernel, expert.kernel.noise_model
    plain = expert.data.weighted(np.ones(expert.size))
    if not expert.size:
        return expert.reobserved(plain)
    nominal, groups = kernel.noise(plain, Hyperparameters.from_theta(theta)), noise.group(plain)
    trained = noise.trained(plain, kernel.sigmas(theta)) ** 2
    result = expert.reobserved(plain)
    for _ in range(TURNS):
        posterior = result.condition(theta)
        assert isinstance(posterior, WeightedPosterior), "no kernel with weights has moments"
        error, variance = posterior.left_out()
        total = variance + nominal
        weights = 1.0 + excess(error / np.sqrt(total), groups) * total / trained
        if np.array_equal(weights, _weights(result)):
            break
        result = expert.reobserved(plain.weighted(weights))
    return result


def excess(z: Array, groups: IntArray) -> Array:
    """(N,) (z / 2.5)^2 - 1, or 0, of errors z in standard deviations. groups: (N,) the noise group of each.

    >>> excess(np.array([0.1, 2.0, -2.5, 5.0]), np.zeros(4, dtype=int)).tolist()
    [0.0, 0.0, 0.0, 3.0]
    """
    size = np.abs(z)
    for group in np.unique(groups):
        own = groups == group
        if own.sum() >= FEWEST:
            size[own] /= np.clip(NORMAL * np.median(size[own]), SMALLEST, 1.0)
    return np.maximum(0.0, (size / FARTHEST) ** 2 - 1.0)


def outliers(expert: Expert) -> int:
    """How many observations are weighed down."""
    return int((_weights(expert) > 1.0).sum())


def _weights(expert: Expert) -> Array:
    weight = expert.data.weight
    return np.ones(expert.size) if weight is None else weight


#: The largest certified error of a likelihood, in nats, that counts as exact where there is no other engine; and per
#: row, since the rounding of their sums grows with them, as the likelihood does.
EXACT, EXACT_EACH = 1e-4, 1e-9
#: What is enough on the way to an optimum, in nats and relative to the likelihood.
ON_THE_WAY, SIX_DIGITS = 0.03, 1e-6
#: What to do without moments of all data: in general, and for a prediction alone.
INSTEAD = "train with dec-fact-gp and predict with dec-summary"
PREDICT_INSTEAD = "predict with dec-summary, or give another theta"


def has_moments(kernel: Kernel, engine: str) -> bool:
    """Whether data with this kernel have moments, and no other engine is chosen."""
    return kernel.has_moments and engine in ("auto", "moments")


def refuse_rough(kernel: Kernel, engine: str) -> None:
    """Raise an InputError for a kernel without moments, or an engine that needs the data."""
    if kernel.noise_model.differs:
        raise InputError(
            "dec-full-gp needs one noise for all observations, and here it differs (known deviations, noises of "
            f"agents, or weights of outliers): {INSTEAD}"
        )
    if not kernel.has_moments:
        raise InputError(
            f"dec-full-gp needs the squared exponential, whose data have moments, got the kernel {kernel.name!r}: "
            f'use kernel="se", or {INSTEAD}'
        )
    if engine not in ("auto", "moments"):
        raise InputError(
            f"dec-full-gp knows the data of all agents by their moments alone, and the {engine} engine needs the data: "
            f'use engine="auto", or {INSTEAD}'
        )


def not_certified(why: str, theta: Array, instead: str = PREDICT_INSTEAD) -> ThetaError:
    """The error where the fleet's moments are not good enough at theta."""
    return ThetaError(f"dec-full-gp: {why}", theta, instead)


def too_many(theta: Array) -> ThetaError:
    """The error where theta needs more moments than can be sent."""
    return not_certified("the fleet's data have more moments than can be sent", theta)


class FleetExpert(Expert):
    """The GP of the whole fleet by its moments. There is no other engine: what is not certified fails.

    failing: whether the last theta was not certified.
    beyond: (D,) the largest grid that was needed and not there; zeros for none.
    """

    def __init__(self, moments: FleetMoments) -> None:
        self.agent = None
        self.moments = moments
        self.engine = SumsEngine(moments, None)
        self.failing = False
        self.beyond = np.zeros(len(moments.sizes), dtype=np.int64)

    @property
    def size(self) -> int:
        return self.moments.count

    @property
    def dimension(self) -> int:
        return len(self.moments.sizes)

    @property
    def silent(self) -> BoolArray:
        return np.zeros(self.dimension + 2, dtype=bool)

    def settle(self, log_theta: Array) -> None:
        """There is one engine."""

    def grow(self, data: Observations) -> None:
        raise NotImplementedError("new observations are moments to be added")

    def preferred(self, theta: Array) -> Sequence[Engine]:
        return [self.engine]

    @property
    def always(self) -> Engine:
        return self.engine

    def sizes(self, theta: Array) -> tuple[int, ...] | None:
        """Those of the grid that theta needs; None where there is none."""
        with np.errstate(divide="ignore"):
            possible = bool((np.abs(np.log(theta)) < LARGEST_LOG).all())
        return self.engine.sizes(Hyperparameters.from_theta(theta)) if possible else None

    def covers(self, theta: Array) -> bool:
        """Whether the grid is large enough for theta."""
        sizes = self.sizes(theta)
        return sizes is not None and self.moments.covers(sizes)

    def accepts(self, result: Evaluation | NumericalError) -> bool:
        """Less is enough on the way: a failed step is worse for a minimizer than a slightly wrong one."""
        if isinstance(result, NumericalError):
            return True
        self.failing = not result.error <= max(ON_THE_WAY, SIX_DIGITS * abs(result.nll))
        return not self.failing

    def certain(self, log_theta: Array) -> bool:
        """Whether the likelihood at theta is as good as exact, for the end of a training."""
        result = self.engine.evaluate(log_theta)
        return result is not None and result.error <= max(EXACT, tolerance(self.size), EXACT_EACH * self.size)

    def failure(self, theta: Array) -> ThetaError:
        """Why there is no answer at theta."""
        self.failing = True
        sizes = self.sizes(theta)
        if sizes is None:
            return too_many(theta)
        if not self.moments.covers(sizes):
            self.beyond = np.maximum(self.beyond, sizes)
            there = f"moments on a grid of {self.moments.sizes} are there, and {sizes} are needed"
            return not_certified(there, theta)
        return not_certified("the moments of the fleet's data are not precise enough", theta)
