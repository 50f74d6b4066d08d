"""A local GP with several engines: at each theta the cheapest one that is certified, or the one for any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, NumericalError, check_name
from fleetgp.gp.dense.engine import DenseEngine
from fleetgp.gp.engine import Engine
from fleetgp.gp.evaluation import Evaluation, Posterior
from fleetgp.gp.failure import ThetaError, owner
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.moments.engine import MomentsEngine
from fleetgp.gp.trend import Trend
from fleetgp.gp.vecchia.engine import NEIGHBOURS, VecchiaEngine
from fleetgp.linalg.threads import share
from fleetgp.model.observations import Observations

ENGINES = ("auto", "dense", "moments", "vecchia")
#: What "auto" means with a kernel that every engine can have. The tests set another.
AUTO = "auto"
Result = TypeVar("Result")

#: Below this many points the dense engine takes a millisecond or less, which no other undercuts: not worth asking.
FEW = 250
#: Above this many points the dense engine takes a second and more for an evaluation: only those who ask for it get it.
MOST_DENSE = 1500
#: The moments engine may take so many seconds where the Vecchia engine is faster, or twice as long as that.
AFFORDABLE = 1.0
#: The tolerance of likelihoods grows no further than for so many points.
MANY = 20_000
#: How far below its present logarithms theta may come and be sure of an engine that was settled on.
ROOM = np.log(1.5)
#: What counts as exact where the dense engine is not tried, relative to the likelihood: the Vecchia engine, which would
#: answer instead, does not have ten digits.
TEN_DIGITS = 1e-10


def tolerance(size: int) -> float:
    """The largest certified error of a likelihood that is taken for exact: 1e-6 nats, more for large agents.

    Rounding grows with the points in the dense engine too. A limit that does not would send large agents, whose
    hyperparameters wander while they train, from milliseconds to minutes for a digit that nobody needs: with
    20,000 points it is 4e-4 of some ten thousand nats. It grows no further.
    """
    return 1e-6 * max(1.0, min(size, MANY) / 1000.0) ** 2


class OtherEngine(str):
    """The name of an engine in whose place another one is used, made by `make(data, kernel, agent)`.

    That engine must answer for all data. It serves to count what agents send where the answers do not matter.
    """

    make: Callable[[Observations, Kernel, int | None], Engine]

    @classmethod
    def of(cls, name: str, make: Callable[[Observations, Kernel, int | None], Engine]) -> OtherEngine:
        found = cls(name)
        found.make = make
        return found


def check_engine_name(engine: str) -> None:
    check_name("engine", engine, ENGINES)


def check_engine(engine: str, kernel: Kernel) -> None:
    """One clear error for an engine that there is not, or not with this kernel."""
    check_engine_name(engine)
    if engine == "moments" and kernel.noise_model.differs:
        raise InputError('the moments engine needs one noise for all observations, and here it differs: use "auto"')
    if engine == "moments" and not kernel.has_moments:
        raise InputError(
            f"the moments engine needs the squared exponential, got the kernel {kernel.name!r}: "
            'use engine="auto", or kernel="se"'
        )


class Expert:
    """One agent's GP.

    engine: "dense"; "vecchia", approximately, each observation given its `neighbours` nearest earlier ones; "moments",
        wherever its certificate holds; "auto", the cheaper one of "dense" and "moments" at each theta. Where the last
        two have no certificate it is "dense" up to 1,500 points, and "vecchia" beyond. Every evaluation and every
        posterior says which it came from.
    moments: False does without, for posteriors that know the weights of single observations.
    """

    def __init__(
        self,
        data: Observations,
        kernel: Kernel,
        agent: int | None,
        engine: str = "auto",
        neighbours: int = NEIGHBOURS,
        *,
        moments: bool = True,
    ) -> None:
        check_engine(engine, kernel)
        self._settings: tuple[Any, ...] = (kernel, agent, engine, neighbours, moments)
        self._other = engine.make(data, kernel, agent) if isinstance(engine, OtherEngine) else None
        smooth = kernel.has_moments and self._other is None
        if engine == "auto" and smooth:
            engine = AUTO
        self.agent = agent
        self._dense = DenseEngine(data, kernel, agent)
        self._vecchia = VecchiaEngine(data, kernel, agent, neighbours)
        certified = smooth and moments and engine in ("auto", "moments")
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
        """(P,) which hyperparameters say nothing about its data: noises of others."""
        found = np.zeros(self.kernel.count(self.dimension), dtype=bool)
        found[-self.kernel.noise_count :] = self.kernel.noise_model.absent(self.data)
        return found

    def part(self, rows: IntArray) -> Expert:
        """The GP of some of the observations, with the same settings; few are approximated only if all would be."""
        kernel, agent, engine, neighbours, moments = self._settings
        if self.large and self._moments is None:
            engine = "vecchia"
        return Expert(self.data.rows(rows), kernel, agent, engine, neighbours, moments=moments)

    def reobserved(self, data: Observations) -> Expert:
        """The GP of the same places with other values, and another noise of them."""
        kernel, agent, engine, neighbours, moments = self._settings
        found = Expert(data, kernel, agent, engine, neighbours, moments=moments)
        found._vecchia = self._vecchia.reobserved(data)
        return found

    def grow(self, data: Observations) -> None:
        """All observations, of which the first are those that there are. The engines share the arrays."""
        for engine in (self._dense, self._vecchia, self._moments, self._other):
            if engine is not None:
                engine.grow(data)

    def settle(self, log_theta: Array) -> None:
        """For all evaluations from now on, one engine where two could take turns as theta moves: their likelihoods
        differ, and no minimizer gets across such a step. It is "moments" if that has room around log theta.
        """
        if self._engine == "auto" and self._moments is not None and self.large:
            harder = log_theta.copy()
            harder[:-2] -= ROOM
            harder[-1] -= ROOM
            found = self._moments.evaluate(harder) if self._affordable(np.exp(harder)) else None
            self._settled = self._moments if found is not None and self.accepts(found) else self._vecchia

    def _affordable(self, theta: Array) -> bool:
        """Whether being exact is worth its price where there are too many points for the dense engine."""
        assert self._moments is not None
        return self._moments.cost(theta) <= max(AFFORDABLE, 2.0 * self._vecchia.cost(theta))

    @property
    def large(self) -> bool:
        """Whether the dense engine is not tried."""
        if self._other is not None:
            return False
        return self._engine == "vecchia" or (self._engine != "dense" and self.size > MOST_DENSE)

    def preferred(self, theta: Array) -> Sequence[Engine]:
        """The engines to try, in this order; the last one always answers, unless it was settled. A function of the data
        and theta alone.
        """
        if self._settled is not None:
            return [self._settled]
        last = self.always
        if self._moments is None or (self._engine == "auto" and self.size < FEW):
            return [last]
        if self._engine == "moments":
            return [self._moments, last]
        if self.large:
            return [self._moments, last] if self._affordable(theta) else [last]
        return sorted((self._moments, last), key=lambda engine: engine.cost(theta))

    def accepts(self, found: Evaluation | NumericalError) -> bool:
        """Whether an evaluation is as good as exact. A failure is one with every engine."""
        if isinstance(found, NumericalError):
            return True
        return found.error <= max(tolerance(self.size), TEN_DIGITS * abs(found.nll) if self.large else 0.0)

    def evaluate(self, log_theta: Array) -> Evaluation:
        """NLL, its log-gradient, and the engine they came from."""
        (found,) = evaluate([self], log_theta[None])
        if isinstance(found, NumericalError):
            raise found
        return found

    def condition(self, theta: Array, before: Posterior | None = None) -> Posterior:
        """The posterior at fixed hyperparameters (natural units), ready for queries. before: see `Engine.condition`."""
        for engine in self.preferred(theta):
            found = engine.condition(theta, before)
            if found is not None:
                return found
        raise self.failure(theta)

    def products(self, theta: Array, trend: Trend) -> Array:
        """Z'C^-1 Z for Z = (H, y) at theta (natural units), see `Engine.products`."""
        for engine in (*self.preferred(theta), self.always):
            found = engine.products(theta, trend)
            if found is not None:
                return found
        raise self.failure(theta)

    @property
    def always(self) -> Engine:
        """The engine that has an answer wherever there is one."""
        return self._other or (self._vecchia if self.large else self._dense)

    def failure(self, theta: Array) -> NumericalError:
        """Why there is no answer at theta; one without an engine that always answers says more."""
        return ThetaError(f"{owner(self.agent)}: no engine has an answer", theta, "give another one")

    def error_estimate(self, log_theta: Array) -> float:
        """What the likelihood at log theta may be wrong by, where it came from the Vecchia engine; see there."""
        return self._vecchia.error_estimate(log_theta)


def evaluate(experts: Sequence[Expert], log_thetas: Array) -> list[Evaluation | NumericalError]:
    """Every expert at its own log theta, on all cores; a failure in its place."""
    with np.errstate(over="ignore", under="ignore"):
        thetas = np.exp(log_thetas)
    found: dict[int, Evaluation | NumericalError] = {}
    untried = {i: iter(expert.preferred(theta)) for i, (expert, theta) in enumerate(zip(experts, thetas, strict=True))}
    while untried:
        # All whose turn it is with one engine go together: each engine knows best how to use the cores.
        turns: dict[type[Engine], dict[int, Engine]] = defaultdict(dict)
        for i, engines in untried.items():
            engine = next(engines, None)
            if engine is None:
                found[i] = experts[i].failure(thetas[i])
            else:
                turns[type(engine)][i] = engine
        for kind, turn in turns.items():
            answers = zip(turn, kind.evaluate_many(list(turn.values()), log_thetas[list(turn)]), strict=True)
            found |= {i: answer for i, answer in answers if answer is not None and experts[i].accepts(answer)}
        untried = {i: engines for i, engines in untried.items() if i not in found}
    return [found[i] for i in range(len(experts))]


def condition(
    experts: Sequence[Expert],
    thetas: Array,
    use: Callable[[Posterior], Result],
    before: Sequence[Posterior | None] = (),
) -> list[Result]:
    """What `use` makes of every expert's posterior at its own theta, on all cores.

    before: those of the first rows of some, at the same thetas.
    """
    found: dict[int, Result] = {}

    def one(i: int) -> None:
        found[i] = use(experts[i].condition(thetas[i], before[i] if before else None))

    # Threads inside BLAS are for large matrices: the short steps of other engines would only wait for each other.
    first = [expert.preferred(theta)[0] for expert, theta in zip(experts, thetas, strict=True)]
    share(one, range(len(experts)), largest=max(e.size if isinstance(e, DenseEngine) else 0 for e in first))
    return [found[i] for i in range(len(experts))]
