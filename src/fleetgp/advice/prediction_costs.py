"""What an answer sends, from the shapes of its messages: exactly where these are known, at most where they are not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetgp.advice.bill import NOTHING, Bill
from fleetgp.advice.facts import Facts
from fleetgp.advice.sketch import Shape, Sketch
from fleetgp.advice.training_costs import moments, rows_sent, samples
from fleetgp.arrays import BoolArray
from fleetgp.errors import InputError
from fleetgp.gp.basis import Basis, Box
from fleetgp.gp.chebyshev import degree_for
from fleetgp.gp.expert import MOST_DENSE
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.prediction.cross import DROP, EXPANSION, LONGEST
from fleetgp.prediction.methods import METHODS, PredictionMethod, prediction_method
from fleetgp.prediction.nearest import STEPS, numbers_for
from fleetgp.prediction.options import AUTO, PredictionOptions
from fleetgp.prediction.predict import block_size
from fleetgp.prediction.rules import RULES, Beliefs

#: Of a model that is not trained yet: length-scales as long as this share of the box, for the vectors of NPAE.
SPAN = 0.25


@dataclass(frozen=True)
class PredictionCost:
    """once: what is sent with the first answer only.  asked: for the queries.

    exact: False where it hangs on the data how much is sent: then it is at most this.
    """

    method: str
    once: Bill
    asked: Bill
    exact: bool

    @property
    def total(self) -> Bill:
        return self.once + self.asked


@dataclass(frozen=True)
class Asking:
    """What is asked, and what is known of the answer.

    queries: T.  to: the only agent that is told.  trained: by which method; "" for a theta that was given.
    participants: (M, T) who takes part, of dec-nn- methods; None: at most all.
    pooled: (M,) rows that each agent sends to the root, of dec-nearest; None: those that T times m make, at most.
    vector: numbers that an agent sends for a query, of NPAE by vectors; None: for length-scales a quarter of the box.
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
    return _Pricing(method, facts, asking).cost()


class _Pricing:
    """One answer."""

    def __init__(self, method: PredictionMethod, facts: Facts, asking: Asking) -> None:
        self.method, self.facts, self.asking, self.options = method, facts, asking, asking.options
        self.sketch = Sketch(facts.topology)

    def cost(self) -> PredictionCost:
        method, asking = self.method, self.asking
        exact = method.rule != "nearest" or asking.pooled is not None
        exact &= not method.nearest or asking.participants is not None
        exact &= method.rule != "npae" or asking.vector is not None
        if method.rule == "full-gp":
            exact = asking.trained == "dec-full-gp"
        step = block_size(method, self.sketch.network, self.options.neighbours)
        slices = [slice(start, min(start + step, asking.queries)) for start in range(0, asking.queries, step)]
        asked, known = NOTHING, dict[int, Bill]()
        for block in slices:
            size = block.stop - block.start
            if asking.participants is not None or size not in known:
                known[size] = self._block(size, block)
            asked += known[size]
        return PredictionCost(method.name, self._model() + self._agreed(), asked, bool(exact))

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
            return frame + moments(facts, sketch)
        if rule == "nearest":
            return sketch.reduction(1, (), "statistics")
        if rule == "grbcm":
            return samples(facts, sketch)
        if rule == "npae" and self._boxed:
            box = sketch.reduction(2 * facts.dimension, (), "statistics")
            return box + sketch.reduction(4, (), "statistics") if self._vector else box
        return NOTHING

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
        return 2 * best + total

    def _present(self, queries: int, block: slice) -> BoolArray | None:
        """Who takes part; None where all do, whatever is asked."""
        if not self.method.nearest:
            return None
        given = self.asking.participants
        return np.ones((self.facts.agents, queries), dtype=bool) if given is None else given[:, block]

    def _nearest(self, queries: int) -> Bill:
        """Distances up, the nearest rows to the root, mean, variance, jitter and who had a say down."""
        facts, sketch = self.facts, self.sketch
        count = min(self.options.neighbours, facts.rows)
        told = -(-count // -(-count // STEPS))
        rows = self.asking.pooled
        if rows is None:
            share = min(1.0, count * queries / facts.rows)
            rows = tuple(int(np.ceil(share * size)) for size in facts.sizes)
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
        lengths = [self._vector] * facts.agents if self._vector else [self._weights(n, queries) for n in facts.sizes]
        shapes: dict[str, list[Shape]] = {}
        if not self._vector:
            shapes["inputs"] = [(n if t else 0, facts.width) for n, t in zip(lengths, takes, strict=True)]
        shapes["predictions"] = [(n + 2, t) for n, t in zip(lengths, takes, strict=True)]
        return chosen + sketch.collection(self.asking.to, **shapes)

    @property
    def _boxed(self) -> bool:
        return self.facts.smooth and self.options.engine != "dense"

    @property
    def _vector(self) -> int:
        """Numbers of a vector; 0 where inputs and weights travel instead."""
        if not self._boxed:
            return 0
        return self.asking.vector if self.asking.vector is not None else typical_vector(self.facts.dimension)

    def _weights(self, rows: int, queries: int) -> int:
        """Observations of an agent that count: all, or of many those nearest to the queries."""
        if self.options.engine == "dense" or (self.options.engine != "vecchia" and rows <= MOST_DENSE):
            return rows
        return min(rows, 2 * self.options.neighbours * queries)


def typical_vector(dimension: int, span: float = SPAN) -> int:
    """Functions of the squared exponential on a box of length-scales that are such a share of it; 0 if too many.

    >>> typical_vector(1) < typical_vector(2), typical_vector(6)
    (True, 0)
    """
    reach = 0.5 / span
    if (10.0 + 7.5 * reach) ** dimension > 2.0 * LONGEST:
        return 0
    box = Box.around(np.array([[0.0], [1.0]]) * np.ones(dimension))
    model = Hyperparameters.from_theta(np.array([*[span] * dimension, 1.0, 0.1]))
    rank = Basis(model, box, (degree_for(reach, EXPANSION),) * dimension, DROP).rank
    return rank if rank <= LONGEST else 0


def _summands(rule: str) -> int:
    """Numbers that an agent adds up for a query."""
    one = np.ones((1, 1))
    return int(RULES[rule].summands(Beliefs(one, one, one, one, one, one > 0.0)).shape[-1])
