"""A simulated fleet for tests of summaries, some of whose agents may be away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data.dataset import InMemory
from fleetgp.data.transforms import View
from fleetgp.graph import Graph
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.options import PredictionOptions
from fleetgp.prediction import Conditioned, Prediction, prediction_method
from fleetgp.prediction.answer import Question, gradient, joint, predict
from fleetgp.prediction.groups import Groups, agree_on_groups
from fleetgp.prediction.methods import SharedState
from fleetgp.prediction.results import Gradient, Joint


@dataclass(frozen=True)
class Simulated:
    """A model: agents on a path that hold it agree on groups, and some of them predict."""

    kernel: Kernel
    theta: Sequence[float]
    view: View
    options: PredictionOptions = field(default_factory=PredictionOptions)

    def groups(self, shards: Sequence[Any], before: Sequence[Groups] | None = None) -> tuple[Groups, ...]:
        """What these agents agree on."""
        fleet = self._conditioned(shards)
        h = Hyperparameters.from_theta(fleet.thetas[0])
        return agree_on_groups(_path(len(shards)), list(fleet.shards), fleet.kernel, h, self.options, before)

    def predict(
        self, queries: Any, shards: Sequence[Any], groups: Sequence[Groups], present: Sequence[int]
    ) -> Prediction:
        """What those who are present answer, with the groups of all."""
        return predict(*self._prepared(queries, shards, groups, present))

    def gradient(
        self, queries: Any, shards: Sequence[Any], groups: Sequence[Groups], present: Sequence[int]
    ) -> Gradient:
        return gradient(*self._prepared(queries, shards, groups, present))

    def joint(self, queries: Any, shards: Sequence[Any], groups: Sequence[Groups], present: Sequence[int]) -> Joint:
        return joint(*self._prepared(queries, shards, groups, present))

    def _prepared(self, queries: Any, shards: Sequence[Any], groups: Sequence[Groups], present: Sequence[int]) -> Any:
        away = [agent for agent in range(len(shards)) if agent not in present]
        shared = SharedState(groups=tuple(groups[agent] for agent in (*present, *away)))
        question = Question(prediction_method("dec-summary"), np.array(queries), self.options)
        return self._conditioned([shards[agent] for agent in present]), _path(len(present)), question, shared

    def _conditioned(self, shards: Sequence[Any]) -> Conditioned:
        data = [own if isinstance(own, Observations) else Observations(*own) for own in shards]
        return Conditioned(InMemory(data), self.kernel, np.tile(self.theta, (len(data), 1)), self.view)


def _path(agents: int) -> fg.InProcess:
    return fg.InProcess(Graph(agents, [(k, k + 1) for k in range(agents - 1)]))


def near(shard: Any, count: int, seed: int) -> list[list[float]]:
    """New rows around one of an agent's own."""
    rng = np.random.default_rng(seed)
    inputs, values = shard
    places: Array = inputs[0] + rng.normal(0.0, 0.01, (count, inputs.shape[1]))
    rows: list[list[float]] = np.column_stack([places, np.full(count, values[0])]).tolist()
    return rows


def assert_same(answer: Any, expected: Prediction) -> None:
    """The answer of an agent is that of the simulated fleet."""
    np.testing.assert_allclose(answer["mean"], expected.means[0], rtol=1e-9)
    np.testing.assert_allclose(answer["variance"], expected.variance, rtol=1e-9)
