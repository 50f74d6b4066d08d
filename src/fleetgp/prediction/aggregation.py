"""Products of experts and committee machines: every agent's summands, their totals, what the rule makes of them.

What the hosted agents believe at the queries, as an aggregation rule takes it.

Products of experts and committee machines along the spanning tree: one reduction, exact.

Sums, how many take part and who took part travel together. The root makes mean and
variance of them, so that what every agent is told has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import average_items
from fleetgp.network import Merge, Network
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.posteriors import Marginals, first_used
from fleetgp.prediction.rules import PAPER_GRBCM, SMALLEST, Beliefs, Rule, finished
from fleetgp.prediction.selection import Selection, agree_on_participants, choose
from fleetgp.prediction.task import Answer, Task


def beliefs_of(
    task: Task, rule: Rule, conditioned: Conditioned, takes: BoolArray, own: Marginals, first: BoolArray
) -> tuple[Beliefs, Marginals]:
    """What enters the rule: the agents' own posteriors; for grBCM those of augmented data and of the samples alone.

    takes: (A, T) which hosted agents take part.  first: (A, T) of these, the one with beta = 1.
    """
    hosted, floor = list(task.network.hosted), SMALLEST * task.prior
    believed = common = own
    if rule.augmented:
        found, common = conditioned.with_samples(hosted, task.agreed.samples, task.queries, takes)
        believed = replace(found, jitter=max(found.jitter, common.jitter, own.jitter))
    variance, common_variance = (np.maximum(b.variance, floor) for b in (believed, common))
    return Beliefs(believed.mean, variance, task.prior, common.mean, common_variance, first), believed


def first_of(task: Task, participants: BoolArray) -> BoolArray:
    """(A, T) whether a hosted agent is the first that takes part."""
    return np.asarray(participants.argmax(axis=0)[None, :] == np.asarray(task.network.hosted)[:, None])


def sum_over_everyone(task: Task, rule: Rule, beliefs: Beliefs, believed: Marginals) -> Answer:
    """The rule's totals over all agents, and what the root makes of them."""
    network, before = task.network, task.network.round

    def finish(totals: Array, _: BoolArray | None) -> Array:
        return _finish(task, rule, beliefs, totals, np.full(len(totals), float(network.agents)))

    with network.phase("aggregate"):
        told = network.reduce(
            rule.summands(beliefs), "predictions", finish=finish, result_shape=(2,), recipient=task.to
        )
    rounds = np.full(len(task.queries), network.round - before)
    who = task.everyone if told is not None else np.zeros_like(task.everyone)
    return Answer.told(task, told, who, rounds, engine=believed.engine, jitter=believed.jitter)


def sum_over_participants(
    task: Task, conditioned: Conditioned, chosen: BoolArray, known: Marginals, began: int
) -> Answer:
    """CBNN: the totals over the agents that take part, chosen (A, T), from what they know of the queries.

    Where nobody does, the most correlated agent answers alone: all hear of such queries, and find it out.
    began: the round in which the agents began to choose.
    """
    answer, absent = _summed_along_tree(task, conditioned, chosen, known, began)
    if not absent.any():
        return answer
    where = np.flatnonzero(absent)
    before, part = task.network.round, replace(task, queries=task.queries[where], prior=task.prior[:, where])
    alone = most_correlated(task, conditioned, where)
    known = conditioned.own(task.network.hosted).at(part.queries, alone)
    found, _ = _summed_along_tree(part, conditioned, alone, known, before)
    return _completed(answer, found, where, task.network.round - before)


def _summed_along_tree(
    task: Task, conditioned: Conditioned, chosen: BoolArray, known: Marginals, began: int
) -> tuple[Answer, BoolArray]:
    """The answer, and the queries in which nobody takes part."""
    network, rule, first = task.network, task.rule, np.zeros_like(chosen)
    if rule is PAPER_GRBCM:  # who comes first must be known before anything is added up
        first = first_of(task, _who_takes_part(network, chosen)[0])
    beliefs, believed = beliefs_of(task, rule, conditioned, chosen, known, first)
    x = rule.summands(beliefs)

    def finish(rows: Array, who: BoolArray | None) -> Array:
        assert who is not None, "not all take part"
        count = who.sum(axis=0).astype(float)
        return _finish(task, rule, beliefs, rows, count)

    with network.phase("aggregate"):
        found = network.reduce_present(x, chosen, "predictions", finish=finish, result_shape=(2,), recipient=task.to)
    rounds = np.full(len(task.queries), network.round - began)
    who = np.zeros((network.agents, len(task.queries)), dtype=bool) if found.who is None else found.who
    told = Answer.told(task, found.value, who, rounds, engine=believed.engine, jitter=believed.jitter)
    return told, found.absent


def _finish(task: Task, rule: Rule, beliefs: Beliefs, totals: Array, count: Array) -> Array:
    """Mean and variance (T, 2), at the root."""
    root = task.network.hosted.index(task.network.tree.root)
    own = beliefs.of_agent(root)
    means, variances = finished(rule, totals[None], count[None], own)
    return np.stack([means[0], variances[0]], axis=-1)


# ---- the most correlated -----------------------------------------------------------------------------------------


def _more_correlated(one: Array, other: Array) -> Array:
    """Rows (correlation, number): the larger correlation; of equals, the smaller number."""
    better = (one[..., 0] > other[..., 0]) | ((one[..., 0] == other[..., 0]) & (one[..., 1] <= other[..., 1]))
    return np.where(better[..., None], one, other)


MOST_CORRELATED = Merge(_more_correlated, -np.inf)


def most_correlated(task: Task, conditioned: Conditioned, where: IntArray) -> BoolArray:
    """(A, n): the one agent that answers each of these queries; every agent learns which."""
    ids = np.asarray(task.network.hosted, dtype=float)[:, None]
    return np.asarray(winners(task.network, correlations(task, conditioned, where)) == ids)


def correlations(task: Task, conditioned: Conditioned, where: IntArray) -> Array:
    """(A, n) what each hosted agent's own data explain at these queries."""
    return task.prior[:, where] - conditioned.own(task.network.hosted).at(task.queries[where]).variance


def participants_along_tree(network: Network, chosen: BoolArray, correlation: Callable[[IntArray], Array]) -> BoolArray:
    """Who takes part, (M, T), at every agent, from each hosted agent's own choice (A, T).

    Where nobody chose itself, it is the most correlated alone: correlation(t) is each hosted agent's with the queries
    t, (A, len(t)).
    """
    who, absent = _who_takes_part(network, chosen)
    participants, where = who.copy(), np.flatnonzero(absent)
    if where.size:
        participants[winners(network, correlation(where)).astype(int), where] = True
    return participants


def _who_takes_part(network: Network, chosen: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Who chose itself, (M, T), and where nobody did, (T,), at every agent."""
    with network.phase("select"):
        found = network.reduce_present(np.zeros((*chosen.shape, 0)), chosen, "predictions")
    assert found.who is not None, "all agents are told"
    return found.who, found.absent


def taking_part(task: Task, conditioned: Conditioned) -> BoolArray:
    """Who takes part in which query, (M, T), known to every agent before anything is added up."""
    if not task.method.nearest:
        return task.everyone
    chosen = choose(task, conditioned, only_who=True).chosen
    return participants_along_tree(task.network, chosen, lambda where: correlations(task, conditioned, where))


def winners(network: Network, explained: Array) -> Array:
    """(n,) the numbers of the agents with the largest correlations, (A, n)."""
    ids = np.broadcast_to(np.asarray(network.hosted, dtype=float)[:, None], explained.shape)
    with network.phase("select"):
        best = network.reduce(np.stack([explained, ids], axis=-1), "statistics", MOST_CORRELATED)
    assert best is not None, "all agents are told"
    return best[:, 1]


def _completed(answer: Answer, other: Answer, where: IntArray, more: int) -> Answer:
    """An answer with that of another in some of its queries, which took so many rounds more."""
    means, variances, who = answer.means.copy(), answer.variances.copy(), answer.participants.copy()
    means[:, where], variances[:, where], who[:, where] = other.means, other.variances, other.participants
    assert answer.rounds is not None, "it came along the tree"
    rounds = answer.rounds.copy()
    rounds[where] += more
    engine = first_used(answer.engine, other.engine)
    return Answer(means, variances, who, engine=engine, jitter=max(answer.jitter, other.jitter), rounds=rounds)


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
