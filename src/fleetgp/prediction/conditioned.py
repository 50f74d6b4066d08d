"""Agents conditioned on their data: posteriors at fixed hyperparameters that answer query after query."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import augmented, without
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.transforms import VIEW_AS_GIVEN, Coordinates, View
from fleetgp.engines.base import Posterior, translate_theta_errors
from fleetgp.engines.expert import MOST_DENSE, Expert, FleetExpert, check_engine, condition, may_be_another, reweighed
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.vecchia.engine import NEIGHBOURS
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.prediction.groups import Groups, all_of, as_observed
from fleetgp.prediction.kept import KeptGroups, KeptInModel
from fleetgp.prediction.posteriors import Extensions, Marginals, Posteriors, Room, chunks
from fleetgp.prediction.reach import Reach

#: By the number of an agent, the rows of each group that it has sent. They stay whatever the model and the options are:
#: groups of other rows would differ from these by a few rows. Of groups that were joined it has the joined one.
SentGroups = dict[int, tuple[IntArray, ...]]


class Conditioned:
    """The posteriors of the agents hosted here, computed when a method first needs them, and kept.

    shards, thetas: the agents' data, and hyperparameters (A, P), both as a user has them.  view: how the model sees
    them.  names: of the hyperparameters, for errors.
    It knows no network: what other agents sent comes with each call, and what was computed from it is kept until
    they send something else. `hosted` are the agents' numbers in the network, for the draws of samples and errors.
    kept: the groups of rows that they have forgotten, as a user has them; empty if there are none.
    """

    def __init__(
        self,
        shards: Dataset,
        kernel: Kernel,
        thetas: Array,
        view: View = VIEW_AS_GIVEN,
        engine: str = "auto",
        n_neighbours: int = NEIGHBOURS,
        names: Sequence[str] | None = None,
    ) -> None:
        check_engine(engine, kernel)
        self.kernel, self.engine, self.view, self.scaling = kernel, engine, view, view.scaling
        self._n_neighbours = n_neighbours
        self._expert = partial(_expert, kernel=kernel, engine=engine, n_neighbours=n_neighbours)
        of_inputs, moved = model_units(kernel, view.coordinates, shards.dimension), shards.moved(view.coordinates)
        of_values = np.exp(view.scaling.shift(kernel.units(moved.dimension)))
        self._units, self._names = of_inputs * of_values, names
        self._given, self.thetas = thetas, thetas / of_inputs / of_values
        self.shards = moved.rescaled(view.scaling)
        self.noise = thetas[:, -1:] ** 2
        if kernel.noise_model.differs:
            self.noise = np.array([self._noise(own, theta) for own, theta in zip(self.shards, thetas, strict=True)])
        if kernel.noise_model.robust:
            self.shards = InMemory(side_by_side(self._weighed, range(len(thetas))))
        self._room = Room()
        self._kept: dict[str, Posteriors] = {}
        self._extended: Extensions | None = None
        self._replaced: set[int] = set()  # whose part of the extensions is of other rows
        self.sent: SentGroups = {}
        self.kept: Sequence[KeptGroups] = ()
        self._exact: tuple[FleetMoments, Posterior] | None = None

    def in_user_units(self) -> AbstractContextManager[None]:
        """Errors about theta from within, as the user would say it."""
        return translate_theta_errors(units=self._units, names=self._names)

    def replace(self, i: int, data: Observations) -> None:
        """Other observations of one agent, as a user has them: nothing is recomputed for any other."""
        self.shards = self.shards.replaced(i, self.view.of(data))
        self._renew_noise(i)
        if self.kernel.noise_model.robust:
            self.shards = self.shards.replaced(i, self._weighed(i))
        for role in ("own", "weighted"):
            if role in self._kept:
                self._kept[role].renew(i, self.shards[i])
        if "reach" in self.__dict__:
            self.reach.renew(i, self.shards[i].inputs)
        self._replaced.add(i)

    def append(self, i: int, more: Observations) -> None:
        """More observations of one agent, as a user has them: nothing is recomputed for any other.

        What joins an agent's data with the samples of all agents stays for as long as these do.
        """
        scaled = self.view.of(more)
        self.shards = self.shards.grown(i, scaled)
        self._renew_noise(i)
        robust = self.kernel.noise_model.robust
        if robust:
            self.shards = self.shards.replaced(i, self._weighed(i))
        for role in ("own", "weighted"):
            if role in self._kept and robust:  # old rows have other weights
                self._kept[role].renew(i, self.shards[i])
            elif role in self._kept:
                self._kept[role].grow(i, self.shards[i])
        if "reach" in self.__dict__:
            self.reach.renew(i, self.shards[i].inputs)
        if self._extended is not None and robust:
            self._extended.release()
            self._extended = None
        elif self._extended is not None and i not in self._replaced:
            self._extended.grow(i, Observations.joined([self._extended.data[i], scaled]))

    def _noise(self, data: Observations, theta: Array) -> Array:
        """(1,) the trained variance of an observation of whoever made these, in the units of theta."""
        sigmas = self.kernel.sigmas(theta)
        if not len(data):  # of an agent without rows nothing is known: some noise of the others
            return np.median(sigmas, keepdims=True) ** 2
        return np.asarray(self.kernel.noise_model.trained(data.rows(slice(1)), sigmas) ** 2)

    def _renew_noise(self, i: int) -> None:
        """The first rows of an agent say which noise is its own."""
        if self.kernel.noise_model.differs:
            self.noise[i] = self._noise(self.shards[i], self._given[i])

    def _weighed(self, i: int) -> Observations:
        """A hosted agent's data, with the weights of outliers at its theta."""
        return reweighed(self._expert(self.shards[i], None, moments=False), self.thetas[i]).data

    def prior(self, queries: Array) -> Array:
        """k(x*, x*) by each agent's theta, (A, T)."""
        return self._priors(queries, self.thetas)

    def _priors(self, queries: Array, thetas: Array) -> Array:
        """The same by these thetas; once for all that are alike."""
        distinct, which = np.unique(thetas, axis=0, return_inverse=True)
        result = [self.kernel.variance(queries, Hyperparameters.from_theta(theta)) for theta in distinct]
        if len(result) == 1:
            return np.broadcast_to(result[0], (len(thetas), len(queries)))
        return np.stack(result)[which.ravel()]

    def own(self, hosted: Sequence[int]) -> Posteriors:
        """f | D_i."""
        return self._of("own", self.shards, hosted, self.thetas)

    def weighted(self, hosted: Sequence[int]) -> Posteriors:
        """f | D_i, by engines that know the weights of single observations."""
        if self._never_by_moments:
            return self.own(hosted)
        return self._of("weighted", self.shards, hosted, self.thetas, moments=False)

    def augmented(self, hosted: Sequence[int], samples: Sequence[Observations]) -> Posteriors:
        """f | D_i and the samples of the others."""
        data = [augmented(shard, i, samples) for shard, i in zip(self.shards, hosted, strict=True)]
        return self._of("augmented", data, hosted, self.thetas)

    def grouped(self, hosted: Sequence[int], groups: Sequence[Groups]) -> Posteriors:
        """f | D_i, the groups of the others, and the agent's own ones of rows that it has forgotten."""
        data = []
        for own, i in zip(self.shards, hosted, strict=True):
            mine = groups[i].rows(groups[i].without_rows) if groups[i].without_rows.any() else None
            others = [mine if j == i else one for j, one in enumerate(groups)]
            every = all_of([one for one in others if one is not None], own)
            data.append(Observations.joined([*every, as_observed(own)]))
        return self._of("grouped", data, hosted, self.thetas, kernel=self._known_noise)

    def of_groups(self, groups: Sequence[Groups]) -> tuple[Posteriors, IntArray]:
        """f | all groups at each theta that there is, and (A,) which of these is a hosted agent's."""
        distinct, which = np.unique(self.thetas, axis=0, return_inverse=True)
        data = [Observations.joined(list(all_of(groups, self.shards[0])))] * len(distinct)
        posteriors = self._of("groups", data, [None] * len(distinct), distinct, kernel=self._known_noise, fewer=2)
        return posteriors, which.ravel()

    def forgotten(self) -> list[KeptInModel]:
        """The groups of rows that the hosted agents have forgotten; empty if there are none at all."""
        if not any(map(len, self.kept)):
            return []
        return [
            KeptInModel(
                one.at(self.view.coordinates),
                self.scaling,
                self.kernel,
                Hyperparameters.from_theta(theta),
                float(self._noise(own, theta)[0]),
            )
            for one, own, theta in zip(self.kept, self.shards, self.thetas, strict=True)
        ]

    @cached_property
    def _known_noise(self) -> Kernel:
        """The kernel for observations of which some have a known noise."""
        return with_noise(self.kernel, replace(self.kernel.noise_model, known=True))

    def common(self, samples: Sequence[Observations], queries: Array) -> Marginals:
        """f | samples at the queries, by every hosted agent: one posterior for all agents of the same theta."""
        posteriors, rows = self.of_samples(samples)
        result = posteriors.at(queries)
        engine = tuple(result.engine[row] for row in rows)
        return Marginals(result.mean[rows], result.variance[rows], engine, result.jitter)

    def of_samples(self, samples: Sequence[Observations]) -> tuple[Posteriors, IntArray]:
        """f | samples at each theta that there is, and (A,) which of these is a hosted agent's."""
        distinct, which = np.unique(self.thetas, axis=0, return_inverse=True)
        data = [Observations.joined(samples)] * len(distinct)
        return self._of("common", data, [None] * len(distinct), distinct), which.ravel()

    def whole(self, pool: Observations) -> Posteriors:
        """f | all data, at the geometric mean of the agents' thetas: for the exact GP at a central node."""
        theta = np.exp(np.log(self.thetas).mean(axis=0))
        return self._of("whole", [pool], [None], theta[None])

    def exact(self, moments: FleetMoments, queries: Array) -> tuple[Array, Array]:
        """Mean and variance (T,) of f | all data, which are known by their moments, at the theta of all agents."""
        posterior = self.of_moments(moments)
        parts = chunks(np.arange(len(queries)), moments.count)
        results = side_by_side(lambda part: posterior.mean_and_variance(queries[part]), parts)
        mean, variance = (np.concatenate(rows) for rows in zip(*results, strict=True))
        return mean, variance

    def of_moments(self, moments: FleetMoments) -> Posterior:
        """f | all data, which are known by their moments."""
        if self._exact is None or self._exact[0] is not moments:
            (result,) = condition([FleetExpert(moments)], self.thetas[:1], lambda posterior: posterior)
            self._exact = moments, result
        return self._exact[1]

    def with_samples(
        self, hosted: Sequence[int], samples: Sequence[Observations], queries: Array, wanted: BoolArray
    ) -> tuple[Marginals, Marginals]:
        """f | D_i and the samples of the others, where it is wanted (A, T); and f | samples, everywhere."""
        dense = self._dense_anyway(hosted, samples)
        result = None
        if dense.any() and (self.thetas == self.thetas[0]).all():
            result = self._extensions(hosted, samples).at(queries, wanted & dense)
        if result is not None and dense.all():
            return result
        rest = wanted if result is None else wanted & ~dense
        others = self.augmented(hosted, samples).at(queries, rest), self.common(samples, queries)
        if result is None:
            return others
        where = np.broadcast_to(~dense, wanted.shape)
        return result[0].completed(others[0], where), result[1].completed(others[1], where)

    def _extensions(self, hosted: Sequence[int], samples: Sequence[Observations]) -> Extensions:
        pool, kept = Observations.joined(samples), self._extended
        if kept is None or kept.agents != tuple(hosted) or not kept.samples.same(pool):
            if kept is not None:
                kept.release()
            rest = [without(shard, samples[i]) for shard, i in zip(self.shards, hosted, strict=True)]
            kept = self._extended = Extensions(pool, rest, hosted, self.thetas[0], self.kernel, self._room)
            self._replaced = set()
        while self._replaced:
            i = self._replaced.pop()
            kept.renew(i, without(self.shards[i], samples[hosted[i]]))
        return kept

    @property
    def _never_by_moments(self) -> bool:
        return self.engine in ("dense", "vecchia") or not self.kernel.has_moments

    def _dense_anyway(self, hosted: Sequence[int], samples: Sequence[Observations]) -> BoolArray:
        """(A, 1) whose data with the samples of the others are certain to be the dense engine's."""
        if not self._never_by_moments or self.engine == "vecchia" or may_be_another(self.engine):
            return np.zeros((len(hosted), 1), dtype=bool)
        others = sum(map(len, samples))
        sizes = [len(own) + others - len(samples[i]) for own, i in zip(self.shards, hosted, strict=True)]
        return np.array([[self.engine == "dense" or size <= MOST_DENSE] for size in sizes])

    def kinks(self, inputs: Array, queries: Array) -> BoolArray:
        """(T, D) along which inputs a mean from observations at these inputs has a kink at which query."""
        result = np.zeros(queries.shape, dtype=bool)
        for axes in self.kernel.rough_axes(queries.shape[1]):
            places = {row.tobytes() for row in inputs[:, list(axes)] + 0.0}  # no -0.0
            there = np.array([row.tobytes() in places for row in queries[:, list(axes)] + 0.0], dtype=bool)
            result[:, list(axes)] |= there[:, None]
        return result

    @cached_property
    def reach(self) -> Reach:
        """How far the agents' own data reach."""
        return Reach([own.inputs for own in self.shards], self.thetas, self.kernel)

    def _of(
        self,
        role: str,
        data: Sequence[Observations],
        agents: Sequence[int | None],
        thetas: Array,
        *,
        moments: bool = True,
        kernel: Kernel | None = None,
        fewer: int = 1,
    ) -> Posteriors:
        kept = self._kept.get(role)
        changes = {} if kept is None else InMemory(data).changes_since(InMemory(kept.data))
        if kept is None or len(kept.data) != len(data):
            if kept is not None:
                kept.release()
            neighbours = -(-self._n_neighbours // fewer)
            kept = self._kept[role] = Posteriors(
                data,
                agents,
                thetas,
                partial(
                    self._expert,
                    kernel=kernel or self.kernel,
                    engine=self.engine if kernel is None or self.engine != "moments" else "auto",
                    n_neighbours=neighbours,
                    moments=moments,
                ),
                self._room,
                self._priors,
            )
            return kept
        for i, rows in changes.items():
            if rows is None:
                kept.renew(i, data[i])
            else:
                kept.grow(i, data[i])
        return kept


def _expert(
    data: Observations,
    agent: int | None,
    *,
    kernel: Kernel,
    engine: str,
    n_neighbours: int,
    moments: bool,
) -> Expert:
    return Expert(data, kernel, agent, engine, n_neighbours, moments=moments)


def model_units(kernel: Kernel, coordinates: Coordinates, dimension: int) -> Array:
    """Of the hyperparameters in the coordinates of the model, in those of a user, (P,)."""
    return np.exp(coordinates.shift(kernel.units(dimension)))
