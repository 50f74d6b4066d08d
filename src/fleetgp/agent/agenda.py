"""What a fleet has to do, and the tasks of a view: every member says what it has and wants, and all conclude the same.

Within a view nobody repeats itself: who says nothing has what it had when it last spoke, and wants nothing. Names on
the wire and on disk stay as they were (`alias`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field
from pydantic_core import from_json, to_json

from fleetgp.agent import membership
from fleetgp.agent.description import MOST_STARTS, NEEDED, WHOLE, Again
from fleetgp.agent.logs import Activity
from fleetgp.agent.node import Node
from fleetgp.agent.records import Codec, Count, Ids, LogTheta, Matrix, Strict, Value
from fleetgp.agent.requests import Predictor, Question, Trainer, TrainRequest, check_queries
from fleetgp.arrays import Array
from fleetgp.consensus import Status
from fleetgp.data.partition import Hold
from fleetgp.data.transforms import Coordinates, CoordinatesName, Scaling, View
from fleetgp.errors import NonsenseError
from fleetgp.model.hyperparameters import LOG_RANGE, sound_log_theta
from fleetgp.network import Ledger, Network
from fleetgp.network.wire import LARGEST
from fleetgp.network.zenoh.network import ZenohNetwork
from fleetgp.prediction import Calibration
from fleetgp.prediction.calibration import Knot
from fleetgp.training.drift import ALTERNATIVES, Drift, TrainingNeed, judge

#: Bytes of an item without its arrays; of one with a thousand members it has some 4,000.
MOST_BYTES = 2**16
#: Agreements that an agent may hold.
MOST_AGREED = 8
NOTHING = np.zeros((0, 0))

Positive = Annotated[float, Field(ge=1.0 / LARGEST, le=LARGEST)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Values = Annotated[tuple[Value, ...], FailFast()]
Units = Annotated[tuple[Positive, ...], FailFast()]
#: An input, or none.
Which = Annotated[int, Field(ge=-1, lt=2**31)]
KernelName = Annotated[str, Field(max_length=1000)]


@dataclass(frozen=True)
class KnotRecord(Strict):
    """A `Knot`."""

    holdout: Annotated[Hold, Field(alias="hold")]
    factor: Positive
    deviation: Positive
    rows: Count
    before: Share
    after: Share


#: What a `Calibrated` has of a `Calibration` as it is.
CALIBRATION = ("method", "eta", "n_neighbours", "holdout", "level", "cells", "min_rows", "budget")


@dataclass(frozen=True)
class Calibrated(Strict):
    """A `Calibration`, but for theta, which is the model's."""

    method: Predictor
    eta: Share | Literal["auto"]
    n_neighbours: Annotated[Count, Field(alias="neighbours")]
    holdout: Annotated[Literal["rows", "blocks", "both"], Field(alias="hold")]
    level: Share
    cells: Count
    knots: Annotated[tuple[KnotRecord, ...], Field(min_length=1, max_length=2)]
    min_rows: Count
    budget: Positive

    @classmethod
    def of(cls, calibration: Calibration) -> Calibrated:
        facts = {name: getattr(calibration, name) for name in CALIBRATION}
        return cls(**facts, knots=tuple(KnotRecord(**asdict(knot)) for knot in calibration.knots))

    @property
    def calibration(self) -> Calibration:
        facts: dict[str, Any] = {name: getattr(self, name) for name in CALIBRATION}
        return Calibration(**facts, knots=tuple(Knot(**asdict(knot)) for knot in self.knots), theta=np.zeros(0))


@dataclass(frozen=True)
class Change(Strict):
    """What a model does to its data beyond an offset and a scale; empty with a constant mean and inputs as given.

    slope, centre: of the mean function.  coordinates, origin, unit, longitude, distortion, latitude: of the inputs.
    """

    slope: Values = ()
    centre: Values = ()
    coordinates: CoordinatesName = "as-given"
    origin: Values = ()
    unit: Units = ()
    longitude: Which = -1
    distortion: Value = 0.0
    latitude: Which = -1

    @classmethod
    def of(cls, scaling: Scaling, coordinates: Coordinates) -> Change:
        inputs = asdict(coordinates)
        return cls(scaling.slope, scaling.centre, coordinates=inputs.pop("name"), **inputs)

    def scaling(self, offset: float, scale: float) -> Scaling:
        return Scaling(offset, scale, self.slope, self.centre)

    @property
    def places(self) -> Coordinates:
        inputs = {one.name: getattr(self, one.name) for one in fields(Coordinates) if one.name != "name"}
        return Coordinates(name=self.coordinates, **inputs)

    def check(self, dimension: int) -> None:
        """A ValueError where it cannot be of data with so many inputs."""
        sizes = [len(self.slope), len(self.centre), len(self.origin), len(self.unit)]
        sound = sizes[0] == sizes[1] and sizes[2] == sizes[3] and {*sizes} <= {0, dimension}
        placed = max(self.longitude, self.latitude) < max(sizes[2], 0) or self.longitude == self.latitude == -1
        known = self.coordinates != "sphere" or -1 < self.longitude != self.latitude > -1
        if not sound or not placed or not known or bool(sizes[2]) != (self.coordinates != "as-given"):
            raise ValueError(f"expected a mean function and coordinates of {dimension} inputs, got others")


def with_change(facts: Any) -> Any:
    """Add a change to facts on disk of an older FleetGP, which knew of none."""
    if not isinstance(facts, dict) or "change" in facts:
        return facts
    return {**facts, "change": from_json(to_json(asdict(Change())))}


@dataclass(frozen=True)
class Scored(Strict, Drift):
    """A `Drift`."""

    rows: Count = 0
    batches: Count = 0
    squares: Annotated[float, Field(ge=0.0, le=LARGEST)] = 0.0
    odds: Values = ()

    def __post_init__(self) -> None:
        """Raise a ValueError for odds of batches that there cannot be."""
        if len(self.odds) != (len(ALTERNATIVES) if self.batches else 0) or self.rows < self.batches:
            raise ValueError(f"expected rows in each batch, and the odds of {len(ALTERNATIVES)} alternatives")


@dataclass(frozen=True)
class Trained(Strict):
    """The model an agent holds. log_theta: its own estimate, in the units of the data.

    id: of the training, the same at all who took part; members: who did.
    kernel: the one that was chosen; empty in a file of an older FleetGP, whose kernel was that of the description.
    calibration: for answers of the members that trained it.
    ended: when, in seconds since 1970 by the clock of the member that trained it, or from which it was taken over; 0 in
        a file of an older FleetGP.
    """

    log_theta: LogTheta
    id: Annotated[int, Field(gt=0, lt=2**32)]
    members: Annotated[Ids, Field(min_length=1)]
    method: Trainer
    status: Status
    rounds: Count
    offset: Value = 0.0
    scale: Positive = 1.0
    change: Change = field(default_factory=Change)
    kernel: KernelName = ""
    calibration: Calibrated | None = None
    ended: Annotated[float, Field(ge=0.0, le=LARGEST)] = 0.0

    @property
    def theta(self) -> list[float]:
        theta: list[float] = np.exp(np.array(self.log_theta)).tolist()
        return theta

    @property
    def scaling(self) -> Scaling:
        return self.change.scaling(self.offset, self.scale)

    @property
    def coordinates(self) -> Coordinates:
        return self.change.places

    @property
    def view(self) -> View:
        """How the model sees the data."""
        return View(self.scaling, self.coordinates)


@dataclass(frozen=True)
class Item(Strict):
    """One member's part of the agenda.

    estimates: (S, P) log theta of a training that did not end, one row for each start; chosen: the best start is.
    failed: training failed in this view, so that nobody tries again without being asked.
    new: rows that came since the model was trained.  wish: the training that it was asked for.
    data: the version of its data, which stays as they are until the questions of this agenda are answered.
    agreed: the numbers of the `Agreements` of earlier views that it holds.
    rows: how many it has.  totals: the number of the `Totals` that it holds; 0 if it has none.
    cold: its last training failed, so the next one must not continue from estimates or a model.
    summary: the number of the `Summary` of its model that it holds; 0 if it has none.  regrouped: its rows change it.
    uncalibrated: rows were taken back that its model was calibrated with.
    kept: how many rows it has forgotten that are in groups which it has kept.
    scored: what it keeps of the new rows, which it has scored with its model.
    """

    trained: Trained | None = None
    estimates: Matrix = field(default_factory=lambda: NOTHING)
    chosen: bool = False
    failed: bool = False
    new: Count = 0
    wish: TrainRequest | None = None
    question: Question | None = None
    data: Count = 0
    agreed: Annotated[tuple[Count, ...], FailFast(), Field(max_length=MOST_AGREED)] = ()
    rows: Count = 0
    totals: Count = 0
    cold: bool = False
    summary: Count = 0
    regrouped: bool = False
    uncalibrated: bool = False
    kept: Count = 0
    scored: Scored = field(default_factory=Scored)

    @property
    def standing(self) -> Item:
        """What is still true when nothing more is said."""
        return replace(self, wish=None, question=None)


@dataclass(frozen=True)
class Agenda:
    """The members' items, in the order of their ids: the same at every member."""

    items: Sequence[Item]
    members: tuple[int, ...]

    @property
    def model(self) -> Trained | None:
        """The model to answer with: the one that most members hold; if several are, the one that most agents trained.

        Its log theta is the mean over the members that hold it.
        """
        held = [item.trained for item in self.items if item.trained is not None]
        if not held:
            return None
        ids = [trained.id for trained in held]
        best = max(held, key=lambda trained: (ids.count(trained.id), len(trained.members), trained.id))
        same = [trained for trained in held if trained.id == best.id]
        mean = np.sum([np.array(trained.log_theta) for trained in same], axis=0) / len(same)
        # An agent that was cut off while the fleet calibrated has the same model without a calibration.
        calibration = next((trained.calibration for trained in same if trained.calibration is not None), None)
        calibration = None if self.uncalibrated(best.id) else calibration
        return replace(best, log_theta=tuple(mean.tolist()), calibration=calibration)

    def uncalibrated(self, model: int) -> bool:
        """Whether the calibration of a model has ended."""
        return any(item.uncalibrated for item in self.items if item.trained is not None and item.trained.id == model)

    @property
    def rows(self) -> int:
        """Of all members."""
        return sum(item.rows for item in self.items)

    @property
    def questions(self) -> list[tuple[int, Question]]:
        """Each question, with the position of the member that was asked."""
        return [(k, item.question) for k, item in enumerate(self.items) if item.question is not None]

    @property
    def need(self) -> TrainingNeed:
        """Whether the new rows say that theta no longer fits, by what all who hold the model have scored."""
        model = self.model
        holders = [item for item in self.items if item.trained and model and item.trained.id == model.id]
        return judge([item.scored for item in holders], sum(item.rows for item in self.items))

    def training(self, *, with_members: bool, after: Again, summarized: bool = False) -> TrainRequest | None:
        """The training that is due: asked for, or by the fleet's rules.

        after: so many new rows, 0 for never, or when they say that theta no longer fits.
        summarized: whether groups of the rows of agents that leave stay with the others, for this model.
        """
        request = next((item.wish for item in self.items if item.wish is not None), None)
        if request is not None or any(item.failed for item in self.items):
            return request
        model = self.model
        if model is None:
            return TrainRequest() if self.rows else None
        common = all(item.trained is not None and item.trained.id == model.id for item in self.items)
        # What is known of the data of agents that left still counts; training without them would lose these.
        whole = (summarized or model.method == WHOLE) and set(self.members) <= set(model.members)
        changed = not common or not (whole or model.members == self.members)
        if after == NEEDED:
            grown = self.need.needed
        else:
            grown = 0 < after <= sum(item.new for item in self.items)
        return TrainRequest() if (with_members and changed) or grown else None

    def starts(self) -> Array | None:
        """Where to continue, (S, P) log theta: the mean of the members' estimates, of the furthest stage there is.

        None where there is nothing to continue from, or where a member says that its last training failed.
        """
        if any(item.cold for item in self.items):
            return None
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


class Widths(NamedTuple):
    """How many agents, inputs and hyperparameters a fleet has, to check what members send."""

    agents: int
    inputs: int
    parameters: int


def agree_on_agenda(
    network: Network, item: Item, members: tuple[int, ...], widths: Widths, before: Agenda | None = None
) -> Agenda:
    """Everybody's item at everybody: one collection.

    before: the last agenda of this view, to which items are added; None: there was none.
    All items are checked here, where they come in; a NonsenseError names the member whose item cannot be.
    """
    (own,) = network.hosted
    known = [Item()] * len(members) if before is None else [item.standing for item in before.items]
    if before is not None:  # what the members agreed on since then all of them hold: nobody needs to say so
        item = replace(item, agreed=known[own].agreed)
    everyone = network.collect({kind: [part] for kind, part in parts_of(item, known[own]).items()})
    assert everyone is not None, "every agent is a recipient"
    items = []
    parts_of_all = zip(everyone["agenda"], everyone["hyperparameters"], everyone["queries"], strict=True)
    for position, parts in enumerate(parts_of_all):
        try:
            items.append(item_of(*parts, widths, known[position]))
        except ValueError as error:
            raise NonsenseError(position, f"not an agenda: {error}") from error
    return Agenda(items, members)


def parts_of(item: Item, before: Item) -> dict[str, NDArray[Any]]:
    """What is new in an item since an earlier one, as arrays by their kinds of content.

    The fields that have changed, in JSON; (S, P) log theta, of the model and the estimates; and (T, D) queries.
    """
    facts, known = _facts(item), _facts(before)
    news = {name: value for name, value in facts.items() if value != known[name]}
    rows = _rows(item)
    if "trained" in news or not np.array_equal(rows, _rows(before)):
        news["trained"] = facts["trained"]  # the model and the estimates go together
    else:
        rows = NOTHING
    return {
        "agenda": np.frombuffer(to_json(news) if news else b"", dtype=np.uint8),
        "hyperparameters": rows,
        "queries": NOTHING if item.question is None else item.question.queries,
    }


def item_of(record: NDArray[Any], rows: Array, queries: Array, widths: Widths, before: Item) -> Item:
    """The converse of `parts_of`, or a ValueError that says what is wrong."""
    if len(record) > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES} bytes, got {len(record)}")
    news = from_json(record.tobytes()) if record.size else {}
    if not isinstance(news, dict):
        raise ValueError("expected fields of an item")
    item = _CODEC.of_facts({**_facts(before), **news})
    if item.question is not None:
        check_queries(queries, widths.inputs)
        item = replace(item, question=replace(item.question, queries=queries))
    if "trained" not in news:
        return replace(item, trained=before.trained, estimates=before.estimates)
    return _with_rows(item, rows, widths)


def _with_rows(item: Item, rows: Array, widths: Widths) -> Item:
    trained, estimates = item.trained, rows if rows.size else NOTHING
    if rows.size and not (rows.ndim == 2 and sound_log_theta(rows, widths.parameters)):
        raise ValueError(
            f"expected hyperparameters of shape (S, {widths.parameters}) within exp(+-{LOG_RANGE:g}), got {rows.shape}"
        )
    if trained is not None:
        if not len(estimates):
            raise ValueError("expected a model with hyperparameters, got none")
        last = trained.members[-1]
        if last >= widths.agents:
            raise ValueError(f"expected a model of the {widths.agents} agents of this fleet, got one of agent {last}")
        trained.change.check(widths.inputs)
        trained, estimates = replace(trained, log_theta=tuple(rows[0].tolist())), rows[1:]
    if len(estimates) > MOST_STARTS:
        raise ValueError(f"expected at most {MOST_STARTS} estimates, got {len(estimates)}")
    return replace(item, trained=trained, estimates=estimates if len(estimates) else NOTHING)


def _facts(item: Item) -> Any:
    """An item as plain values, without the arrays that are sent beside it."""
    trained, question = item.trained, item.question
    bare = replace(
        item,
        trained=None if trained is None else replace(trained, log_theta=()),
        estimates=NOTHING,
        question=None if question is None else replace(question, queries=NOTHING),
    )
    return _CODEC.facts_of(bare)


def _rows(item: Item) -> Array:
    rows = [*([] if item.trained is None else [item.trained.log_theta]), *item.estimates.tolist()]
    return np.array(rows) if rows else NOTHING


_CODEC = Codec(Item, MOST_BYTES)


# ---- tasks --------------------------------------------------------------------------------------------------


class Tasks:
    """The tasks of a view, one after the other, with the same numbers at all its members.

    count: how many have begun.  agreed: numbers of what all members have agreed on, see `totals.Agreements`.
    agenda_ledger: of the last agenda, with what this agent sent.
    """

    def __init__(self, node: Node, view: membership.View, activity: Activity) -> None:
        self.node, self.view, self._activity = node, view, activity
        self.count = 0
        self.agreed: dict[str, int] = {}
        self.agenda_ledger = Ledger([], [])
        self._agenda: Agenda | None = None

    @contextmanager
    def next(self, *, waking: bool = False) -> Iterator[ZenohNetwork]:
        """The network of the next task; its rounds count, however it ends. Tasks may be nested.

        waking: other members may be idle: a hello wakes them at once.
        """
        self.count += 1
        with self.node.epoch(self.view, self.count - 1, waking=waking) as network:
            try:
                yield network
            finally:
                self._activity.rounds += network.ledger.rounds
                sent = network.ledger.by_kind()
                self._activity.kinds.update({kind: traffic.bytes for kind, traffic in sent.items()})

    def agree(self, item: Item) -> Agenda:
        """Everybody's item, at everybody."""
        fleet = self.node.description
        with self.next(waking=True) as network:
            widths = Widths(len(fleet.names), fleet.dimension, len(fleet.parameters))
            self._agenda = agree_on_agenda(network, item, self.view.members, widths, self._agenda)
            self.agenda_ledger = network.ledger
        return self._agenda

    @property
    def names(self) -> list[str]:
        return self.node.description.names_of(self.view.members)


def with_names(message: str, names: Sequence[str]) -> str:
    """A message in which agents go by number, with their names instead.

    >>> with_names("agent 1: no covariance at theta", ["boat3", "boat7"])
    'boat7: no covariance at theta'
    """
    return re.sub(r"\bagent (\d+)\b", lambda at: dict(enumerate(names)).get(int(at[1]), at[0]), message)
