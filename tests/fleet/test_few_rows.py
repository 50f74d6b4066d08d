"""An agent with few rows contributes nothing to what a fleet agrees on: read from the frames of real exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import FEWEST_ROWS, agree_on_coordinates, agree_on_scaling, check_mean
from fleetgp.consensus.reductions import Alone
from fleetgp.data.dataset import InMemory
from fleetgp.fleet.predictor import agree_on_model
from fleetgp.network import Network
from fleetgp.network.loopback import Loopback, LoopbackNetwork
from fleetgp.network.wire import Frame, encode
from fleetgp.prediction import PredictionOptions, prediction_method
from fleetgp.prediction.calibrate import _box
from fleetgp.training import training_method
from fleetgp.training.options import TrainingOptions
from fleetgp.training.problem import prepare
from tests.conftest import paper_shards

THETA = (30.0, 30.0, 1.3, 0.2)
POINTS = np.array([[10.5, 50.5], [11.5, 51.0]])
CORNER = np.array([10.0, 50.0])
FEW = 1  # the agent with few rows
METHOD = prediction_method("dec-summary")
Shards = list[tuple[Array, Array]]
pytestmark = pytest.mark.filterwarnings("ignore:distances in kilometres")


def shards(few: int, seed: int, moved: float = 0.0, agents: int = 4) -> Shards:
    """Places in degrees. few: rows of one agent, drawn by the seed, and moved off to the side."""
    result = [(x + CORNER, y) for x, y in paper_shards(30 * agents, agents)]
    rng = np.random.default_rng(seed)
    result[FEW] = rng.uniform(0.0, 2.0, (few, 2)) + CORNER + np.array([moved, 0.0]), moved + rng.normal(size=few)
    return result


def fleet_of(given: Shards, **options: Any) -> fg.Fleet:
    how: dict[str, Any] = {"theta": THETA, "kernel": "matern32", "inputs": ["lon", "lat"], **options}
    return fg.Fleet(given, "path", **how)


def model(network: Network, own: fg.Fleet) -> object:
    """What is agreed on before a prediction."""
    (agent,) = network.hosted
    snapshot = own.snapshot()
    return agree_on_model(network, replace(snapshot, shards=InMemory([own.data[agent]])), METHOD, PredictionOptions())


def start(network: Network, own: fg.Fleet) -> object:
    """What is agreed on before a training."""
    (agent,) = network.hosted
    options = TrainingOptions(normalize=own.normalize, mean=own.mean)
    return prepare(training_method("dec-fact-gp"), InMemory([own.data[agent]]), network, own.kernel, options).starts


def box(network: Network, own: fg.Fleet) -> object:
    """What is agreed on before a calibration."""
    return _box([own.data[agent] for agent in network.hosted], network, METHOD)


CASES: dict[str, tuple[Callable[[Network, fg.Fleet], object], dict[str, Any]]] = {
    "scale": (model, {}),
    "constant": (model, {"mean": "constant"}),
    "linear": (model, {"mean": "linear"}),
    "scaled": (model, {"coordinates": "scaled"}),
    "kilometres": (model, {"coordinates": "kilometres"}),
    "start": (start, {}),
    "start without a scale": (start, {"normalize": False}),
    "start with a mean": (start, {"mean": "linear"}),
    "box": (box, {}),
}


def sent(monkeypatch: pytest.MonkeyPatch, case: str, given: Shards) -> tuple[list[bytes], object]:
    """All frames of an agreement, in some order, and what the first agent knows then."""
    frames: list[Frame] = []
    real = LoopbackNetwork.swap

    def watched(network: LoopbackNetwork, some: list[Frame], *others: Any) -> Any:
        frames.extend(some)
        return real(network, some, *others)

    agree, options = CASES[case]
    own = fleet_of(given, **options)
    with monkeypatch.context() as patched:
        patched.setattr(LoopbackNetwork, "swap", watched)
        results = Loopback(own.graph, [[agent] for agent in range(own.agents)]).run(lambda one: agree(one, own))
    assert {part.kind for frame in frames for part in frame.parts} == {"statistics"}
    return sorted(map(encode, frames)), results[0]


@pytest.mark.parametrize("case", CASES)
def test_frames_do_not_depend_on_the_rows_of_an_agent_with_few(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = FEWEST_ROWS - 2
    first, second = (sent(monkeypatch, case, shards(few, *how)) for how in ((0,), (1, 5.0)))
    assert first[0] == second[0]
    more = sent(monkeypatch, case, shards(FEWEST_ROWS, 1, 5.0))
    assert more[0] != first[0], "with more rows it takes part"


@pytest.mark.parametrize("case", CASES)
def test_where_all_have_few_rows_all_take_part(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [(x[: FEWEST_ROWS - 1], y[: FEWEST_ROWS - 1]) for x, y in shards(9, 0)]
    frames, result = sent(monkeypatch, case, few)
    assert frames
    assert "nan" not in repr(result)
    assert "inf" not in repr(result)


@pytest.mark.parametrize("few", [1, FEWEST_ROWS - 1])
def test_scale_and_coordinates_are_those_of_the_others(few: int) -> None:
    given = shards(few, 3, 4.0)
    rest = InMemory([own for agent, own in enumerate(fleet_of(given).data) if agent != FEW])
    whole = fleet_of(given).data
    for mean in ("zero", "constant", "linear"):
        mine, its = (agree_on_scaling(Alone(), data, check_mean(mean)) for data in (whole, rest))
        np.testing.assert_allclose([*mine.slope, mine.offset, mine.scale], [*its.slope, its.offset, its.scale])
    for name in ("scaled", "kilometres"):
        rule = fleet_of(given, coordinates=name).coordinates
        one, other = (agree_on_coordinates(Alone(), data, rule) for data in (whole, rest))
        np.testing.assert_allclose([one.origin, one.unit], [other.origin, other.unit])


@pytest.mark.parametrize("coordinates", ["as-given", "scaled", "kilometres"])
def test_an_agent_with_few_rows_answers_from_them(coordinates: str) -> None:
    """The fleet trains, and its answer where this agent was is near what it observed, by every agent but the others."""
    given = shards(3, 5, 6.0)
    fleet = fleet_of(given, theta=None, coordinates=coordinates)
    fit = fleet.train("dec-fact-gp")
    assert fit.status == "converged"
    x, y = given[FEW]
    far = float(np.mean([own[1].mean() for agent, own in enumerate(given) if agent != FEW]))
    out = fleet.predict(x, "dec-rbcm")
    assert (np.abs(out.mean - y) < 0.5 * np.abs(y - far)).all()
    alone = fleet.predict(x, "dec-summary", local=True)
    assert (np.abs(alone.means[FEW] - y) < 0.5 * np.abs(y - far)).all()
    assert (alone.field_variances[FEW] < alone.field_variances[0]).all()


def test_places_that_cannot_be_are_an_error_whoever_has_them() -> None:
    given = shards(2, 0)
    for place, what in (([10.0, 95.0], "swapped"), ([179.0, 50.0], "a plane is no map of them")):
        given[FEW] = np.array([place, [10.0, 50.0]]), np.zeros(2)
        with pytest.raises(fg.InputError, match=what):
            fleet_of(given, coordinates="kilometres").predict(POINTS)


def extremes(data: Sequence[tuple[Array, Array]]) -> list[float]:
    return [float(end) for x, _ in data for end in (*x.min(axis=0), *x.max(axis=0))]


@pytest.mark.parametrize("case", ["kilometres", "box", "start"])
def test_no_extreme_that_is_sent_is_a_row(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of round numbers, as on a grid."""
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    given = [(grid + CORNER + 4.0 * k, np.cos(grid @ [1.0, 2.0])) for k in range(3)]
    numbers: set[float] = set()
    real = LoopbackNetwork.swap

    def watched(network: LoopbackNetwork, some: list[Frame], *others: Any) -> Any:
        numbers.update(*(np.abs(part.value).ravel().tolist() for frame in some for part in frame.parts))
        return real(network, some, *others)

    monkeypatch.setattr(LoopbackNetwork, "swap", watched)
    agree, options = CASES[case]
    own = fleet_of(given, **options)
    Loopback(own.graph, [[agent] for agent in range(own.agents)]).run(lambda one: agree(one, own))
    assert numbers
    assert not numbers & set(extremes(given))
