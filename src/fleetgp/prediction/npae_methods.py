"""NPAE from the agents' posteriors: who tells whom what, and which of the three solutions the method takes."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.gp.dense.posterior import DensePosterior
from fleetgp.gp.evaluation import Posterior
from fleetgp.prediction import npae
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.cross import ByVectors, ByWeights, Carrier
from fleetgp.prediction.posteriors import Posteriors
from fleetgp.prediction.selection import Selection, agree_on_participants, takes_part
from fleetgp.prediction.task import Answer, Task


def aggregate_nested(task: Task, conditioned: Conditioned) -> Answer:
    network, options, prior = task.network, task.options, task.prior
    posteriors, carrier = _crossing(task, conditioned)
    known = posteriors.at(task.queries)
    nested = npae.NpaeInputs(known.mean, prior[:, None] - known.variance, prior, carrier)
    participants = task.everyone
    if task.method.solver == "direct":
        with network.phase("aggregate"):
            outcome = npae.central(nested, network)
    elif task.method.solver == "dale":
        with network.phase("select"):
            chosen = takes_part(nested.explained, prior, options.eta)
            participants = agree_on_participants(network, chosen, lambda t: nested.explained[:, t])
        selection = Selection(network.topology, participants)
        outcome = npae.over_selection(nested, network, selection, tol=options.tol, rounds=options.rounds)
    else:
        star = task.method.solver == "jor-star"
        outcome = npae.over_everyone(
            nested, network, star=star, tol=options.tol, rounds=options.rounds, seed=options.seed
        )
    return Answer(
        outcome.means,
        outcome.variances,
        participants,
        outcome.averaging,
        outcome.solving,
        known.engine,
        max(outcome.jitter, known.jitter),
    )


def _crossing(task: Task, conditioned: Conditioned) -> tuple[Posteriors, Carrier]:
    """The agents' posteriors, and how they tell each other what their means have in common."""
    hosted, basis = task.network.hosted, task.agreed.basis
    if basis is not None:
        own = conditioned.own(hosted)
        return own, ByVectors(own.all(), basis, task.queries)
    dense = conditioned.dense(hosted)
    return dense, ByWeights(_as_dense(dense.all()), task.queries)


def _as_dense(posteriors: Sequence[Posterior]) -> list[DensePosterior]:
    return [posterior for posterior in posteriors if isinstance(posterior, DensePosterior)]
