"""`Fleet.suggest`: where one agent, or all, should measure next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.fleet.joint import conditioned_for
from fleetgp.fleet.named import AgentName, check_agent
from fleetgp.fleet.privacy import predictor_of
from fleetgp.given import check_whole
from fleetgp.options import Eta
from fleetgp.prediction import Suggestion
from fleetgp.prediction.suggestion import Gains, assigned, check_criterion

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def suggest(
    fleet: Fleet,
    agent: AgentName | None,
    candidates: Any,
    n: int = 1,
    *,
    by: str = "variance",
    method: str | None = None,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    neighbours: int | None = None,
    eta: Eta | None = None,
    seed: int | None = None,
) -> Suggestion:
    """The n candidates at which it is most worth to measure next, each given that those before it are measured.

    agent: for whom; it alone is told. None: n places for every agent, no place twice, from the same candidates or, with
        a list of M arrays, from each agent's own. All agents have the same joint posterior and make the same
        assignment: nothing more is sent. The best place goes first; where several agents may go there, it is the turn
        of another one each time.
    candidates: (C, D) places. Copies count once.
    by: "variance", where the fleet knows least; "mutual-information", where an observation tells most about the other
        candidates (Krause, Singh, Guestrin 2008): seldom first at the edge of them.
    method, theta, engine, neighbours, eta, seed: of the joint posterior, as in `joint`, which also says how many
        candidates there may be: 500 in all by a committee.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> places = np.stack(np.meshgrid(np.linspace(0, 2, 6), np.linspace(0, 2, 6)), -1).reshape(-1, 2)
    >>> found = fleet.suggest(0, places, n=3, by="mutual-information")
    >>> found.places.shape, bool((np.diff(found.gains) < 0).any())
    ((3, 2), True)
    >>> fleet.suggest(None, places, n=2).agents.tolist()
    [0, 1, 2, 3, 1, 2, 3, 0]
    """
    check_whole("n", n, least=1)
    check_criterion(by)
    agent = None if agent is None else check_agent(agent, fleet.labels)
    conditioned, given = conditioned_for(fleet, method, theta, engine, neighbours, eta, seed)
    lists = _lists(candidates, agent, fleet.agents)
    checked = [conditioned.checked(one) for one in lists]
    places, first = _distinct(np.concatenate(checked))
    ends = np.cumsum([0, *(len(one) for one in checked)])
    allowed = np.zeros((len(checked), len(places)), dtype=bool)
    for k, (start, end) in enumerate(pairwise(ends)):
        allowed[k, first[start:end]] = True
    rows = [0] * fleet.agents if agent is None and len(checked) == 1 else list(range(len(checked)))
    joint = conditioned.known_jointly(places, method, agent=agent, **given)
    chosen, whose, gains = assigned(Gains(joint.covariance, joint.noise, by), allowed[rows], int(n))
    # Of copies, an agent's first.
    indices = [
        int(np.argmax(first[ends[rows[k]] : ends[rows[k] + 1]] == c)) for c, k in zip(chosen, whose, strict=True)
    ]
    agents = whose if agent is None else np.full(len(whose), agent)
    points = conditioned.source.points(places[chosen])
    found = places[chosen], np.array(indices), agents, gains
    return Suggestion(*found, by, predictor_of(fleet.private, method).name, joint.ledger, points, fleet.labels)


def _lists(candidates: Any, agent: int | None, agents: int) -> list[Any]:
    """Each agent's own candidates, or one for all that there are."""
    apart = isinstance(candidates, list | tuple) and bool(candidates) and all(np.ndim(one) == 2 for one in candidates)
    if not apart:
        return [candidates]
    if agent is not None:
        raise InputError(f"agent {agent}: expected its candidates as one array (C, D), got a list of {len(candidates)}")
    if len(candidates) != agents:
        raise InputError(f"candidates: expected an array for each of the {agents} agents, got {len(candidates)}")
    return list(candidates)


def _distinct(places: Array) -> tuple[Array, Any]:
    """Places without copies, in the order in which they come first, and which of these each is."""
    _, start, which = np.unique(places, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(start, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return places[start[order]], rank[which.ravel()]
