"""`Fleet.joint` and `Fleet.sample`: mean and covariance of f at several points together, and draws of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetgp.arrays import Array
from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.named import AgentName
from fleetgp.fleet.predicting import conditioned_now
from fleetgp.fleet.privacy import predictor_of
from fleetgp.gp.expert import check_engine_name
from fleetgp.options import Eta
from fleetgp.prediction import Joint
from fleetgp.prediction.methods import refuse_foreign

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def joint(
    fleet: Fleet,
    queries: Any,
    method: str | None = None,
    *,
    noisy: bool = False,
    agent: AgentName | None = None,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    neighbours: int | None = None,
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

    noisy: the covariance of observations instead of that of f, with the noise of the agent that asks on its diagonal.
    agent: who asks, by its number or its name: along the tree no other agent is told.
    theta, engine, neighbours, eta, seed: as in `predict`. Calibration factors are in the covariance as in variances.

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
    conditioned, given = conditioned_for(fleet, method, theta, engine, neighbours, eta, seed)
    return conditioned.joint(queries, method, noisy=noisy, agent=agent, **given)


def conditioned_for(
    fleet: Fleet,
    method: str | None,
    theta: Sequence[float] | Array | None,
    engine: str,
    neighbours: int | None,
    eta: Eta | None,
    seed: int | None,
) -> tuple[ConditionedFleet, dict[str, Any]]:
    """The conditioned fleet that a method asks, and the options that are left for it."""
    check_engine_name(engine)
    row = predictor_of(fleet.private, method)
    nearest = row.rule == "nearest"
    refuse_foreign(row, {"engine": None if engine == "auto" else engine, "neighbours": neighbours})
    conditioned = conditioned_now(fleet, theta, engine, None if nearest else neighbours)
    return conditioned, {"eta": eta, "seed": seed, "neighbours": neighbours if nearest else None}


def sample(fleet: Fleet, queries: Any, n: int = 1, method: str | None = None, *, seed: int = 0, **given: Any) -> Array:
    """Draws (n, T) from the joint posterior of f at the queries (T, D), the same for the same seed.

    seed: of the draws.  given: noisy, agent, theta, engine, neighbours and eta, as in `joint`.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> fleet.sample([[0.5, 0.5], [0.5, 0.6]], n=3, method="dec-full-gp", seed=7).shape
    (3, 2)
    """
    return joint(fleet, queries, method, **given).sample(n, seed)
