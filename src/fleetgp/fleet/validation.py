"""The result of a cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.metrics import Scores, Trivial, framed, score


@dataclass(frozen=True)
class Fold:
    """What became of the rows that were hidden together.

    means, variances: of each agent's hidden rows, in their order, as observations; predicted from all other rows.
    trivial: mean and variance of these others.  theta: the hyperparameters that they were predicted with, by name.
    training, prediction: how these ended; training is "given" where theta was not trained anew.
    relays: agents that had no other rows, and only passed on what others said.
    uninformed: hidden rows whose prediction is no better than the prior.
    rounds, bytes: of training and prediction together.
    """

    means: tuple[Array, ...]
    variances: tuple[Array, ...]
    trivial: Trivial
    theta: dict[str, float]
    training: str
    prediction: str
    relays: tuple[int, ...]
    uninformed: int
    rounds: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        rows = {name: [part.tolist() for part in getattr(self, name)] for name in ("means", "variances")}
        return {**{name: getattr(self, name) for name in self.__annotations__}, **rows, "trivial": asdict(self.trivial)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Fold:
        """The converse."""
        rows = {name: tuple(np.array(part, dtype=float) for part in facts[name]) for name in ("means", "variances")}
        return cls(**{**facts, **rows, "trivial": Trivial(**facts["trivial"]), "relays": tuple(facts["relays"])})


@dataclass(frozen=True)
class CrossValidation:
    """How well a fleet predicts rows that it does not see; `Fleet.cross_validate` makes it.

    by, method: what was hidden together, and how it was predicted.
    folds: what became of each.  fold_of: (N_i,) of each agent's rows, the number of the fold that hid them.
    truths, means, variances: (N_i,) of each agent's rows in their order, the observations and their held-out
        predictions. Known deviations of observations are in the variances.
    level: of the intervals.
    scores: of all rows; its `rows_of` has those of each agent's own.  fold_scores: of each fold.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = fleet.cross_validate(3, method="dec-poe", train=False)
    >>> found.scores.rows, len(found.fold_scores), found.means[0].shape, found.variances[0].shape
    (120, 3, (30,), (30,))
    >>> [whose for whose, _ in found.parts()][:5]
    ['all', 'fold 0', 'fold 1', 'fold 2', 'rows of 0']
    >>> found.to_frame(agents=["Ada", "Bo", "Cy", "Di"]).loc["rows of Di", "rows"]
    np.int64(30)
    """

    by: str
    method: str
    folds: tuple[Fold, ...]
    fold_of: tuple[IntArray, ...] = field(repr=False)
    truths: tuple[Array, ...] = field(repr=False)
    means: tuple[Array, ...] = field(repr=False)
    variances: tuple[Array, ...] = field(repr=False)
    level: float
    scores: Scores
    fold_scores: tuple[Scores, ...]

    @classmethod
    def of(
        cls,
        by: str,
        method: str,
        folds: Sequence[Fold],
        fold_of: Sequence[IntArray],
        truths: Sequence[Array],
        level: float,
        agents: Sequence[str] = (),
    ) -> CrossValidation:
        """From the folds, each of which has the predictions of its own rows: the same ones at another level, say.

        fold_of, truths: (N_i,) of each agent.  agents: their names; without them they are numbers.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(60, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1])
        >>> found = fleet.cross_validate(2, method="dec-poe", train=False)
        >>> half = CrossValidation.of(found.by, found.method, found.folds, found.fold_of, found.truths, level=0.5)
        >>> half.scores.rmse == found.scores.rmse, half.scores.coverage < found.scores.coverage
        (True, True)
        """
        means, variances = ([np.full(len(y), np.nan) for y in truths] for _ in range(2))
        cells: dict[tuple[int, int], Scores] = {}
        for number, fold in enumerate(folds):
            for agent, (mean, variance) in enumerate(zip(fold.means, fold.variances, strict=True)):
                rows = fold_of[agent] == number
                means[agent][rows], variances[agent][rows] = mean, variance
                if rows.any():
                    cells[number, agent] = score(
                        (mean, variance), truths[agent][rows], trained=fold.trivial, level=level
                    )

        def pooled(place: int, which: int) -> Scores:
            return Scores.pooled([found for key, found in cells.items() if key[place] == which])

        rows_of = tuple(pooled(1, agent) for agent in range(len(truths)))
        whole = Scores.pooled(list(cells.values()), rows_of=rows_of, agents=tuple(agents))
        every = tuple(pooled(0, number) for number in range(len(folds)))
        rows_of_agents = tuple(fold_of), tuple(truths), tuple(means), tuple(variances)
        return cls(by, method, tuple(folds), *rows_of_agents, level, whole, every)

    @property
    def uninformed(self) -> int:
        """Rows whose prediction is no better than the prior: in gaps that are wider than the length-scales."""
        return sum(fold.uninformed for fold in self.folds)

    def parts(self, agents: Sequence[str] | None = None) -> Iterator[tuple[str, Scores]]:
        """Whose scores, in words, and these: of all rows, of each fold, of each agent's rows. agents: their names."""
        whole, *others = self.scores.parts(agents)
        yield whole
        yield from ((f"fold {number}", found) for number, found in enumerate(self.fold_scores))
        yield from others

    def to_frame(self, agents: Sequence[str] | None = None) -> Any:
        """A data frame of the scores: a row for all, one for each fold and one for each agent's own rows.

        agents: their names; without them their numbers.
        """
        return framed(dict(self.parts(agents)))

    def __repr__(self) -> str:
        return f"CrossValidation(by={self.by!r}, method={self.method!r}, folds={len(self.folds)}, {self.scores!r})"
