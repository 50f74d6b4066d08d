"""`Fleet.predict` and `Fleet.condition`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetgp.arrays import Array
from fleetgp.data.streamed import Streamed
from fleetgp.fleet.calibrating import current_calibration
from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.named import AgentName
from fleetgp.fleet.privacy import predictor_of
from fleetgp.fleet.source import source_of
from fleetgp.gp.expert import check_engine_name
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.options import Beta, Consensus, Eta
from fleetgp.prediction import Prediction
from fleetgp.prediction.methods import refuse_foreign

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def predict(
    fleet: Fleet,
    queries: Any,
    method: str | None = None,
    *,
    theta: Sequence[float] | Array | None = None,
    engine: str = "auto",
    neighbours: int | None = None,
    consensus: Consensus | None = None,
    rounds: int | None = None,
    tol: float | None = None,
    eta: Eta | None = None,
    beta: Beta | None = None,
    seed: int | None = None,
    noisy: bool = False,
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
    noisy: whether `variance` is of an observation or of f; `std` is of f and `std_observed` of an observation in
        any case, and `interval(0.95)` has its ends.
    agent: who asks: `mean` and `variance` are its answer, and along the tree no other agent is told. Without it
        every agent gets the answer: `means` and `variances` have them all.
    seed: draws the samples of grBCM, per agent, and the start of dec-npae-star; without it the fleet's.
    engine, neighbours: as in `train`. With "dense" NPAE sends the agents' inputs; else a vector per query, and no
        input, even where the inputs would be shorter. With dec-nearest neighbours is how many observations of the
        whole fleet answer a query (30).

    An option that the method does not have is refused.
    The fleet stays conditioned (see `condition`) until its data, theta or another engine need new posteriors: the
    next prediction is faster, and sends less, since nothing that was agreed on before is sent again.
    Where the answer is no better than the prior (`uninformed` of the result), a FleetGPWarning says so.
    """
    check_engine_name(engine)
    row = predictor_of(fleet.private, method)
    refuse_foreign(row, {"engine": None if engine == "auto" else engine})
    nearest = row.rule == "nearest"
    conditioned = conditioned_now(fleet, theta, engine, None if nearest else neighbours)
    given: dict[str, Any] = {"consensus": consensus, "rounds": rounds, "tol": tol, "eta": eta, "seed": seed}
    given |= {"neighbours": neighbours if nearest else None, "beta": beta}
    return conditioned.predict(queries, row.name, noisy=noisy, agent=agent, **given)


def conditioned_now(
    fleet: Fleet, theta: Sequence[float] | Array | None, engine: str, neighbours: int | None
) -> ConditionedFleet:
    """The fleet as it is, conditioned: the same as before, unless something has changed."""
    source = source_of(fleet, theta, fleet._trained)
    if fleet._conditioned is None or not fleet._conditioned.same(source, engine, neighbours):
        fleet._conditioned = ConditionedFleet(
            source, engine, neighbours, fleet._conditioner, fleet._backend, before=fleet._conditioned
        )
    fleet._conditioned.calibration = current_calibration(fleet, theta)
    return fleet._conditioned


def condition(
    fleet: Fleet, theta: Sequence[float] | Array | None = None, *, engine: str = "auto", neighbours: int | None = None
) -> ConditionedFleet:
    """The fleet at one theta: an object with every agent's posterior, whose `predict` answers query after query.

    It stays as it is when the fleet is trained again or gets another theta. See `predict` for theta, engine
    and neighbours.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> conditioned = fleet.condition()
    >>> first, second = (conditioned.predict([[0.5, 0.5]], "dec-nn-grbcm") for _ in range(2))
    >>> bool(first.mean == second.mean), first.ledger.bytes > second.ledger.bytes
    (True, True)
    """
    source, how = source_of(fleet, theta, fleet._trained), current_calibration(fleet, theta)
    return ConditionedFleet(source, engine, neighbours, backend=fleet._backend, calibration=how)


def earlier_moments(fleet: Fleet) -> tuple[FleetMoments, tuple[int, ...]] | None:
    """The moments to which those of newer rows will be added, and how many rows of each agent they are of.

    Those of the last answer of dec-full-gp, where it came from this process, else those of the training.
    """
    if fleet.fit is None or fleet.theta is None or isinstance(fleet.data, Streamed):
        return None
    source, last = source_of(fleet, None, fleet._trained), fleet._conditioned
    if source.moments is None:
        return None
    found = last.last_moments if last is not None and source.grown_from(last.source) else None
    return found or (source.moments, source.trained)
