"""`Fleet.gradient`: the slope of the field, which vehicles follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetgp.arrays import Array
from fleetgp.fleet.joint import conditioned_for
from fleetgp.fleet.named import AgentName
from fleetgp.options import Eta
from fleetgp.prediction import Gradient

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def gradient(
    fleet: Fleet,
    queries: Any,
    method: str | None = None,
    *,
    agent: AgentName | None = None,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    neighbours: int | None = None,
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
    theta, engine, neighbours, eta, seed: as in `predict`. The agents add up (D + 1) times the numbers of a
    prediction. NPAE, and averages over neighbours (consensus="average"), have none.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> slope = fleet.gradient([[0.5, 0.5]], "dec-rbcm").gradient
    >>> ahead, behind = fleet.predict([[0.5, 0.5 + 1e-6], [0.5, 0.5 - 1e-6]], "dec-rbcm").mean
    >>> bool(abs(slope[0, 1] - (ahead - behind) / 2e-6) < 1e-4)
    True
    """
    conditioned, given = conditioned_for(fleet, method, theta, engine, neighbours, eta, seed)
    return conditioned.gradient(queries, method, agent=agent, **given)
