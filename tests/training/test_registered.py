"""A trainer of somebody else's: by the public API alone, and known wherever ours are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.advice.recommend import recommend
from fleetgp.agent.description import TRAINERS
from fleetgp.arrays import Array
from fleetgp.consensus import Verdict, total
from fleetgp.fleet.privacy import refusal
from fleetgp.training import Local, RoundSolver, TrainingOptions, TrainingProblem, register_trainer, training_method
from fleetgp.training.methods import METHODS
from tests.training.problems import THETA0, fleet


@dataclass(frozen=True)
class Moving:
    local: Local
    velocity: Array


class Momentum(RoundSolver[Moving]):
    """Gradient descent with momentum, by sums over the spanning tree."""

    def __init__(self, problem: TrainingProblem, options: TrainingOptions) -> None:
        self.problem = problem
        self.rate = 0.3 / total(problem.network, problem.objective.sizes.astype(float))

    def begin(self, x: Array) -> Moving:
        return Moving(self.problem.evaluate(x), np.zeros(x.shape[1]))

    def step(self, state: Moving, tol: float) -> tuple[Moving, Verdict]:
        x, gradients = state.local.x[0], state.local.values.gradient
        late = np.full(len(gradients), float(self.problem.deadline.passed))
        *gradient, late_agents = total(self.problem.network, np.column_stack([gradients, late]))
        velocity = 0.8 * state.velocity - self.rate * np.array(gradient)
        there = self.problem.bounds.clipped(x + velocity)
        verdict = Verdict(np.abs(there - x).max(keepdims=True), tol, late=late_agents > 0, highest=there[None])
        return Moving(self.problem.evaluate(np.tile(there, (len(state.local.x), 1))), there - x), verdict


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_trainer("dec-momentum", Momentum, meet="tree", sends="sums of gradients per round", use="to try")
    yield
    METHODS._items.pop("dec-momentum")


def test_it_trains_to_the_same_optimum_and_sends_what_was_said() -> None:
    f = fleet(200, 4, "path")
    slow, fast = f.train("dec-momentum", theta0=THETA0), f.train("dec-fact-gp", theta0=THETA0)
    assert slow.status == "converged"
    np.testing.assert_allclose(np.log(slow.theta), np.log(fast.theta), atol=1e-3)
    assert slow.disagreement == 0.0
    assert slow.ledger.kinds == training_method("dec-momentum").kinds == ("statistics",)


def test_it_can_be_stepped_stopped_and_left_alone() -> None:
    f = fleet(120, 3)
    trainer = f.trainer("dec-momentum", theta0=THETA0)
    state = trainer.start()
    for _ in range(3):
        state, info = trainer.step(state)
    steps = f.train("dec-momentum", theta0=THETA0, rounds=3, tol=0)
    np.testing.assert_array_equal(info.thetas, steps.thetas)
    assert f.train("dec-momentum", theta0=THETA0, seconds=1e-9).status == "time limit"
    with pytest.raises(fg.InputError, match="dec-momentum has no option rho: methods with rho: c-gp"):
        f.train("dec-momentum", rho=1.0)


def test_others_know_it() -> None:
    f = fleet(120, 3)
    assert "dec-momentum" in fg.TRAINING_METHODS
    assert "dec-momentum" in TRAINERS
    advice = recommend(f, link="1 Mbit/s")
    (candidate,) = (one for one in advice.candidates if one.method == "dec-momentum")
    assert candidate.tells == ("statistics",)
    assert refusal(training_method("dec-momentum"), "likelihoods")
    assert not refusal(training_method("dec-momentum"), "rows")


def test_names_of_ours_and_what_no_trainer_can_have_are_refused() -> None:
    with pytest.raises(fg.InputError, match="FleetGP has a training method 'apx-gp' itself"):
        register_trainer("apx-gp", Momentum, meet="tree", sends="sums")
    with pytest.raises(fg.InputError, match="trainer mine: expected one of tree, edges, server, got 'pool'"):
        register_trainer("mine", Momentum, meet="pool", sends="sums")  # type: ignore[arg-type]
    with pytest.raises(fg.InputError, match=r"trainer mine: expected one of rho, .*, got 'tol'"):
        register_trainer("mine", Momentum, meet="tree", sends="sums", options=["tol"])
