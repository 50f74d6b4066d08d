"""`Fleet.predict`, `condition`, `predict_joint`, `predict_gradient` and `suggest`.

`Fleet.predict` and `Fleet.condition`.

`Fleet.joint` and `Fleet.sample`: mean and covariance of f at several points together, and draws of it.

`Fleet.gradient`: the slope of the field, which vehicles follow.

`Fleet.suggest`: where one agent, or all, should measure next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.expert import ENGINES
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError
from fleetgp.fleet.answering import current_calibration
from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.named import AgentName, check_agent
from fleetgp.fleet.privacy import predictor_of
from fleetgp.fleet.source import source_of
from fleetgp.options import Beta, Consensus, Eta
from fleetgp.prediction import Gradient, Joint, Prediction, Suggestion
from fleetgp.prediction.registry import refuse_foreign
from fleetgp.prediction.suggestion import Gains, assigned, check_criterion
from fleetgp.validation import check_whole

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def predict(
    fleet: Fleet,
    queries: Any,
    method: str | None = None,
    *,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    n_neighbours: int | None = None,
    consensus: Consensus | None = None,
    rounds: int | None = None,
    tol: float | None = None,
    eta: Eta | None = None,
    beta: Beta | None = None,
    seed: int | None = None,
    observed: bool = False,
    agent: AgentName | None = None,
) -> Prediction:
    """Mean and variance at the queries (T, D), by any of `PREDICTION_METHODS`; every agent gets the answer.

    method: dec-nn-grbcm without one, which shares a sample of N_i/M rows of every agent with all agents; dec-nn-rbcm,
        which sends no row, if the fleet was made with private="rows".
    queries: an array with the inputs in their order, or a data frame that has them among its columns. Inputs that
        are times (`units`) may be times there. Or an xarray Dataset or DataArray with the inputs as coordinates: all
        cells, and `to_dataset` of the result has their grid.
    theta: hyperparameters in natural units; without it those of the last training (the agents agree on the
        mean of their estimates), or those given to the fleet.
    consensus: with dec-, "tree" (default) adds up along the spanning tree: exact, in as many rounds as twice the
        graph's radius. "average" takes the paper's recursions over neighbours.
    rounds, tol: with consensus="average", every query averages until its agents differ by less than tol (1e-6),
        relatively, or for this many rounds (20,000); `status` says which. For NPAE tol is relative to what the
        agents explain.
    eta: with dec-nn-, an agent takes part in a query if k_i*' C_i^-1 k_i* is at least eta sigma_f^2 (1e-3);
        with "auto", if it tells at least half as much as the best agent (in nats): few agents, also where
        length-scales are long and everybody is correlated.
    beta: with grBCM, the weights of the agents. With "relative" (default) they are d_i / sqrt(sum_j d_j^2), where
        d_i is the information of an agent's data beyond the samples, in nats: all agents count alike. With "paper"
        the first agent that takes part has 1, the others d_i: the answer depends on the order of the agents.
    observed: whether `variance` is of an observation or of f; `std` is of f and `std_observed` of an observation in
        any case, and `interval(0.95)` has its ends.
    agent: who asks: `mean` and `variance` are its answer, and along the tree no other agent is told. Without it
        every agent gets the answer: `means` and `variances` have them all.
    seed: draws the samples of grBCM, per agent, and the start of dec-npae-star; without it the fleet's.
    engine, n_neighbours: as in `train`. With "dense" NPAE sends the agents' inputs; else a vector per query, and no
        input, even where the inputs would be shorter. With dec-nearest n_neighbours is how many observations of the
        whole fleet answer a query (30).

    An option that the method does not have is refused.
    The fleet stays conditioned (see `condition`) until its data, theta or another engine need new posteriors: the
    next prediction is faster, and sends less, since nothing that was agreed on before is sent again.
    Where the answer is no better than the prior (`uninformed` of the result), a FleetGPWarning says so.
    """
    ENGINES.check(engine)
    row = predictor_of(fleet.private, method)
    refuse_foreign(row, {"engine": None if engine == "auto" else engine})
    nearest = row.rule == "nearest"
    conditioned = conditioned_now(fleet, theta, engine, None if nearest else n_neighbours)
    given: dict[str, Any] = {"consensus": consensus, "rounds": rounds, "tol": tol, "eta": eta, "seed": seed}
    given |= {"n_neighbours": n_neighbours if nearest else None, "beta": beta}
    return conditioned.predict(queries, row.name, observed=observed, agent=agent, **given)


def conditioned_now(
    fleet: Fleet, theta: Sequence[float] | Array | None, engine: str, n_neighbours: int | None
) -> ConditionedFleet:
    """The fleet as it is, conditioned: the same as before, unless something has changed."""
    source = source_of(fleet, theta, fleet._trained)
    if fleet._conditioned is None or not fleet._conditioned.same(source, engine, n_neighbours):
        fleet._conditioned = ConditionedFleet(
            source, engine, n_neighbours, fleet._conditioner, fleet._backend, before=fleet._conditioned
        )
    fleet._conditioned.calibration = current_calibration(fleet, theta)
    return fleet._conditioned


def condition(
    fleet: Fleet, theta: Sequence[float] | Array | None = None, *, engine: str = "auto", n_neighbours: int | None = None
) -> ConditionedFleet:
    """The fleet at one theta: an object with every agent's posterior, whose `predict` answers query after query.

    It stays as it is when the fleet is trained again or gets another theta. See `predict` for theta, engine
    and n_neighbours.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> conditioned = fleet.condition()
    >>> first, second = (conditioned.predict([[0.5, 0.5]], "dec-nn-grbcm") for _ in range(2))
    >>> bool(first.mean == second.mean), first.ledger.bytes > second.ledger.bytes
    (True, True)
    """
    source, how = source_of(fleet, theta, fleet._trained), current_calibration(fleet, theta)
    return ConditionedFleet(source, engine, n_neighbours, backend=fleet._backend, calibration=how)


def earlier_moments(fleet: Fleet) -> tuple[FleetMoments, tuple[int, ...]] | None:
    """The moments to which those of newer rows will be added, and how many rows of each agent they are of.

    Those of the last answer of dec-full-gp, where it came from this process, else those of the training.
    """
    if fleet.last_fit is None or fleet.theta is None or not fleet.data.in_memory:
        return None
    source, last = source_of(fleet, None, fleet._trained), fleet._conditioned
    if source.moments is None:
        return None
    found = last.last_moments if last is not None and source.grown_from(last.source) else None
    return found or (source.moments, source.trained)


def joint(
    fleet: Fleet,
    queries: Any,
    method: str | None = None,
    *,
    observed: bool = False,
    agent: AgentName | None = None,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    n_neighbours: int | None = None,
    eta: Eta | None = None,
    seed: int | None = None,
) -> Joint:
    """Mean (T,) and covariance (T, T) of f at the queries (T, D) together, by any method of `predict` but NPAE.

    full-gp, dec-full-gp: the exact joint posterior; dec-full-gp in no round. With one agent every method is it.
    dec-nearest: the exact one of all observations that are among the nearest to any of the queries; at most 5,000.
    PoE, gPoE, BCM, rBCM, grBCM: the committee's rule, applied to the whole vector of queries at once. At most 500
    queries: the agents add up T(T+3)/2 + 1 numbers along the tree (T = 100: 41 kB up and down each edge).

    The variances of a joint committee are not those of `predict`, where queries are correlated; those of one query
    are. A committee supposes that the agents' data are independent of each other given f at the queries. Given f at one
    point they are not; given f at many they nearly are, as Tresp (2000) proposed. So what two agents both infer
    from the field between them is counted less often, and more queries among the data make the answer better.

    observed: the covariance of observations instead of f, with the noise of the agent that asks on its diagonal.
    agent: who asks, by its number or its name: along the tree no other agent is told.
    theta, engine, n_neighbours, eta, seed: as in `predict`. Calibration factors are in the covariance as in variances.

    Where the covariance of queries is close to singular, as of points that are close together with a smooth kernel, a
    committee adds 1e-9 of the prior variance to each variance, and says so in `jitter`.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> found = fleet.joint([[0.5, 0.5], [0.5, 0.6], [1.5, 0.2]], "dec-rbcm")
    >>> found.covariance.shape, found.rounds, found.sample(5, seed=1).shape
    ((3, 3), 4, (5, 3))
    """
    conditioned, given = conditioned_for(fleet, method, theta, engine, n_neighbours, eta, seed)
    return conditioned.joint(queries, method, observed=observed, agent=agent, **given)


def conditioned_for(
    fleet: Fleet,
    method: str | None,
    theta: Sequence[float] | Array | None,
    engine: str,
    n_neighbours: int | None,
    eta: Eta | None,
    seed: int | None,
) -> tuple[ConditionedFleet, dict[str, Any]]:
    """The conditioned fleet that a method asks, and the options that are left for it."""
    ENGINES.check(engine)
    row = predictor_of(fleet.private, method)
    nearest = row.rule == "nearest"
    refuse_foreign(row, {"engine": None if engine == "auto" else engine, "n_neighbours": n_neighbours})
    conditioned = conditioned_now(fleet, theta, engine, None if nearest else n_neighbours)
    return conditioned, {"eta": eta, "seed": seed, "n_neighbours": n_neighbours if nearest else None}


def sample(fleet: Fleet, queries: Any, n: int = 1, method: str | None = None, *, seed: int = 0, **given: Any) -> Array:
    """Draws (n, T) from the joint posterior of f at the queries (T, D), the same for the same seed.

    seed: of the draws.  given: observed, agent, theta, engine, n_neighbours and eta, as in `joint`.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> fleet.sample([[0.5, 0.5], [0.5, 0.6]], n=3, method="dec-full-gp", seed=7).shape
    (3, 2)
    """
    return joint(fleet, queries, method, **given).sample(n, seed)


def gradient(
    fleet: Fleet,
    queries: Any,
    method: str | None = None,
    *,
    agent: AgentName | None = None,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    n_neighbours: int | None = None,
    eta: Eta | None = None,
    seed: int | None = None,
) -> Gradient:
    """The gradient (T, D) of the mean at the queries (T, D), in units of the data per unit of each input as given.

    It is that of what `predict` answers by the same method, with the same agents taking part and the same observations
    among the nearest: at places where these change, `predict` has small steps, which no gradient tells of. Far from all
    data it is the slope of the mean function, which is zero without mean="linear".

    By full-gp, dec-full-gp and dec-nearest, and of one agent alone, `std` and `covariance` tell how well the gradient
    of f is known. With matern12 f has none, and the mean has kinks at the data: see `kinks`.
    agent: who asks, by its number or its name: along the tree no other agent is told.
    theta, engine, n_neighbours, eta, seed: as in `predict`. The agents add up (D + 1) times the numbers of a
    prediction. NPAE, and averages over neighbours (consensus="average"), have none.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> slope = fleet.gradient([[0.5, 0.5]], "dec-rbcm").gradient
    >>> ahead, behind = fleet.predict([[0.5, 0.5 + 1e-6], [0.5, 0.5 - 1e-6]], "dec-rbcm").mean
    >>> bool(abs(slope[0, 1] - (ahead - behind) / 2e-6) < 1e-4)
    True
    """
    conditioned, given = conditioned_for(fleet, method, theta, engine, n_neighbours, eta, seed)
    return conditioned.gradient(queries, method, agent=agent, **given)


def suggest(
    fleet: Fleet,
    agent: AgentName | None,
    candidates: Any,
    n: int = 1,
    *,
    criterion: str = "variance",
    method: str | None = None,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    n_neighbours: int | None = None,
    eta: Eta | None = None,
    seed: int | None = None,
) -> Suggestion:
    """The n candidates at which it is most worth to measure next, each given that those before it are measured.

    agent: for whom; it alone is told. None: n places for every agent, no place twice, from the same candidates or, with
        a list of M arrays, from each agent's own. All agents have the same joint posterior and make the same
        assignment: nothing more is sent. The best place goes first; where several agents may go there, it is the turn
        of another one each time.
    candidates: (C, D) places. Copies count once.
    criterion: "variance", where the fleet knows least; "mutual-information", where an observation tells most about the
        other candidates (Krause, Singh, Guestrin 2008): seldom first at the edge of them.
    method, theta, engine, n_neighbours, eta, seed: of the joint posterior, as in `joint`, which also says how many
        candidates there may be: 500 in all by a committee.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> places = np.stack(np.meshgrid(np.linspace(0, 2, 6), np.linspace(0, 2, 6)), -1).reshape(-1, 2)
    >>> found = fleet.suggest(0, places, n=3, criterion="mutual-information")
    >>> found.places.shape, bool((np.diff(found.gains) < 0).any())
    ((3, 2), True)
    >>> fleet.suggest(None, places, n=2).agents.tolist()
    [0, 1, 2, 3, 1, 2, 3, 0]
    """
    check_whole("n", n, least=1)
    check_criterion(criterion)
    agent = None if agent is None else check_agent(agent, fleet.labels)
    conditioned, given = conditioned_for(fleet, method, theta, engine, n_neighbours, eta, seed)
    lists = _lists(candidates, agent, fleet.agents)
    checked = [conditioned.checked(one) for one in lists]
    places, first = _distinct(np.concatenate(checked))
    ends = np.cumsum([0, *(len(one) for one in checked)])
    allowed = np.zeros((len(checked), len(places)), dtype=bool)
    for k, (start, end) in enumerate(pairwise(ends)):
        allowed[k, first[start:end]] = True
    rows = [0] * fleet.agents if agent is None and len(checked) == 1 else list(range(len(checked)))
    joint = conditioned.known_jointly(places, method, agent=agent, **given)
    chosen, whose, gains = assigned(Gains(joint.covariance, joint.noise, criterion), allowed[rows], int(n))
    # Of copies, an agent's first.
    indices = [
        int(np.argmax(first[ends[rows[k]] : ends[rows[k] + 1]] == c)) for c, k in zip(chosen, whose, strict=True)
    ]
    agents = whose if agent is None else np.full(len(whose), agent)
    points = conditioned.source.points(places[chosen])
    found = places[chosen], np.array(indices), agents, gains
    return Suggestion(*found, criterion, predictor_of(fleet.private, method).name, joint.ledger, points, fleet.labels)


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
