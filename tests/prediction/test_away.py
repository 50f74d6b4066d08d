"""Answers of a part of a fleet, with the groups of agents that are away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.data.transforms import VIEW_AS_GIVEN
from fleetgp.kernels.stationary import KERNELS
from tests.summaries import Simulated

FIELD = fg.synthetic_field(400, seed=3)
MODEL = Simulated(KERNELS["se"], FIELD.theta.tolist(), VIEW_AS_GIVEN)
#: Four agents, each in a stripe of its own.
SHARDS: list[Any] = list(fg.partition(FIELD.inputs, FIELD.observations, agents=4, by="stripes"))
GROUPS = MODEL.groups(SHARDS)
#: In every agent's area.
QUERIES = [own[0].mean(axis=0) for own in SHARDS]


@pytest.mark.parametrize("present", [[0, 1, 3], [0, 2], [1]])
def test_the_map_is_known_where_agents_are_away(present: list[int]) -> None:
    """Nearly as well as if they were there; and without their groups it would not be known at all."""
    whole = MODEL.predict(QUERIES, SHARDS, GROUPS, range(4))
    part = MODEL.predict(QUERIES, SHARDS, GROUPS, present)
    members = [SHARDS[agent] for agent in present]
    alone = MODEL.predict(QUERIES, members, [GROUPS[agent] for agent in present], range(len(present)))
    away = [agent for agent in range(4) if agent not in present]
    assert (part.std[away] < 3.0 * whole.std[away]).all()
    assert (np.abs(part.mean - whole.mean) < 3.0 * part.std).all()
    assert (alone.std[away] > 1.2 * part.std[away]).all()
    assert part.participants.shape == (len(present), 4)
    assert part.participants.any(axis=0).all(), "somebody answers everywhere"


@pytest.mark.parametrize("present", [[0, 1, 3], [2]])
def test_gradients_and_joint_predictions_are_of_the_same_answer(present: list[int]) -> None:
    gradient, joint = MODEL.gradient(QUERIES, SHARDS, GROUPS, present), MODEL.joint(QUERIES, SHARDS, GROUPS, present)
    answer, step = MODEL.predict(QUERIES, SHARDS, GROUPS, present), 1e-5
    np.testing.assert_allclose(joint.std, answer.std, rtol=0.2)
    np.testing.assert_allclose(joint.mean, answer.mean, atol=0.1)
    for axis in range(2):
        apart = step * np.eye(2)[axis]
        there, back = (MODEL.predict(QUERIES + sign * apart, SHARDS, GROUPS, present) for sign in (1, -1))
        slope = (there.mean - back.mean) / (2.0 * step)
        np.testing.assert_allclose(gradient.gradient[:, axis], slope, rtol=1e-4, atol=1e-5)
