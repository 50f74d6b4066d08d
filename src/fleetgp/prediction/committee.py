"""Products of experts and committee machines: every agent's summands, their totals, and what the rule makes of them.

Along the spanning tree the sums are exact, in one reduction: sums, how many take part and who takes part travel
together, and the root makes mean and variance of them, so that all agents receive the same bits. Otherwise the totals
come from a server, or from an average consensus over all agents or over the selected ones.

Gradients are exactly those of what `predict` answers. Each agent differentiates its own mean and variance; the rules
are differentiated as they stand, by a complex step: a function of x + i h x' with h = 1e-30 has its derivative along x'
in its imaginary part, to rounding. What the agents add up, and its derivatives along each input, travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import average_items
from fleetgp.consensus.agreements import Drawn, communication_data
from fleetgp.consensus.reductions import of_fleet
from fleetgp.engines.base import Slopes
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import Merge, Network
from fleetgp.network.reduction import Finish
from fleetgp.options import PredictionOptions
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.exact import gradient_of_one, joint_of_one, slopes_at
from fleetgp.prediction.groups import agree_on_groups, nearness, with_earlier
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
from fleetgp.prediction.posteriors import SMALLEST, UNUSED, Marginals, Posteriors, first_used
from fleetgp.prediction.rules import (
    POE,
    RBCM,
    AggregationRule,
    Beliefs,
    Frame,
    JointRule,
    Pieces,
    finished,
    joint_posterior,
    normalizer,
)
from fleetgp.prediction.selection import Selection, agree_on_participants, choose

#: The complex step: its square is nothing beside 1, and no number of a model is so small.
STEP = 1e-30


@dataclass(frozen=True)
class Committee(PredictionMethod):
    """Every agent answers from its own data, and an aggregation rule makes one answer of all."""

    aggregation: AggregationRule = POE

    @property
    def rule(self) -> str:
        return self.aggregation.name

    @property
    def options(self) -> tuple[str, ...]:
        """The options that have a meaning for this method.

        >>> Committee("dec-nn-poe", decentralized=True, nearest=True).options
        ('engine', 'n_neighbours', 'consensus', 'rounds', 'tol', 'eta')
        """
        agrees = ("consensus", "rounds", "tol") if self.decentralized and not self.aggregation.grouped else ()
        selects = ("eta",) if self.nearest else ()
        return ("engine", "n_neighbours", *agrees, *selects, *self.aggregation.options)

    @property
    def notes(self) -> tuple[str, str]:
        sends, use = self.aggregation.sends, self.aggregation.use
        if not self.decentralized:
            return sends.replace("numbers", "numbers per point"), use
        sends = sends.replace("numbers", "numbers per point, up a tree; 2 down", 1)
        return sends, f"as dec-{self.rule}, but the correlated agents only" if self.nearest else use

    def kinds(self, kernel: Kernel | None, engine: str, consensus: str) -> tuple[str, ...]:
        shared = ("groups",) if self.aggregation.grouped else ROWS if self.aggregation.augmented else ()
        kinds = ["statistics", "predictions", *shared]
        kinds += ["participants"] if self.nearest or self.aggregation.grouped else []
        return (*kinds, *(["stopping"] if consensus == "average" and self.decentralized else []))

    def explained(self, prior: Array, participants: BoolArray, variances: Array) -> Array:
        return self.aggregation.explained(prior, participants, variances)

    @property
    def grouped(self) -> bool:
        return self.aggregation.grouped

    def exact(self, agents: int) -> bool:
        return agents == 1

    def check_joint(self, agents: int) -> None:
        if agents > 1 and not isinstance(self.aggregation, JointRule):
            raise InputError(
                f"{self.name} has no joint covariance, since its rule says nothing of many queries together: use "
                "dec-summary or dec-nearest, or predict for variances"
            )

    def check_gradient(self, agents: int) -> None:
        pass

    def agreement_key(self, options: PredictionOptions) -> tuple[object, ...]:
        if self.aggregation.grouped:
            return self.rule, self.decentralized, options.min_rows, options.budget
        seed = options.seed if self.aggregation.augmented else None
        return self.rule, self.decentralized, seed, options.engine

    def agree(
        self,
        network: Network,
        conditioned: Conditioned,
        options: PredictionOptions,
        previous: PreviousState | None = None,
    ) -> SharedState:
        """The samples or the groups of all agents, for rules that need them."""
        if self.aggregation.grouped:
            h = Hyperparameters.from_theta(conditioned.thetas[0])
            before = None if previous is None else previous.state.groups
            sent = [conditioned.sent.get(agent, before[agent].of_rows if before else ()) for agent in network.hosted]
            kept = conditioned.forgotten()
            groups = agree_on_groups(network, conditioned.shards, conditioned.kernel, h, options, before, sent, kept)
            for agent, old in zip(network.hosted, sent, strict=True):
                conditioned.sent[agent] = with_earlier(groups[agent].of_rows, old)
            return SharedState(groups=groups)
        if not self.aggregation.augmented:
            return SharedState()
        drawn = None if previous is None else Drawn(previous.state.samples, previous.rows)
        known = None if conditioned.kernel.noise_model.robust else drawn
        with network.phase("augment"):
            samples = communication_data(
                network, conditioned.shards, options.seed, central=not self.decentralized, before=known
            )
        return SharedState(samples=tuple(samples))

    def rule_for(self, query: PreparedQuery) -> AggregationRule:
        """With the options.

        A fleet of one agent answers with its posterior, whatever the method, unless it holds groups of agents that are
        away, or of rows that it has forgotten. Where no agent has enough rows for a group, each has its own rows alone.
        """
        own, away = query.shared.groups[:1], query.shared.groups[1:]
        nothing_more = not any(map(len, away)) and not any(one.without_rows.any() for one in own)
        if query.network.agents == 1 and nothing_more:
            return POE
        if self.aggregation.grouped and not any(map(len, query.shared.groups)):
            return RBCM
        return self.aggregation.configured(query.options)

    # ---- mean and variance -----------------------------------------------------------------------------------

    def predict(self, query: PreparedQuery) -> Answer:
        if self.nearest:
            return self._over_selection(query)
        rule = self.rule_for(query)
        if rule.grouped:
            return self._over_nearness(query, rule)
        hosted = query.hosted
        none = np.zeros((len(hosted), len(query.queries)), dtype=bool)
        own = query.conditioned.own(hosted).at(query.queries, none if rule.augmented else None)
        everyone = query.everyone
        beliefs, known = beliefs_of(query, rule, everyone[hosted], own, first_of(query, everyone))
        if not self.decentralized:
            return _summed_at_server(query, rule, beliefs, known)
        if query.options.consensus == "average":
            return _averaged(query, rule, beliefs, known, None)
        network, before = query.network, query.network.round

        def finish(totals: Array, _: BoolArray | None) -> Array:
            return _finish(query, rule, beliefs, totals, np.full(len(totals), float(network.agents)))

        with network.phase("aggregate"):
            result = network.reduce(
                rule.summands(beliefs), "predictions", finish=finish, result_shape=(2,), recipient=query.to
            )
        rounds = np.full(len(query.queries), network.round - before)
        who = everyone if result is not None else query.nobody
        return Answer.along_tree(query, result, who, rounds, engine=known.engine, jitter=known.jitter)

    def _over_nearness(self, query: PreparedQuery, rule: AggregationRule) -> Answer:
        """Those answer whose groups are among the nearest; or each agent alone, without a message."""
        if query.options.local or query.network.agents == 1:
            known = query.conditioned.grouped(query.hosted, query.shared.groups).at(query.queries)
            variance = np.maximum(known.variance, SMALLEST * query.prior)
            return Answer(known.mean, variance, query.everyone, engine=known.engine, jitter=known.jitter)
        takes = nearness_of(query)[0][query.hosted] > 0.0
        nobody = Marginals(np.zeros(takes.shape), query.prior, (UNUSED,) * len(takes), 0.0)
        return _summed_along_tree(query, rule, takes, nobody, query.network.round)[0]

    def _over_selection(self, query: PreparedQuery) -> Answer:
        """CBNN: the correlated agents of each query answer it.

        Selection uses each agent's own data only, also for grBCM: with the samples everyone would be correlated
        everywhere.
        """
        network, before, rule = query.network, query.network.round, self.rule_for(query)
        own = query.conditioned.own(network.hosted)
        choice = choose(query, only_who=rule.augmented)
        if query.options.consensus == "tree":
            return _over_participants(query, rule, choice.chosen, choice.known, before)
        prior = query.prior
        with network.phase("select"):
            participants = agree_on_participants(
                network, choice.chosen, lambda t: prior[:, t] - own.at(query.queries[t]).variance
            )
        selection, takes = Selection(network.topology, participants), participants[query.hosted]
        known = choice.known
        if not rule.augmented:
            alone = takes & ~choice.asked  # whoever answers where nobody is correlated
            known = known.completed(own.at(query.queries, alone), alone)
        beliefs, known = beliefs_of(query, rule, takes, known, first_of(query, participants))
        return _averaged(query, rule, beliefs, known, selection)

    def _participants(self, query: PreparedQuery) -> BoolArray:
        """Who takes part in which query, (M, T), known to every agent before anything is added up."""
        if self.rule_for(query).grouped:
            return np.asarray(nearness_of(query)[0] > 0.0)
        if not self.nearest:
            return query.everyone
        chosen = choose(query, only_who=True).chosen
        return participants_along_tree(query.network, chosen, lambda where: correlations(query, where))

    # ---- joint predictions -----------------------------------------------------------------------------------

    def joint(self, query: PreparedQuery) -> JointAnswer:
        """Every agent's evidence, added up along the tree, or at a central node; what the root makes of it."""
        network, rule, size = query.network, self.rule_for(query), len(query.queries)
        if network.agents == 1:
            return joint_of_one(self, query, _knowledge(query, rule).items([0])[0])
        assert isinstance(rule, JointRule), "refused before"
        participants = self._participants(query)
        frames, own = _frames(query, rule), _knowledge(query, rule)
        weights = nearness_of(query)[0] if rule.grouped else np.ones(participants.shape)
        count, engine, jitter = participants.sum(axis=0).astype(float), [], 0.0
        known: list[Pieces | None] = []
        for i, agent in enumerate(network.hosted):
            takes = participants[agent]
            posterior = own.items([i])[0] if takes.any() else None
            engine.append(UNUSED if posterior is None else posterior.engine)
            jitter = max(jitter, 0.0 if posterior is None else posterior.jitter)
            vector = None if posterior is None else Vector(*posterior.mean_and_covariance(query.queries))
            pieces = None if vector is None else rule.pieces(frames[i], vector, takes, count)
            known.append(None if pieces is None else pieces.counted(weights[agent]))
        norm = self._norm(query, known) if rule.compares_agents else None
        nothing = np.zeros((size, size)), np.zeros(size)
        evidence = [nothing if one is None else rule.evidence(one, norm) for one in known]
        rows = np.stack([np.append(Vector(pull, precision).packed, 0.0) for precision, pull in evidence])

        def finish(totals: Array, _: BoolArray | None) -> Array:
            root = network.hosted.index(network.tree.root) if self.decentralized else 0
            total = Vector.unpacked(totals[:-1], size)
            vector, needed = joint_posterior(rule, frames[root], total.covariance, total.mean)
            return np.append(vector.packed, needed)

        result = self._total(query, rows, finish, ())
        if result is None:
            return JointAnswer(None, query.nobody, tuple(engine), jitter)
        vector, needed = Vector.unpacked(result[:-1], size), float(result[-1])
        return JointAnswer(vector, participants, tuple(engine), max(jitter, needed))

    def _norm(self, query: PreparedQuery, known: Sequence[Pieces | None]) -> Array:
        """What the weights of grBCM are divided by: a reduction of the agents' squared information."""
        size = len(query.queries)
        upper, nothing = np.triu_indices(size), np.zeros((size, size))
        with query.network.phase("select"):
            total = of_fleet(query.network, central=not self.decentralized).total(
                np.stack([(nothing if one is None else one.squared_information)[upper] for one in known])
            )
        return normalizer(Vector.unpacked(np.concatenate([np.zeros(size), total]), size).covariance)

    def _total(self, query: PreparedQuery, rows: Array, finish: Finish, shape: tuple[int, ...]) -> Array | None:
        """What is made of the sum of the agents' rows (A, ..); None where no hosted agent receives it."""
        network = query.network
        with network.phase("aggregate"):
            if self.decentralized:
                return network.reduce(rows, "predictions", finish=finish, result_shape=shape, recipient=query.to)
            sent = network.gather({"predictions": rows})["predictions"]
            return np.asarray(network.scatter(finish(np.sum(sent, axis=0), None), "predictions")[0])

    # ---- gradients -------------------------------------------------------------------------------------------

    def gradient(self, query: PreparedQuery) -> GradientAnswer:
        """The rule's sums with their derivatives; the root makes the gradient of them."""
        network, rule, (size, width) = query.network, self.rule_for(query), query.queries.shape
        conditioned = query.conditioned
        if network.agents == 1:
            alone = _knowledge(query, rule)
            return gradient_of_one(self, query, alone.items([0])[0], alone.data)
        participants = self._participants(query)
        takes = participants[query.hosted]
        unused = rule.augmented or rule.grouped
        own = conditioned.own(network.hosted).at(query.queries, np.zeros_like(takes) if unused else takes)
        beliefs, known = beliefs_of(query, rule, takes, own, first_of(query, participants))
        along = list(_along_each_input(query, rule, beliefs, takes))
        terms = [rule.summands(one) for one in along]
        x = np.concatenate([terms[0].real, *(np.imag(term) / STEP for term in terms)], axis=-1)
        kinks = np.stack([conditioned.kinks(data.places, query.queries) for data in _knowledge(query, rule).data])
        rows = np.where(takes[..., None], np.concatenate([x, kinks], axis=-1), 0.0)
        count = participants.sum(axis=0).astype(float)

        def finish(totals: Array, everyone: BoolArray | None) -> Array:
            root = network.hosted.index(network.tree.root) if self.decentralized else 0
            values, *changes, kinked = np.split(totals, terms[0].shape[-1] * np.arange(1, width + 2), axis=1)
            slopes = np.empty((size, width))
            for d, change in enumerate(changes):
                total: Any = values + 1j * STEP * change
                means, _ = rule.finish(total[None], count[None], along[d].of_agent(root))
                slopes[:, d] = np.imag(means[0]) / STEP
            return np.concatenate([slopes, kinked > 0.0], axis=1)

        result = self._total(query, rows, finish, (2 * width,))
        if result is None:
            return GradientAnswer.unknown(query, known.engine)
        kinked = result[:, width:] > 0.0
        return GradientAnswer(result[:, :width], None, participants, known.engine, kinked, known.jitter)


# ---- what the agents believe -------------------------------------------------------------------------------------


def beliefs_of(
    query: PreparedQuery, rule: AggregationRule, takes: BoolArray, own: Marginals, first: BoolArray
) -> tuple[Beliefs, Marginals]:
    """What enters the rule: the agents' own posteriors; for grBCM those of augmented data and of the samples alone.

    takes: (A, T) which hosted agents take part.  first: (A, T) of these, the one with beta = 1.
    """
    floor, weight = SMALLEST * query.prior, np.ones(takes.shape)
    known = common = own
    if rule.grouped:
        weight = nearness_of(query)[0]
        # Where one agent answers alone, nobody needs to know what the groups say.
        needed = (weight > 0.0).sum(axis=0) != 1
        posteriors, which = _common(query, rule)
        alike = posteriors.at(query.queries, np.tile(needed, (len(posteriors.data), 1)))
        common = Marginals(alike.mean[which], alike.variance[which], own.engine, alike.jitter)
        known = _knowledge(query, rule).at(query.queries, takes)
        known, weight = replace(known, jitter=max(known.jitter, common.jitter)), weight[query.hosted]
    elif rule.augmented:
        known, common = query.conditioned.with_samples(query.hosted, query.shared.samples, query.queries, takes)
        known = replace(known, jitter=max(known.jitter, common.jitter, own.jitter))
    variance, common_variance = (np.maximum(b.variance, floor) for b in (known, common))
    return Beliefs(known.mean, variance, query.prior, common.mean, common_variance, first, weight), known


def first_of(query: PreparedQuery, participants: BoolArray) -> BoolArray:
    """(A, T) whether a hosted agent is the first that takes part."""
    return np.asarray(participants.argmax(axis=0)[None, :] == np.asarray(query.hosted)[:, None])


def _knowledge(query: PreparedQuery, rule: AggregationRule) -> Posteriors:
    """What each hosted agent knows: from its own data, and from what the others shared."""
    if rule.grouped:
        return query.conditioned.grouped(query.hosted, query.shared.groups)
    if rule.augmented:
        return query.conditioned.augmented(query.hosted, query.shared.samples)
    return query.conditioned.own(query.hosted)


def _common(query: PreparedQuery, rule: AggregationRule) -> tuple[Posteriors, IntArray]:
    """What is known from what all agents shared alone, at each theta, and which of these is a hosted agent's."""
    if rule.grouped:
        return query.conditioned.of_groups(query.shared.groups)
    return query.conditioned.of_samples(query.shared.samples)


def _frames(query: PreparedQuery, rule: AggregationRule) -> list[Frame]:
    """What the rule starts from, at each hosted agent: the prior, or what is shared says. One for each theta."""
    conditioned, queries = query.conditioned, query.queries
    if rule.augmented or rule.grouped:
        posteriors, which = _common(query, rule)
        bases = [Vector(*one.mean_and_covariance(queries)) for one in posteriors.items(range(max(which) + 1))]
    else:
        thetas, rows = np.unique(query.thetas, axis=0, return_inverse=True)
        which, nothing = rows.ravel(), np.zeros(len(queries))
        models = [Hyperparameters.from_theta(theta) for theta in thetas]
        bases = [Vector(nothing, conditioned.kernel(queries, None, h)) for h in models]
    scales = query.prior.mean(axis=1)
    frames = [Frame(base, float(scales[np.argmax(which == k)])) for k, base in enumerate(bases)]
    return [frames[k] for k in which]


def nearness_of(query: PreparedQuery) -> tuple[Array, Array]:
    """(M, T) by how much each agent counts, and (M, T, D) the derivatives: see `groups.nearness`.

    Where only agents that are away have near groups, all that are there count alike.
    """
    h, there = Hyperparameters.from_theta(query.thetas[0]), query.network.agents
    weight, slopes = nearness(query.shared.groups, query.queries, query.conditioned.kernel, h)
    weight = weight[:there]
    return np.where((weight > 0.0).any(axis=0), weight, 1.0), slopes[:there]


def _along_each_input(
    query: PreparedQuery, rule: AggregationRule, beliefs: Beliefs, takes: BoolArray
) -> Iterator[Beliefs]:
    """What the agents believe a complex step along each input away."""
    conditioned, floor = query.conditioned, SMALLEST * query.prior
    thetas = [Hyperparameters.from_theta(theta) for theta in query.thetas]
    prior = np.stack([conditioned.kernel.curvature(query.queries, h)[0] for h in thetas])  # (A, T, D)
    own, common, of_weight = _knowledge(query, rule), (np.zeros_like(prior), np.zeros_like(prior)), np.zeros_like(prior)
    if rule.grouped:
        of_weight = nearness_of(query)[1][query.hosted]
    if rule.augmented or rule.grouped:
        shared, which = _common(query, rule)
        everywhere = np.ones((len(shared.data), len(query.queries)), dtype=bool)
        of_mean, of_variance = _slopes_of_each(shared, query.queries, everywhere)
        common = of_mean[which], of_variance[which]
    mean, variance = _slopes_of_each(own, query.queries, takes)
    free, common_free = beliefs.variance > floor, beliefs.common_variance > floor
    for d in range(query.queries.shape[1]):
        yield Beliefs(
            _stepped(beliefs.mean, mean[..., d]),
            _stepped(beliefs.variance, np.where(free, variance[..., d], 0.0)),
            _stepped(beliefs.prior, prior[..., d]),
            _stepped(beliefs.common_mean, common[0][..., d]),
            _stepped(beliefs.common_variance, np.where(common_free, common[1][..., d], 0.0)),
            beliefs.first,
            _stepped(beliefs.weight, of_weight[..., d]),
        )


def _stepped(values: Array, slopes: Array) -> Any:
    return values + 1j * STEP * slopes


def _slopes_of_each(posteriors: Posteriors, queries: Array, wanted: BoolArray) -> tuple[Array, Array]:
    """The slopes of mean and variance of each posterior where wanted (n, T), zero elsewhere: (n, T, D) each."""
    mean, variance = np.zeros((*wanted.shape, queries.shape[1])), np.zeros((*wanted.shape, queries.shape[1]))
    for i, here in enumerate(wanted):
        if here.any():
            slopes: Slopes = slopes_at(posteriors.items([i])[0], queries[here], len(posteriors.data[i]))
            mean[i, here], variance[i, here] = slopes.mean, slopes.variance
    return mean, variance


# ---- totals ------------------------------------------------------------------------------------------------------


def _finish(query: PreparedQuery, rule: AggregationRule, beliefs: Beliefs, totals: Array, count: Array) -> Array:
    """Mean and variance (T, 2), at the root."""
    root = query.network.hosted.index(query.network.tree.root)
    means, variances = finished(rule, totals[None], count[None], beliefs.of_agent(root))
    return np.stack([means[0], variances[0]], axis=-1)


def _over_participants(
    query: PreparedQuery, rule: AggregationRule, chosen: BoolArray, known: Marginals, began: int
) -> Answer:
    """CBNN: the totals over the agents that take part, chosen (A, T), from what they know of the queries.

    Where nobody does, the most correlated agent answers alone: all agents learn of such queries, and find it.
    began: the round in which the agents began to choose.
    """
    answer, absent = _summed_along_tree(query, rule, chosen, known, began)
    if not absent.any():
        return answer
    where = np.flatnonzero(absent)
    before, part = query.network.round, replace(query, queries=query.queries[where])
    ids = np.asarray(query.hosted, dtype=float)[:, None]
    alone = np.asarray(winners(query.network, correlations(query, where)) == ids)
    known = query.conditioned.own(query.network.hosted).at(part.queries, alone)
    other, _ = _summed_along_tree(part, rule, alone, known, before)
    means, variances, who = answer.means.copy(), answer.variances.copy(), answer.participants.copy()
    means[:, where], variances[:, where], who[:, where] = other.means, other.variances, other.participants
    assert answer.rounds is not None, "it came along the tree"
    rounds = answer.rounds.copy()
    rounds[where] += query.network.round - before
    engine = first_used(answer.engine, other.engine)
    return Answer(means, variances, who, engine=engine, jitter=max(answer.jitter, other.jitter), rounds=rounds)


def _summed_along_tree(
    query: PreparedQuery, rule: AggregationRule, chosen: BoolArray, known: Marginals, began: int
) -> tuple[Answer, BoolArray]:
    """The answer, and the queries in which nobody takes part."""
    network, first = query.network, np.zeros_like(chosen)
    if rule.needs_first:
        first = first_of(query, _who_takes_part(network, chosen)[0])
    beliefs, known = beliefs_of(query, rule, chosen, known, first)

    def finish(rows: Array, who: BoolArray | None) -> Array:
        assert who is not None, "not all take part"
        return _finish(query, rule, beliefs, rows, who.sum(axis=0).astype(float))

    with network.phase("aggregate"):
        result = network.reduce_present(
            rule.summands(beliefs), chosen, "predictions", finish=finish, result_shape=(2,), recipient=query.to
        )
    rounds = np.full(len(query.queries), network.round - began)
    who = query.nobody if result.who is None else result.who
    answer = Answer.along_tree(query, result.value, who, rounds, engine=known.engine, jitter=known.jitter)
    return answer, result.absent


def _summed_at_server(query: PreparedQuery, rule: AggregationRule, beliefs: Beliefs, known: Marginals) -> Answer:
    """The totals and the answer at a central node."""
    network = query.network
    with network.phase("aggregate"):
        sent = network.gather({"predictions": rule.summands(beliefs)})["predictions"]
        totals = np.tile(np.sum(sent, axis=0), (len(network.hosted), 1, 1))
        count = np.full(beliefs.mean.shape, float(network.agents))
        means, variances = finished(rule, totals, count, beliefs)
        result = network.scatter(np.stack([means[0], variances[0]]), "predictions")
    return Answer(result[:, 0], result[:, 1], query.everyone, engine=known.engine, jitter=known.jitter)


def _averaged(
    query: PreparedQuery, rule: AggregationRule, beliefs: Beliefs, known: Marginals, selection: Selection | None
) -> Answer:
    """The totals by an average consensus of all agents, or of those selected, which tell the others."""
    network, options = query.network, query.options
    participants = query.everyone if selection is None else selection.participants
    summands = np.where(participants[query.hosted][..., None], rule.summands(beliefs), 0.0)
    with network.phase("average"):
        averaging = average_items(
            network, summands, kind="predictions", tol=options.tol, rounds=options.rounds, scope=selection
        )
    size = float(network.agents) if selection is None else selection.size[:, None]
    count = np.tile(participants.sum(axis=0).astype(float), (len(query.hosted), 1))
    means, variances = finished(rule, averaging.state * size, count, beliefs)
    if selection is not None:
        with network.phase("spread"):
            means, variances, averaging = selection.spread(network, means, variances, averaging)
    return Answer(means, variances, participants, averaging, engine=known.engine, jitter=known.jitter)


# ---- who takes part ----------------------------------------------------------------------------------------------


def _more_correlated(one: Array, other: Array) -> Array:
    """Rows (correlation, number): the larger correlation; of equals, the smaller number."""
    better = (one[..., 0] > other[..., 0]) | ((one[..., 0] == other[..., 0]) & (one[..., 1] <= other[..., 1]))
    return np.where(better[..., None], one, other)


MOST_CORRELATED = Merge(_more_correlated, -np.inf)


def correlations(query: PreparedQuery, where: IntArray) -> Array:
    """(A, n) what each hosted agent's own data explain at these queries."""
    return query.prior[:, where] - query.conditioned.own(query.network.hosted).at(query.queries[where]).variance


def winners(network: Network, explained: Array) -> Array:
    """(n,) the numbers of the agents with the largest correlations, (A, n)."""
    ids = np.broadcast_to(np.asarray(network.hosted, dtype=float)[:, None], explained.shape)
    with network.phase("select"):
        best = network.reduce(np.stack([explained, ids], axis=-1), "statistics", MOST_CORRELATED)
    assert best is not None, "all agents receive it"
    return best[:, 1]


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
        result = network.reduce_present(np.zeros((*chosen.shape, 0)), chosen, "predictions")
    assert result.who is not None, "all agents receive it"
    return result.who, result.absent
