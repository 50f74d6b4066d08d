"""What an answer sends, from the shapes of its messages: exactly where these are known, within bounds elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal, get_args

import numpy as np

from fleetgp.advice.bill import NOTHING, Bill, highest, lowest
from fleetgp.advice.facts import Facts
from fleetgp.advice.sketch import Shape, Sketch
from fleetgp.advice.training_costs import moments, rows_sent, samples
from fleetgp.arrays import BoolArray
from fleetgp.engines.basis import Basis, Box, degree_for
from fleetgp.engines.expert import MOST_DENSE
from fleetgp.engines.moments.sums import MOST_SUMS
from fleetgp.engines.vecchia.engine import AROUND
from fleetgp.errors import InputError
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.options import AUTO, PredictionOptions
from fleetgp.prediction.cross import DROP, EXPANSION, FEWEST, LONGEST
from fleetgp.prediction.methods import METHODS, PredictionMethod, prediction_method
from fleetgp.prediction.nearest import STEPS, numbers_for
from fleetgp.prediction.predict import block_size
from fleetgp.prediction.rules import RULES, Beliefs

#: Of a model that is not trained yet: length-scales as long as this share of the box, for the vectors of NPAE.
SPAN = 0.25
#: Moments of the smallest grid, of one node: a number of rows, and a sum of each kind.
FEWEST_SUMS = 3


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
    """What is asked, and what is known of the answer.

    queries: T.  to: the only agent that is told.  trained: by which method; "" for a theta that was given.
    participants: (M, T) who takes part, of dec-nn- methods; None: usually all.
    pooled: (M,) rows that each agent sends to the root, of dec-nearest; None: usually T times m, shared by size.
    vector: numbers that an agent sends for a query, of NPAE by vectors, 0 if inputs travel; None: usually as many as
        for length-scales a quarter of the box.
    """

    queries: int
    to: int | None = None
    trained: str = "dec-fact-gp"
    participants: BoolArray | None = None
    pooled: tuple[int, ...] | None = None
    vector: int | None = None
    options: PredictionOptions = field(default_factory=PredictionOptions)


def prediction_cost(name: str, facts: Facts, asking: Asking) -> PredictionCost:
    """By a method's name, along the tree.

    >>> from fleetgp.advice.facts import facts_of
    >>> cost = prediction_cost("dec-rbcm", facts_of([100] * 5, "path", dimension=2), Asking(queries=10))
    >>> cost.asked.rounds, cost.asked.messages, cost.asked.told, cost.exact
    (4.0, 8, ('predictions',), True)
    """
    method = prediction_method(name)
    if not method.decentralized:
        having = ", ".join(row.name for row in METHODS.values() if row.decentralized)
        raise InputError(f"{name} needs a central node, which no graph has: choose one of {having}")
    if asking.options.consensus != "tree":
        raise InputError('costs are those of sums along the tree: expected consensus="tree", got "average"')
    sketch = Sketch(facts.topology)
    usual, least, most = (_Pricing(method, facts, asking, sketch, case).bills() for case in CASES)
    return PredictionCost(name, *usual, least[0] + least[1], most[0] + most[1])


Case = Literal["usual", "least", "most"]
CASES: tuple[Case, ...] = get_args(Case)


class _Pricing:
    """One answer, as it usually is, or a bound of all that there may be."""

    def __init__(self, method: PredictionMethod, facts: Facts, asking: Asking, sketch: Sketch, case: Case) -> None:
        self.method, self.facts, self.asking, self.options = method, facts, asking, asking.options
        self.sketch, self.case = sketch, case

    def bills(self) -> tuple[Bill, Bill]:
        """What is sent once, and for the queries."""
        method, asking = self.method, self.asking
        step = block_size(method, self.sketch.network, self.options.neighbours)
        slices = [slice(start, min(start + step, asking.queries)) for start in range(0, asking.queries, step)]
        asked, known = NOTHING, dict[int, Bill]()
        for block in slices:
            size = block.stop - block.start
            if asking.participants is not None or size not in known:
                known[size] = self._block(size, block)
            asked += known[size]
        return self._model() + self._agreed(), asked

    def _model(self) -> Bill:
        """The mean of the agents' estimates, or the scaling."""
        if self.asking.trained == "dec-full-gp":
            return NOTHING
        if self.asking.trained:
            return self.sketch.reduction(self.facts.parameters, (), "statistics")
        return self.sketch.reduction(1, (3,), "statistics") if self.facts.normalize else NOTHING

    def _agreed(self) -> Bill:
        """What is not about the queries."""
        sketch, facts, rule = self.sketch, self.facts, self.method.rule
        if rule == "full-gp" and self.asking.trained != "dec-full-gp":
            dimension = facts.dimension
            frame = sketch.reduction(1, (2 * dimension + 3,), "statistics", told=(3 * dimension + 3,))
            return frame + self._moments()
        if rule == "nearest":
            return sketch.reduction(1, (), "statistics")
        if rule == "grbcm":
            return samples(facts, sketch)
        if rule == "npae" and self._boxed:
            box = sketch.reduction(2 * facts.dimension, (), "statistics")
            # The basis is compared if there may be one; it may turn out too long even then.
            compared = self._vectors[-1] > 0 and (self.case != "least" or self.asking.vector is not None)
            return box + sketch.reduction(4, (), "statistics") if compared else box
        return NOTHING

    def _moments(self) -> Bill:
        """Of all data, for a theta that is not known yet."""
        usual = moments(self.facts, self.sketch)
        if self.case == "usual":
            return usual
        return self.sketch.reduction(FEWEST_SUMS if self.case == "least" else 1 + MOST_SUMS, (), "moments")

    # ---- a block of queries ----------------------------------------------------------------------------------

    def _block(self, queries: int, block: slice) -> Bill:
        rule, to = self.method.rule, self.asking.to
        if rule == "full-gp":
            return NOTHING
        if rule == "nearest":
            return self._nearest(queries)
        present = self._present(queries, block)
        if rule == "npae":
            return self._nested(queries, present)
        width = _summands(rule)
        if present is None:
            return self.sketch.reduction(queries, (width,), "predictions", told=(2,), to=to)
        total = self.sketch.reduction(queries, (width,), "predictions", told=(2,), present=present, to=to)
        best = self.sketch.reduction(queries, (), "statistics") if self.options.eta == AUTO else NOTHING
        if self._absent:  # such queries are asked again, of the most correlated agent alone
            nobody = np.zeros_like(present)
            none = self.sketch.reduction(queries, (width,), "predictions", told=(2,), present=nobody, to=to)
            total = 2 * total + none + self.sketch.reduction(queries, (2,), "statistics")
        return 2 * best + total

    @property
    def _absent(self) -> bool:
        """Whether there may be queries in which nobody chooses to take part."""
        return self.case == "most" and self.asking.participants is None

    def _present(self, queries: int, block: slice) -> BoolArray | None:
        """Who takes part; None where all do, whatever is asked."""
        if not self.method.nearest:
            return None
        given = self.asking.participants
        return np.full((self.facts.agents, queries), self.case != "least") if given is None else given[:, block]

    def _nearest(self, queries: int) -> Bill:
        """Distances up, the nearest rows to the root, mean, variance, jitter and who had a say down."""
        facts, sketch = self.facts, self.sketch
        count = min(self.options.neighbours, facts.rows)
        told = -(-count // -(-count // STEPS))
        rows = self.asking.pooled
        if rows is None:
            share = min(1.0, count * queries / facts.rows)
            rows = tuple(int(np.ceil(share * size)) for size in facts.sizes)
            if self.case != "usual":  # all are the root's, or each agent has all that are near a query
                rows = tuple(min(size, count * queries) if self.case == "most" else 0 for size in facts.sizes)
        pool = rows_sent(sketch, facts, rows, to=sketch.tree.root)
        width = 3 + numbers_for(facts.agents)
        last = sketch.reduction(queries, (0,), "predictions", told=(width,), to=self.asking.to)
        return sketch.reduction(queries, (told,), "statistics", told=(1,)) + pool + last

    def _nested(self, queries: int, present: BoolArray | None) -> Bill:
        """NPAE: who takes part, then everyone's block, to all."""
        sketch, facts = self.sketch, self.facts
        takes = [queries] * facts.agents if present is None else present.sum(axis=1).tolist()
        chosen = NOTHING
        if present is not None:
            chosen = sketch.reduction(queries, (0,), "predictions", present=present)
            if self.options.eta == AUTO:
                chosen += sketch.reduction(queries, (), "statistics")
            if self._absent:
                nobody = np.zeros_like(present)
                chosen += sketch.reduction(queries, (0,), "predictions", present=nobody)
                chosen += sketch.reduction(queries, (2,), "statistics")
        found = [self._blocks(queries, takes, vector) for vector in self._vectors]
        return chosen + reduce(lowest if self.case == "least" else highest, found)

    def _blocks(self, queries: int, takes: Sequence[int], vector: int) -> Bill:
        """Everyone's block of vectors of a length; of weights, with the inputs, where it is 0."""
        facts, shapes = self.facts, dict[str, list[Shape]]()
        lengths = [vector or self._weights(n, queries) for n in facts.sizes]
        if not vector:
            shapes["inputs"] = [(n if t else 0, facts.width) for n, t in zip(lengths, takes, strict=True)]
        shapes["predictions"] = [(n + 2, t) for n, t in zip(lengths, takes, strict=True)]
        return self.sketch.collection(self.asking.to, **shapes)

    @property
    def _boxed(self) -> bool:
        """Whether the agents look for a common basis; if the kernel is not known yet, whether they may."""
        smooth = self.facts.smooth or (self.facts.kernel is None and self.case == "most")
        return smooth and self.options.engine != "dense"

    @property
    def _vectors(self) -> tuple[int, ...]:
        """The numbers that vectors may have, the largest last; 0 where inputs and weights travel instead."""
        unsure = self.facts.kernel is None and self.options.engine != "dense"
        if not (self._boxed or unsure):
            return (0,)
        if self.asking.vector is not None:
            return (self.asking.vector,)
        if self.case == "usual":
            return (typical_vector(self.facts.dimension) if self._boxed else 0,)
        if np.prod(np.full(self.facts.dimension, FEWEST)) > 2.0 * LONGEST:
            return (0,)
        return (0, 1) if self.case == "least" else (0, LONGEST)

    def _weights(self, rows: int, queries: int) -> int:
        """Observations of an agent that count: all, or of many those nearest to the queries."""
        if self.options.engine == "dense" or (self.options.engine != "vecchia" and rows <= MOST_DENSE):
            return rows
        near = AROUND * self.options.neighbours
        return min(rows, near if self.case == "least" else near * queries)


def typical_vector(dimension: int, span: float = SPAN) -> int:
    """Functions of the squared exponential on a box of length-scales that are such a share of it; 0 if too many.

    >>> typical_vector(1) < typical_vector(2), typical_vector(6)
    (True, 0)
    """
    reach = 0.5 / span
    if (FEWEST + 7.5 * reach) ** dimension > 2.0 * LONGEST:
        return 0
    box = Box.around(np.array([[0.0], [1.0]]) * np.ones(dimension))
    model = Hyperparameters.from_theta(np.array([*[span] * dimension, 1.0, 0.1]))
    rank = Basis(model, box, (degree_for(reach, EXPANSION),) * dimension, DROP).rank
    return rank if rank <= LONGEST else 0


def _summands(rule: str) -> int:
    """Numbers that an agent adds up for a query."""
    one = np.ones((1, 1))
    return int(RULES[rule].summands(Beliefs(one, one, one, one, one, one > 0.0)).shape[-1])
