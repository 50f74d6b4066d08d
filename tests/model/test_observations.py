"""Observations as one object: rows, joins, units, and the matrix that travels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations

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
    assert (model.terms, model.differs, NoiseModel().differs) == (3, True, False)
    beyond = replace(WHOLE, group=np.array([0, 7, -3, 1]))
    assert model.group(beyond).tolist() == [0, 2, 0, 1], "whatever a peer sends"


def test_an_agent_s_observations_get_what_the_model_needs() -> None:
    found = NoiseModel(robust=True, groups=("a", "b")).observed(PLAIN, 1)
    assert found.packed[:, 2:].tolist() == [[1.0, 1.0]] * 4
    with pytest.raises(ValueError, match="known standard deviations exactly where"):
        NoiseModel(known=True).observed(PLAIN, 0)
