r"""Where to measure next, from the joint posterior of the candidates: greedy, each choice given those before it.

What an observation tells does not hang on its value. With Sigma the covariance of f at the candidates given the data
and what was chosen so far, A, and r the noise of an observation, a candidate y has the gain

    "variance"              Sigma_yy
    "mutual-information"    log((Sigma_yy + r) / (Sigma_yy|rest + r)) / 2

with the rest all other candidates that are not chosen: how much more A and y together tell of the candidates that are
left (Krause, Singh, Guestrin 2008, algorithm 1). It keeps away from the edge, where an observation is of little use to
anyone, and is at least 1 - 1/e of the best choice, but for a small constant, if candidates are dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.data.transforms import Points
from fleetgp.errors import InputError, check_name, listed, shortened
from fleetgp.network import Ledger
from fleetgp.prediction.results import Joint, answer_frame
from fleetgp.validation import check_whole

CRITERIA = ("variance", "mutual-information")
#: Gains that differ by less, relative to the largest, are equal: the first of them is taken, on every processor.
EQUAL = 1e-9
#: For the logarithms of candidates that are gone.
TINY = 1e-300


@dataclass(frozen=True)
class Suggestion:
    """Where to measure next, in the order of choice. `Fleet.suggest` makes it.

    places: (n, D).  indices: (n,) which of the candidates of its agent each is.  agents: (n,) who shall go there.
    gains: (n,) by "variance" the variance of f there, given what was chosen before, in squared units of the data; by
        "mutual-information" what is gained of that, in nats. It is negative where more places say no more of the rest.
    criterion, method: how.  ledger: what was sent.
    points: the places, with the names of the inputs.  labels: what all agents of the fleet are called.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = fleet.suggest(None, [[0.1, 0.1], [0.5, 1.9], [1.0, 1.0], [1.9, 0.3]], method="dec-rbcm")
    >>> sorted(found.indices.tolist()), found.gains.shape
    ([0, 1, 2, 3], (4,))
    >>> found.of(3).shape
    (1, 2)
    >>> found.to_frame().columns.tolist()
    ['x1', 'x2', 'agent', 'gain', 'candidate']
    """

    places: Array
    indices: IntArray
    agents: IntArray
    gains: Array
    criterion: str
    method: str
    ledger: Ledger
    points: Points | None = None
    labels: tuple[str, ...] = ()

    def of(self, agent: int | str) -> Array:
        """The places of one agent, by its number or its name, in their order, (k, D)."""
        if isinstance(agent, str) and agent in self.labels:
            agent = self.labels.index(agent)
        whose = sorted(set(self.agents.tolist()))
        check_whole("agent", agent, least=0)
        if agent not in whose:
            raise InputError(f"agent: expected one that has places, {listed(map(str, whose))}, got {shortened(agent)}")
        return np.asarray(self.places[self.agents == agent])

    def to_frame(self) -> Any:
        """A pandas data frame, a row for each place in the order of choice: inputs, agent, gain, candidate.

        agent: its name.  candidate: which of those that were given for the agent.
        """
        names = [self.labels[agent] if self.labels else str(agent) for agent in self.agents.tolist()]
        columns = {"agent": names, "gain": self.gains, "candidate": self.indices}
        return answer_frame(self.points, columns, None)

    def __repr__(self) -> str:
        return f"Suggestion({len(self.places)} places by {self.criterion}, {self.method})"


def candidate_lists(candidates: Any, agent: int | None, agents: int) -> list[Any]:
    """Each agent's own candidates, or one list for all that there are; or one clear error."""
    apart = isinstance(candidates, list | tuple) and bool(candidates) and all(np.ndim(one) == 2 for one in candidates)
    if not apart:
        return [candidates]
    if agent is not None:
        raise InputError(f"agent {agent}: expected its candidates as one array (C, D), got a list of {len(candidates)}")
    if len(candidates) != agents:
        raise InputError(f"candidates: expected an array for each of the {agents} agents, got {len(candidates)}")
    return list(candidates)


def check_criterion(criterion: object) -> None:
    check_name("criterion", criterion, CRITERIA)


@dataclass(frozen=True)
class Candidates:
    """Places where agents may go: one list for all, or one for each agent.

    places: (C, D) without copies, in the order in which they come first.  which: of every candidate, its place.
    ends: (L + 1,) where each list begins and ends.  agent: for whom; None: for all of so many.
    """

    places: Array
    which: IntArray
    ends: IntArray
    agent: int | None
    agents: int

    @classmethod
    def of(cls, lists: Sequence[Array], agent: int | None, agents: int) -> Candidates:
        """lists: (C_k, D) each."""
        every = np.concatenate(lists)
        _, start, which = np.unique(every, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(start, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        ends = np.cumsum([0, *map(len, lists)])
        return cls(every[start[order]], rank[which.ravel()], ends, agent, agents)

    def chosen(self, joint: Joint, criterion: str, n: int) -> tuple[Array, IntArray, IntArray, Array]:
        """The places, which candidates of their agents they are, the agents and the gains, in the order of choice.

        joint: of f at the places.
        """
        lists = [self.which[start:end] for start, end in pairwise(self.ends)]
        allowed = np.zeros((len(lists), len(self.places)), dtype=bool)
        for own, row in zip(lists, allowed, strict=True):
            row[own] = True
        whose_list = [0] * self.agents if self.agent is None and len(lists) == 1 else list(range(len(lists)))
        chosen, whose, gains = assigned(Gains(joint.covariance, joint.noise, criterion), allowed[whose_list], n)
        # Of copies, an agent's first.
        indices = [int(np.argmax(lists[whose_list[k]] == c)) for c, k in zip(chosen, whose, strict=True)]
        agents = whose if self.agent is None else np.full(len(whose), self.agent)
        return self.places[chosen], np.array(indices), agents, gains


class Gains:
    """What each candidate would tell, given what was chosen so far.

    covariance: (C, C) of f.  noise: the variance of an observation beyond that of f.
    """

    def __init__(self, covariance: Array, noise: float, criterion: str) -> None:
        self._noise, self._covariance = noise, covariance.copy()
        #: The inverse of the covariance of observations at the candidates that are left.
        self._precision = (
            np.linalg.inv(covariance + noise * np.eye(len(covariance))) if criterion != "variance" else None
        )

    def now(self) -> Array:
        """(C,); of those that were chosen it holds no meaning."""
        variance = np.diagonal(self._covariance)
        if self._precision is None:
            return variance.copy()
        # 1 / (C^-1)_yy is the variance of an observation given all others that are left.
        ratio = (variance + self._noise) * np.diagonal(self._precision)
        return np.asarray(0.5 * np.log(np.maximum(ratio, TINY)))

    def choose(self, one: int) -> None:
        """Condition on an observation there."""
        column: Array = np.array(self._covariance[:, one])
        self._covariance -= np.outer(column, column) / (column[one] + self._noise)
        if self._precision is not None:
            column = np.array(self._precision[:, one], dtype=float)
            self._precision -= np.outer(column, column) / column[one]


def assigned(gains: Gains, allowed: BoolArray, n: int) -> tuple[IntArray, IntArray, Array]:
    """Candidates, agents and gains of n choices for each agent, in their order; no candidate is chosen twice.

    allowed: (M, C) who may go where. In each turn every agent gets one; the best pair first. Of agents that may go to
    the same place the first counts from one that is another in each turn.
    """
    agents = len(allowed)
    free, chosen, whose, told = allowed.copy(), [], [], []
    needs = np.full(agents, min(n, allowed.shape[1] + 1))
    if not _possible(free, needs):
        raise InputError(f"expected at least {n} different candidates for each agent, so that no two share one")
    for turn in range(n):
        waiting = [(turn + k) % agents for k in range(agents)]
        while waiting:
            now = gains.now()
            agent, one = _best(now, free, needs, waiting)
            chosen.append(one)
            whose.append(agent)
            told.append(now[one])
            gains.choose(one)
            free[:, one] = False
            needs[agent] -= 1
            waiting.remove(agent)
    return np.array(chosen), np.array(whose), np.array(told)


def _best(now: Array, free: BoolArray, needs: IntArray, waiting: list[int]) -> tuple[int, int]:
    """The agent and the candidate with the largest gain after which all others can still get what they need."""
    possible = np.flatnonzero(free[waiting].any(axis=0))
    while possible.size:
        best = now[possible].max()
        one = int(possible[np.argmax(now[possible] >= best - EQUAL * abs(best))])
        for agent in (each for each in waiting if free[each, one]):
            left, rest = free.copy(), needs.copy()
            left[:, one] = False
            rest[agent] -= 1
            if _possible(left, rest):
                return agent, one
        possible = possible[possible != one]
    raise AssertionError("what was possible before is so after a possible choice")


def _possible(free: BoolArray, needs: IntArray) -> bool:
    """Whether every agent can get as many candidates as it needs, none twice."""
    if (free == free[0]).all():
        return bool(free[0].sum() >= needs.sum())
    rows = np.repeat(np.arange(len(free)), needs)
    matched = maximum_bipartite_matching(csr_array(free[rows].astype(np.int8)), perm_type="column")
    return bool((matched >= 0).all())
