"""full-gp and dec-full-gp: the exact GP of all data, from their rows at a central node, or from their moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import SPARE, agree_on_moments, grown_moments
from fleetgp.consensus.reductions import gather_data
from fleetgp.data.dataset import Dataset
from fleetgp.engines.base import Posterior, Slopes, joined
from fleetgp.engines.expert import FleetExpert, has_moments, refuse_rough
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.methods import (
    ROWS,
    Answer,
    GradientAnswer,
    JointAnswer,
    PredictionMethod,
    PreparedQuery,
    PreviousState,
    SharedState,
    Vector,
)
from fleetgp.prediction.posteriors import SMALLEST, chunks


@dataclass(frozen=True)
class Exact(PredictionMethod):
    """The GP of all data: at a central node, or decentralized, of their moments at every agent."""

    @property
    def rule(self) -> str:
        return "full-gp"

    @property
    def options(self) -> tuple[str, ...]:
        return ("engine", "n_neighbours")

    @property
    def notes(self) -> tuple[str, str]:
        if not self.decentralized:
            return "all its data", "the exact reference"
        return (
            "once, the moments of its data, summed",
            "exact as full-gp, and no round: smooth fields, two inputs or so",
        )

    def kinds(self, kernel: Kernel | None, engine: str, consensus: str) -> tuple[str, ...]:
        # Who has new rows is known as participants.
        return ("statistics", "moments", *(("participants",) if self.decentralized else ("predictions", *ROWS)))

    def exact(self, agents: int) -> bool:
        return True

    def takes_moments(self, *, central: bool) -> bool:
        return central != self.decentralized

    def check_joint(self, agents: int) -> None:
        pass

    def check_gradient(self, agents: int) -> None:
        pass

    # ---- all data --------------------------------------------------------------------------------------------

    def agree(
        self,
        network: Network,
        conditioned: Conditioned,
        options: PredictionOptions,
        previous: PreviousState | None = None,
    ) -> SharedState:
        shards, theta = conditioned.shards, conditioned.thetas[0]  # all agents have the same, where it matters
        previous = None if previous is None or not previous.grown else previous
        if self.decentralized:
            refuse_rough(conditioned.kernel, options.engine)
            return SharedState(moments=_moments(network, shards, theta, previous))
        if not shards.in_memory and has_moments(conditioned.kernel, options.engine):
            try:
                moments = None if previous is None else previous.state.moments
                if moments is None or not FleetExpert(moments).covers(theta):
                    moments = agree_on_moments(network, shards, theta, central=True)
                FleetExpert(moments).condition(theta)  # or an error
                return SharedState(moments=moments)
            except NumericalError as why:
                shards.load_instead(why)
        known = None if previous is None or conditioned.kernel.noise_model.robust else previous.state.pool
        if previous is None or known is None:
            return SharedState(pool=Observations.joined(gather_data(network, shards)))
        return SharedState(pool=Observations.joined([known, *gather_data(network, previous.since(shards))]))

    def _posterior(self, query: PreparedQuery) -> tuple[Posterior, list[Observations]]:
        """f | all data, and these where it is from rows."""
        shared, conditioned = query.shared, query.conditioned
        if shared.moments is not None:
            return conditioned.of_moments(shared.moments), []
        assert shared.pool is not None, "it was agreed on"
        return conditioned.whole(shared.pool).items([0])[0], [shared.pool]

    # ---- answers ---------------------------------------------------------------------------------------------

    def predict(self, query: PreparedQuery) -> Answer:
        shared, conditioned, jitter = query.shared, query.conditioned, 0.0
        if shared.moments is not None:
            mean, variance = conditioned.exact(shared.moments, query.queries)
            engine: tuple[str, ...] = ("moments",)
        else:
            assert shared.pool is not None, "it was agreed on"
            known = conditioned.whole(shared.pool).at(query.queries)
            mean, variance, engine, jitter = known.mean[0], known.variance[0], known.engine, known.jitter
        result = np.stack([mean, np.maximum(variance, SMALLEST * query.prior[0])])
        if self.decentralized:
            everywhere = np.tile(result, (len(query.hosted), 1, 1))
        else:
            with query.network.phase("pool"):
                everywhere = query.network.scatter(result, "predictions")
        engine = engine * len(query.hosted)
        return Answer(everywhere[:, 0], everywhere[:, 1], query.everyone, engine=engine, jitter=jitter)

    def joint(self, query: PreparedQuery) -> JointAnswer:
        return joint_of_one(self, query, self._posterior(query)[0])

    def gradient(self, query: PreparedQuery) -> GradientAnswer:
        return gradient_of_one(self, query, *self._posterior(query))


def _moments(network: Network, shards: Dataset, theta: Array, previous: PreviousState | None) -> FleetMoments:
    """Of all data: those that there are, with those of new rows, or all again where that will not do."""
    moments = None if previous is None else previous.state.moments
    if moments is not None and previous is not None and not previous.unchanged:
        moments = grown_moments(network, moments, previous.since(shards))
    if moments is None or not FleetExpert(moments).covers(theta):
        return agree_on_moments(network, shards, theta, spare=1 if previous is None else SPARE)
    return moments


# ---- of one posterior --------------------------------------------------------------------------------------------


def joint_of_one(method: PredictionMethod, query: PreparedQuery, posterior: Posterior) -> JointAnswer:
    """At every agent; or at a central node, which sends it to all."""
    vector = Vector(*posterior.mean_and_covariance(query.queries))
    if not method.decentralized:
        with query.network.phase("pool"):
            query.network.scatter(vector.packed, "predictions")
    return JointAnswer(vector, query.everyone, (posterior.engine,) * len(query.hosted), posterior.jitter)


def gradient_of_one(
    method: PredictionMethod, query: PreparedQuery, posterior: Posterior, data: Sequence[Observations]
) -> GradientAnswer:
    """The same for gradients. data: what the posterior is of, for kinks; none where it is from moments."""
    slopes = slopes_at(posterior, query.queries, sum(map(len, data)))
    if not method.decentralized:
        with query.network.phase("pool"):
            rows = np.concatenate([slopes.mean, slopes.covariance.reshape(len(query.queries), -1)], axis=1)
            query.network.scatter(rows, "predictions")
    kinks = np.zeros(query.queries.shape, dtype=bool)
    for one in data:
        kinks |= query.conditioned.kinks(one.places, query.queries)
    engine = (posterior.engine,) * len(query.hosted)
    return GradientAnswer(slopes.mean, slopes.covariance, query.everyone, engine, kinks, posterior.jitter)


def slopes_at(posterior: Posterior, queries: Array, size: int) -> Slopes:
    """In chunks of queries, for a posterior of so many observations."""
    width = queries.shape[1]
    parts = chunks(np.arange(len(queries)), size * width)
    return joined([posterior.slopes(queries[part]) for part in parts], width)
