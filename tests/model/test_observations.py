"""Observations as one object: rows, joins, units, and the matrix that travels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations, Points

WHOLE = Observations(
    np.arange(8.0).reshape(4, 2),
    np.arange(4.0),
    noise_std=np.array([0.0, 0.1, 0.2, 0.3]),
    group=np.array([0, 1, 1, 0]),
    weight=np.array([1.0, 1.0, 2.0, 5.0]),
)
PLAIN = Observations(WHOLE.inputs, WHOLE.values)


@pytest.mark.parametrize("data", [WHOLE, PLAIN, replace(PLAIN, group=WHOLE.group)])
def test_what_is_packed_is_unpacked(data: Observations) -> None:
    assert data.packed.shape == (4, 2 + len(data.arrays) - 2)
    again = data.rows(slice(0)).unpacked(data.packed, data.values)
    assert again.same(data)
    assert again.version == data.version
    assert (again.group is None) == (data.group is None)
    assert data.unpacked(np.zeros(0), np.zeros(0)).inputs.shape == (0, 2), "of a peer that has nothing to send"


def test_the_columns_that_travel_are_in_a_fixed_order() -> None:
    assert WHOLE.packed[3].tolist() == [6.0, 7.0, 0.3, 5.0, 0.0]
    assert PLAIN.packed is PLAIN.inputs


@pytest.mark.parametrize("data", [WHOLE, PLAIN])
def test_rows_and_joins(data: Observations) -> None:
    halves = [data.rows(slice(2)), data.rows(np.array([False, False, True, True]))]
    assert Observations.joined(halves).same(data)
    assert not Observations.joined(halves[::-1]).same(data)
    assert data.rows([2, 0]).values.tolist() == [2.0, 0.0]
    assert len(data.rows(slice(0))) == 0


def test_only_observations_that_know_the_same_are_joined() -> None:
    with pytest.raises(ValueError, match="all know the same about their noise"):
        Observations.joined([WHOLE, PLAIN])


def test_other_units_and_other_numbers() -> None:
    found = WHOLE.divided(2.0)
    assert found.values.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert found.noise_std is not None
    assert found.noise_std.tolist() == [0.0, 0.05, 0.1, 0.15]
    assert WHOLE.with_values(np.zeros(4)).noise_std is WHOLE.noise_std
    assert WHOLE.at(WHOLE.inputs[:, :1]).dimension == 1
    assert len(WHOLE.as_given) == 3
    assert len(PLAIN.as_given) == 2


def test_the_version_tells_other_numbers_apart() -> None:
    others = [WHOLE.divided(2.0), WHOLE.weighted(np.ones(4)), WHOLE.rows(slice(3)), WHOLE.at(WHOLE.inputs + 1.0), PLAIN]
    assert len({one.version for one in (WHOLE, *others)}) == 6
    assert WHOLE.rows(np.arange(4)).version == WHOLE.version


def test_the_variance_of_the_noise_and_its_slopes() -> None:
    model = NoiseModel(known=True, robust=True, groups=("good", "cheap", "of others"))
    sigmas = np.array([0.1, 0.4, 9.0])
    expected = np.array([0.01, 0.01 + 0.16, 0.04 + 2.0 * 0.16, 0.09 + 5.0 * 0.01])
    np.testing.assert_allclose(model.variance(WHOLE, sigmas), expected)
    steps = np.exp(1e-6 * np.eye(3))
    differences = [(model.variance(WHOLE, sigmas * step) - expected) / 1e-6 for step in steps]
    np.testing.assert_allclose(model.slopes(WHOLE, sigmas), differences, atol=1e-5)
    assert model.absent(WHOLE).tolist() == [False, False, True]
    assert (model.differs, NoiseModel().differs) == (True, False)
    beyond = replace(WHOLE, group=np.array([0, 7, -3, 1]))
    assert model.group(beyond).tolist() == [0, 2, 0, 1], "whatever a peer sends"


def test_an_agent_s_observations_get_what_the_model_needs() -> None:
    found = NoiseModel(robust=True, groups=("a", "b")).observed(PLAIN, 1)
    assert found.packed[:, 2:].tolist() == [[1.0, 1.0]] * 4
    with pytest.raises(ValueError, match="known standard deviations exactly where"):
        NoiseModel(known=True).observed(PLAIN, 0)


MEANS = Observations.of_means(
    [np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[5.0, 5.0]]), np.arange(6.0).reshape(3, 2)],
    np.array([7.0, 8.0, 9.0]),
    rows=np.array([4, 1, 10]),
    noise_std=np.array([0.1, 0.2, 0.3]),
)


def test_means_know_their_points() -> None:
    points = MEANS.points
    assert points is not None
    assert MEANS.inputs.tolist() == [[1.0, 2.0], [5.0, 5.0], [2.0, 3.0]]
    assert MEANS.weight is not None
    assert MEANS.weight.tolist() == [0.25, 1.0, 0.1]
    assert points.mean(np.arange(6.0)).tolist() == [0.5, 2.0, 4.0]
    pairs = np.random.default_rng(0).random((6, 6))
    weights = np.random.default_rng(1).random((3, 3))
    assert (weights * points.mean_of_pairs(pairs)).sum() == pytest.approx((points.share_pairs(weights) * pairs).sum())
    equal = Points.of(np.arange(12.0).reshape(3, 2, 2))
    assert equal.starts.tolist() == [0, 2, 4, 6]
    assert len(Points.of(np.empty((0, 4, 2)))) == 0


@pytest.mark.parametrize("chosen", [[2, 0], slice(1, None), np.array([True, False, True]), slice(0), [1, 1]])
def test_rows_of_means_keep_their_points(chosen: list[int]) -> None:
    some = MEANS.rows(chosen)
    assert some.points is not None
    assert len(some.points) == len(some)
    assert np.allclose(some.points.mean(some.places), some.inputs)


def test_means_and_single_rows_are_joined() -> None:
    single = Observations(np.array([[3.0, 4.0]]), np.array([1.0]), np.array([0.5]))
    for parts in ([single, MEANS], [MEANS.rows([2]), single, MEANS.rows([0, 1])]):
        result = Observations.joined(parts)
        assert result.points is not None
        assert result.weight is not None
        assert np.allclose(result.points.mean(result.places), result.inputs)
        assert result.weight[result.values == 1.0] == [1.0]
        assert result.rows(slice(len(parts[0]))).values.tolist() == parts[0].values.tolist()
    with pytest.raises(ValueError, match="all know the same about their noise"):
        Observations.joined([PLAIN, MEANS])


def test_means_in_other_units_and_coordinates() -> None:
    assert MEANS.divided(2.0).points is MEANS.points
    assert MEANS.at(2.0 * MEANS.inputs, 2.0 * MEANS.places).places.tolist() == (2.0 * MEANS.places).tolist()
    with pytest.raises(ValueError, match="points in the other coordinates"):
        MEANS.at(MEANS.inputs)
    moved = MEANS.at(MEANS.inputs, MEANS.places * [1.0, -1.0])
    assert len({one.version for one in (MEANS, moved, replace(MEANS, points=None))}) == 3
    assert not MEANS.same(moved)
    assert MEANS.same(MEANS.rows(slice(None)))


def test_means_are_not_sent_as_rows() -> None:
    for send in (lambda: MEANS.packed, lambda: MEANS.unpacked(np.zeros(0), np.zeros(0))):
        with pytest.raises(ValueError, match="single places"):
            send()


@pytest.mark.parametrize("starts", [[0, 2], [1, 3], [0, 2, 2, 3]])
def test_every_observation_has_a_point(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        Points(np.zeros((3, 2)), np.array(starts))
