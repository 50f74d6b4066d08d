"""What there is to do: every member of a view tells what it has and wants, and all draw the same conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetgp.agent.description import MOST_STARTS, PREDICTORS, TRAINERS
from fleetgp.arrays import Array
from fleetgp.consensus import Status
from fleetgp.consensus.scaling import Scaling
from fleetgp.errors import NonsenseError
from fleetgp.gp.hyperparameters import LOG_RANGE, sound_log_theta
from fleetgp.network import Network
from fleetgp.network.sound import LARGEST

STATUSES: tuple[Status, ...] = ("converged", "round limit", "diverged")
#: More points are not answered at once.
MOST_POINTS = 20_000


@dataclass(frozen=True)
class Trained:
    """The model an agent holds. log_theta: its own estimate, in the units of the data.

    id: of the training, the same at all who took part; members: who did.
    """

    log_theta: tuple[float, ...]
    id: int
    members: tuple[int, ...]
    method: str
    status: Status
    rounds: int
    offset: float = 0.0
    scale: float = 1.0

    @property
    def theta(self) -> list[float]:
        return np.exp(np.array(self.log_theta)).tolist()  # type: ignore[no-any-return]

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.offset, self.scale)


@dataclass(frozen=True)
class Wish:
    """A training that somebody asked for. cold: from the file's own starts instead of the current estimates."""

    cold: bool = False
    method: str | None = None


@dataclass(frozen=True)
class Question:
    """Queries (T, D) for all, and how to combine the answers."""

    queries: Array
    method: str
    noisy: bool = False


@dataclass(frozen=True)
class Item:
    """One member's part of the agenda.

    estimates: (S, P) log theta of a training that did not end, one row for each start; chosen: the best start is.
    failed: training came to nothing in this view, so that nobody tries again without being told.
    new: rows that came since the model was trained.
    """

    trained: Trained | None = None
    estimates: Array = field(default_factory=lambda: np.zeros((0, 0)))
    chosen: bool = False
    failed: bool = False
    new: int = 0
    wish: Wish | None = None
    question: Question | None = None


@dataclass(frozen=True)
class Agenda:
    """The members' items, in the order of their ids: the same at every member."""

    items: Sequence[Item]
    members: tuple[int, ...]

    @property
    def model(self) -> Trained | None:
        """The model to answer with: of most holders, then of most members; with the mean of the holders' log theta."""
        held = [item.trained for item in self.items if item.trained is not None]
        if not held:
            return None
        ids = [trained.id for trained in held]
        best = max(held, key=lambda trained: (ids.count(trained.id), len(trained.members), trained.id))
        rows = [trained.log_theta for trained in held if trained.id == best.id]
        mean = np.sum([np.array(row) for row in rows], axis=0) / len(rows)
        return Trained(
            tuple(mean.tolist()), best.id, best.members, best.method, best.status, best.rounds, best.offset, best.scale
        )

    @property
    def questions(self) -> list[tuple[int, Question]]:
        """By whom, as a position, and what."""
        return [(k, item.question) for k, item in enumerate(self.items) if item.question is not None]

    @property
    def wish(self) -> Wish | None:
        return next((item.wish for item in self.items if item.wish is not None), None)

    def training(self, *, with_members: bool, after: int) -> Wish | None:
        """The training that is due: asked for, or by the fleet's rules."""
        if self.wish is not None:
            return self.wish
        if any(item.failed for item in self.items):
            return None
        model = self.model
        if model is None:
            return Wish()
        common = all(item.trained is not None and item.trained.id == model.id for item in self.items)
        changed = not common or model.members != self.members
        grown = after > 0 and sum(item.new for item in self.items) >= after
        return Wish() if (with_members and changed) or grown else None

    def starts(self) -> Array | None:
        """Where to go on, (S, P) log theta: the mean of the members' estimates, of the furthest stage there is."""
        stages: list[list[Array]] = [[], []]
        for item in self.items:
            if len(item.estimates):
                stages[item.chosen].append(item.estimates)
            elif item.trained is not None:
                stages[1].append(np.array([item.trained.log_theta]))
        for rows in (stages[1], stages[0]):
            if rows:
                alike = [row for row in rows if row.shape == rows[0].shape]
                return np.asarray(np.sum(alike, axis=0) / len(alike))
        return None


# ---- over the network ---------------------------------------------------------------------------------------


def agree_on_agenda(network: Network, item: Item, members: tuple[int, ...], fleet: int, dimension: int) -> Agenda:
    """Everybody's item at everybody: one flood. fleet: the number of agents there may be; dimension: of the inputs.

    Whatever an item says is checked here, where it comes in; a NonsenseError names whose item says what cannot be.
    """
    told = network.flood_parts(
        {"agenda": [_facts(item)], "hyperparameters": [_rows(item)], "queries": [_queries(item)]}
    )
    items = []
    parts = zip(told["agenda"], told["hyperparameters"], told["queries"], strict=True)
    for position, (facts, rows, queries) in enumerate(parts):
        try:
            items.append(_item(facts, rows, queries, fleet, dimension))
        except ValueError as error:
            raise NonsenseError(position, f"an agenda with {error}") from error
    return Agenda(items, members)


def _facts(item: Item) -> Array:
    trained, wish, question = item.trained, item.wish, item.question
    return np.array(
        [
            item.chosen,
            item.failed,
            item.new,
            0 if wish is None else 1 + wish.cold,
            0 if wish is None or wish.method is None else 1 + TRAINERS.index(wish.method),
            0 if question is None else 1 + PREDICTORS.index(question.method),
            question is not None and question.noisy,
            0 if trained is None else trained.id,
            *(
                ()
                if trained is None
                else (
                    TRAINERS.index(trained.method),
                    STATUSES.index(trained.status),
                    trained.rounds,
                    trained.offset,
                    trained.scale,
                    *trained.members,
                )
            ),
        ],
        dtype=float,
    )


def _rows(item: Item) -> Array:
    """(S + 1, P): the model's log theta, if there is one, and the estimates."""
    rows = [] if item.trained is None else [item.trained.log_theta]
    rows += [tuple(row) for row in item.estimates.tolist()]
    return np.array(rows, dtype=float) if rows else np.zeros((0, 0))


def _queries(item: Item) -> Array:
    return np.zeros((0, 0)) if item.question is None else item.question.queries


def _item(facts: Array, rows: Array, queries: Array, fleet: int, dimension: int) -> Item:
    """An item as it was told, or a ValueError that says what is wrong with it."""
    if facts.ndim != 1 or len(facts) < 8 or not np.isfinite(facts).all():
        raise ValueError(f"facts of shape {facts.shape}, or not finite")
    if rows.size and not sound_log_theta(rows, dimension):
        raise ValueError(f"hyperparameters of shape {rows.shape}, or beyond exp(+-{LOG_RANGE:g})")
    if len(rows) > MOST_STARTS + 1:  # and the model's
        raise ValueError(f"{len(rows)} estimates")
    chosen, failed, new, wished, trainer, predictor, noisy, number, *model = facts.tolist()
    trained = None
    if number:
        if rows.ndim != 2 or not rows.size or len(model) < 6:
            raise ValueError("a model without hyperparameters, or without members")
        trained = _trained(rows[0], _whole(number, 2**32), model, fleet)
    method = None if not trainer else _one_of(TRAINERS, trainer - 1.0)
    wish = Wish(_whole(wished, 3) == 2, method) if wished else None
    question = None
    if predictor:
        question = Question(_checked(queries, dimension), _one_of(PREDICTORS, predictor - 1.0), bool(noisy))
    estimates = rows[1:] if trained else rows
    return Item(
        trained,
        estimates if estimates.size else np.zeros((0, 0)),
        bool(chosen),
        bool(failed),
        _whole(new, 2**53),
        wish,
        question,
    )


def _trained(log_theta: Array, number: int, model: list[float], fleet: int) -> Trained:
    method, status, rounds, offset, scale, *others = model
    members = tuple(_whole(member, fleet) for member in others)
    if list(members) != sorted(set(members)):
        raise ValueError("a model whose members are not in order")
    if not (abs(offset) <= LARGEST and 0.0 < scale <= LARGEST):
        raise ValueError(f"a model of observations around {offset:g} with a deviation of {scale:g}")
    return Trained(
        tuple(log_theta.tolist()),
        number,
        members,
        _one_of(TRAINERS, method),
        STATUSES[_whole(status, len(STATUSES))],
        _whole(rounds, 2**53),
        offset,
        scale,
    )


def _checked(queries: Array, dimension: int) -> Array:
    if queries.ndim != 2 or queries.shape[1] != dimension or not 0 < len(queries) <= MOST_POINTS:
        raise ValueError(f"queries of shape {queries.shape}")
    if not (np.abs(queries) <= LARGEST).all():
        raise ValueError("queries that are not finite, or too large")
    return queries


def _whole(value: float, below: int) -> int:
    if not (0.0 <= value < below and value.is_integer()):
        raise ValueError(f"{value:g} where a whole number from 0 to {below - 1} was expected")
    return int(value)


def _one_of(names: Sequence[str], number: float) -> str:
    return names[_whole(number, len(names))]
