"""A time limit: the first agent whose time is up ends the training for all, with the best theta so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.training import TRAINING_METHODS, TrainingOptions, train, training_method
from tests.conftest import paper_shards
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

OVER, FOREVER = 1e-9, 1e9


@pytest.mark.parametrize("method", TRAINING_METHODS)
def test_time_is_up_at_once(method: str) -> None:
    shards = list(paper_shards(90, 3))
    fit = fg.Fleet(shards, kernel="se", normalize=False).train(method, seconds=OVER)
    assert fit.status == "time limit"
    assert len(fit.starts) == 1, "the other starts had no time"
    assert np.isfinite(fit.thetas).all()
    assert np.isfinite(fit.nll)
    assert fit.rounds <= 2  # one evaluation, or one window of the graph's diameter


@pytest.mark.parametrize("method", TRAINING_METHODS)
def test_enough_time_changes_nothing(method: str) -> None:
    shards = list(paper_shards(90, 3))
    given: dict[str, Any] = {"theta0": fg.PAPER_THETA0, "rounds": 8}
    with_limit, without = (
        fg.Fleet(shards, kernel="se", normalize=False).train(method, **given, seconds=seconds)
        for seconds in (FOREVER, None)
    )
    assert with_limit.status == without.status != "time limit"
    assert np.array_equal(with_limit.history, without.history)


@pytest.mark.parametrize("method", ["full-gp", "dec-fact-gp", "dec-full-gp"])
def test_what_is_kept_is_the_best_of_what_was_seen(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(1000))
    monkeypatch.setattr("fleetgp.network.base.time.monotonic", lambda: float(next(looks)))
    fleet = fg.Fleet(list(paper_shards(90, 3)), kernel="se", normalize=False)
    fit = fleet.train(method, theta0=fg.PAPER_THETA0, seconds=3.5)  # on a clock that ticks when it is looked at
    assert fit.status == "time limit"
    at_start = fleet.train(method, theta0=fg.PAPER_THETA0, rounds=1)
    assert fit.nll < at_start.nll
    assert fleet.train(method, theta0=fg.PAPER_THETA0).nll < fit.nll


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp"])
@pytest.mark.parametrize("tol", [1e-5, 0.0])
def test_one_late_agent_ends_it_for_all_in_one_round(method: str, tol: float) -> None:
    shards = paper_shards(90, 4)

    def work(network: Network) -> fg.Fit:
        (agent,) = network.hosted
        options = TrainingOptions(
            starts=np.log([fg.PAPER_THETA0]), tol=tol, rounds=50, seconds=OVER if agent == 3 else FOREVER
        )
        return train(training_method(method), observed([shards[agent]]), network, KERNELS["se"], options)

    fits = fg.Loopback(fg.Graph.path(4), [[i] for i in range(4)]).run(work)
    assert {fit.status for fit in fits} == {"time limit"}
    assert len({fit.rounds for fit in fits}) == 1
    assert fits[0].rounds <= 3


@pytest.mark.parametrize("seconds", [0, -1.0, np.nan, "soon", True])
def test_seconds_are_checked(seconds: object) -> None:
    with pytest.raises(fg.InputError, match="seconds"):
        fg.Fleet(list(paper_shards(60, 2)), kernel="se", normalize=False).train(seconds=seconds)  # type: ignore[arg-type]
