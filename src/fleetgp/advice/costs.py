"""What a training or an answer sends, by counting: the trainers and predictors run on stand-in agents.

No message is described here, so that a cost cannot differ from the ledger of a real run. Short runs with small data
would not do: samples depend on the number of rows, and likelihoods of real rows take too long. Stand-ins (`facts`)
have as many rows as the real agents and a likelihood that costs nothing, so that 200 agents take seconds.

A training runs for two rounds: what a round sends is separated from what is sent once. What depends on the data is a
range. For a training these are the number of rounds, and how often it continues with another mean function; for an
answer who takes part, whose rows are near the queries, the number of groups, and the length of NPAE's vectors. Bounds
are counts of the extremes: no agent takes part, all rows are near, and so on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from fleetgp.advice.facts import (
    APART,
    NOWHERE,
    Counted,
    Facts,
    Scene,
    StandInBasis,
    gathered,
    shared_out,
    spread,
    stand_in,
    theta_for,
)
from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Outcome
from fleetgp.consensus.agreements import agree_on_coordinates, agree_on_scaling
from fleetgp.consensus.reductions import ByTree
from fleetgp.data.transforms import CoordinateRule, Scaling, View
from fleetgp.engines.basis import Basis
from fleetgp.engines.moments.sums import MOST_SUMS
from fleetgp.errors import InputError
from fleetgp.fleet.predictor import Predictor
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.kernels.stationary import Kernel
from fleetgp.network.counting import NOTHING, Bill, CountingNetwork, highest, lowest
from fleetgp.prediction import PredictionOptions, Question
from fleetgp.prediction.committee import Committee
from fleetgp.prediction.cross import FEWEST, LONGEST
from fleetgp.prediction.groups import LEVELS, NUMBER, groups_within, most_groups, rows_per_group, width
from fleetgp.prediction.methods import PredictionMethod, SharedState, block_size
from fleetgp.prediction.registry import METHODS as PREDICTORS
from fleetgp.prediction.registry import prediction_method
from fleetgp.prediction.rules import GroupedCommittee
from fleetgp.training.admm import best_radius
from fleetgp.training.central import CentralState
from fleetgp.training.methods import METHODS as TRAINERS
from fleetgp.training.methods import TrainingMethod, training_method
from fleetgp.training.options import TrainingOptions
from fleetgp.training.outer_loops import ROBUST_TURNS
from fleetgp.training.outer_loops import TURNS as MEAN_TURNS
from fleetgp.training.problem import SMALLEST, TrainingProblem, prepare
from fleetgp.training.run import tried
from fleetgp.training.train import LocalTraining, train

#: No training converges to this tolerance.
NEVER = 1e-200
#: Length-scales of a model that is not trained yet, as a part of the box: usually, and for bounds.
SPAN, SHORT, LONG = 0.25, 1e-5, 1e6
#: What is assumed for each start, measured on draws of the paper's field, se and matern32, 4 to 25 agents with 40 rows
#: each on paths, cycles, grids, stars, complete and random graphs, with the default tolerance: there it was 4 to 16.
#: Other data and other kernels may take many times as many.
EVALUATIONS = 8.0
#: The same in the time that ADMM at its best pace takes to shrink a disagreement to the tolerance on this graph:
#: there it was 1.5 to 16. Most needed less than twice the usual number; stars up to four times as many.
PACES = 4.0
#: How often a training is assumed to continue with another mean function or other weights.
USUAL_TURNS = 3
#: A divisor of the length of NPAE's longest vectors.
SOME = 40
#: The reach of data that are all at one place.
TINY = 1e-3


# ---- trainings -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """How many rounds a training takes in all, from all its starts. It depends on the data.

    what: "evaluations" (of dec-fact-gp), "rounds" (of ADMM) or "grids" (of dec-full-gp).
    usual: the number that is assumed.  least: no training takes fewer.
    most: what the option `rounds` allows; None where it limits nothing that is sent.
    """

    what: str
    usual: int
    least: int
    most: int | None


@dataclass(frozen=True)
class TrainingCost:
    """once: before the first round, and for each start.  each: of a round.  rounds: how many there are.

    turn: each time that it continues with another mean function or other weights.  turns: how often, at most.
    flat: what is sent in addition, at most, where hyperparameters come near their limits.
    A round of dec-fact-gp is an evaluation, which is a reduction: `each.rounds` hops.
    """

    method: str
    once: Bill
    each: Bill
    rounds: Rounds
    turn: Bill = NOTHING
    turns: int = 0
    flat: Bill = NOTHING

    def total(self, rounds: int | None = None, turns: int = 0) -> Bill:
        """Of a training with so many rounds in all starts together; without, with as many as are assumed."""
        if rounds is None:
            rounds, turns = self.rounds.usual, min(self.turns, USUAL_TURNS)
        return self.once + rounds * self.each + turns * self.turn

    @property
    def least(self) -> Bill:
        return self.total(self.rounds.least)

    @property
    def most(self) -> Bill | None:
        """None where there is no bound."""
        if self.rounds.most is None:
            return None
        # Every turn has a round at least, also where none is left.
        return self.total(self.rounds.most + self.turns, self.turns) + (1 + self.turns) * self.flat


def training_cost(
    name: str,
    facts: Facts,
    *,
    theta0: Array | None = None,
    noise_floor: float = 1e-3,
    rounds: int = TrainingOptions().rounds,
) -> TrainingCost:
    """By a method's name. theta0: the starts, (S, P); None for the three that the fleet chooses itself.
    rounds: the limit of a training.

    With several kernels to choose from, all trainings are in it.

    >>> from fleetgp.advice.facts import facts_of
    >>> cost = training_cost("dec-fact-gp", facts_of([100] * 5, "path", dimension=2, kernel="se"))
    >>> cost.each.rounds, cost.each.messages, cost.each.sent
    (4.0, 8, ('statistics',))
    """
    method = training_method(name)
    if not method.decentralized:
        having = ", ".join(row.name for row in TRAINERS.values() if row.decentralized)
        raise InputError(f"{name} needs a central node, which no graph has: choose one of {having}")
    options = TrainingOptions(
        starts=None if theta0 is None else np.log(np.atleast_2d(theta0)),
        rounds=2 * facts.topology.period,
        tol=NEVER,
        nested_iterations=1 if "nested" in method.options else None,
        noise_floor=noise_floor,
        normalize=facts.normalize,
        mean=facts.mean,
        coordinates=facts.coordinates,
        engine=stand_in("auto", TrainingOptions().n_neighbours),
    )
    with _quiet():
        if method.meet == "moments":
            return _by_moments(method, facts, options)
        if len(facts.kernels) == 1:
            return _with_kernel(method, facts, facts.kernels[0], options, rounds)
        return _comparing(method, facts, options, rounds)


def _with_kernel(
    method: TrainingMethod, facts: Facts, kernel: Kernel, options: TrainingOptions, limit: int
) -> TrainingCost:
    verb = "reduce" if method.meet == "tree" else "exchange"
    shards, network = gathered(facts, kernel, 1).shards, CountingNetwork(facts.topology)
    fit = train(method, shards, network, kernel, options)
    once, each = _apart(network, verb)
    # Once more, for what may come after the last round.
    network = CountingNetwork(facts.topology)
    seen = shards.moved(fit.coordinates)
    problem = prepare(method, seen, network, kernel, replace(options, coordinates=CoordinateRule()))
    # How often a training may continue.
    settling, robust = 1 if facts.mean == "zero" else MEAN_TURNS, ROBUST_TURNS if kernel.noise_model.robust else 0
    turns = settling * (1 + robust) - 1
    turn = _turn(LocalTraining(problem, options, None), facts) if turns else NOTHING
    flat = (1 + max(1, problem.levels)) * _flat(problem) if method.meet == "edges" else _flat(problem)
    starts, period = len(problem.starts), facts.topology.period if method.meet == "edges" else 1
    most = _limit(limit, starts, problem.levels, period)
    if method.meet == "tree":
        what, usual = "evaluations", EVALUATIONS
    else:
        # On a graph that varies with time an edge acts once in its period.
        pace = facts.topology.period * np.log(TrainingOptions().tol) / np.log(best_radius(facts.topology.union))
        what, usual = "rounds", pace * PACES
    rounds = Rounds(what, min(max(starts, round(starts * usual)), most), starts, most)
    return TrainingCost(method.name, once, each, rounds, turn, turns, flat)


def _apart(network: CountingNetwork, verb: str) -> tuple[Bill, Bill]:
    """What a training sends once, and in each round: a round is one call of the verb in the phase "training"."""
    turns = [turn for turn in range(network.topology.period) if network.calls("training", verb=verb, turn=turn)]
    each = NOTHING
    for turn in turns:
        each += network.bill("training", verb=verb, turn=turn) / network.calls("training", verb=verb, turn=turn)
    once = network.bill() - network.bill("training", verb=verb)
    return once, each / len(turns)


def _turn(training: LocalTraining, facts: Facts) -> Bill:
    """What is sent besides its rounds when a training continues with other weights or another mean function."""
    problem = training.problem
    network = cast(CountingNetwork, problem.network)
    training.run()

    def sent() -> Bill:
        rounds = network.bill("training", verb="reduce" if problem.method.meet == "tree" else "exchange")
        return network.bill() - rounds

    before = sent()
    if facts.mean != "zero":
        training.correction()
    if facts.noise_model.robust:
        training.reweigh()
    else:
        training.correct_mean([0.0] * (1 + len(problem.scaling.slope)))
    return sent() - before


def _flat(problem: TrainingProblem) -> Bill:
    """What is sent if every hyperparameter that has a limit stands there."""
    network, x = cast(CountingNetwork, problem.network), problem.start(0)
    low, high = (np.broadcast_to(end, x[0].shape) for end in (problem.limits.lower, problem.limits.upper))
    at = np.where(low > -np.inf, low, np.where(high < np.inf, high, 0.0))
    tried(problem, Outcome(CentralState(problem.evaluate(x)), 0, "converged", np.zeros(1), at))
    return network.bill("flat")


def _comparing(method: TrainingMethod, facts: Facts, options: TrainingOptions, limit: int) -> TrainingCost:
    """A training on a sample with each kernel, how well they predict, and one on all rows with the best."""
    sample = replace(facts, sizes=tuple(min(size, SMALLEST) for size in facts.sizes))

    def each(some: Facts) -> list[TrainingCost]:
        alike = {kernel.count(facts.dimension): kernel for kernel in facts.kernels}
        result = {count: _with_kernel(method, some, kernel, options, limit) for count, kernel in alike.items()}
        return [result[kernel.count(facts.dimension)] for kernel in facts.kernels]

    firsts = each(sample)
    lasts = firsts if sample == facts else each(facts)
    # The comparison is the same whatever the method and however many rows there are: it takes one agent that has some.
    few = replace(facts, sizes=(APART, *(1,) * (facts.agents - 1)))
    network = CountingNetwork(facts.topology)
    quick = replace(options, rounds=1, nested_iterations=None)
    train(training_method("dec-fact-gp"), gathered(few, facts.kernels[0], 1).shards, network, facts.kernels, quick)
    first, last, count = firsts[0].rounds, lasts[0].rounds, len(firsts)
    assert first.most is not None
    assert last.most is not None
    usual, least = count * first.usual + last.usual, count * first.least + last.least
    rounds = Rounds(last.what, usual, least, count * first.most + last.most)
    chosen = max(lasts, key=lambda cost: cost.each.bytes)
    return replace(
        chosen,
        once=sum((one.once for one in firsts), NOTHING) + network.bill("kernels") + chosen.once,
        rounds=rounds,
        turns=(count + 1) * chosen.turns,
        flat=(count + 1) * chosen.flat,
    )


def _by_moments(method: TrainingMethod, facts: Facts, options: TrainingOptions) -> TrainingCost:
    """One grid. A finer one, where the training asks for it, has more moments: how many depends on the data."""
    network = CountingNetwork(facts.topology)
    options = replace(options, rounds=1, tol=0.0, engine="auto", nested_iterations=None)
    train(method, Counted(facts), network, facts.kernels[0], options)
    verdict = network.bill("model")
    each = network.bill("moments") + verdict
    turns = 0 if facts.mean == "zero" else MEAN_TURNS - 1
    turn = network.bill("mean") + verdict if turns else NOTHING
    return TrainingCost(method.name, network.bill() - each, each, Rounds("grids", 1, 1, None), turn, turns)


def _limit(rounds: int, starts: int, levels: int, period: int) -> int:
    """Rounds of all starts, and of the best one on larger samples, by the limit of a training.

    On a graph that varies, rounds cost their mean over a period, and a run may begin anywhere in it.
    """
    ahead = (starts + levels) * period if period > 1 else 0
    return ahead + (starts * max(1, rounds // 2) + levels * rounds if levels else starts * rounds)


# ---- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictionCost:
    """once: what is sent with the first answer only.  asked: for the queries.

    least, most: bounds of both together; the same where it does not depend on data and queries how much is sent.
    """

    method: str
    once: Bill
    asked: Bill
    least: Bill
    most: Bill

    @property
    def total(self) -> Bill:
        return self.once + self.asked

    @property
    def exact(self) -> bool:
        return self.least == self.most


@dataclass(frozen=True)
class Asking:
    """What is asked.

    queries: T.  to: the only agent that receives the answer.  trained: by which method; "" for a theta that was given.
    """

    queries: int
    to: int | None = None
    trained: str = "dec-fact-gp"
    options: PredictionOptions = field(default_factory=PredictionOptions)


def prediction_cost(name: str, facts: Facts, asking: Asking) -> PredictionCost:
    """By a method's name, along the tree.

    >>> from fleetgp.advice.facts import facts_of
    >>> cost = prediction_cost("dec-rbcm", facts_of([100] * 5, "path", dimension=2), Asking(queries=10))
    >>> cost.asked.rounds, cost.asked.messages, cost.asked.sent, cost.exact
    (4.0, 8, ('predictions',), True)
    """
    method = prediction_method(name)
    if not method.decentralized:
        having = ", ".join(row.name for row in PREDICTORS.values() if row.decentralized)
        raise InputError(f"{name} needs a central node, which no graph has: choose one of {having}")
    if asking.options.consensus != "tree":
        raise InputError('costs are those of sums along the tree: expected consensus="tree", got "average"')
    with _quiet():
        result = [_Answers(method, facts, kernel, asking).cost() for kernel in _different(method, facts)]
    usual = result[-1]
    least, most = lowest(*(one.least for one in result)), highest(*(one.most for one in result))
    return replace(usual, least=least, most=most)


def _different(method: PredictionMethod, facts: Facts) -> list[Kernel]:
    """One of all kernels that send the same; the last one sends most of what is sent anyway."""
    smooth = method.rule in ("npae", "full-gp")
    result = {(smooth and not one.has_moments, one.count(facts.dimension)): one for one in facts.kernels}
    return [result[key] for key in sorted(result)]


#: What is sent once, and for the queries.
Parts = tuple[Bill, Bill]
#: These parts as they usually are, and in the cases that send least and most.
Range = tuple[Parts, Sequence[Parts], Sequence[Parts]]


class _Ungrouped(GroupedCommittee):
    """The sums of dec-summary, of agents without groups."""

    grouped = augmented = False


def _capped(most: Bill, few: Bill, bytes: float, links: int) -> Bill:
    """What the most groups send, where no more than so many bytes beyond those of a few may cross a link."""
    groups = min(most.kinds.get("groups", 0), few.kinds.get("groups", 0) + links * bytes)
    edges = {edge: min(size, few.edges[edge] + bytes) for edge, size in most.edges.items()}
    return replace(most, kinds={**most.kinds, "groups": groups} if groups else most.kinds, edges=edges)


class _Answers:
    """The answers of a method with one kernel."""

    def __init__(self, method: PredictionMethod, facts: Facts, kernel: Kernel, asking: Asking) -> None:
        self.method, self.facts, self.kernel, self.asking, self.options = method, facts, kernel, asking, asking.options
        network = CountingNetwork(facts.topology)
        self.root, step = network.tree.root, block_size(method, network, asking.options)
        if method.rule == "summary":
            # Who takes part follows from the groups: here it is chosen, and what the sums send is the same.
            self.method = Committee(method.name, decentralized=True, nearest=True, aggregation=_Ungrouped())
        full, rest = divmod(asking.queries, step)
        #: How many blocks there are of how many queries.
        self.blocks = [(count, size) for count, size in ((full, step), (1, rest)) if count and size]

    def cost(self) -> PredictionCost:
        """What is sent once and for the queries: usually, and in extreme cases."""
        count = {
            "full-gp": self._by_moments,
            "nearest": self._nearest,
            "npae": self._nested,
            "summary": self._summaries,
        }
        usual, least, most = count.get(self.method.rule, self._by_sums)()
        low, high = lowest(*(a + b for a, b in least)), highest(*(a + b for a, b in most))
        return PredictionCost(self.method.name, *usual, low, high)

    def _by_sums(self) -> Range:
        usual = self._asked(self._together)
        if not self.method.nearest:
            return usual, [usual], [usual]
        return usual, [self._asked(self._at_root)], [self._worst(usual, self._asked(self._far))]

    def _worst(self, everyone: Parts, nobody: Parts) -> Parts:
        """A bound where some queries are answered by all, and others are asked again, since no agent takes part."""
        return everyone if nobody == everyone else (everyone[0], everyone[1] + nobody[1])

    # ---- who has data where ----------------------------------------------------------------------------------

    def _together(self, queries: int) -> Scene:
        """All take part in all queries."""
        return gathered(self.facts, self.kernel, queries)

    def _at_root(self, queries: int) -> Scene:
        """Only the root of the tree does, which sends nothing for it."""
        return gathered(self.facts, self.kernel, queries, np.arange(self.facts.agents) == self.root)

    def _far(self, queries: int) -> Scene:
        """Nobody does."""
        return gathered(self.facts, self.kernel, queries, at=NOWHERE)

    @cached_property
    def _view(self) -> View:
        """How the model sees the data of the stand-ins after a training."""
        facts, shards, reduction = self.facts, self._together(1).shards, ByTree(CountingNetwork(self.facts.topology))
        coordinates = agree_on_coordinates(reduction, shards, facts.coordinates)
        seen, scaling = shards.moved(coordinates), Scaling()
        if facts.normalize or facts.mean != "zero":
            scaling = agree_on_scaling(reduction, seen, facts.mean, normalize=facts.normalize)
        return View(scaling, coordinates)

    # ---- a run -----------------------------------------------------------------------------------------------

    def _asked(
        self, scene: Any, span: float = SHORT, agreed: SharedState | None = None, *, apart: bool = True
    ) -> Parts:
        """What is sent once, and for all queries. scene: makes a `Scene` of so many.

        agreed: in the place of what the agents would agree on.
        """
        once, asked = NOTHING, NOTHING
        for count, size in self.blocks:
            once, block = self._block(scene(size), span, agreed, apart)
            asked += count * block
        return once, asked

    def _block(self, scene: Scene, span: float, agreed: SharedState | None, apart: bool) -> Parts:
        """What is sent before a block of queries, and for it."""
        snapshot = self._snapshot(scene, span)
        engine: str = stand_in(self.options.engine, self.options.n_neighbours, apart=apart)
        options = replace(self.options, engine=engine)
        predictor = Predictor(snapshot, options)
        if agreed is not None:
            predictor.cache.hold(self.method.agreement_key(options), agreed, snapshot.rows)
        network = CountingNetwork(self.facts.topology, ("aggregate", "pool"))
        question = Question(self.method, scene.queries, options, to=self.asking.to)
        blocks = predictor.predict_in_blocks(question, network)
        once = network.bill()
        list(blocks)
        return once, network.bill() - once

    def _snapshot(self, scene: Scene, span: float) -> ModelSnapshot:
        facts, trained, view = self.facts, self.asking.trained, self._view
        some = gathered(facts, self.kernel, 1).shards
        scaled = facts.coordinates.name in ("as-given", "scaled")
        seen = some if scaled else some.moved(view.coordinates)
        reach = np.ptp(np.concatenate([one.inputs for one in seen]), axis=0)
        theta = theta_for(self.kernel, np.maximum(reach, TINY), span)
        known = bool(trained)
        return ModelSnapshot(
            scene.shards,
            None,
            facts.topology,
            self.kernel,
            np.tile(theta, (facts.agents, 1)) if known and trained != "dec-full-gp" else theta,
            view.scaling if known or not (facts.normalize or facts.mean != "zero") else None,
            0,
            facts.sizes,
            mean=facts.mean,
            normalize=facts.normalize,
            coordinates=view.coordinates if known or facts.coordinates.name == "as-given" else None,
            rule=facts.coordinates,
        )

    # ---- the other rules -------------------------------------------------------------------------------------

    def _nearest(self) -> Range:
        """Usually agents hold different places; at most all rows are near, at least only the root's."""
        facts, count = self.facts, min(self.options.n_nearest, self.facts.rows)

        def shared(queries: int) -> Scene:
            own = shared_out(queries, facts.sizes)
            first = np.cumsum(own) - own
            return spread(facts, self.kernel, queries, (count * own).tolist(), first.tolist(), count)

        def all_rows(queries: int) -> Scene:
            return spread(facts, self.kernel, queries, [count * queries] * facts.agents, [0] * facts.agents, count)

        def of_root(queries: int) -> Scene:
            near = [count * queries * (agent == self.root) for agent in range(facts.agents)]
            sizes = [max(size, most) for size, most in zip(facts.sizes, near, strict=True)]
            return spread(replace(facts, sizes=tuple(sizes)), self.kernel, queries, near, [0] * facts.agents, count)

        most = self._asked(all_rows)
        if facts.rows <= self.options.n_nearest:
            return most, [most], [most]
        usual = self._asked(shared)
        return usual, [self._asked(of_root)], [usual, most]

    def _nested(self) -> Range:
        """By weights, or by vectors, whose length depends on theta."""
        scenes = [self._together] if not self.method.nearest else [self._together, self._at_root, self._far]
        smooth = self.kernel.has_moments and self.options.engine != "dense"
        possible = smooth and FEWEST**self.facts.dimension <= 2.0 * LONGEST
        usual = self._asked(self._together, SPAN)
        spans = (SHORT, LONG) if possible else (SPAN,)
        least = [self._asked(scene, span, apart=False) for scene in scenes for span in spans]
        most = [[self._asked(scene, span) for scene in scenes] for span in spans]
        if possible:
            once = most[-1][0][0]  # with a basis that is compared
            most.append([(once, self._by_long_vectors(scene)) for scene in scenes])
        bounds = [self._worst(one[0], one[-1]) for one in most]
        return usual, least, bounds

    def _summaries(self) -> Range:
        """Groups, whose number depends on the data, and sums of the agents that take part: all, or the root alone."""
        facts, options = self.facts, self.options
        dimension = self._together(1).shards.moved(self._view.coordinates)[0].dimension  # three on the sphere
        fit = max(groups_within(options.budget, facts.agents, dimension), facts.agents)
        most = np.minimum(most_groups(facts.sizes, options.min_rows, options.min_rows), fit)
        usual = most if most.sum() <= fit else np.maximum(most * fit // most.sum(), np.minimum(most, 1))
        one = np.minimum(most, 1)
        few, more = self._groups(one, dimension), NUMBER * width(dimension) * (fit - int(one.sum()))
        bound = _capped(self._groups(most, dimension), few, more, facts.agents - 1)

        def both(scene: Any, groups: Bill) -> Parts:
            once, asked = self._asked(scene)
            return once + groups, NOTHING if options.local else asked

        usually = both(self._together, self._groups(usual, dimension))
        return usually, [both(self._at_root, few)], [usually, both(self._together, bound)]

    def _groups(self, counts: IntArray, dimension: int) -> Bill:
        """What so many groups of each agent send."""
        network = CountingNetwork(self.facts.topology)
        if self.facts.agents > 1:
            with network.phase("groups"):
                rows_per_group(network, np.zeros((self.facts.agents, LEVELS)), self.options, dimension)
                network.collect({"groups": [np.zeros((count, width(dimension))) for count in counts]})
        return network.bill()

    def _by_long_vectors(self, scene: Any) -> Bill:
        """With the longest vectors, from two short lengths, which take less memory: bytes are affine in the length."""
        one, two = (
            self._asked(scene, SPAN, SharedState(basis=cast(Basis, StandInBasis(rank))))[1] for rank in (SOME, 2 * SOME)
        )
        return one + (LONGEST // SOME - 1) * (two - one)

    def _by_moments(self) -> Range:
        """Nothing but the moments of all data, where they are not known from the training."""
        if self.asking.trained == "dec-full-gp":
            return (NOTHING, NOTHING), [(NOTHING, NOTHING)], [(NOTHING, NOTHING)]
        facts = self.facts

        def of_theta(span: float) -> Bill:
            scene = Scene(cast(Any, Counted(facts)), np.zeros((1, facts.dimension)))
            return self._block(scene, span, None, True)[0]

        usual, least, network = of_theta(SPAN), of_theta(LONG), CountingNetwork(facts.topology, ("moments",))
        with network.phase("moments"):
            network.reduce(np.broadcast_to(0.0, (facts.agents, 1 + MOST_SUMS)), "moments")
        return (usual, NOTHING), [(least, NOTHING)], [(least + network.bill(), NOTHING)]


# ---- helpers ---------------------------------------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings about stand-ins are of no use to a caller."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
