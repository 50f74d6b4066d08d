"""A conditioned fleet: every agent's posterior at one theta, for query after query."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.reductions import ByServer, ByTree
from fleetgp.consensus.scaling import Scaling, agree_on_scaling
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import dimension_of
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.fleet.outside import told_of_outside
from fleetgp.fleet.shards import same_shards
from fleetgp.given import as_flag, as_numbers, by_name, check_finite, column_names
from fleetgp.gp.failure import retold
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.graph import Topology
from fleetgp.network import InProcess
from fleetgp.prediction import (
    Conditioned,
    Conditioner,
    Prediction,
    PredictionMethod,
    PredictionOptions,
    prediction_method,
)
from fleetgp.prediction.agreed import Agreed, agreement_key
from fleetgp.prediction.options import Consensus, Eta, refuse_foreign
from fleetgp.prediction.predict import agree_on, answer_in_blocks
from fleetgp.prediction.prediction import joined


@dataclass(frozen=True)
class Source:
    """What a fleet is conditioned on: its data, and where the hyperparameters come from.

    theta: one for all agents, (P,); or every agent's estimate, (M, P): they agree on the mean before they predict.
    scaling: that of the training; None if the agents have yet to agree on it.
    moments: those of all data, if every agent has them from the training.
    """

    shards: Sequence[Shard]
    inputs: Sequence[str] | None
    graph: Topology
    kernel: Kernel
    theta: Array
    scaling: Scaling | None
    seed: int
    moments: FleetMoments | None = None

    def same(self, other: Source) -> bool:
        """Whether these are the same data (the same arrays, which nobody may write to) and the same model."""
        return (
            same_shards(self.shards, other.shards)
            and np.array_equal(self.theta, other.theta)
            and self.graph is other.graph
            and self.moments is other.moments
            and (self.inputs, self.kernel, self.scaling, self.seed)
            == (other.inputs, other.kernel, other.scaling, other.seed)
        )


Found = TypeVar("Found")


class ConditionedFleet:
    """Answers query after query at one theta. `Fleet.condition` makes it.

    A posterior is computed when a method first needs it, and kept: later predictions cost what their queries cost.
    What is not about the queries is also sent once only, with the first answer that needs it: the agreement on the
    scaling and on the mean of the estimates, the samples of grBCM, the box of NPAE, the pool of full-gp, the moments of
    dec-full-gp. The ledger of an answer counts what was sent for it, so that of a later one is shorter.
    A posterior of N points takes 8 N^2 bytes by the dense engine (49 agents of 600: 141 MB), and as much for each of
    the samples and of what joins them for grBCM. Up to 4 GB, or a quarter of the memory, are kept; what does not fit is
    computed again when needed.
    """

    def __init__(
        self,
        source: Source,
        engine: str = "auto",
        neighbours: int | None = None,
        conditioner: Conditioner | None = None,
    ) -> None:
        self.source = source
        self._options = PredictionOptions(seed=source.seed).changed({"engine": engine, "neighbours": neighbours})
        self._conditioner = conditioner or Conditioner()
        self._done: dict[object, tuple[Any, int]] = {}

    @property
    def engine(self) -> str:
        return self._options.engine

    def same(self, source: Source, engine: str, neighbours: int | None) -> bool:
        """Whether this is the fleet with these data, this model and these engines."""
        asked = self._options.changed({"engine": engine, "neighbours": neighbours})
        return asked == self._options and self.source.same(source)

    def predict(
        self,
        queries: Any,
        method: str = "dec-nn-grbcm",
        *,
        noisy: bool = False,
        agent: int | None = None,
        consensus: Consensus | None = None,
        rounds: int | None = None,
        tol: float | None = None,
        eta: Eta | None = None,
        neighbours: int | None = None,
        seed: int | None = None,
    ) -> Prediction:
        """Mean and variance at the queries (T, D), by any of `PREDICTION_METHODS`; see `Fleet.predict`."""
        points = check_queries(queries, self.source)
        given: dict[str, Any] = {"consensus": consensus, "rounds": rounds, "tol": tol, "eta": eta, "seed": seed}
        given["neighbours"] = neighbours
        blocks = self.predict_in_blocks(points, method, noisy=noisy, agent=agent, **given)
        answer = joined([found for _, found in blocks])
        told = told_of_outside(points, answer.uninformed, self.source.shards, self.source.inputs)
        if told:
            unfinished = "" if answer.status == "converged" else f". {method} ended by {answer.status}: that may be why"
            _warn(told + unfinished)
        return answer

    def predict_in_blocks(
        self,
        queries: Any,
        method: str = "dec-nn-grbcm",
        *,
        noisy: bool = False,
        agent: int | None = None,
        done: Collection[int] = (),
        **given: Any,
    ) -> Iterator[tuple[int, Prediction]]:
        """The answers at some thousand queries at a time, each with its number: for more than can be held at once.

        done: numbers of blocks to leave out. The ledger of every answer counts all blocks so far.
        """
        points = check_queries(queries, self.source)
        row = prediction_method(method)
        refuse_foreign(row, given)
        if given.get("neighbours") is not None and row.rule != "nearest":
            raise InputError("neighbours is of the engine that this fleet is conditioned with: give it to condition")
        options = self._options.changed(given)
        as_flag(noisy, "noisy")
        asker = None if agent is None else check_agent(agent, len(self.source.shards))
        network = InProcess(self.source.graph)
        conditioned = self._once(network, row.decentralized, lambda: self._conditioned(network, row))
        agreed = Agreed()
        if len(points):
            key, moments = agreement_key(row, options), self.source.moments
            with retold(inputs=self.source.inputs):
                agreed = self._once(network, key, lambda: agree_on(conditioned, network, row, options, moments))
        blocks = answer_in_blocks(conditioned, network, row, points, options, agreed, noisy=noisy, done=done, to=asker)
        return self._told(blocks, asker or 0)

    def _told(self, blocks: Iterator[tuple[int, Prediction]], asker: int) -> Iterator[tuple[int, Prediction]]:
        """With who asked; errors with the names of the inputs."""
        with retold(inputs=self.source.inputs):
            yield from ((number, replace(found, asked=asker)) for number, found in blocks)

    def _once(self, network: InProcess, key: object, make: Callable[[], Found]) -> Found:
        """What was made before, or now. The rounds that it took pass in any case: graphs that vary with time are then
        where they were, and the same question has the same answer.
        """
        if key not in self._done:
            before = network.round
            made = make()
            self._done[key] = made, network.round - before
            return made
        found, rounds = self._done[key]
        network.round += rounds
        return cast(Found, found)

    def _conditioned(self, network: InProcess, method: PredictionMethod) -> Conditioned:
        """The agents at their common theta, and with the scaling of the observations that belongs to it."""
        source = self.source
        reduction = ByTree(network) if method.decentralized else ByServer(network)
        scaling = source.scaling
        if scaling is None:
            with network.phase("normalize"):
                scaling = agree_on_scaling(reduction, source.shards)
        theta = source.theta
        if theta.ndim == 2:
            # Each agent has its own estimate; a joint prediction needs one model, so they agree on the mean.
            with network.phase("model"):
                theta = np.exp(reduction.total(np.log(theta)) / len(theta))
        thetas = np.tile(theta, (len(source.shards), 1))
        return self._conditioner.condition(
            source.shards, source.kernel, thetas, scaling, self.engine, self._options.neighbours
        )

    def __repr__(self) -> str:
        return f"ConditionedFleet(agents={len(self.source.shards)}, engine={self.engine!r})"


def check_agent(agent: object, agents: int) -> int:
    """The number of an agent, or one clear error."""
    if not isinstance(agent, int | np.integer) or isinstance(agent, bool) or not 0 <= agent < agents:
        raise InputError(f"agent must lie between 0 and {agents - 1}, got {agent!r}")
    return int(agent)


def check_queries(queries: Any, source: Source) -> Array:
    """Queries as an array (T, D); of a data frame the columns of the inputs, in their order."""
    dimension = dimension_of(source.shards)
    if column_names(queries, "queries") is not None:
        if source.inputs is not None:
            queries = by_name(queries, source.inputs, "queries")
        else:
            _warn(
                f"the fleet's inputs have no names: the columns {', '.join(queries.columns)} are taken in this order. "
                "Give the fleet data frames, or inputs=[...]"
            )
    points = as_numbers(queries, "queries")
    if points.size == 0:
        points = points.reshape(0, dimension)
    if points.ndim != 2 or points.shape[1] != dimension:
        raise InputError(f"queries: expected shape (T, {dimension}), got {points.shape}")
    check_finite(points, "the array of queries")
    return points


def _warn(text: str) -> None:
    """A warning about the line outside FleetGP that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fleetgp."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, FleetGPWarning, stacklevel=level)
