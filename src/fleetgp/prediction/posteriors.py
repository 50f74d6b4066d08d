"""Posteriors of several data sets at fixed hyperparameters: computed when first needed, kept, asked in chunks.

The dense posteriors of grBCM: what the samples say is computed once, and extended by each agent's own data.

With L_c L_c' the covariance of the samples, and i the points of an agent that are not among them,

    [C_c  K_ci]   [L_c  0 ] [L_c  0 ]'
    [K_ic C_i ] = [B_i S_i] [B_i S_i]      B_i = K_ic L_c'^-1      S_i S_i' = C_i - B_i B_i'

so that with v = L_c^-1 k_c*, the same for every agent, and w = S_i^-1 (k_i* - B_i v)

    mean = (L_c^-1 y_c)'v + b_i'w      variance = k** - |v|^2 - |w|^2      b_i = S_i^-1 (y_i - B_i L_c^-1 y_c)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.base import Posterior
from fleetgp.engines.expert import Expert, condition
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.cholesky import Cholesky, factorize
from fleetgp.linalg.threads import cores, memory, side_by_side
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

#: Bytes of posteriors that are kept for the next queries; what does not fit is computed again for each block of them.
#: 49 agents with 600 points each need 141 MB, and 271 MB more for grBCM; 100 with 1,000 each 0.8 GB, and 1.6 GB more.
#: No more than a quarter of the machine's memory.
KEPT_BYTES = min(1 << 32, memory() // 4)
#: Entries of k(X_i, x*) that are worked on at a time, 4 MB: solves of fewer columns are slower, and all at once need
#: fresh memory. But no fewer queries than these.
CHUNK, SHORTEST_CHUNK = 1 << 19, 128
#: No variance is taken for smaller than this fraction of the prior: a precision must stay finite.
SMALLEST = 1e-12
#: Instead of an engine: no query needed this posterior, so it was not computed.
UNUSED = "unused"

Item = TypeVar("Item")
#: Of observations, and the number of the agent whose they are; None for the fleet's.
MakesExpert = Callable[[Observations, int | None], Expert]


@dataclass(frozen=True)
class Marginals:
    """mean and variance (n, T) of n posteriors, the engine of each (or UNUSED), and the largest jitter."""

    mean: Array
    variance: Array
    engine: tuple[str, ...]
    jitter: float

    def completed(self, other: Marginals, where: BoolArray) -> Marginals:
        """With another's values in some places (n, T)."""
        return Marginals(
            np.where(where, other.mean, self.mean),
            np.where(where, other.variance, self.variance),
            first_used(self.engine, other.engine),
            max(self.jitter, other.jitter),
        )


def first_used(*engines: Sequence[str]) -> tuple[str, ...]:
    """The engine of each agent, from several parts of a prediction in which it may have been needed or not."""
    return tuple(next((name for name in row if name != UNUSED), UNUSED) for row in zip(*engines, strict=True))


class Room:
    """Bytes that are left for posteriors to be kept in."""

    def __init__(self, bytes: int = KEPT_BYTES) -> None:
        self.left = bytes

    def take(self, bytes: int) -> bool:
        """Whether there was room; then it is taken."""
        fits = bytes <= self.left
        self.left -= bytes if fits else 0
        return fits


class Lazy(Generic[Item]):
    """One item per data set, computed by a subclass when it is first needed, and kept if there is room."""

    def __init__(self, data: Sequence[Observations], room: Room) -> None:
        self.data, self._room = list(data), room
        self._kept: list[Item | None] = [None] * len(data)
        self._held = [0] * len(data)  # bytes of the room
        self._before: dict[int, Item] = {}  # of the first rows of some, until these are asked for

    def compute(self, positions: Sequence[int]) -> Sequence[Item]:
        raise NotImplementedError

    def grow(self, i: int, data: Observations) -> None:
        """All rows of one data set, the old ones first: its item is recomputed from the one that there is."""
        known = self._before.get(i) if self._kept[i] is None else self._kept[i]
        self.forget(i)
        self.data[i] = data
        if known is not None:
            self._before[i] = known

    def renew(self, i: int, data: Observations) -> None:
        """Other rows of one data set: its item is recomputed."""
        self.forget(i)
        self.data[i] = data

    def items(self, positions: Sequence[int]) -> list[Item]:
        missing = [i for i in positions if self._kept[i] is None]
        result = {i: item for i in positions if (item := self._kept[i]) is not None}
        for i, item in zip(missing, self.compute(missing) if missing else (), strict=True):
            result[i] = item
            size = held_bytes(item)
            taken = self._room.take(size)
            self._held[i] = size if taken else 0
            if taken or len(self.data) == 1:  # a single one is in memory anyway
                self._kept[i] = item
        return [result[i] for i in positions]

    def groups(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Positions in groups whose covariances fit in memory at the same time; no fewer than there are cores."""
        group: list[int] = []
        expected = 0
        for i in positions:
            size = 0 if self._kept[i] is not None else 8 * len(self.data[i]) ** 2
            if len(group) >= cores() and expected + size > KEPT_BYTES:
                yield group
                group, expected = [], 0
            group.append(i)
            expected += size
        if group:
            yield group

    def release(self) -> None:
        """Give the room back; whatever is asked later is computed again."""
        for i in range(len(self.data)):
            self.forget(i)

    def forget(self, i: int) -> None:
        """Give back the room of one item."""
        self._room.left += self._held[i]
        self._kept[i], self._held[i] = None, 0
        self._before.pop(i, None)


class Posteriors(Lazy[Posterior]):
    """f | data[i] at thetas[i], for each i. agents: whose data they are, for errors.  expert: makes their GP.

    prior: k(x*, x*) (n, T) at queries, by these thetas (n, P).
    """

    def __init__(
        self,
        data: Sequence[Observations],
        agents: Sequence[int | None],
        thetas: Array,
        expert: MakesExpert,
        room: Room,
        prior: Callable[[Array, Array], Array],
    ) -> None:
        super().__init__(data, room)
        self.thetas, self._prior = thetas, prior
        self._agents, self._make = agents, expert
        self._experts: dict[int, Expert] = {}

    def compute(self, positions: Sequence[int]) -> list[Posterior]:
        for i in positions:
            if i not in self._experts:
                self._experts[i] = self._make(self.data[i], self._agents[i])
        experts, thetas = [self._experts[i] for i in positions], self.thetas[list(positions)]
        before = [self._before.pop(i, None) for i in positions]
        return condition(experts, thetas, lambda posterior: posterior, before)

    def grow(self, i: int, data: Observations) -> None:
        super().grow(i, data)
        if i in self._experts:
            self._experts[i].grow(data)

    def renew(self, i: int, data: Observations) -> None:
        super().renew(i, data)
        self._experts.pop(i, None)

    def at(self, queries: Array, wanted: BoolArray | None = None) -> Marginals:
        """Mean and variance at the queries (T, D); with `wanted` (n, T) only there, and the prior elsewhere."""
        count = len(queries)
        columns = [np.arange(count)] * len(self.data) if wanted is None else [np.flatnonzero(row) for row in wanted]
        result = Marginals(
            np.zeros((len(self.data), count)),
            np.array(self._prior(queries, self.thetas)),
            (UNUSED,) * len(self.data),
            0.0,
        )
        for group in self.groups([i for i, asked in enumerate(columns) if len(asked)]):
            result = self._asked(result, dict(zip(group, self.items(group), strict=True)), queries, columns)
        return result

    def all_at(self, queries: Array) -> tuple[list[Posterior], Marginals]:
        """Every posterior at once, and what they say at the queries."""
        result = self.items(range(len(self.data)))
        values = np.empty((len(result), len(queries)))
        empty = Marginals(values, values.copy(), (UNUSED,) * len(result), 0.0)
        return result, self._asked(empty, dict(enumerate(result)), queries, [np.arange(len(queries))] * len(result))

    def _asked(
        self, result: Marginals, posteriors: Mapping[int, Posterior], queries: Array, columns: Sequence[IntArray]
    ) -> Marginals:
        """With the answers of some posteriors, each to its own columns; the arrays of `result` are written to."""

        def ask(task: tuple[int, IntArray]) -> None:
            i, here = task
            result.mean[i, here], result.variance[i, here] = posteriors[i].mean_and_variance(queries[here])

        side_by_side(ask, [(i, part) for i in posteriors for part in chunks(columns[i], len(self.data[i]))])
        engine = [posteriors[i].engine if i in posteriors else name for i, name in enumerate(result.engine)]
        jitter = max([result.jitter, *(posterior.jitter for posterior in posteriors.values())])
        return replace(result, engine=tuple(engine), jitter=jitter)


def chunks(columns: IntArray, size: int) -> list[IntArray]:
    """Queries in chunks, for an agent with `size` observations."""
    step = max(SHORTEST_CHUNK, CHUNK // max(1, size))
    return [columns[start : start + step] for start in range(0, len(columns), step)]


def held_bytes(thing: Any) -> int:
    """Bytes of all arrays that an object holds, directly or through others.

    >>> held_bytes([np.zeros(3), (np.zeros(2), "x")])
    40
    """
    result, seen, waiting = 0, set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            result += one.nbytes
        elif isinstance(one, list | tuple):
            waiting += one
        else:
            waiting += getattr(one, "__dict__", {}).values()
    return result


@dataclass(frozen=True)
class Extension:
    """One agent's part: B_i (N, S), S_i and b_i."""

    on_samples: Array
    factor: Cholesky
    target: Array


class Extensions(Lazy[Extension | None]):
    """f | samples, and f | samples and D_i for every hosted agent i, all at one theta.

    rest: the agents' data without what is among the samples.
    """

    def __init__(
        self,
        samples: Observations,
        rest: Sequence[Observations],
        agents: Sequence[int],
        theta: Array,
        kernel: Kernel,
        room: Room,
    ) -> None:
        super().__init__(rest, room)
        self.samples, self.agents = samples, tuple(agents)
        self._h, self._kernel = Hyperparameters.from_theta(theta), kernel
        self._base = factorize(kernel(samples.inputs, None, self._h), kernel.noise(samples, self._h))
        self._target = np.zeros(0) if self._base is None else self._base.half_solve(samples.values)
        self._sound = self._base is not None and self._base.jitter == 0.0

    def compute(self, positions: Sequence[int]) -> list[Extension | None]:
        return side_by_side(self._extension, positions)

    def _extension(self, i: int) -> Extension | None:
        data, known = self.data[i], self._before.pop(i, None)
        first = 0 if known is None else len(known.target)
        inputs, more = data.inputs, data.inputs[first:]
        every = self._kernel.noise(data, self._h)
        on_samples, noise = self._given_samples(more), every[first:]
        corner = self._kernel(more, None, self._h) - on_samples @ on_samples.T
        if known is None:
            factor = factorize(corner, noise)
        else:
            cross = self._kernel(inputs[:first], more, self._h) - known.on_samples @ on_samples.T
            factor = known.factor.extended(cross, corner, noise)
            on_samples = np.concatenate([known.on_samples, on_samples])
        if factor is None or not factor.certain(every):
            return None
        return Extension(on_samples, factor, factor.half_solve(data.values - on_samples @ self._target))

    def _given_samples(self, inputs: Array) -> Array:
        """B = K L_c'^-1, (N, S)."""
        assert self._base is not None
        return self._base.half_solve_in_place(self._kernel(self.samples.inputs, inputs, self._h)).T

    def at(self, queries: Array, wanted: BoolArray) -> tuple[Marginals, Marginals] | None:
        """f | samples and D_i where it is wanted, (A, T), and f | samples.

        None if a covariance is not positive definite, or hardly so: the ordinary way then finds the jitter, or says why
        none helps.
        """
        if self._base is None or not self._sound:
            return None
        shared, prior = self._on_samples(queries), self._kernel.variance(queries, self._h)
        alone = shared @ self._target, prior - np.einsum("ts,ts->t", shared, shared)
        mean, variance = np.where(wanted, alone[0], 0.0), np.where(wanted, alone[1], prior)

        def ask(task: tuple[int, Extension, IntArray]) -> None:
            i, extension, here = task
            cross = self._kernel(self.data[i].inputs, queries[here], self._h)
            cross -= (shared.take(here, axis=0) @ extension.on_samples.T).T
            own = extension.factor.half_solve_in_place(cross)
            mean[i, here] += extension.target @ own
            variance[i, here] -= np.einsum("nt,nt->t", own, own)

        for group in self.groups([i for i, own in enumerate(self.data) if len(own) and wanted[i].any()]):
            tasks = []
            for i, extension in zip(group, self.items(group), strict=True):
                if extension is None:
                    self._sound = False
                    return None
                tasks += [(i, extension, part) for part in chunks(np.flatnonzero(wanted[i]), len(self.data[i]))]
            side_by_side(ask, tasks)
        engine = tuple("dense" if row.any() else UNUSED for row in wanted)
        common_mean, common_variance = (np.tile(values, (len(wanted), 1)) for values in alone)
        return (
            Marginals(mean, np.maximum(variance, 0.0), engine, 0.0),
            Marginals(common_mean, np.maximum(common_variance, 0.0), engine, 0.0),
        )

    def _on_samples(self, queries: Array) -> Array:
        """v' = (L_c^-1 k_c*)', (T, S)."""
        base = self._base
        assert base is not None
        parts = chunks(np.arange(len(queries)), len(self.samples))
        result = side_by_side(
            lambda here: base.half_solve_in_place(self._kernel(self.samples.inputs, queries[here], self._h)).T, parts
        )
        return np.concatenate(result)
