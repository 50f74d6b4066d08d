"""Decentralized means decentralized: the same bits, rounds and messages however the agents are hosted.

A reduction over axis 0, a peek at another agent's value or a batch-dependent random number would show here.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.data import Shard
from fleetgp.graph import Topology
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.training import TrainingOptions, train, training_method
from tests.conftest import alternating_path, paper_shards
from tests.shared import observed

AGENTS = 6
GRAPHS: dict[str, Topology] = {
    "path": fg.Graph.path(AGENTS),
    "geometric": fg.Graph.geometric(AGENTS, seed=2),
    "alternating": alternating_path(AGENTS),
}
SETTINGS = {
    "automatic": TrainingOptions(starts=np.log([fg.PAPER_THETA0]), rounds=30),
    "paper": TrainingOptions(starts=np.log([fg.PAPER_THETA0]), rounds=8, tol=0, rho=500, kappa=5000),
    "several starts": TrainingOptions(rounds=12, tol=1e-3, normalize=True),
}


METHODS = ("dec-fact-gp", "dec-g-fact-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp")


def often(method: str, graph: str, settings: str) -> bool:
    """Every method, graph and setting in every run; the rest in long runs."""
    if method == "dec-c-gp":  # the nested solver is slow
        return (graph, settings) in (("alternating", "paper"),)
    if method in ("dec-fact-gp", "dec-apx-gp"):
        return (graph, settings) in (("path", "several starts"), ("alternating", "automatic"))
    return (graph, settings) in (("geometric", "automatic"),)


@pytest.mark.parametrize(
    ("method", "graph", "settings"),
    [
        pytest.param(*case, marks=[] if often(*case) else [pytest.mark.long], id="-".join(case))
        for case in itertools.product(METHODS, GRAPHS, SETTINGS)
    ],
)
def test_same_iterates_rounds_and_messages(method: str, graph: str, settings: str) -> None:
    shards: tuple[Shard, ...] = paper_shards(90, AGENTS)

    def work(network: Network) -> fg.Fit:
        mine = [shards[i] for i in network.hosted]
        return train(training_method(method), observed(mine), network, KERNELS["se"], SETTINGS[settings])

    whole = work(fg.InProcess(GRAPHS[graph]))
    for hosting in ([[0, 1, 2], [3, 4, 5]], [[i] for i in range(AGENTS)]):
        loopback = fg.Loopback(GRAPHS[graph], hosting)
        fits = loopback.run(work)
        for group, fit in zip(hosting, fits, strict=True):
            assert np.array_equal(fit.history, whole.history[:, group]), f"iterates of agents {group}"
            assert (fit.rounds, fit.status) == (whole.rounds, whole.status)
            assert fit.residual == whole.residual
        assert sum(fit.nll for fit in fits) == pytest.approx(whole.nll)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


@pytest.mark.parametrize("method", ["full-gp", "fact-gp", "g-fact-gp", "apx-gp", "gapx-gp"])
def test_a_central_node_among_groups_gives_what_it_gives_in_process(method: str) -> None:
    shards: tuple[Shard, ...] = paper_shards(90, AGENTS)

    def work(network: Network) -> fg.Fit:
        mine = [shards[i] for i in network.hosted]
        options = TrainingOptions(rounds=12, normalize=True, seconds=1e6)
        return train(training_method(method), observed(mine), network, KERNELS["se"], options)

    whole = work(fg.InProcess(GRAPHS["path"]))
    for hosting in ([[0, 1, 2], [3, 4, 5]], [[1, 5], [2], [0, 3, 4]]):
        loopback = fg.Loopback(GRAPHS["path"], hosting, grouped=True)
        fits = loopback.run(work)
        for group, fit in zip(hosting, fits, strict=True):
            assert np.array_equal(fit.history, whole.history[:, group]), f"iterates of agents {group}"
            assert (fit.rounds, fit.status, fit.residual) == (whole.rounds, whole.status, whole.residual)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_a_central_node_has_one_clock() -> None:
    """Time is up where it is, and not in the other group, or the other way round."""
    shards: tuple[Shard, ...] = paper_shards(90, AGENTS)

    def work(network: Network, method: str, late: int) -> fg.Fit:
        seconds = 1e-9 if late in network.hosted else 1e6
        options = TrainingOptions(starts=np.log([fg.PAPER_THETA0]), rounds=6, seconds=seconds)
        mine = [shards[i] for i in network.hosted]
        return train(training_method(method), observed(mine), network, KERNELS["se"], options)

    for method in ("full-gp", "fact-gp", "apx-gp"):
        for late, ended in ((0, True), (5, False)):
            loopback = fg.Loopback(GRAPHS["path"], [[0, 1, 2], [3, 4, 5]], grouped=True)
            fits = loopback.run(partial(work, method=method, late=late))
            assert [fit.status == "time limit" for fit in fits] == [ended] * 2


def test_centralized_methods_cannot_run_without_a_centre() -> None:
    shards = paper_shards(60, 2)
    loopback = fg.Loopback(fg.Graph.path(2), [[0], [1]])
    with pytest.raises(fg.NetworkError, match="use a dec- method"):
        loopback.run(
            lambda network: train(
                training_method("apx-gp"),
                observed(shards[i] for i in network.hosted),
                network,
                KERNELS["se"],
                SETTINGS["paper"],
            )
        )
