"""Cross-validation: the folds, the runs and the result.

The result of a cross-validation.

Which rows a cross-validation hides together, and the fleet as if they were not there.

`Fleet.cross_validate`: rows are hidden, fold by fold, and predicted by the fleet from the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fleetgp.arrays import Array, IntArray, order_by_place
from fleetgp.data.dataset import InMemory, corners
from fleetgp.data.partition import FOLDS, block_pieces, row_pieces
from fleetgp.errors import FleetGPWarning, InputError, check_name, shortened
from fleetgp.files import ResumableCache
from fleetgp.fleet.privacy import predictor_of, refuse_queries
from fleetgp.fleet.scoring import trivial_of
from fleetgp.fleet.shards import own_groups
from fleetgp.graph.topology import relayed
from fleetgp.metrics import LEVEL, Scores, Trivial, framed, score
from fleetgp.metrics.scores import half_width
from fleetgp.model.observations import Observations
from fleetgp.prediction import Holding
from fleetgp.progress import Listener, Pace, Progress, listening
from fleetgp.validation import as_flag, check_whole

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


Split = Literal["random", "agent", "block"]


@dataclass(frozen=True)
class Rest:
    """A fleet as if the rows of a fold were not there. members: the numbers that its agents have in the whole fleet.

    judges: for every agent of the whole fleet, the member that answers for it: itself, or one with the same noise.
    """

    fleet: Fleet
    members: tuple[int, ...]
    judges: tuple[int, ...]


def dealt(fleet: Fleet, split: Split, folds: int | None, cells: int | None, seed: int) -> list[IntArray]:
    """(N_i,) of each agent's rows the fold in which they are hidden; or one clear error."""
    check_name("split", split, get_args(Split))
    if cells is not None and split != "block":
        raise InputError(f'cells are of split="block", got split="{split}": leave them out')
    shards = rows_of(fleet)
    count = (fleet.agents if split == "agent" else FOLDS) if folds is None else folds
    check_whole("folds", count, least=2)
    rows = sum(map(len, shards))
    if count > rows:
        raise InputError(f"folds: expected at most {rows:,}, one for each row, got {count:,}")
    if split == "agent" and count > fleet.agents:
        raise InputError(f'split="agent": expected at most {fleet.agents} folds, one for each agent, got {count}')
    if split == "agent":
        turns = _turns(shards, seed) if count < fleet.agents else range(count)
        return [np.full(len(own), turn % count) for own, turn in zip(shards, turns, strict=True)]
    if split == "random":
        return [row_pieces(own.inputs, own.values, seed, count) % count for own in shards]
    pieces = shards.along_arc(fleet.coordinates.longitude)
    low, high = corners(pieces.summaries)
    many = Holding(cells=cells).cells_for(fleet.agents)
    return [block_pieces(own.inputs, low, high, many, seed) % count for own in pieces]


def _turns(shards: Sequence[Observations], seed: int) -> IntArray:
    """(M,) a number for each agent that looks random, and depends on where its rows are alone."""
    centres = np.stack([own.inputs.mean(axis=0) for own in shards])
    means = np.array([own.values.mean() for own in shards])
    found = np.empty(len(shards), dtype=np.int64)
    found[order_by_place(centres, means, seed)] = np.arange(len(shards))
    return found


def rows_of(fleet: Fleet) -> InMemory:
    """Every agent's rows, loaded if they are in files: all, or the sample that is drawn."""
    return InMemory(fleet.data.load())


def without(fleet: Fleet, fold_of: Sequence[IntArray], fold: int, *, kernel: Any) -> Rest:
    """The same fleet, untrained, without the rows of a fold. Agents with no others only relay.

    kernel: in the place of the fleet's own.
    """
    members = tuple(agent for agent, own in enumerate(fold_of) if (own != fold).any())
    if not members:
        raise InputError("cross-validation: expected rows that stay when a fold is hidden, got none: give more cells")
    rows = rows_of(fleet)
    shards = [rows[agent].rows(fold_of[agent] != fold).as_given for agent in members]
    groups = own_groups(fleet.noise, fleet.agents, fleet.noise_model)
    names = [fleet.noise_model.groups[group] for group in groups] if fleet.noise_model.groups else None
    settings = fleet.settings | {"kernel": kernel, "noise": names and [names[agent] for agent in members]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # of the data: it was said when the fleet was made
        rest = type(fleet)(shards, relayed(fleet.graph, members), **settings)
    return Rest(rest, members, tuple(_judge(agent, members, groups, names) for agent in range(fleet.agents)))


def _judge(agent: int, members: Sequence[int], groups: Sequence[int], names: Sequence[str] | None) -> int:
    if agent in members:
        return members.index(agent)
    for place, other in enumerate(members):
        if groups[other] == groups[agent]:
            return place
    assert names is not None, "without groups all are of one"
    raise InputError(
        f"cross-validation: agent {agent} has no rows left in a fold, and nobody else has the noise {names[agent]!r}: "
        'its observations cannot be judged. Give split="random", or a noise that several agents share'
    )


def by_name(theta: Array, names: Sequence[str], wanted: Sequence[str]) -> list[float]:
    """A theta in the order of other names: groups of noise may be in another order without some agents."""
    values = dict(zip(names, theta.tolist(), strict=True))
    return [values[name] for name in wanted]


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

    split, method: what was hidden together, and how it was predicted.
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

    split: str
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
        split: str,
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
        >>> half = CrossValidation.of(found.split, found.method, found.folds, found.fold_of, found.truths, level=0.5)
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
        return cls(split, method, tuple(folds), *rows_of_agents, level, whole, every)

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
        return (
            f"CrossValidation(split={self.split!r}, method={self.method!r}, folds={len(self.folds)}, {self.scores!r})"
        )


#: Of `train`, where neither a fit nor a caller says another.
TRAINER = "dec-fact-gp"


def cross_validate(
    fleet: Fleet,
    folds: int | None = None,
    split: Split = "random",
    method: str | None = None,
    *,
    train: bool | Mapping[str, Any] = True,
    cells: int | None = None,
    level: float = LEVEL,
    seed: int | None = None,
    progress: bool | Listener = False,
    kept: ResumableCache | None = None,
    **asking: Any,
) -> CrossValidation:
    """How well the fleet predicts observations that it does not see: every row is hidden once, with others.

    folds: how many times rows are hidden; 5, or with split="agent" once for each agent.
    split: what is hidden together. "random": rows of every agent, which tells how good predictions are among the data.
        "agent": all rows of an agent. "block": whole cells of the fleet's box, the same for all agents, so that nobody
        observes them: it tells how good predictions are in gaps. An agent with no other rows still relays.
    method, asking: as in `predict`. Each agent's rows are judged by its own answer; those of an agent without other
        rows by that of the first agent with the same noise.
    train: True trains again for every fold, as the fleet was trained (by `last_fit.method`, with its bounds and priors,
        from its theta if it has one); a dictionary has other options of `Fleet.train`. False predicts with the present
        theta, which knows the hidden rows a little, and takes a fraction of the time.
    cells: with split="block", how many cells the box has; 16 for each agent, and at least 100.
    level: of the intervals.  seed: draws what is hidden; without it the fleet's.
    progress: True for a bar on the terminal, or a callable that gets a `Progress`.
    kept: where finished folds are kept, so that an interrupted call goes on.

    A fleet with private="rows" refuses: the inputs of hidden rows are queries, which all agents see.
    The fleet stays as it is. A calibration is not used: it is of all rows. Of data in files the rows are loaded, or the
    sample that the fleet has of them.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(200, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = fleet.cross_validate(split="random", method="dec-rbcm", train=False)
    >>> len(found.folds), found.scores.rows, found.means[0].shape == fleet.shards[0][1].shape
    (5, 200, True)
    >>> gaps = fleet.cross_validate(split="block", method="dec-rbcm", train=False)
    >>> gaps.scores.rmse > found.scores.rmse
    True
    """
    refuse_queries(fleet.private, "cross_validate", "Use `calibrate`, which reports coverage")
    method = predictor_of(fleet.private, method).name
    half_width(level)
    chosen = fleet.seed if seed is None else seed
    check_whole("seed", chosen, least=0)
    if "observed" in asking or "agent" in asking:
        raise InputError(
            "cross_validate accepts neither observed nor agent: leave them out, every agent judges its own observations"
        )
    if kept is not None and not isinstance(kept, ResumableCache):
        raise InputError(
            f"kept: expected a ResumableCache, as fleetgp.files.ResumableCache(folder, {{}}), got {shortened(kept)}"
        )
    fleet._backend.check_here("cross_validate")
    plan = Plan(fleet, method, asking, _training(fleet, train), tuple(dealt(fleet, split, folds, cells, chosen)))
    numbers = sorted({int(number) for own in plan.fold_of for number in np.unique(own)})
    if len(numbers) < 2:
        raise InputError(
            f'split="{split}": expected rows in at least two folds, got them in {len(numbers)}: give more cells'
        )
    renumbered = tuple(np.searchsorted(numbers, own) for own in plan.fold_of)  # blocks may leave a fold empty
    found = _followed(replace(plan, fold_of=renumbered), len(numbers), split, progress, kept)
    truths = [own.values for own in rows_of(fleet)]
    return CrossValidation.of(split, method, found, renumbered, truths, level, fleet.labels)


@dataclass(frozen=True)
class Plan:
    """training: the options of `Fleet.train`; None for the theta that there is.  fold_of: (N_i,) of each agent."""

    fleet: Fleet
    method: str
    asking: Mapping[str, Any]
    training: Mapping[str, Any] | None
    fold_of: tuple[IntArray, ...]

    def fold(self, number: int) -> Fold:
        """Hide a fold, and have the rest predict it."""
        fleet, trained = self.fleet, self.training is not None
        choices = [kernel.name for kernel in fleet.kernels]
        rest = without(fleet, self.fold_of, number, kernel=choices if trained else fleet.kernel.name)
        status, rounds, sent = self._trained(rest.fleet)
        asked, known = _hidden(fleet, self.fold_of, number)
        queries = np.concatenate(asked)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of gaps: they are what is asked about, and counted
            found = rest.fleet.predict(queries, self.method, observed=True, **self.asking)
        ends = np.cumsum([len(own) for own in asked])[:-1]
        assert rest.fleet.theta is not None, "it was trained, or given"
        return Fold(
            means=_judged(found.means, rest, ends),
            variances=tuple(v + s**2 for v, s in zip(_judged(found.variances, rest, ends), known, strict=True)),
            trivial=trivial_of(rest.fleet.data),
            theta=dict(zip(rest.fleet.names, rest.fleet.theta.tolist(), strict=True)),
            training=status,
            prediction=found.status,
            relays=tuple(agent for agent in range(fleet.agents) if agent not in rest.members),
            uninformed=int(found.uninformed.sum()),
            rounds=rounds + found.ledger.rounds,
            bytes=sent + found.ledger.bytes,
        )

    def _trained(self, rest: Fleet) -> tuple[str, int, int]:
        """Train what is left, or give it the theta that there is: how that ended, its rounds and bytes."""
        fleet = self.fleet
        if self.training is None:
            assert fleet.theta is not None, "it was checked"
            rest.theta = np.array(by_name(fleet.theta, fleet.names, rest.names))
            return "given", 0, 0
        options = dict(self.training)
        if "theta0" not in options and fleet.theta is not None and len(rest.kernels) == 1:
            options["theta0"] = by_name(fleet.theta, fleet.names, rest.names)
        fit = rest.train(**options)
        if fit.status == "diverged":
            raise InputError(f"cross_validate: {fit.method} diverged without the rows of a fold: train in another way")
        return fit.status, fit.ledger.rounds, fit.ledger.bytes


def _training(fleet: Fleet, train: object) -> Mapping[str, Any] | None:
    """The options of `Fleet.train`; None for none."""
    if isinstance(train, Mapping):
        for name in train:
            check_name("option of train", name, list(signature(fleet.train).parameters))
        return {"method": TRAINER, **train}
    if not as_flag(train, "train"):
        if fleet.theta is None:
            raise InputError("cross_validate: the fleet has no hyperparameters yet: give train=True, or train it first")
        return None
    if fleet.last_fit is None:
        return {"method": TRAINER}
    known = replace(fleet.last_fit.known, names=fleet.names).as_dict() if fleet.last_fit.known.names else {}
    return {"method": fleet.last_fit.method, **{name: given for name, given in known.items() if given}}


def _followed(plan: Plan, folds: int, split: str, progress: bool | Listener, kept: ResumableCache | None) -> list[Fold]:
    """All folds, one after the other; those that are kept are not computed again."""
    found: list[Fold] = []
    with listening(progress) as listener:
        pace = Pace()
        for number in range(folds + 1):
            if listener is not None:
                listener(Progress(f"by {split}", number, folds, pace.told(number, folds), unit="fold"))
            if number < folds:
                piece = None if kept is None else kept.get(str(number))
                found.append(plan.fold(number) if piece is None else Fold.from_dict(piece))
                if kept is not None and piece is None:
                    kept.put(str(number), found[-1].as_dict())
    return found


def _hidden(fleet: Fleet, fold_of: Sequence[IntArray], number: int) -> tuple[list[Array], list[Array]]:
    """Inputs and known deviations of each agent's hidden rows; 0 where there are none."""
    rows = [own.rows(folds == number) for own, folds in zip(rows_of(fleet), fold_of, strict=True)]
    known = [np.zeros(len(own)) if own.noise_std is None else own.noise_std for own in rows]
    return [own.inputs for own in rows], known


def _judged(answers: Array, rest: Rest, ends: IntArray) -> tuple[Array, ...]:
    """Of answers (A, T) to all hidden rows, those of each agent's own rows, by the agent that judges them."""
    parts = np.split(answers, ends, axis=1)
    return tuple(np.array(part[judge]) for part, judge in zip(parts, rest.judges, strict=True))
