"""Products of experts and committee machines: every agent's summands, their totals, what the rule makes of them."""

from __future__ import annotations

import numpy as np

from fleetgp.consensus import average_items
from fleetgp.prediction.beliefs import beliefs_of, first_of
from fleetgp.prediction.choice import choose
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.posteriors import Marginals
from fleetgp.prediction.rules import Beliefs, Rule, finished
from fleetgp.prediction.selection import Selection, agree_on_participants
from fleetgp.prediction.task import Answer, Task
from fleetgp.prediction.tree import sum_over_everyone, sum_over_participants


def aggregate(task: Task, conditioned: Conditioned) -> Answer:
    if task.method.nearest:
        return _over_selection(task, conditioned)
    rule = task.rule
    hosted = list(task.network.hosted)
    nobody = np.zeros((len(hosted), len(task.queries)), dtype=bool)
    own = conditioned.own(hosted).at(task.queries, nobody if rule.augmented else None)
    beliefs, believed = beliefs_of(task, rule, conditioned, task.everyone[hosted], own, first_of(task, task.everyone))
    if task.along_tree:
        return sum_over_everyone(task, rule, beliefs, believed)
    if task.method.decentralized:
        return _averaged(task, rule, beliefs, believed, None)
    return _summed(task, rule, beliefs, believed)


def _over_selection(task: Task, conditioned: Conditioned) -> Answer:
    """CBNN: the correlated agents of each query answer it.

    Selection uses each agent's own data only, also for grBCM: with the samples everyone would be correlated everywhere.
    """
    rule, own, before = task.rule, conditioned.own(task.network.hosted), task.network.round
    choice = choose(task, conditioned, only_who=rule.augmented)
    known, prior = choice.known, task.prior
    if task.along_tree:
        return sum_over_participants(task, conditioned, choice.chosen, known, before)
    with task.network.phase("select"):
        participants = agree_on_participants(
            task.network, choice.chosen, lambda t: prior[:, t] - own.at(task.queries[t]).variance
        )
    selection, takes = Selection(task.network.topology, participants), participants[list(task.network.hosted)]
    if not rule.augmented:
        alone = takes & ~choice.asked  # whoever answers where nobody is correlated
        known = known.completed(own.at(task.queries, alone), alone)
    beliefs, believed = beliefs_of(task, rule, conditioned, takes, known, first_of(task, participants))
    return _averaged(task, rule, beliefs, believed, selection)


def _summed(task: Task, rule: Rule, beliefs: Beliefs, believed: Marginals) -> Answer:
    """The totals and the answer at a central node."""
    network = task.network
    with network.phase("aggregate"):
        sent = network.gather({"predictions": rule.summands(beliefs)})["predictions"]
        totals = np.tile(np.sum(sent, axis=0), (len(network.hosted), 1, 1))
        count = np.full(beliefs.mean.shape, float(network.agents))
        means, variances = finished(rule, totals, count, beliefs)
        told = network.scatter(np.stack([means[0], variances[0]]), "predictions")
    return Answer(told[:, 0], told[:, 1], task.everyone, engine=believed.engine, jitter=believed.jitter)


def _averaged(task: Task, rule: Rule, beliefs: Beliefs, believed: Marginals, selection: Selection | None) -> Answer:
    """The totals by an average consensus of all agents, or of those selected, which tell the others."""
    network, options = task.network, task.options
    participants = task.everyone if selection is None else selection.participants
    hosted = list(network.hosted)
    summands = np.where(participants[hosted][..., None], rule.summands(beliefs), 0.0)
    with network.phase("average"):
        averaging = average_items(
            network, summands, kind="predictions", tol=options.tol, rounds=options.rounds, scope=selection
        )
    size = float(network.agents) if selection is None else selection.size[:, None]
    count = np.tile(participants.sum(axis=0).astype(float), (len(hosted), 1))
    means, variances = finished(rule, averaging.state * size, count, beliefs)
    if selection is not None:
        with network.phase("spread"):
            means, variances, averaging = selection.spread(network, means, variances, averaging)
    return Answer(means, variances, participants, averaging, engine=believed.engine, jitter=believed.jitter)
