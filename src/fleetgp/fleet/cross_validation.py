"""Cross-validation: which rows are hidden together, their predictions, and the result."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fleetgp.arrays import Array, IntArray, order_by_place
from fleetgp.data.dataset import InMemory, centres_of, corners
from fleetgp.data.partition import FOLDS, block_pieces, row_pieces
from fleetgp.errors import FleetGPWarning, InputError, check_name, shortened
from fleetgp.files import ResumableCache
from fleetgp.fleet.scoring import trivial_of
from fleetgp.fleet.shards import own_groups
from fleetgp.graph.topology import relayed
from fleetgp.metrics import Scores, Trivial, framed, half_width, score
from fleetgp.model.observations import Observations
from fleetgp.options import TrainKeywords
from fleetgp.prediction import Holding
from fleetgp.progress import Listener, Pace, Progress, listening
from fleetgp.training import Fit
from fleetgp.validation import as_flag, check_whole

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet

Split = Literal["random", "agent", "block"]
#: The trainer of folds if neither a fit nor the caller names one.
TRAINER = "dec-fact-gp"


@dataclass(frozen=True)
class Fold:
    """The predictions of rows that were hidden together.

    means, variances: of each agent's hidden rows, in their order, as observations; predicted from all other rows.
    trivial: mean and variance of the other rows.  theta: the hyperparameters of the predictions, by name.
    training, prediction: how they ended; training is "given" if theta was not trained for the fold.
    relays: agents without other rows, which only relay messages.
    prior_only: how many predictions are no better than the prior.
    rounds, bytes: of training and prediction together.
    """

    means: tuple[Array, ...]
    variances: tuple[Array, ...]
    trivial: Trivial
    theta: dict[str, float]
    training: str
    prediction: str
    relays: tuple[int, ...]
    prior_only: int
    rounds: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        rows = {name: [part.tolist() for part in getattr(self, name)] for name in ("means", "variances")}
        return {**{name: getattr(self, name) for name in self.__annotations__}, **rows, "trivial": asdict(self.trivial)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Fold:
        """Return the fold of `as_dict`."""
        rows = {name: tuple(np.array(part, dtype=float) for part in facts[name]) for name in ("means", "variances")}
        return cls(**{**facts, **rows, "trivial": Trivial(**facts["trivial"]), "relays": tuple(facts["relays"])})


@dataclass(frozen=True)
class CrossValidation:
    """Held-out predictions of all rows and their scores; `Fleet.cross_validate` makes it.

    split, method: what was hidden together, and how it was predicted.
    folds: the result of each fold.  fold_of: (N_i,) for each agent, the fold that hid each row.
    truths, means, variances: (N_i,) for each agent, the observations and their held-out predictions. Known variances of
        observations are included.
    level: of the intervals.
    scores: of all rows; its `rows_of` has those of each agent.  fold_scores: of each fold.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> result = fleet.cross_validate(3, method="dec-poe", train=False)
    >>> result.scores.rows, len(result.fold_scores), result.means[0].shape, result.variances[0].shape
    (120, 3, (30,), (30,))
    >>> [name for name, _ in result.parts()][:5]
    ['all', 'fold 0', 'fold 1', 'fold 2', 'rows of 0']
    >>> result.to_frame(agents=["Ada", "Bo", "Cy", "Di"]).loc["rows of Di", "rows"]
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
        """Score folds, for example the same ones at another level.

        fold_of, truths: (N_i,) of each agent.  agents: their names, by default their numbers.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(60, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1])
        >>> full = fleet.cross_validate(2, method="dec-poe", train=False)
        >>> half = CrossValidation.of(full.split, full.method, full.folds, full.fold_of, full.truths, level=0.5)
        >>> half.scores.rmse == full.scores.rmse, half.scores.coverage < full.scores.coverage
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
            return Scores.pooled([one for key, one in cells.items() if key[place] == which])

        rows_of = tuple(pooled(1, agent) if len(own) else None for agent, own in enumerate(truths))
        whole = Scores.pooled(list(cells.values()), rows_of=rows_of, agents=tuple(agents))
        every = tuple(pooled(0, number) for number in range(len(folds)))
        rows_of_agents = tuple(fold_of), tuple(truths), tuple(means), tuple(variances)
        return cls(split, method, tuple(folds), *rows_of_agents, level, whole, every)

    @property
    def prior_only(self) -> int:
        """The number of predictions that are no better than the prior: in gaps wider than the length-scales."""
        return sum(fold.prior_only for fold in self.folds)

    def parts(self, agents: Sequence[str] | None = None) -> Iterator[tuple[str, Scores]]:
        """Yield the name and the scores of all rows, of each fold, and of each agent's rows. agents: their names."""
        whole, *others = self.scores.parts(agents)
        yield whole
        yield from ((f"fold {number}", scores) for number, scores in enumerate(self.fold_scores))
        yield from others

    def to_frame(self, agents: Sequence[str] | None = None) -> Any:
        """Return a data frame of the scores, with a row for each of `parts`. agents: their names."""
        return framed(dict(self.parts(agents)))

    def __repr__(self) -> str:
        return (
            f"CrossValidation(split={self.split!r}, method={self.method!r}, folds={len(self.folds)}, {self.scores!r})"
        )


def cross_validate(
    fleet: Fleet,
    method: str,
    options: Mapping[str, Any],
    *,
    folds: int | None,
    split: Split,
    train: bool | Mapping[str, Any],
    cells: int | None,
    level: float,
    seed: int,
    progress: bool | Listener,
    kept: ResumableCache | None,
) -> CrossValidation:
    """Predict each fold of the rows from all others, and score the predictions; see `Fleet.cross_validate`."""
    half_width(level)
    check_whole("seed", seed, least=0)
    if kept is not None and not isinstance(kept, ResumableCache):
        raise InputError(
            f"kept: expected a ResumableCache, as fleetgp.files.ResumableCache(folder, {{}}), got {shortened(kept)}"
        )
    training = _training_options(train, fleet.last_fit, fleet.names)
    if training is None and fleet.theta is None:
        raise InputError("cross_validate: the fleet has no hyperparameters yet: give train=True, or train it first")
    data = InMemory(fleet.data.load())
    fold_of, count = _deal(data, split, folds, cells, seed, fleet.coordinates.longitude)
    results: list[Fold] = []
    with listening(progress) as listener:
        pace = Pace()
        for number in range(count + 1):
            if listener is not None:
                listener(Progress(f"by {split}", number, count, pace.describe(number, count), unit="fold"))
            if number == count:
                break
            piece = None if kept is None else kept.get(str(number))
            if piece is not None:
                results.append(Fold.from_dict(piece))
                continue
            results.append(predict_fold(fleet, data, fold_of, number, method, training, options))
            if kept is not None:
                kept.put(str(number), results[-1].as_dict())
    truths = [own.values for own in data]
    return CrossValidation.of(split, method, results, fold_of, truths, level, fleet.labels)


def predict_fold(
    fleet: Fleet,
    data: InMemory,
    fold_of: Sequence[IntArray],
    number: int,
    method: str,
    training: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Fold:
    """Predict the rows of a fold by a fleet that has all others. training: None for the present theta.

    The members of that fleet are the agents with other rows; the others only relay.
    """
    members = [agent for agent, own in enumerate(fold_of) if (own != number).any()]
    if not members:
        raise InputError("cross-validation: expected rows that stay when a fold is hidden, got none: give more cells")
    groups = own_groups(fleet.noise, fleet.agents, fleet.noise_model)
    noises = [fleet.noise_model.groups[group] for group in groups] if fleet.noise_model.groups else []
    answering = [_answering(agent, members, noises) for agent in range(fleet.agents)]
    shards = [data[agent].rows(fold_of[agent] != number).as_given for agent in members]
    settings = fleet.settings | {"noise": [noises[agent] for agent in members] if noises else None}
    settings["kernel"] = fleet.kernel.name if training is None else [one.name for one in fleet.kernels]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # about the data: given when the fleet was made
        rest = type(fleet)(shards, relayed(fleet.graph, members), **settings)
    status, rounds, sent = "given", 0, 0
    if training is None:
        assert fleet.theta is not None, "checked by the caller"
        rest.theta = np.array(_by_name(fleet.theta, fleet.names, rest.names))
    else:
        options_of_fold = dict(training)
        if "theta0" not in training and fleet.theta is not None and len(rest.kernels) == 1:
            options_of_fold["theta0"] = _by_name(fleet.theta, fleet.names, rest.names)
        fit = rest.train(**options_of_fold)
        if fit.status == "diverged":
            raise InputError(f"cross_validate: {fit.method} diverged without the rows of a fold: train in another way")
        status, rounds, sent = fit.status, fit.ledger.rounds, fit.ledger.bytes
    hidden = [own.rows(folds == number) for own, folds in zip(data, fold_of, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # about gaps: the result counts them
        answer = rest.predict(np.concatenate([own.inputs for own in hidden]), method, observed=True, **options)
    assert rest.theta is not None, "it was trained, or given"
    ends = np.cumsum([len(own) for own in hidden])[:-1]

    def of_own_rows(answers: Array) -> list[Array]:
        """Select the answers at each agent's own rows from answers (A, T) at all hidden rows."""
        parts = np.split(answers, ends, axis=1)
        return [np.array(part[member]) for part, member in zip(parts, answering, strict=True)]

    known = [np.zeros(len(own)) if own.noise_std is None else own.noise_std for own in hidden]
    variances = zip(of_own_rows(answer.variances), known, strict=True)
    return Fold(
        means=tuple(of_own_rows(answer.means)),
        variances=tuple(variance + std**2 for variance, std in variances),
        trivial=trivial_of(rest.data),
        theta=dict(zip(rest.names, rest.theta.tolist(), strict=True)),
        training=status,
        prediction=answer.status,
        relays=tuple(agent for agent in range(fleet.agents) if agent not in members),
        prior_only=int(answer.prior_only.sum()),
        rounds=rounds + answer.ledger.rounds,
        bytes=sent + answer.ledger.bytes,
    )


def _answering(agent: int, members: Sequence[int], noises: Sequence[str]) -> int:
    """Return the member whose answers an agent's rows are compared with: itself, or one with the same noise."""
    if agent in members:
        return members.index(agent)
    for place, other in enumerate(members):
        if not noises or noises[other] == noises[agent]:
            return place
    raise InputError(
        f"cross-validation: agent {agent} has no rows left in a fold, and no other agent has the noise "
        f'{noises[agent]!r}: its observations cannot be predicted. Give split="random", or a noise that several '
        "agents share"
    )


def _deal(
    data: InMemory, split: Split, folds: int | None, cells: int | None, seed: int, longitude: int
) -> tuple[list[IntArray], int]:
    """Return (N_i,) the fold in which each row of each agent is hidden, and the number of folds.

    longitude: which input is one, -1 for none.
    """
    check_name("split", split, get_args(Split))
    if cells is not None and split != "block":
        raise InputError(f'cells are of split="block", got split="{split}": leave them out')
    agents, rows = len(data), sum(data.counts)
    count = (agents if split == "agent" else FOLDS) if folds is None else folds
    check_whole("folds", count, least=2)
    if count > rows:
        raise InputError(f"folds: expected at most {rows:,}, one for each row, got {count:,}")
    if split == "agent" and count > agents:
        raise InputError(f'split="agent": expected at most {agents} folds, one for each agent, got {count}')
    if split == "agent":
        turns = _turns(data, seed) if count < agents else range(count)
        dealt = [np.full(len(own), turn % count) for own, turn in zip(data, turns, strict=True)]
    elif split == "random":
        dealt = [row_pieces(own.inputs, own.values, seed, count) % count for own in data]
    else:
        pieces = data.along_arc(longitude)
        low, high = corners(pieces.summaries)
        many = Holding(cells=cells).cells_for(agents)
        dealt = [block_pieces(own.inputs, low, high, many, seed) % count for own in pieces]
    numbers = sorted({int(number) for own in dealt for number in np.unique(own)})
    if len(numbers) < 2:
        raise InputError(
            f'split="{split}": expected rows in at least two folds, got them in {len(numbers)}: give more cells'
        )
    return [np.searchsorted(numbers, own) for own in dealt], len(numbers)  # blocks may leave a fold empty


def _turns(data: Sequence[Observations], seed: int) -> IntArray:
    """Return (M,) a random order of the agents that depends only on where their rows are."""
    centres = centres_of(data)
    means = np.array([own.values.mean() if len(own) else 0.0 for own in data])
    turns = np.empty(len(data), dtype=np.int64)
    turns[order_by_place(centres, means, seed)] = np.arange(len(data))
    return turns


def _by_name(theta: Array, names: Sequence[str], wanted: Sequence[str]) -> list[float]:
    """Return a theta in the order of other names: without some agents, groups of noise may have another order."""
    values = dict(zip(names, theta.tolist(), strict=True))
    return [values[name] for name in wanted]


def _training_options(train: object, fit: Fit | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the options of `Fleet.train` for folds: those given, or those of the last fit; None for no training."""
    if isinstance(train, Mapping):
        for name in train:
            check_name("option of train", name, ("method", "preset", "progress", *TrainKeywords.__annotations__))
        return {"method": TRAINER, **train}
    if not as_flag(train, "train"):
        return None
    if fit is None:
        return {"method": TRAINER}
    known = replace(fit.known, names=names).as_dict() if fit.known.names else {}
    return {"method": fit.method, **{name: given for name, given in known.items() if given}}
