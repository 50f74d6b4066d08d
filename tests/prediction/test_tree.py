"""Predictions along the tree: exact, at the least possible communication."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.graph import Tree
from fleetgp.network.wire import HEADER_BYTES, part_bytes
from tests.conftest import every_graph

THETA = (0.5, 0.4, 1.3, 0.2)
AGENTS = 5
RULES = ["poe", "gpoe", "bcm", "rbcm", "grbcm"]
NPAE = ["dec-npae", "dec-npae-star", "dec-nn-npae"]


@cache
def shards(n: int = 150, agents: int = AGENTS) -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(n, THETA, seed=0)
    return tuple(fg.partition(field.inputs, field.observations, agents=agents, by="stripes", axis=0))


def fleet(graph: object = "path", n: int = 150, agents: int = AGENTS) -> fg.Fleet:
    return fg.Fleet(shards(n, agents), graph, theta=THETA, kernel="se", normalize=False)


def queries(count: int = 7) -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


@pytest.mark.parametrize("name", every_graph(AGENTS))
@pytest.mark.parametrize("rule", RULES)
def test_everyone_equals_the_central_twin(rule: str, name: str) -> None:
    f = fleet(every_graph(AGENTS)[name])
    out, reference = f.predict(queries(), f"dec-{rule}"), f.predict(queries(), rule)
    assert out.status == "converged"
    assert (out.means == out.means[0]).all()
    assert np.abs(out.mean - reference.mean).max() < 1e-9
    assert np.abs(out.variance - reference.variance).max() < 1e-9
    assert out.participants.all()
    if f.graph.period == 1:
        assert (out.query_rounds == 2 * Tree.of(f.graph.union).height).all()


@pytest.mark.parametrize("name", ["path", "star", "alternating"])
@pytest.mark.parametrize("rule", ["poe", "gpoe", "bcm", "rbcm"])
def test_the_correlated_agents_are_the_central_fleet_of_them_alone(rule: str, name: str) -> None:
    f, points = fleet(every_graph(AGENTS)[name]), queries()
    out = f.predict(points, f"dec-nn-{rule}", eta=0.3)
    assert (~out.participants).sum() > 0
    for t in range(len(points)):
        chosen = np.flatnonzero(out.participants[:, t])
        some = fg.Fleet([shards()[i] for i in chosen], "complete", theta=THETA, kernel="se", normalize=False).predict(
            points[t : t + 1], rule
        )
        assert np.abs(out.means[:, t] - some.mean).max() < 1e-9
        assert np.abs(out.variances[:, t] - some.variance).max() < 1e-9


def test_grbcm_of_the_correlated_agents_is_the_limit_of_the_paper_s_averages() -> None:
    """beta = 1 for the first that takes part, which nobody knows before the root does."""
    f, points = fleet("cycle"), queries()
    out = f.predict(points, "dec-nn-grbcm", eta=0.3)
    limit = f.predict(points, "dec-nn-grbcm", eta=0.3, consensus="average", tol=1e-13)
    assert np.array_equal(out.participants, limit.participants)
    assert len(set(out.participants.argmax(axis=0).tolist())) > 1, "not always the same one comes first"
    assert np.abs(out.means - limit.means).max() < 1e-9
    assert np.abs(out.variances - limit.variances).max() < 1e-9


@pytest.mark.parametrize("kernel", ["se", "matern32"])
@pytest.mark.parametrize("method", NPAE)
def test_npae_equals_the_central_one_of_the_participants(method: str, kernel: str) -> None:
    f = fg.Fleet(shards(), "cycle", theta=THETA, kernel=kernel, normalize=False)
    out = f.predict(queries(), method)
    assert out.status == "converged"
    for t in range(len(queries())):
        chosen = np.flatnonzero(out.participants[:, t])
        some = fg.Fleet([shards()[i] for i in chosen], "complete", theta=THETA, kernel=kernel, normalize=False)
        reference = some.predict(queries()[t : t + 1], "npae")
        assert np.abs(out.means[:, t] - reference.mean).max() < 1e-7
        assert np.abs(out.variances[:, t] - reference.variance).max() < 1e-7


@pytest.mark.parametrize("method", ["dec-rbcm", "dec-nn-grbcm", "dec-nn-npae"])
def test_one_asker_gets_the_same_bits_and_nobody_else_is_told(method: str) -> None:
    f = fleet()
    f.predict(queries(1), method)  # what is agreed on before any query is sent once
    everyone, one = f.predict(queries(), method), f.predict(queries(), method, agent=4)
    assert np.array_equal(one.mean, everyone.mean)
    assert np.array_equal(one.variance, everyone.variance)
    assert np.isnan(one.means[:4]).all()
    assert one.ledger.bytes < everyone.ledger.bytes
    assert one.rounds <= everyone.rounds
    assert not one.prior_only.any()
    # Agents 2 and 4 are the root and the asker: what they need comes over 3, and nothing comes down to 0.
    assert one.ledger.total(kind="predictions", sender=1, receiver=0).scalars == 0
    assert one.ledger.total(kind="predictions", sender=3, receiver=4).scalars > 0


def test_a_part_of_the_tree_in_which_nobody_takes_part_sends_nothing() -> None:
    f = fleet()
    points = np.array([[0.05, 1.0], [0.1, 0.5]])  # at the left end of five stripes
    out = f.predict(points, "dec-nn-rbcm", eta=0.3, agent=0)
    assert not out.participants[3:].any()
    for sender, receiver in ((4, 3), (3, 2)):
        sent = out.ledger.total(sender=sender, receiver=receiver)
        assert (sent.messages, sent.scalars, sent.bytes) == (1, 0, HEADER_BYTES), "an empty message: nobody"
    sent = out.ledger.total(kind="predictions", sender=0, receiver=1)
    assert sent.scalars == 3 * out.participants[0].sum()


def test_what_a_path_of_forty_pays() -> None:
    """At most three times the bytes of the central method, and no more rounds than twice the radius."""
    f, points = fleet("path", n=800, agents=40), queries(100)
    for rule in RULES:
        central = f.condition().predict(points, rule)
        for method in (f"dec-{rule}", f"dec-nn-{rule}"):
            out = f.condition().predict(points, method)
            assert out.rounds <= 2 * 20 + 5
            assert out.ledger.bytes <= 3 * central.ledger.bytes
    summands = part_bytes(2, 100 * 3) + part_bytes(2, 100 * 2) + 2 * HEADER_BYTES
    assert f.condition().predict(points, "dec-rbcm").ledger.bytes == 39 * summands


def test_samples_travel_once() -> None:
    f = fleet()
    first, second = (f.predict(queries(), "dec-nn-grbcm") for _ in range(2))
    assert first.ledger.total(kind="inputs").scalars == 4 * sum(2 * (len(y) // AGENTS) for _, y in shards())
    assert second.ledger.total(kind="inputs").scalars == 0
    assert np.array_equal(first.mean, second.mean)


@pytest.mark.filterwarnings("ignore:.*no better known than the prior:fleetgp.errors.FleetGPWarning")
def test_points_far_from_everybody_cost_two_more_reductions() -> None:
    near, far = queries(3), np.array([[40.0, 40.0]])
    f = fleet()
    out = f.predict(np.concatenate([near, far]), "dec-nn-rbcm", agent=1)
    assert out.query_rounds.tolist() == [4] * 3 + [3 * 4]
    assert np.array_equal(out.mean[:3], f.predict(near, "dec-nn-rbcm").mean)
    assert out.participants.sum(axis=0)[3] == 1
    assert out.variance[3] == pytest.approx(THETA[2] ** 2)
