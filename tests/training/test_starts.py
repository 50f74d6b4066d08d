"""Where training starts, and which of several starts wins."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from tests.conftest import mostly_long
from tests.training.problems import (
    destination,
    fleet,
    relative_error,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


@pytest.mark.parametrize("method", mostly_long(fg.TRAINING_METHODS, "full-gp", "g-fact-gp", "apx-gp", "dec-apx-gp"))
def test_default_starts_find_the_same_optimum(method: str) -> None:
    f = fleet(150, 3)
    reference = destination(f, method)
    fit = f.train(method)
    assert len(fit.starts) == 3
    # Starts are compared where they stand after a coarse run, in which agents may still differ a little.
    assert fit.nll == pytest.approx(min(s.nll for s in fit.starts), abs=0.1)
    assert relative_error(fit.thetas, reference) < 1e-3


@pytest.mark.parametrize("method", mostly_long(["full-gp", "fact-gp", "apx-gp", "dec-apx-gp"], "fact-gp", "dec-apx-gp"))
@pytest.mark.filterwarnings("ignore:the likelihood does not depend on:fleetgp.FleetGPWarning")  # where all is noise
def test_the_best_of_several_starts_wins(method: str) -> None:
    """From a start that explains everything as noise the likelihood has an optimum of its own."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 45))[:, None]
    y = np.sin(3.0 * x[:, 0]) + 0.1 * rng.standard_normal(45)
    f = fg.Fleet(fg.partition(x, y, agents=3), kernel="se", normalize=False)
    noise, signal = [30.0, 0.3, 1.0], [0.7, 1.0, 0.1]
    alone = {name: f.train(method, theta0=t) for name, t in (("noise", noise), ("signal", signal))}
    assert alone["noise"].nll > alone["signal"].nll + 5.0, "the example must have two optima"
    for order in ([noise, signal], [signal, noise]):
        both = f.train(method, theta0=np.array(order))
        assert both.nll == pytest.approx(alone["signal"].nll, abs=1e-2)
        assert [s.nll for s in both.starts] == pytest.approx(
            [alone["noise" if t is noise else "signal"].nll for t in order], abs=1.0
        )


def wave(seed: int) -> fg.Fleet:
    """Few points of a wave, in noise: the likelihood has an optimum that takes all for noise, and others."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(24, 60))
    x, frequency = rng.uniform(0, 10, (n, 1)), rng.uniform(1, 4)
    y = np.sin(frequency * x[:, 0]) * rng.uniform(0.5, 2) + rng.uniform(0.1, 0.8) * rng.standard_normal(n)
    return fg.Fleet(fg.partition(x, y, agents=3), kernel="se", normalize=False)


#: Those with which every run has each of them.
BRIEF = (("fact-gp", 4), ("fact-gp", 6), ("apx-gp", 5), ("dec-apx-gp", 4), ("dec-apx-gp", 7))


@pytest.mark.parametrize(
    ("method", "seed"),
    [
        pytest.param(method, seed, marks=[] if (method, seed) in BRIEF else [pytest.mark.long])
        for method in ("fact-gp", "apx-gp", "dec-apx-gp")
        for seed in (4, 5, 6, 7)
    ],
)
def test_a_loose_tolerance_chooses_the_same_start(method: str, seed: int) -> None:
    """Starts that are judged after a few rounds say nothing of the optimum that they lead to."""
    fine, loose = wave(seed).train(method), wave(seed).train(method, tol=1e-2)
    assert loose.status == fine.status == "converged"
    assert loose.nll == pytest.approx(fine.nll, abs=0.1)
    assert loose.nll <= min(start.nll for start in loose.starts) + 0.1


@pytest.mark.parametrize("method", ["fact-gp", "apx-gp", "dec-apx-gp"])
def test_a_start_that_used_up_its_rounds_is_not_called_converged_for_its_coarse_run(method: str) -> None:
    """The one limit at which the coarse run of the best start just converges."""
    f, starts = fleet(120, 3), np.array([[2.0, 0.5, 1.0, 1.0], [1.2, 0.3, 1.3, 0.1]])
    coarse = [f.train(method, theta0=start, tol=1e-3).rounds for start in starts]
    fine = f.train(method, theta0=starts, tol=1e-5)
    assert fine.rounds > max(coarse), "the example needs more rounds than its coarse runs"
    fit = f.train(method, theta0=starts, tol=1e-5, rounds=max(coarse))
    assert fit.status == "round limit" or fit.residual <= 1e-5
