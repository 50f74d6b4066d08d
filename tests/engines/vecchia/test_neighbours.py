"""Order and neighbours, against what takes longer and reads shorter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines.vecchia import engine as vecchia
from fleetgp.engines.vecchia.engine import VecchiaEngine, shapes
from fleetgp.engines.vecchia.ordering import coarse_to_fine, nearest_earlier
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations


def places(kind: str, rng: np.random.Generator) -> Array:
    inputs = rng.uniform(0, 1, (300, 2))
    if kind == "grid":
        inputs = np.stack(np.meshgrid(np.arange(20.0), np.arange(15.0)), axis=-1).reshape(-1, 2)
    elif kind == "duplicates":
        inputs[100:] = inputs[rng.integers(0, 100, 200)]
    elif kind == "one place":
        inputs[:] = 0.5
    elif kind == "clusters":
        inputs = rng.uniform(0, 1, (3, 2))[rng.integers(0, 3, 300)] + 1e-6 * inputs
    return inputs


KINDS = ["uniform", "grid", "duplicates", "one place", "clusters"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 7, 40])
def test_neighbours_are_the_nearest_of_all_before_and_the_first_of_equals(
    kind: str, count: int, rng: np.random.Generator
) -> None:
    inputs = places(kind, rng)[rng.permutation(300)]
    found = nearest_earlier(inputs, count, count)
    assert found.shape == (300 - count, count)
    for row in range(count, 300):
        distances = np.sqrt(((inputs[:row] - inputs[row]) ** 2).sum(axis=1))
        expected = np.lexsort((np.arange(row), distances))[:count]
        assert np.array_equal(found[row - count], np.sort(expected))
    assert np.array_equal(nearest_earlier(inputs, count, 250), found[250 - count :])
    rows = np.array([count, 100, 299])
    assert np.array_equal(nearest_earlier(inputs, count, count, rows), found[rows - count])


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_has_every_row_once(kind: str, rng: np.random.Generator) -> None:
    inputs = places(kind, rng)
    assert np.array_equal(np.sort(coarse_to_fine(inputs, np.zeros(len(inputs)))), np.arange(300))
    assert np.array_equal(coarse_to_fine(inputs[:1], np.zeros(1)), [0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_does_not_depend_on_how_rows_are_numbered(kind: str, rng: np.random.Generator) -> None:
    inputs, observations = places(kind, rng), rng.standard_normal(300)
    turned = rng.permutation(300)
    order, again = coarse_to_fine(inputs, observations), coarse_to_fine(inputs[turned], observations[turned])
    assert np.array_equal(turned[again], order)


def test_every_beginning_of_the_order_covers_the_data(rng: np.random.Generator) -> None:
    """Better than as many at random: nobody is as far from the first 100, and they are not as close to each other."""
    inputs = rng.uniform(0, 1, (2000, 2))
    first, chance = inputs[coarse_to_fine(inputs, np.zeros(len(inputs)))[:100]], inputs[:100]

    def to_nearest(points: Array) -> Array:
        return np.asarray(np.sort(np.linalg.norm(points[:, None] - points, axis=2), axis=1)[:, 1])

    def uncovered(points: Array) -> float:
        return float(np.linalg.norm(inputs[:, None] - points, axis=2).min(axis=1).max())

    assert np.median(to_nearest(first)) > 1.3 * np.median(to_nearest(chance))
    assert uncovered(first) < 0.8 * uncovered(chance)


def test_only_ratios_of_length_scales_count_and_those_in_steps() -> None:
    assert [(shape.powers, shape.weight) for shape in shapes(np.array([1.3]))] == [((0,), 1.0)]
    for factor in (2.0**-30, 0.5, 2.0**30):
        scaled, plain = shapes(factor * np.array([1.1, 4.0, 0.3])), shapes(np.array([1.1, 4.0, 0.3]))
        assert [(s.powers, s.weight) for s in scaled] == [(s.powers, s.weight) for s in plain]
    ways = [shapes(np.array([1.0, ratio])) for ratio in np.geomspace(1.0, 64.0, 200)]
    assert {shape.powers[1] for way in ways for shape in way} == set(range(7))
    assert sum(len(way) == 2 for way in ways) < 60  # mostly one


@pytest.mark.parametrize("ratios", [(1.4, 0.7), (1.45, 1.0), (3.0, 1.39), (1.0, 1.0)])
def test_weights_sum_to_one_and_have_their_slopes(ratios: tuple[float, float]) -> None:
    logs = np.log([0.5, *(0.5 * np.array(ratios))])
    here = shapes(np.exp(logs))
    assert sum(shape.weight for shape in here) == pytest.approx(1.0, rel=1e-12)
    for shape in here:
        for d, step in enumerate(1e-6 * np.eye(3)):
            near = [{s.powers: s.weight for s in shapes(np.exp(logs + sign * step))} for sign in (1.0, -1.0)]
            change = (near[0][shape.powers] - near[1][shape.powers]) / 2e-6
            assert shape.slope[d] == pytest.approx(change, abs=1e-6)


def test_with_many_inputs_one_search_serves_all_evaluations(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Of ten ratios of length-scales some are always between two shapes, and each doubles an evaluation."""
    searches = []

    def counted(*asked: Any) -> Any:
        searches.append(asked)
        return nearest_earlier(*asked)

    monkeypatch.setattr(vecchia, "nearest_earlier", counted)
    inputs = rng.normal(size=(200, 11))
    engine = VecchiaEngine(Observations(inputs, inputs[:, 0]), KERNELS["matern32"], 0, 10)
    x = np.log(np.concatenate([2.0 ** rng.uniform(0, 4, 11), [1.0, 0.3]]))
    found = [engine.evaluate(x + step) for step in (0.0, 1e-4, -1.0)]
    assert len(searches) == 1
    # One smooth function: its gradient is its slope, whatever the ratios.
    towards = rng.normal(size=13)
    slope = (engine.evaluate(x + 1e-5 * towards).nll - engine.evaluate(x - 1e-5 * towards).nll) / 2e-5
    assert slope == pytest.approx(float(found[0].gradient @ towards), rel=1e-5)
    # Settled anew, it has the neighbours of other length-scales.
    engine.settle(np.log([*2.0 ** np.arange(11.0), 1.0, 0.3]))
    engine.evaluate(x)
    assert len(searches) == 2
