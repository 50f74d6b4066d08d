"""A training that its caller steps is the training itself, round by round."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.training import training_method
from tests.training.problems import THETA0, fleet, paper_options

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

STEPWISE = [method for method in fg.TRAINING_METHODS if training_method(method).stepwise]


@pytest.mark.parametrize("settings", ["automatic", "paper"])
@pytest.mark.parametrize("method", STEPWISE)
def test_steps_are_a_training_of_as_many_rounds(method: str, settings: str) -> None:
    f = fleet(60, 3, normalize=True)
    options = paper_options(method) if settings == "paper" else {}
    fit = f.train(method, theta0=THETA0, rounds=5, tol=0, **options)
    trainer = f.trainer(method, theta0=THETA0, tol=0, **options)
    assert np.array_equal(trainer.theta0[0], fit.history[0, 0])
    state = trainer.start()
    for done in range(1, 6):
        state, info = trainer.step(state)
        assert np.array_equal(info.thetas, fit.history[done]), f"round {done}"
        assert info.status == "round limit"
    assert float(info.nll.sum()) == fit.nll
    assert (info.engine, info.jitter.tolist()) == (fit.engine, fit.jitter.tolist())
    assert np.array_equal(info.rho, fit.rho)
    assert trainer.ledger.as_dict() == fit.ledger.as_dict()


@pytest.mark.parametrize("method", ["apx-gp", "dec-apx-gp"])
def test_stepping_until_converged_ends_where_train_does(method: str) -> None:
    f = fleet(60, 3)
    fit = f.train(method, theta0=THETA0, tol=1e-3)
    trainer = f.trainer(method, theta0=THETA0, tol=1e-3)
    state, rounds = trainer.start(), 0
    while True:
        state, info = trainer.step(state)
        rounds += 1
        if info.status == "converged":
            break
    assert (rounds, info.residual) == (fit.rounds, fit.residual)
    assert np.array_equal(info.thetas, fit.thetas)
    assert f.last_fit is fit, "the steps leave the fleet as it was"


@pytest.mark.parametrize("method", STEPWISE)
def test_a_state_is_never_changed(method: str) -> None:
    """It can be kept, and stepped again to the same bits."""
    trainer = fleet(45, 3).trainer(method, theta0=THETA0)
    first, _ = trainer.step(trainer.start())
    once, again = trainer.step(first)[1], trainer.step(first)[1]
    assert np.array_equal(once.thetas, again.thetas)
    assert once.residual == again.residual


def test_verdicts_are_due_every_diameter_over_the_graph_and_every_round_with_a_central_node() -> None:
    due = {}
    for method in ("apx-gp", "dec-apx-gp"):
        trainer = fleet(60, 4).trainer(method, theta0=THETA0)
        state, told = trainer.start(), []
        for _ in range(6):
            state, info = trainer.step(state)
            told.append(info.residual is not None)
        due[method] = told
    assert due == {"apx-gp": [True] * 6, "dec-apx-gp": [False, False, True] * 2}


def test_any_of_the_starts_can_be_stepped() -> None:
    trainer = fleet(45, 3).trainer("dec-apx-gp")
    assert trainer.theta0.shape == (3, 4)
    _, info = trainer.step(trainer.start(2))
    assert np.isfinite(info.thetas).all()
    with pytest.raises(fg.InputError, match="start: expected a number from 0 to 2, got 3"):
        trainer.start(3)


@pytest.mark.parametrize("method", ["full-gp", "fact-gp", "g-fact-gp"])
def test_one_minimization_has_no_steps_and_says_so(method: str) -> None:
    with pytest.raises(fg.InputError, match=f"{method} has no single steps.*c-gp, apx-gp"):
        fleet(45, 3).trainer(method)


def test_options_are_those_of_train() -> None:
    f = fleet(45, 3)
    with pytest.raises(fg.InputError, match="dec-apx-gp has no option step: methods with step: c-gp, dec-c-gp"):
        f.trainer("dec-apx-gp", step=1e-3)
    with pytest.raises(fg.InputError, match="unknown option 'rounds': choose one of tol, rho"):
        f.trainer("dec-apx-gp", rounds=3)
    with pytest.raises(fg.InputError, match="rho must be a number above 0"):
        f.trainer("dec-apx-gp", rho=-1.0)
