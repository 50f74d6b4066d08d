"""A cancelled network ends whatever runs on it: no algorithm swallows that, and no handler for errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.node import StoppedError
from fleetgp.errors import Cancelled, FleetGPError, NeighbourLostError
from fleetgp.kernels.expression import as_kernel
from fleetgp.network.zenoh.network import EpochOverError
from fleetgp.training import TRAINING_METHODS, TrainingOptions, train, training_method
from tests.conftest import paper_shards
from tests.shared import observed


class CutOff(fg.InProcess):
    """Cancelled from outside in some round."""

    at = 3

    def _check_open(self) -> None:
        if self.round >= self.at:
            self.cancel(Cancelled("enough"))
        super()._check_open()


@pytest.mark.parametrize("method", [name for name in TRAINING_METHODS if name.startswith("dec-")])
def test_it_passes_through_every_trainer(method: str) -> None:
    network = CutOff(fg.Graph.path(3))
    options = TrainingOptions(starts=np.log([fg.PAPER_THETA0]), rounds=40)
    with pytest.raises(Cancelled, match="enough"):
        train(training_method(method), observed(paper_shards(60, 3)), network, as_kernel("se"), options)
    assert network.ledger.rounds < 40


def test_a_group_that_fails_cancels_the_others_and_they_cannot_go_on() -> None:
    swallowed: list[Any] = []

    def work(network: fg.Network) -> None:
        if 0 in network.hosted:
            raise ValueError("agent 0 broke")
        for _ in range(3):
            try:
                network.neighbour_sum(np.ones(1), "statistics")
            except Exception as error:  # as careless as an algorithm can be
                swallowed.append(error)

    with pytest.raises(ValueError, match="agent 0 broke"):
        fg.Loopback(fg.Graph.path(3), [[0], [1], [2]]).run(work)
    assert swallowed == []


def test_what_ends_a_view_is_no_error_and_what_is_an_error_does_not_look_like_it() -> None:
    for over in (Cancelled, EpochOverError, StoppedError):
        assert issubclass(over, Cancelled)
        assert not issubclass(over, Exception)
    assert issubclass(NeighbourLostError, FleetGPError)
