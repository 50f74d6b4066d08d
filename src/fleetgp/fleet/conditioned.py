"""A fleet conditioned at one theta, to predict from again and again, and warnings about queries far from the data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.dataset import corners
from fleetgp.data.times import Moment, format_value
from fleetgp.declarations import given_in, takes
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError, shortened, warn
from fleetgp.fleet.backends import IN_PROCESS, Backend
from fleetgp.fleet.privacy import predictor_of, refuse_private, refuse_small_groups
from fleetgp.fleet.queries import AgentName, cells_as_frame, check_agent, with_numbers
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.options import ConditionedKeywords, ConditionedPosteriorKeywords, QueryOptions
from fleetgp.prediction import (
    Calibration,
    Gradient,
    Joint,
    Prediction,
    PredictionCache,
    PredictionOptions,
    Question,
)
from fleetgp.prediction.methods import check_joint
from fleetgp.prediction.registry import refuse_foreign
from fleetgp.prediction.results import joined
from fleetgp.validation import as_flag, as_numbers, by_name, check_finite, column_names


def describe_extrapolation(
    queries: Array,
    prior_only: BoolArray,
    snapshot: ModelSnapshot,
    what: str = "points are no better known than the prior, which is all their answer says",
) -> str:
    """Describe the points about which the data say nothing, where the data are, and what may be wrong; empty for none.

    what: follows the number of these points.
    """
    count, longitude = int(prior_only.sum()), snapshot.rule.longitude
    if not count:
        return ""
    first = int(np.flatnonzero(prior_only)[0])
    low, high = corners(snapshot.shards.summaries_along_arc(longitude))
    labels = snapshot.inputs or [f"input {d + 1}" for d in range(len(low))]
    shown = [
        (name, *(format_value(value, snapshot.units.get(name)) for value in values))
        for name, *values in zip(labels, queries[first], low, high, strict=True)
    ]
    place = ", ".join(f"{name} {value}" for name, value, _, _ in shown)
    ranges = ", ".join(f"{name} {a} to {b}" for name, _, a, b in shown)
    hint = _turned(queries[prior_only], low, high, labels, longitude)
    return (
        f"{count:,} of {len(queries):,} {what} (first: number {first + 1}, at {place}); the data cover {ranges}{hint}"
    )


def _turned(outside: Array, low: Array, high: Array, labels: Sequence[str], known: int) -> str:
    """Return a hint if longitudes run from 0 to 360 in one place and from -180 to 180 in the other.

    known: the input for which that makes no difference, -1 for none.
    """
    for d, name in enumerate(labels):
        values = outside[:, d]
        if d == known or low[d] < -180.0 or high[d] > 360.0 or ((values >= low[d]) & (values <= high[d])).any():
            continue
        for shift, verb in ((-360.0, "subtract 360 from"), (360.0, "add 360 to")):
            if ((values + shift >= low[d]) & (values + shift <= high[d])).any():
                return f". Are these longitudes from {'0 to 360' if shift < 0 else '-180 to 180'}? Then {verb} {name}"
    return ""


class ConditionedFleet:
    """A fleet at one theta, which answers query after query. `Fleet.condition` makes it.

    A posterior is computed when a method first needs it, and kept: later predictions cost only what their queries cost.
    What does not depend on the queries is also sent only once: the agreement on the scaling and on the mean of the
    estimates, the samples of grBCM, the box of NPAE, the pool of full-gp, the moments of dec-full-gp. The ledger of an
    answer counts what was sent for it, so that of a later one is shorter.
    A posterior of N points takes 8 N^2 bytes by the dense engine (49 agents of 600: 141 MB). grBCM needs as much for
    the samples, and for the rows with the samples. Up to 4 GB, or a quarter of the memory, are kept; what does not fit
    is recomputed when needed.

    calibration: the fleet's; its factor is in the answers of the method that it is for. None for none.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> sea = fleet.condition()
    >>> sea.predict(field.inputs[:3], "dec-rbcm").mean.shape
    (3,)
    >>> [(number, len(part.mean)) for number, part in sea.predict_in_blocks(np.tile(field.inputs, (20, 1)), "dec-poe")]
    [(0, 2000), (1, 400)]
    >>> sea.joint([[0.5, 0.5], [0.5, 0.6]], "dec-rbcm").covariance.shape
    (2, 2)
    >>> sea.known_jointly([[9.0, 9.0]], "dec-rbcm").prior_only.tolist()  # no warning that nobody knows it
    [True]
    >>> sea.gradient(sea.checked([[0.5, 0.5]]), "dec-rbcm").gradient.shape
    (1, 2)
    """

    def __init__(
        self,
        snapshot: ModelSnapshot,
        engine: str = "auto",
        n_neighbours: int | None = None,
        cache: PredictionCache | None = None,
        backend: Backend = IN_PROCESS,
        calibration: Calibration | None = None,
    ) -> None:
        """cache: the fleet's, whose rows may grow; None for a new one."""
        self.snapshot, self.calibration = snapshot, calibration
        self._options = PredictionOptions(seed=snapshot.seed).changed({"engine": engine, "n_neighbours": n_neighbours})
        self._predictor = backend.predictor(snapshot, self._options, cache)

    @property
    def engine(self) -> str:
        """The engine, "auto" if none was chosen."""
        return self._options.engine

    @property
    def last_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        """See `FleetPredictor`."""
        return self._predictor.last_moments

    def same(self, snapshot: ModelSnapshot, engine: str, n_neighbours: int | None) -> bool:
        """Whether this fleet has these data, this model and this engine."""
        options = self._options.changed({"engine": engine, "n_neighbours": n_neighbours})
        return options == self._options and self.snapshot.same(snapshot)

    @takes(ConditionedKeywords, PredictionOptions, QueryOptions)
    def predict(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[ConditionedKeywords],
    ) -> Prediction:
        """Predict mean and variance at the queries (T, D) by any of `PREDICTION_METHODS`; see `Fleet.predict`.

        {options}
        """
        question = self._question(queries, method, observed, agent, given_in(options, ConditionedKeywords, "predict"))
        answer = joined([block for _, block in self._blocks(question)])
        ended = "" if answer.status == "converged" else f". {answer.method} ended by {answer.status}: that may be why"
        self._warn_of_extrapolation(question.queries, answer.prior_only, ended)
        answer.ledger.labels = self.snapshot.labels
        return replace(answer, points=self.snapshot.points(question.queries))

    def predict_in_blocks(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        done: Collection[int] = (),
        **options: Unpack[ConditionedKeywords],
    ) -> Iterator[tuple[int, Prediction]]:
        """Yield (number, answer) for blocks of some thousand queries: for more queries than fit into memory.

        done: numbers of blocks to leave out. The ledger of every answer counts all blocks so far.
        """
        question = self._question(queries, method, observed, agent, given_in(options, ConditionedKeywords, "predict"))
        if not isinstance(done, Collection) or not all(isinstance(number, int | np.integer) for number in done):
            raise InputError(f"done: expected the numbers of blocks, got {shortened(done)}")
        return self._blocks(replace(question, done=done))

    def _blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        blocks = self._predictor.predict_in_blocks(question)
        if not len(self.snapshot.held):
            return blocks
        drawn = np.array(self.snapshot.shards.counts)  # the data are a sample: answers say of how many rows
        return ((number, replace(block, drawn=drawn, held=self.snapshot.held)) for number, block in blocks)

    def joint(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[ConditionedPosteriorKeywords],
    ) -> Joint:
        """Predict mean and covariance at the queries (T, D) together; see `Fleet.joint`."""
        points = self.checked(queries, options.pop("at_time", None))
        result = self.known_jointly(points, method, observed=observed, agent=agent, **options)
        self._warn_of_extrapolation(points, result.prior_only)
        return result

    def known_jointly(
        self,
        queries: Any,
        method: str | None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[ConditionedPosteriorKeywords],
    ) -> Joint:
        """Do as `joint`, without a warning about places that the data say nothing about."""
        given = given_in(options, ConditionedPosteriorKeywords, "joint")
        question = self._question(queries, method, observed, agent, given)
        check_joint(question.method, len(self.snapshot.shards), len(question.queries))
        result = self._predictor.joint(question)
        result.ledger.labels = self.snapshot.labels
        return result

    def gradient(
        self,
        queries: Any,
        method: str | None = None,
        *,
        agent: AgentName | None = None,
        **options: Unpack[ConditionedPosteriorKeywords],
    ) -> Gradient:
        """Return the gradient of the mean at the queries (T, D); see `Fleet.gradient`."""
        given = given_in(options, ConditionedPosteriorKeywords, "gradient")
        question = self._question(queries, method, False, agent, given, calibrated=False)
        question.method.check_gradient(len(self.snapshot.shards))
        result = self._predictor.gradient(question)
        result.ledger.labels = self.snapshot.labels
        return replace(result, points=self.snapshot.points(question.queries))

    def checked(self, queries: Any, at_time: Moment | None = None) -> Array:
        """Return the queries as an array (T, D). at_time: of queries without the time input; None for now."""
        return check_queries(queries, self.snapshot, at_time)

    def _question(
        self,
        queries: Any,
        method: str | None,
        observed: bool,
        agent: AgentName | None,
        given: dict[str, Any],
        *,
        calibrated: bool = True,
    ) -> Question:
        """Check a question. given: its options.  calibrated: whether the calibration matters for it."""
        points = check_queries(queries, self.snapshot, given.pop("at_time", None))
        row = predictor_of(method)
        refuse_foreign(row, given)
        refuse_private(row, self.snapshot.private, self.snapshot.kernel, self.engine, self.snapshot.fewest_rows)
        options = self._options.changed(given)
        refuse_small_groups(row, self.snapshot.private, options.min_rows)
        asker = None if agent is None else check_agent(agent, self.snapshot.labels)
        calibration = self.calibration
        if calibrated and calibration is not None and not calibration.about(row, options):
            warn(f"the fleet is calibrated for {calibration.told}: this answer is not calibrated")
        return Question(row, points, options, as_flag(observed, "observed"), (), asker, calibration)

    def _warn_of_extrapolation(self, points: Array, prior_only: BoolArray, more: str = "") -> None:
        if text := describe_extrapolation(points, prior_only, self.snapshot):
            warn(text + more)

    def __repr__(self) -> str:
        return f"ConditionedFleet(agents={len(self.snapshot.shards)}, engine={self.engine!r})"


def check_queries(queries: Any, snapshot: ModelSnapshot, at_time: Moment | None = None) -> Array:
    """Return queries as an array (T, D); of a data frame the columns of the inputs, in their order.

    at_time: of queries without the time input, (T, D - 1) or without its column; None for now.
    """
    dimension, inputs = snapshot.shards.dimension, snapshot.inputs
    time = snapshot.time if dimension > 1 else None  # a query is about a place, or has a time
    queries = with_numbers(cells_as_frame(queries, inputs, time), snapshot.units)
    columns = column_names(queries, "queries")
    if columns is not None:
        if inputs is not None:
            needed = [name for name in inputs if name != time or name in columns]
            queries = by_name(queries, needed, "queries")
        else:
            warn(
                f"the fleet's inputs have no names: the columns {', '.join(queries.columns)} are taken in this order. "
                "Give the fleet data frames, or inputs=[...]"
            )
    points = as_numbers(queries, "queries")
    if points.size == 0:
        points = points.reshape(0, dimension)
    if inputs is not None and time is not None and points.ndim == 2 and points.shape[1] == dimension - 1:
        points = np.insert(points, list(inputs).index(time), snapshot.moment(at_time), axis=1)
    elif at_time is not None:
        snapshot.moment(at_time)  # or one error that says why not
        if len(points):
            raise InputError(
                f"at_time: expected queries without {snapshot.time!r}, which they have: leave one of them out"
            )
    if points.ndim != 2 or points.shape[1] != dimension:
        raise InputError(f"queries: expected shape (T, {dimension}), got {points.shape}")
    check_finite(points, "the array of queries")
    return points
