"""When to stop: what a verdict says, when it is due, and that it never comes too early."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus import Maximin, Settled, Verdict, Watch, average
from fleetgp.network import Network
from tests.conftest import every_graph, examples

AGENTS = 6
ALL = list(every_graph(AGENTS))


def judged(
    stopping: Maximin, agree: list[float], small: list[float] | None = None, graph: fg.Graph | None = None
) -> Verdict | None:
    """The verdict on values of a few agents, after a window."""
    network = fg.InProcess(fg.Graph.path(len(agree)) if graph is None else graph)
    watch = Watch(np.array(agree)[:, None], None if small is None else np.array(small)[:, None])
    window = stopping.open(watch)
    for _ in range(stopping.length):
        assert window.verdict is None, "not before the window is full"
        incoming = network.incoming
        window = window.update(network.exchange_parts(window.parts), incoming)
    return window.verdict


@pytest.mark.parametrize("relative", [True, False])
def test_the_spread_is_judged_relatively_or_absolutely(relative: bool) -> None:
    verdict = judged(Maximin(2, 1e-3, relative), [-3.0, 1.0, -4.0])
    assert verdict is not None
    expected = 5.0 / (4.0 * (1.0 + 1e-6)) if relative else 5.0
    assert verdict.residual == pytest.approx([expected] * 3, rel=1e-12)
    assert verdict.status == "round limit"


def test_the_scale_of_the_first_window_counts_a_little_for_ever() -> None:
    """Averages near zero: their spread is judged against a millionth of where they began too."""
    network = fg.InProcess(fg.Graph.path(2))
    window = Maximin(1, 1e-3).open(Watch(np.array([[1e3], [-1e3]])))
    for values in ([[2e-9], [-1e-9]], [[2e-9], [-1e-9]]):
        window = window.update(network.exchange_parts(window.parts), network.incoming).reopen(Watch(np.array(values)))
    verdict = window.update(network.exchange_parts(window.parts), network.incoming).verdict
    assert verdict is not None
    assert verdict.residual == pytest.approx([3e-9 / (2e-9 + 1e-3)] * 2, rel=1e-9)
    assert verdict.status == "converged"


def test_what_must_be_small_is_judged_with_the_spread() -> None:
    verdict = judged(Maximin(2, 1e-3), [1.0, 1.0, 1.0], [1e-4, 2e-2, 1e-5])
    assert verdict is not None
    assert verdict.residual.tolist() == [2e-2] * 3
    assert not verdict.converged.any()
    calm = judged(Maximin(2, 1e-3), [1.0, 1.0, 1.0], [1e-4, 1e-3, 1e-5])
    assert calm is not None
    assert calm.status == "converged", "at the tolerance itself it holds"


@pytest.mark.parametrize("where", ["agree", "small"])
def test_whoever_diverges_is_heard_by_all(where: str) -> None:
    broken, sound = [1.0, 1.0, np.nan], [0.0, 0.0, 0.0]
    verdict = judged(Maximin(2, 1e-3), *((broken, sound) if where == "agree" else (sound, broken)))
    assert verdict is not None
    assert verdict.diverged.all()
    assert verdict.status == "diverged"


def test_nothing_converges_to_a_tolerance_of_zero() -> None:
    verdict = judged(Maximin(1, 0.0), [1.0, 1.0])
    assert verdict is not None
    assert verdict.residual.tolist() == [0.0, 0.0]
    assert verdict.status == "round limit"


@examples(15)
@given(st.integers(0, 10**6), st.sampled_from(ALL), st.sampled_from([1e-2, 1e-5]))
def test_maximin_never_stops_early_and_stops_everyone_at_once(seed: int, name: str, tol: float) -> None:
    x = np.random.default_rng(seed).standard_normal((AGENTS, 2))
    topology = every_graph(AGENTS)[name]

    def work(net: Network) -> tuple[int, str, Array]:
        outcome = average(net, x[list(net.hosted)], tol=tol)
        return outcome.rounds, outcome.status, outcome.state

    answers = fg.Loopback(topology, [[i] for i in range(AGENTS)]).run(work)
    assert len({(rounds, status) for rounds, status, _ in answers}) == 1
    assert answers[0][0] >= topology.diameter
    assert answers[0][1] == "converged"
    final = np.concatenate([state for _, _, state in answers])
    scale = np.abs(final).max(axis=0) + 1e-6 * np.abs(x).max(axis=0)
    assert (np.ptp(final, axis=0) <= tol * scale * (1 + 1e-9)).all()


def test_settled_waits_for_the_tail_of_a_slow_contraction() -> None:
    """Steps of 1e-5 with a contraction of 0.9999 leave 0.1 to go: a test on the step alone would stop here."""
    settled, verdicts = Settled(1e-4), []
    for s in range(50):
        settled = settled.update(np.array([[1.0 + 0.1 * 0.9999**s]]))
        verdicts.append(settled.verdict)
    assert not any(v is not None and v.converged.all() for v in verdicts)


def test_maximin_reports_maxima_that_it_does_not_judge() -> None:
    net = fg.InProcess(fg.Graph.path(2))
    window = Maximin(1, 1e-3).open(Watch(np.ones((2, 1)), np.zeros((2, 1)), {"seen": np.array([[7.0], [9.0]])}))
    assert window.verdict is None
    verdict = window.update(net.exchange_parts(window.parts), net.incoming).verdict
    assert verdict is not None
    assert verdict.converged.all()
    assert {name: values.tolist() for name, values in verdict.largest.items()} == {"seen": [[9.0], [9.0]]}


@given(st.floats(0.01, 0.99), st.floats(1e-3, 10.0), st.floats(-5.0, 5.0), st.booleans())
def test_settled_is_right_about_geometric_tails(ratio: float, size: float, limit: float, alternating: bool) -> None:
    """v_s = limit + size q^s: when it says converged, no more than tol, relative, is left; and in the end it does."""
    tol, settled = 1e-4, Settled(1e-4)
    contraction = -ratio if alternating else ratio
    for s in range(5000):
        values = np.array([[limit + size * contraction**s], [0.5]])
        settled = settled.update(values)
        verdict = settled.verdict
        if verdict is not None and verdict.converged.all():
            # The bound is for steps of one sign and doubles the rest of a fast contraction.
            assert size * ratio**s <= 1.01 * tol * np.abs(values).max()
            return
    raise AssertionError("it never ended")


def test_settled_needs_four_changes_unless_nothing_moves() -> None:
    settled = Settled(0.5)
    for s in range(4):
        settled = settled.update(np.array([[1.0 + 1e-9 * 0.5**s]]))
        assert settled.verdict is None or not settled.verdict.converged.any(), "too early for a ratio"
    settled = settled.update(np.array([[1.0 + 1e-9 * 0.5**4]]))
    assert settled.verdict is not None
    assert settled.verdict.converged.all()
    still = Settled(0.5).update(np.ones((2, 1))).update(np.ones((2, 1)))
    assert still.verdict is not None
    assert still.verdict.converged.all()


def test_settled_judges_items_one_by_one_and_can_go_on_with_some() -> None:
    def values(s: int) -> Array:
        return np.array([[[1.0 + 0.5**s], [1.0 + 0.99**s], [np.inf if s > 3 else 1.0]]])

    settled = Settled(1e-2)
    with np.errstate(invalid="ignore"):
        for s in range(9):
            settled = settled.update(values(s))
        verdict = settled.verdict
    assert verdict is not None
    assert (verdict.converged.tolist(), verdict.diverged.tolist()) == ([True, False, False], [False, False, True])
    keep = np.array([False, True, False])
    alone = Settled(1e-2)
    for s in range(9):
        alone = alone.update(values(s)[:, keep])
    narrowed = settled.narrow(keep).update(values(9)[:, keep]).verdict
    expected = alone.update(values(9)[:, keep]).verdict
    assert narrowed is not None
    assert expected is not None
    assert np.array_equal(narrowed.residual, expected.residual)
