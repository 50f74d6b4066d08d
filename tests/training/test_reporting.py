"""What a listener hears of a training, and what an interrupted one leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.progress import Progress
from tests.training.problems import (
    THETA0,
    fleet,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def test_progress_is_told_and_an_interrupt_leaves_the_fleet_as_it_was() -> None:
    seen: list[Progress] = []

    def listener(progress: Progress) -> None:
        seen.append(progress)
        if progress.round == 4:
            raise KeyboardInterrupt

    f = fleet(90, 3, theta=fg.PAPER_THETA)
    with pytest.raises(KeyboardInterrupt):
        f.train("dec-apx-gp", theta0=THETA0, progress=listener)
    assert [p.round for p in seen] == [0, 1, 2, 3, 4]
    assert f.theta is not None
    assert f.theta.tolist() == list(fg.PAPER_THETA)
    assert f.last_fit is None


def interrupted(
    f: fg.Fleet, stop: Callable[[Progress], bool], method: str = "dec-apx-gp", **options: Any
) -> tuple[str, list[Progress]]:
    """What a training that is interrupted where stop(progress) says so notes, and what it told before."""
    seen: list[Progress] = []

    def listener(progress: Progress) -> None:
        seen.append(progress)
        if stop(progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        f.train(method, progress=listener, **options)
    return "".join(caught.value.__notes__), seen


def test_an_interrupt_leaves_its_estimates_to_a_fleet_that_has_none() -> None:
    f = fleet(90, 3)
    note, _ = interrupted(f, lambda p: p.round == 0, theta0=THETA0)
    assert "before its first round" in note
    assert (f.theta, f.last_fit, f.unfinished) == (None, None, None)
    note, seen = interrupted(f, lambda p: p.round == 4, theta0=THETA0)
    assert seen[-1].thetas is not None
    assert f.theta is not None
    np.testing.assert_allclose(f.theta, np.exp(np.log(seen[-1].thetas).mean(axis=0)))
    assert (f.last_fit, f.unfinished) == (None, seen[-1])
    assert "interrupted after 4 rounds of dec-apx-gp: fleet.theta holds its estimates" in note
    assert np.isfinite(f.predict([[1.0, 1.0]]).mean).all()
    earlier = f.theta
    interrupted(f, lambda p: p.round == 6, theta0=f.theta)
    assert not np.array_equal(f.theta, earlier), "later estimates are worth more than earlier ones"
    fit = f.train("dec-apx-gp", theta0=f.theta)
    assert (f.last_fit, f.unfinished) == (fit, None)
    note, _ = interrupted(f, lambda p: p.round == 2, theta0=THETA0)
    assert "keeps the theta that it had" in note
    assert np.array_equal(f.theta, fit.theta), "a finished training is worth more than an interrupted one"
    assert (f.last_fit, f.unfinished) == (fit, None)


@pytest.mark.parametrize("method", ["full-gp", "dec-apx-gp"])
def test_an_interrupt_keeps_the_start_that_was_chosen(method: str) -> None:
    """Not one that took more rounds and lost."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 45))[:, None]
    y = np.sin(3.0 * x[:, 0]) + 0.1 * rng.standard_normal(45)
    signal, noise = [0.7, 1.0, 0.1], [30.0, 0.3, 1.0]
    f = fg.Fleet(fg.partition(x, y, agents=3), kernel="se", normalize=False)
    whole = fg.Fleet(f.shards, kernel="se", normalize=False).train(method, theta0=np.array([signal, noise]))
    assert whole.nll == pytest.approx(whole.starts[0].nll, abs=0.1)
    _, seen = interrupted(f, lambda p: p.chosen, method, theta0=np.array([signal, noise]))
    assert seen[-1].task.endswith("#1")
    assert any(p.round > seen[-1].round for p in seen), "the other start must have had more rounds"
    assert f.theta is not None
    np.testing.assert_allclose(np.log(f.theta), np.log(whole.theta), atol=0.05)


def test_a_bar_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    fleet(60, 2).train("dec-apx-gp", theta0=THETA0, rounds=3, progress=True)
    assert "dec-apx-gp" in capsys.readouterr().err, "what is printed to stdout stays clean"
