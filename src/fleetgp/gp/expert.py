"""A local GP with two engines behind one interface: dense (LAPACK) and moments (no cost that grows with N)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, NumericalError
from fleetgp.gp.dense.engine import LARGE, DenseExpert, batch_size, evaluate_batch
from fleetgp.gp.evaluation import Evaluation, Posterior
from fleetgp.gp.kernels import Kernel, SquaredExponential
from fleetgp.gp.moments.engine import MomentsExpert
from fleetgp.linalg.threads import blas_threads, cores, side_by_side

ENGINES = ("auto", "dense", "moments")
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Below this many points the dense engine is always cheaper; above so many it is no way out.
FEW = 150
MANY = 20_000


def tolerance(size: int) -> float:
    """The largest certified error of a likelihood that is taken for exact: 1e-6 nats, more for large agents.

    Rounding grows with the points in the dense engine too. A limit that does not would send large agents, whose
    hyperparameters wander while they train, from milliseconds to minutes for a digit that nobody needs: with
    20,000 points it is 4e-4 of some ten thousand nats. It grows no further.
    """
    return 1e-6 * max(1.0, min(size, MANY) / 1000.0) ** 2


class Expert:
    """One agent's GP.

    engine: "dense"; "moments", wherever its certificate holds, else dense; "auto", of those that are certified the
        cheaper one at each theta. Every evaluation and every posterior says which it came from.
    """

    def __init__(self, inputs: Array, observations: Array, kernel: Kernel, agent: int, engine: str = "auto") -> None:
        smooth = isinstance(kernel, SquaredExponential)
        if engine == "moments" and not smooth:
            raise InputError(
                f"the moments engine needs the squared exponential, but the kernel is {kernel.name!r}: "
                'use engine="auto", or kernel="se"'
            )
        self.dense = DenseExpert(inputs, observations, kernel, agent)
        self.moments = MomentsExpert(inputs, observations, agent) if smooth and engine != "dense" else None
        self.cheaper = engine == "auto"

    @property
    def size(self) -> int:
        return self.dense.size

    @property
    def agent(self) -> int:
        return self.dense.agent

    def append(self, inputs: Array, observations: Array) -> None:
        """More observations. For the moments engine this is adding their moments: no pass over the old ones."""
        self.dense.inputs = np.concatenate([self.dense.inputs, inputs])
        self.dense.observations = np.concatenate([self.dense.observations, observations])
        if self.moments is not None:
            self.moments.append(inputs, observations)

    def prefers_moments(self, theta: Array) -> bool:
        """Whether to try the moments engine first, by what each is expected to cost."""
        if self.moments is None or not self.cheaper:
            return self.moments is not None
        if not FEW <= self.size <= MANY:
            return self.size > MANY
        return self.moments.cost(theta) < dense_cost(self.size)

    def by_moments(self, log_theta: Array) -> Evaluation | None:
        """The moments engine's evaluation, if it is certified."""
        assert self.moments is not None
        found = self.moments.evaluate(log_theta)
        if found is None:
            return None
        # Without a dense way out ten digits of a likelihood are better than none.
        limit = max(tolerance(self.size), 1e-10 * abs(found.nll) if self.stuck else 0.0)
        return found if found.error <= limit else None

    def evaluate(self, log_theta: Array) -> Evaluation:
        """NLL, its log-gradient, and the engine they came from."""
        (found,) = evaluate([self], log_theta[None])
        if isinstance(found, NumericalError):
            raise found
        return found

    def condition(self, theta: Array) -> Posterior:
        """The posterior at fixed hyperparameters (natural units), ready for queries."""
        if self.prefers_moments(theta):
            assert self.moments is not None
            found = self.moments.condition(theta)
            if found is not None:
                return found
        if self.stuck:
            raise self.failure(theta)
        return self.dense.condition(theta)

    @property
    def stuck(self) -> bool:
        """Whether there are too many points to try the dense engine where the moments engine is not certified."""
        return self.moments is not None and self.size > MANY

    def failure(self, theta: Array) -> NumericalError:
        return NumericalError(
            f"agent {self.agent}: at theta = {theta.tolist()} the moments engine is not certified, and its {self.size} "
            f"points are too many for the dense one ({16e-9 * self.size**2:.0f} GB): use theta closer to the scale "
            'of the data, give the data to more agents, or insist with engine="dense"'
        )


def evaluate(experts: Sequence[Expert], log_thetas: Array) -> list[Evaluation | NumericalError]:
    """Every expert at its own log theta, on all cores; a failure in its place."""
    found: dict[int, Evaluation | NumericalError] = {}

    def by_moments(i: int) -> None:
        evaluation = experts[i].by_moments(log_thetas[i])
        if evaluation is not None:
            found[i] = evaluation

    def by_dense(rows: Sequence[int]) -> None:
        batch = evaluate_batch([experts[i].dense for i in rows], log_thetas[rows])
        found.update(zip(rows, batch, strict=True))

    with np.errstate(over="ignore", under="ignore"):
        small = [i for i, e in enumerate(experts) if e.prefers_moments(np.exp(log_thetas[i]))]
    # In turn: the many short steps of the moments engine are mostly the interpreter's, which runs one thread at a time.
    with blas_threads(1):
        for i in small:
            by_moments(i)
    alike = defaultdict(list)
    for i, expert in enumerate(experts):
        if i not in found and expert.stuck:
            found[i] = expert.failure(np.exp(log_thetas[i]))
        elif i not in found:
            alike[expert.size, expert.dense.inputs.shape[1], expert.dense.kernel].append(i)
    batches = []
    for (size, *_), rows in alike.items():
        turns = -(-len(rows) // (batch_size(size) * cores()))
        count = min(len(rows), turns * cores())  # as many for each core
        batches += [part.tolist() for part in np.array_split(rows, count)]
    _share(by_dense, batches, max((size for size, *_ in alike), default=0))
    return [found[i] for i in range(len(experts))]


def condition(experts: Sequence[Expert], thetas: Array, use: Callable[[Posterior], Result]) -> list[Result]:
    """What `use` makes of every expert's posterior at its own theta, on all cores."""
    found: dict[int, Result] = {}

    def one(i: int) -> None:
        found[i] = use(experts[i].condition(thetas[i]))

    _share(one, range(len(experts)), max(e.size for e in experts))
    return [found[i] for i in range(len(experts))]


def _share(work: Callable[[Item], None], items: Sequence[Item], largest: int) -> None:
    """Side by side with one BLAS thread each; a few large ones in turn, with all threads."""
    turns = -(-len(items) // cores())
    if largest >= LARGE and turns * cores() > 1.3 * len(items):
        with blas_threads(cores()):
            for item in items:
                work(item)
    elif items:
        side_by_side(work, items)


def dense_cost(size: int) -> float:
    """What an evaluation is expected to cost, in seconds on one core."""
    return size**3 / 4e10 + size**2 * 9e-9 + 1e-4
