r"""The dense posteriors of grBCM: what the samples say is computed once, and extended by each agent's own data.

With L_c L_c' the covariance of the samples, and i the points of an agent that are not among them,

    [C_c  K_ci]   [L_c  0 ] [L_c  0 ]'
    [K_ic C_i ] = [B_i S_i] [B_i S_i]      B_i = K_ic L_c'^-1      S_i S_i' = C_i - B_i B_i'

so that with v = L_c^-1 k_c*, the same for every agent, and w = S_i^-1 (k_i* - B_i v)

    mean = (L_c^-1 y_c)'v + b_i'w      variance = k** - |v|^2 - |w|^2      b_i = S_i^-1 (y_i - B_i L_c^-1 y_c)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.linalg.cholesky import Cholesky, factorize
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.observations import Observations
from fleetgp.prediction.posteriors import UNUSED, Lazy, Marginals, Room, chunks


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
        found = side_by_side(
            lambda here: base.half_solve_in_place(self._kernel(self.samples.inputs, queries[here], self._h)).T, parts
        )
        return np.concatenate(found)
