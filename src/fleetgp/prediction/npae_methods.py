"""NPAE from the agents' posteriors: who tells whom what, and which of the three solutions the method takes."""

from __future__ import annotations

import numpy as np

from fleetgp.gp.evaluation import WeightedPosterior
from fleetgp.prediction import npae
from fleetgp.prediction.choice import takes_part
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.cross import ByVectors, ByWeights, Carrier
from fleetgp.prediction.posteriors import Marginals
from fleetgp.prediction.selection import Selection, agree_on_participants
from fleetgp.prediction.task import Answer, Task
from fleetgp.prediction.tree import participants_along_tree


def aggregate_nested(task: Task, conditioned: Conditioned) -> Answer:
    network, options, prior = task.network, task.options, task.prior
    known, carrier = _crossing(task, conditioned)
    nested = npae.NpaeInputs(known.mean, prior - known.variance, prior, carrier)
    participants = task.everyone
    if task.along_tree:
        return _along_tree(task, nested, known)
    if task.method.solver == "direct":
        with network.phase("aggregate"):
            outcome = npae.central(nested, network)
    elif task.method.solver == "dale":
        with network.phase("select"):
            chosen = takes_part(network, nested.explained, prior, options.eta)
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


def _along_tree(task: Task, nested: npae.NpaeInputs, known: Marginals) -> Answer:
    """Who takes part is agreed first, if not all do; then all that they have to say travels, and is solved directly."""
    network, before, participants = task.network, task.network.round, task.everyone
    if task.method.nearest:
        chosen = takes_part(network, nested.explained, task.prior, task.options.eta)
        participants = participants_along_tree(network, chosen, lambda t: nested.explained[:, t])
    with network.phase("aggregate"):
        answers, jitter = npae.along_tree(nested, network, participants, task.to)
    rounds = np.full(len(task.queries), network.round - before)
    return Answer.told(task, answers, participants, rounds, engine=known.engine, jitter=max(jitter, known.jitter))


def _crossing(task: Task, conditioned: Conditioned) -> tuple[Marginals, Carrier]:
    """What the agents' posteriors say, and how they tell each other what their means have in common."""
    hosted, basis = task.network.hosted, task.agreed.basis
    if basis is not None:
        own, known = conditioned.own(hosted).all_at(task.queries)
        return known, ByVectors(own, basis, task.queries)
    posteriors, known = conditioned.weighted(hosted).all_at(task.queries)
    weighted = [posterior for posterior in posteriors if isinstance(posterior, WeightedPosterior)]
    return known, ByWeights(weighted, conditioned.kernel, task.queries)
