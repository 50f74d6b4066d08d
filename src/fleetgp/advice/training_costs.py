"""What a training sends, from the shapes of its messages: exactly per round; in all for an assumed number of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.advice.bill import NOTHING, Bill
from fleetgp.advice.facts import Facts
from fleetgp.advice.sketch import Sketch
from fleetgp.consensus.agreements import Frame
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import response_sizes
from fleetgp.errors import InputError
from fleetgp.training.admm import best_radius
from fleetgp.training.methods import METHODS, TrainingMethod, training_method
from fleetgp.training.moments import first_sizes
from fleetgp.training.newton import Search, pack
from fleetgp.training.options import TrainingOptions
from fleetgp.training.starts import SMALLEST, SPANS, levels


@dataclass(frozen=True)
class Rounds:
    """How many rounds a training takes in all, from all its starts: nobody knows it before.

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

    flat: what is sent in addition, at most, where hyperparameters come near their limits.
    A round of dec-fact-gp is an evaluation, which is a reduction: `each.rounds` hops.
    """

    method: str
    once: Bill
    each: Bill
    rounds: Rounds
    flat: Bill = NOTHING

    def total(self, rounds: int | None = None) -> Bill:
        """Of a training with so many rounds in all starts together; without, with as many as are assumed."""
        return self.once + (self.rounds.usual if rounds is None else rounds) * self.each

    @property
    def least(self) -> Bill:
        return self.total(self.rounds.least)

    @property
    def most(self) -> Bill | None:
        """At the limit of rounds; None where there is no bound."""
        return None if self.rounds.most is None else self.total(self.rounds.most) + self.flat


def training_cost(
    name: str,
    facts: Facts,
    *,
    starts: int | None = None,
    noise_floor: float = 1e-3,
    rounds: int = TrainingOptions().rounds,
) -> TrainingCost:
    """By a method's name. starts: how many were given as theta0; None for the three that the fleet chooses itself.
    rounds: the limit of a training.

    With several kernels to choose from, all trainings are in it.

    >>> from fleetgp.advice.facts import facts_of
    >>> cost = training_cost("dec-fact-gp", facts_of([100] * 5, "path", dimension=2, kernel="se"))
    >>> cost.each.rounds, cost.each.messages, cost.each.told
    (4.0, 8, ('statistics',))
    """
    method = training_method(name)
    if not method.decentralized:
        having = ", ".join(row.name for row in METHODS.values() if row.decentralized)
        raise InputError(f"{name} needs a central node, which no graph has: choose one of {having}")
    sketch = Sketch(facts.topology)
    if method.meet == "moments":
        return _by_moments(method, facts, sketch)
    if facts.compared > 1:
        return _comparing(name, facts, sketch, starts, noise_floor, rounds)
    count = len(SPANS) if starts is None else starts
    begun = count + (max(map(levels, facts.sizes)) if starts is None else 0)
    once = _prepared(method, facts, sketch, starts, noise_floor)
    if count > 1:
        once += sketch.reduction(count, (), "statistics")  # whose likelihood is best
    width, higher = facts.parameters, begun - count
    limit = _limit(rounds, count, higher, facts.topology.period if method.meet == "edges" else 1)
    trial = sketch.reduction(1 + 2 * width, (), "statistics")
    if method.meet == "tree":
        return TrainingCost(name, once, _evaluation(facts, sketch), _newton(count, limit), trial)
    once += begun * sketch.reduction(2 * width, (), "statistics")  # curvature and penalty
    each = sketch.exchange(hyperparameters=width, stopping=4 * width + 1)
    return TrainingCost(name, once, each, _admm(facts, count, limit), (1 + max(1, higher)) * trial)


def _comparing(
    name: str, facts: Facts, sketch: Sketch, starts: int | None, noise_floor: float, rounds: int
) -> TrainingCost:
    """A training on a sample with each kernel, how well they predict, and one on all rows with the best."""
    sample = tuple(min(size, SMALLEST) for size in facts.sizes)
    first = training_cost(
        name, replace(facts, sizes=sample, compared=1), starts=starts, noise_floor=noise_floor, rounds=rounds
    )
    last = training_cost(name, replace(facts, compared=1), starts=starts, noise_floor=noise_floor, rounds=rounds)
    told = sketch.reduction(facts.compared * (3 + facts.parameters), (), "statistics")
    once, flat = facts.compared * first.once + told + last.once, facts.compared * first.flat + last.flat
    one, other = first.rounds, last.rounds
    limit = None if one.most is None or other.most is None else facts.compared * one.most + other.most
    usual, least = (facts.compared * a + b for a, b in ((one.usual, other.usual), (one.least, other.least)))
    return replace(last, once=once, flat=flat, rounds=Rounds(other.what, usual, least, limit))


def _prepared(method: TrainingMethod, facts: Facts, sketch: Sketch, starts: int | None, noise_floor: float) -> Bill:
    """Scaling, samples, and the magnitudes of the data."""
    found = sketch.reduction(1, (3,), "statistics") if facts.normalize else NOTHING
    if method.augmented:
        found += samples(facts, sketch)
    deviation = noise_floor > 0.0 and not facts.normalize
    if starts is None or deviation:
        widths = 1 + facts.dimension if starts is None else 0
        found += sketch.reduction(widths + 1 + deviation, (), "statistics")
    return found


def samples(facts: Facts, sketch: Sketch) -> Bill:
    """Of N_i / M rows of each agent, at every agent."""
    return rows_sent(sketch, facts, [max(1, size // facts.agents) for size in facts.sizes])


def rows_sent(sketch: Sketch, facts: Facts, counts: Sequence[int], to: int | None = None) -> Bill:
    """So many rows of each agent, to all or to one."""
    return sketch.collection(to, inputs=[(n, facts.width) for n in counts], observations=[(n,) for n in counts])


def _evaluation(facts: Facts, sketch: Sketch) -> Bill:
    """Up go l_i, |l_i|, gradient, Hessian and three flags; down comes the whole search, with two of them."""
    width = facts.parameters
    up = 2 + width + len(pack(np.zeros((width, width)))) + 3
    return sketch.reduction(1, (up,), "statistics", told=(len(Search.at(np.zeros(width)).row) + 2,))


def _by_moments(method: TrainingMethod, facts: Facts, sketch: Sketch) -> TrainingCost:
    dimension = facts.dimension
    frame = sketch.reduction(1, (2 * dimension + 3,), "statistics", told=(3 * dimension + 3,))
    verdict = sketch.reduction(1, (dimension + 2,), "hyperparameters", told=(3 * dimension + 4,))
    each = moments(facts, sketch) + verdict
    # A finer grid, where the training asks for one, has more moments: nobody knows beforehand how many.
    return TrainingCost(method.name, frame, each, Rounds("grids", 1, 1, None))


def moments(facts: Facts, sketch: Sketch) -> Bill:
    """The sums of all data on the first grid of a training."""
    box = Box.around(np.array([[-1.0], [1.0]]) * np.ones(facts.dimension))
    sizes = first_sizes(Frame(box, facts.rows, 0.0, 1.0), TrainingOptions(normalize=True))
    if sizes is None:
        raise InputError(f"dec-full-gp: data of {facts.dimension} inputs have more moments than can be sent")
    count = 1 + int(np.prod(sizes)) + int(np.prod(response_sizes(sizes)))
    return sketch.reduction(count, (), "moments")


# ---- numbers of rounds ------------------------------------------------------------------------------------------

#: What is assumed for each start, measured on draws of the paper's field, se and matern32, 4 to 25 agents with 40 rows
#: each on paths, cycles, grids, stars, complete and random graphs, with the default tolerance: there it was 4 to 16.
#: Other data and other kernels may take many times as many.
EVALUATIONS = 8.0
#: The same in the time that ADMM at its best pace takes to shrink a disagreement to the tolerance on this graph:
#: there it was 1.5 to 16. Most needed less than twice the usual number; stars up to four times as many.
PACES = 4.0


def _limit(rounds: int, starts: int, levels: int, period: int) -> int:
    """Rounds of all starts, and of the best one on larger samples, by the limit of a training.

    On a graph that varies, rounds cost their mean over a period, and a run may begin anywhere in it.
    """
    ahead = (starts + levels) * period if period > 1 else 0
    return ahead + (starts * max(1, rounds // 2) + levels * rounds if levels else starts * rounds)


def _newton(starts: int, limit: int) -> Rounds:
    return _rounds("evaluations", starts, starts * EVALUATIONS, limit)


def _admm(facts: Facts, starts: int, limit: int) -> Rounds:
    # On a graph that varies with time an edge acts once in its period.
    pace = facts.topology.period * np.log(TrainingOptions().tol) / np.log(best_radius(facts.topology.union))
    return _rounds("rounds", starts, starts * pace * PACES, limit)


def _rounds(what: str, starts: int, usual: float, limit: int) -> Rounds:
    return Rounds(what, min(max(starts, round(usual)), limit), starts, limit)
