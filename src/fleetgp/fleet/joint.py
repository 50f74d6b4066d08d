"""The joint posterior of f at several points, where one agent has all data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.fleet.answering import agree_on_model
from fleetgp.fleet.conditioned import check_queries
from fleetgp.fleet.source import source_of
from fleetgp.gp.dense.engine import DenseEngine
from fleetgp.network import InProcess
from fleetgp.prediction import PredictionOptions, prediction_method
from fleetgp.prediction.conditioned import Conditioned

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet

#: Rows, and points, of a joint covariance: matrices of so many take 0.8 GB each.
MOST_JOINT = 10_000


def joint_posterior(fleet: Fleet, queries: Any) -> tuple[Array, Array]:
    """Mean (T,) and covariance (T, T) of f at the queries by the dense engine, in the units of the data."""
    if fleet.agents != 1:
        raise InputError(
            f"a joint covariance needs one agent with all data, got a fleet of {fleet.agents}: fit with one agent, or "
            "ask for standard deviations"
        )
    source = source_of(fleet, None, fleet._trained)
    points = check_queries(queries, source)
    most = max(len(points), len(source.shards[0][1]))
    if most > MOST_JOINT:
        raise InputError(f"a joint covariance is of at most {MOST_JOINT} rows and points, got {most}: give fewer")
    method = prediction_method("dec-poe")  # of one agent every method is the same
    view, theta = agree_on_model(InProcess(fleet.graph), source, method, PredictionOptions(engine="dense"))
    conditioned = Conditioned(
        view.coordinates.apply(source.shards), source.kernel, theta[None], view.scaling, engine="dense"
    )
    ((inputs, observations),) = conditioned.shards
    posterior = DenseEngine(inputs, observations, source.kernel, agent=0).condition(conditioned.thetas[0])
    places = source.kernel.noises.padded(view.coordinates.places(points))
    mean, covariance = posterior.mean_and_covariance(places)
    return np.asarray(view.scaling.mean(places) + view.scaling.scale * mean), view.scaling.scale**2 * covariance
