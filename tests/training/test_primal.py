"""The local step that all ADMM trainers share."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.gp.expert import Expert
from fleetgp.gp.kernels import KERNELS
from fleetgp.training.curvature import Curvature
from fleetgp.training.floor import Floor
from fleetgp.training.objective import Objective
from fleetgp.training.primal import Linearized, Local, Pull
from tests.conftest import paper_shards


@pytest.mark.parametrize("softness", [1.0, 10.0])
def test_a_step_that_does_not_come_down_enough_is_taken_back(softness: float) -> None:
    """The model is far softer than the likelihood: it overshoots, and each agent ends a good deal lower, or stays."""
    objective = Objective([Expert(x, y, KERNELS["se"], i, "dense") for i, (x, y) in enumerate(paper_shards(300, 3))])
    x = np.tile(np.log(fg.PAPER_THETA), (3, 1)) + 0.02
    values = objective(x)
    curvature = Curvature(np.tile(softness * np.eye(4), (3, 1, 1)), np.zeros((3, 4)), x)
    pull = Pull(np.full((3, 4), 0.3), x - 0.01, np.full((3, 4), 2.0))
    gradient, before = values.gradient + pull.gradient(x), values.nll + pull.value(x)
    move = -gradient / (softness + 2.0)
    overshot = x + move * np.minimum(1.0, 1.0 / np.abs(move).max(axis=1, keepdims=True))
    rise = objective(overshot).nll + pull.value(overshot) - before
    assert (rise > 1e-6 * np.abs(before)).all(), "the example must overshoot"
    local = Local(x, values, curvature)
    after = Linearized(objective, Floor(), None).step(local, local, pull, np.ones(3, dtype=bool))
    promised = 0.1 * (gradient * (after.x - x)).sum(axis=1)
    assert (promised < 0.0).all()
    assert (objective(after.x).nll + pull.value(after.x) - before <= promised + 1e-9 * np.abs(before)).all()
