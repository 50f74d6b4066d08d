"""Costs on paper against the ledgers of real runs: kind by kind and edge by edge, to the byte."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.advice.bill import Bill
from fleetgp.advice.facts import facts_of
from fleetgp.advice.prediction_costs import Asking, prediction_cost
from fleetgp.advice.training_costs import training_cost
from fleetgp.arrays import IntArray
from fleetgp.consensus.reductions import Alone
from fleetgp.data import Shard
from fleetgp.kernels.expression import as_kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Ledger
from fleetgp.options import PredictionOptions
from fleetgp.prediction import nearest
from fleetgp.prediction.cross import common_basis
from tests.conftest import mostly_long, paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

TRAINERS = tuple(name for name in fg.TRAINING_METHODS if name.startswith("dec-"))
PREDICTORS = tuple(name for name in fg.PREDICTION_METHODS if name.startswith("dec-"))
THETA = (1.2, 0.3, 1.3, 0.1)
KERNELS = ("se", "matern32", "matern12(1) + linear(1)")
GRAPHS = {
    "path": "path",
    "star": "star",
    "lopsided": fg.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 3), (1, 4)]),
}


def uneven(agents: int = 6) -> list[Shard]:
    """Agents of different sizes."""
    return [(x[: len(y) - 3 * i], y[: len(y) - 3 * i]) for i, (x, y) in enumerate(paper_shards(40 * agents, agents))]


def check(bill: Bill, ledger: Ledger) -> None:
    assert bill.kinds == {kind: traffic.bytes for kind, traffic in ledger.by_kind().items() if traffic.messages}
    assert bill.edges == {edge: traffic.bytes for edge, traffic in ledger.by_edge().items()}
    assert (bill.rounds, bill.messages, bill.bytes) == (ledger.rounds, ledger.messages, ledger.bytes)


# ---- trainings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("graph", "normalize"), [("star", False), ("lopsided", True)])
@pytest.mark.parametrize("method", TRAINERS)
def test_a_training_costs_what_was_said(method: str, graph: str, normalize: bool) -> None:
    """Given its number of rounds, which hangs on the data: everything else follows."""
    fleet = fg.Fleet(uneven(), GRAPHS[graph], normalize=normalize, kernel="se")
    fit = fleet.train(method, rounds=4, tol=1e-2)
    rounds = sum(start.rounds for start in fit.starts)
    cost = training_cost(method, facts_of(fleet))
    if method == "dec-full-gp":  # one verdict on each grid, and one reduction before the first
        rounds = int(fit.ledger.rounds_by_phase["model"] // cost.once.rounds)
    check(cost.total(rounds), fit.ledger)


@pytest.mark.parametrize("method", [name for name in TRAINERS if name != "dec-full-gp"])
@pytest.mark.parametrize("starts", [1, 2])
def test_with_starts_that_were_given(method: str, starts: int) -> None:
    fleet = fg.Fleet(uneven(4), "cycle", kernel="matern32", normalize=False)
    fit = fleet.train(method, theta0=np.array([THETA, (2.0, 0.5, 1.0, 1.0)])[:starts], rounds=3, tol=1e-2)
    cost = training_cost(method, facts_of(fleet), starts=starts)
    check(cost.total(sum(start.rounds for start in fit.starts)), fit.ledger)


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-g-fact-gp"])
def test_kernels_that_are_compared_are_trained_first(method: str) -> None:
    """Of a star an evaluation takes two rounds."""
    fleet = fg.Fleet(uneven(4), "star", kernel=["se", "matern32", "matern12"], normalize=True)
    fit = fleet.train(method, rounds=3, tol=1e-2)
    check(training_cost(method, facts_of(fleet)).total(fit.ledger.rounds_by_phase["training"] // 2), fit.ledger)


def test_on_graphs_that_vary_rounds_cost_their_mean() -> None:
    """Over whole periods: how long reductions take hangs on when they begin."""
    one, other = np.zeros((2, 4, 4))
    one[0, 1] = one[1, 0] = one[2, 3] = one[3, 2] = other[1, 2] = other[2, 1] = 1.0
    fleet = fg.Fleet(uneven(4), [one, other], kernel="se", normalize=False)
    fit = fleet.train("dec-apx-gp", theta0=THETA, rounds=6, tol=0)
    bill = training_cost("dec-apx-gp", facts_of(fleet), starts=1).total(6)
    for kind in ("hyperparameters", "stopping", "statistics"):
        assert bill.kinds[kind] == fit.ledger.total(kind=kind).bytes


def test_an_agent_with_many_rows_trains_on_samples_first() -> None:
    """Every level begins with an agreement on curvatures."""
    x = np.random.default_rng(1).uniform(0, 1, (1700, 1))
    shards = [(x[:1600], np.sin(6 * x[:1600, 0])), (x[1600:], np.cos(6 * x[1600:, 0]))]
    fleet = fg.Fleet(shards, "path", kernel="se", normalize=False)
    fit = fleet.train("dec-apx-gp", rounds=2, tol=1e-2)
    cost = training_cost("dec-apx-gp", facts_of(fleet))
    rounds = fit.ledger.total(kind="stopping").messages // 2
    check(cost.total(rounds), fit.ledger)


# ---- predictions -------------------------------------------------------------------------------------------------


def asked_of(fleet: fg.Fleet, method: str, queries: int, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Any:
    """An answer, and what has to be known of it: who took part, whose rows were sent, how long vectors were."""
    pools: list[tuple[int, ...]] = []
    kept = nearest.at_root

    def seen(network: Any, data: Sequence[Observations], rows: Sequence[IntArray]) -> Any:
        pools.append(tuple(map(len, rows)))
        return kept(network, data, rows)

    monkeypatch.setattr(nearest, "at_root", seen)
    points = np.random.default_rng(5).uniform(0, 2, (queries, 2))
    found = fleet.predict(points, method, **given)
    options = PredictionOptions().changed({k: v for k, v in given.items() if k in ("eta", "engine", "neighbours")})
    own = found.participants if method.startswith("dec-nn-") else None
    pooled = pools[0] if len(pools) == 1 else None
    asking = Asking(queries, given.get("agent"), "", own, pooled, options=options)
    return found, asking


@pytest.mark.parametrize("graph", mostly_long(GRAPHS, "lopsided"))
@pytest.mark.parametrize("method", [name for name in PREDICTORS if name != "dec-full-gp" and "npae" not in name])
def test_an_answer_costs_what_was_said(method: str, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS[graph], theta=THETA, normalize=True, kernel="se")
    found, asking = asked_of(fleet, method, 17, monkeypatch)
    cost = prediction_cost(method, facts_of(fleet), asking)
    assert cost.exact
    check(cost.total, found.ledger)
    again, _ = asked_of(fleet, method, 17, monkeypatch)
    check(cost.asked, again.ledger)


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-nn-poe", "dec-rbcm", "dec-nearest", "dec-npae"])
@pytest.mark.parametrize("agent", [0, 4])
def test_only_one_agent_asks(method: str, agent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS["lopsided"], theta=THETA, kernel="matern32", normalize=False)
    found, asking = asked_of(fleet, method, 9, monkeypatch, agent=agent)
    check(prediction_cost(method, facts_of(fleet), asking).total, found.ledger)


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-nn-poe", "dec-nn-npae"])
def test_agents_that_look_for_the_best_of_them(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS["lopsided"], theta=THETA, kernel="matern32", normalize=False)
    found, asking = asked_of(fleet, method, 9, monkeypatch, eta="auto")
    check(prediction_cost(method, facts_of(fleet), asking).total, found.ledger)


@pytest.mark.parametrize("method", ["dec-npae", "dec-npae-star", "dec-nn-npae"])
@pytest.mark.parametrize(("kernel", "engine"), [("se", "auto"), ("se", "dense"), ("matern32", "auto")])
def test_npae(method: str, kernel: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS["lopsided"], theta=THETA, kernel=kernel, normalize=False)
    found, asking = asked_of(fleet, method, 5, monkeypatch, engine=engine)
    if (kernel, engine) == ("se", "auto"):
        h = Hyperparameters.from_theta(np.array(THETA))
        basis = common_basis([x for x, _ in fleet.shards], h, Alone())
        assert basis is not None
        asking = replace(asking, vector=basis.rank)
    check(prediction_cost(method, facts_of(fleet), asking).total, found.ledger)


def test_the_exact_gp_sends_nothing_after_its_training() -> None:
    fleet = fg.Fleet(uneven(), "path", normalize=True, kernel="se")
    fleet.train("dec-full-gp")
    found = fleet.predict(np.ones((3, 2)), "dec-full-gp")
    cost = prediction_cost("dec-full-gp", facts_of(fleet), Asking(3, trained="dec-full-gp"))
    check(cost.total, found.ledger)
    assert found.ledger.bytes == 0


def test_after_a_training_the_agents_agree_on_one_theta_first() -> None:
    fleet = fg.Fleet(uneven(4), "path", normalize=True, kernel="se")
    fleet.train("dec-apx-gp", rounds=2, tol=0)
    found = fleet.predict(np.ones((3, 2)), "dec-poe")
    check(prediction_cost("dec-poe", facts_of(fleet), Asking(3, trained="dec-apx-gp")).total, found.ledger)


def test_queries_go_in_blocks() -> None:
    fleet = fg.Fleet(uneven(3), "path", theta=THETA, kernel="se", normalize=False)
    found = fleet.predict(np.random.default_rng(0).uniform(0, 2, (4100, 2)), "dec-poe")
    cost = prediction_cost("dec-poe", facts_of(fleet), Asking(4100, trained=""))
    check(cost.total, found.ledger)
    assert cost.asked.rounds == 3 * 2


def test_noises_of_rows_travel_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = [(x, y, np.full(len(y), 0.1)) for x, y in uneven(4)]
    fleet = fg.Fleet(
        shards, "path", theta=(*THETA[:3], 0.1, 0.2, 0.1, 0.2), noise="agents", kernel="se", normalize=False
    )
    found, asking = asked_of(fleet, "dec-grbcm", 3, monkeypatch)
    check(prediction_cost("dec-grbcm", facts_of(fleet), asking).total, found.ledger)


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-nn-rbcm", "dec-nearest"])
def test_where_it_hangs_on_the_data_it_is_at_most_so_much(method: str) -> None:
    fleet = fg.Fleet(uneven(), "path", theta=THETA, kernel="se", normalize=False)
    points = np.random.default_rng(2).uniform(0, 2, (40, 2))
    found = fleet.predict(points, method)
    cost = prediction_cost(method, facts_of(fleet), Asking(40, trained=""))
    assert not cost.exact
    assert cost.total.rounds == found.ledger.rounds
    assert 0.3 * cost.total.bytes < found.ledger.bytes <= cost.total.bytes


# ---- bounds --------------------------------------------------------------------------------------------------------

#: Some of them in every run: with all graphs, dimensions and kernels.
BRIEF = (("path", 1), ("star", 2), ("cycle", 3), ("complete", 1))
SHAPES = [
    pytest.param(
        graph,
        dimension,
        KERNELS[(i + dimension) % 3],
        marks=[] if (graph, dimension) in BRIEF else pytest.mark.long,
    )
    for i, graph in enumerate(("path", "star", "cycle", "complete"))
    for dimension in (1, 2, 3)
]


def small(graph: str, dimension: int, kernel: str, scale: float) -> fg.Fleet:
    """Four agents of 9 to 12 rows, whose inputs lie apart along the first axis."""
    draw = np.random.default_rng(3)
    shards = []
    for agent, rows in enumerate((12, 9, 11, 10)):
        inputs = draw.uniform(0.0, 1.0, (rows, dimension))
        inputs[:, 0] += agent
        shards.append((inputs, np.sin(2.0 * inputs).sum(axis=1) + 0.1 * draw.standard_normal(rows)))
    count = as_kernel(kernel, dimension).count(dimension)
    return fg.Fleet(shards, graph, kernel=kernel, normalize=True, theta=[*[scale] * (count - 1), 0.1])


def check_within(ledger: Ledger, least: Bill, most: Bill) -> None:
    """In all, by kind and by edge."""
    kinds = {kind: traffic.bytes for kind, traffic in ledger.by_kind().items() if traffic.messages}
    edges = {edge: traffic.bytes for edge, traffic in ledger.by_edge().items()}
    assert least.bytes <= ledger.bytes <= most.bytes
    assert least.messages <= ledger.messages <= most.messages
    assert least.rounds <= ledger.rounds <= most.rounds
    assert all(size <= most.kinds.get(kind, 0) for kind, size in kinds.items())
    assert all(size <= most.edges.get(edge, 0) for edge, size in edges.items())


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")
@pytest.mark.parametrize(("graph", "dimension", "kernel"), SHAPES)
def test_every_answer_is_within_its_bounds(graph: str, dimension: int, kernel: str) -> None:
    """With short and long length-scales, near queries and those that nobody's data reach; neighbours few, so that
    dec-nearest does not send everything.
    """
    draw = np.random.default_rng(4)
    near, far = draw.uniform(0.0, 1.0, (4, dimension)), draw.uniform(90.0, 99.0, (3, dimension))
    for scale, points, agent in ((0.2, np.concatenate([near, far]), None), (3.0, near, None), (0.2, far, 2)):
        for method in PREDICTORS:
            fleet = small(graph, dimension, kernel, scale)  # whose agents have agreed on nothing yet
            if method == "dec-full-gp" and (kernel != "se" or dimension > 2 or agent is not None):
                continue  # few moments only: a grid in three dimensions takes seconds
            given: dict[str, Any] = {"neighbours": 3} if method == "dec-nearest" else {}
            asking = Asking(len(points), agent, "", options=PredictionOptions().changed(given))
            cost = prediction_cost(method, facts_of(fleet), asking)
            found = fleet.predict(points, method, agent=agent, **given).ledger
            check_within(found, cost.least, cost.most)
            if cost.exact:
                check(cost.total, found)


def test_which_answers_are_exact() -> None:
    def exact(kernel: str | None) -> set[str]:
        facts = facts_of([12, 9], dimension=2, kernel=kernel)
        return {method for method in PREDICTORS if prediction_cost(method, facts, Asking(5)).exact}

    plain = {"dec-poe", "dec-gpoe", "dec-bcm", "dec-rbcm", "dec-grbcm"}
    assert exact("se") == exact(None) == plain
    assert exact("matern32") == plain | {"dec-npae", "dec-npae-star"}


@pytest.mark.parametrize(("graph", "dimension", "kernel"), SHAPES)
def test_trainings_at_their_limit_cost_the_most(graph: str, dimension: int, kernel: str) -> None:
    """Nothing comes near a limit of the hyperparameters in three rounds: all that is sent was known before."""
    for method in TRAINERS:
        if method == "dec-full-gp":
            continue
        fleet = small(graph, dimension, kernel, 1.0)
        fit = fleet.train(method, rounds=3, tol=1e-12)
        cost = training_cost(method, facts_of(fleet), rounds=3)
        assert cost.rounds.most is not None
        assert cost.most is not None
        check(cost.total(cost.rounds.most), fit.ledger)
        check_within(fit.ledger, cost.least, cost.most)


def test_a_flat_direction_is_within_the_bounds() -> None:
    """Whether the likelihood is flat at the limits of hyperparameters is found out by reductions of their own."""
    draw = np.random.default_rng(0)
    inputs = draw.uniform(0.0, 1.0, (60, 2))
    rows = np.array_split(np.argsort(inputs[:, 0]), 3)
    observations = np.sin(6.0 * inputs[:, 0]) + 0.1 * draw.standard_normal(60)
    shards = [(inputs[some], observations[some]) for some in rows]
    for method in ("dec-fact-gp", "dec-apx-gp"):
        fleet = fg.Fleet(shards, "path", kernel="se", normalize=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fg.FleetGPWarning)
            fit = fleet.train(method)
        cost = training_cost(method, facts_of(fleet))
        assert fit.ledger.rounds_by_phase["flat"]
        assert cost.most is not None
        check_within(fit.ledger, cost.least, cost.most)


def test_kernels_of_different_sizes_are_within_the_bounds() -> None:
    fleet = fg.Fleet(uneven(3), "path", kernel=["se", "matern12(1) + linear(1)", "rq"], normalize=True)
    fit = fleet.train("dec-fact-gp", rounds=3, tol=1e-12)
    cost = training_cost("dec-fact-gp", facts_of(fleet), rounds=3)
    assert cost.most is not None
    check_within(fit.ledger, cost.least, cost.most)


@pytest.mark.parametrize(
    ("method", "agents", "graph"),
    [
        ("dec-full-gp", 5, "path"),
        ("dec-fact-gp", 5, "path"),
        ("dec-g-fact-gp", 4, "star"),
        ("dec-apx-gp", 5, "path"),
        ("dec-apx-gp", 9, "grid"),
        ("dec-gapx-gp", 4, "complete"),
        pytest.param("dec-c-gp", 3, "path", marks=pytest.mark.long),
    ],
)
def test_a_usual_training_takes_about_as_many_rounds(method: str, agents: int, graph: str) -> None:
    """Of a draw that the numbers were not measured on: within a factor of four."""
    field = fg.synthetic_field(40 * agents, seed=11)
    fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=agents), graph, kernel="se", normalize=False)
    fit = fleet.train(method)
    usual = training_cost(method, facts_of(fleet)).total()
    assert 0.25 * usual.bytes <= fit.ledger.bytes <= 4.0 * usual.bytes
    assert 0.25 * usual.rounds <= fit.ledger.rounds <= 4.0 * usual.rounds


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_central_methods_have_no_cost_on_a_graph() -> None:
    facts = facts_of([10, 10], dimension=1)
    with pytest.raises(fg.InputError, match="fact-gp needs a central node"):
        training_cost("fact-gp", facts)
    with pytest.raises(fg.InputError, match="rbcm needs a central node"):
        prediction_cost("rbcm", facts, Asking(1))
    with pytest.raises(fg.InputError, match='expected consensus="tree"'):
        prediction_cost("dec-rbcm", facts, Asking(1, options=PredictionOptions(consensus="average")))


@pytest.mark.parametrize(
    ("data", "given", "message"),
    [
        ([], {}, "expected a Fleet, a list of"),
        ("abc", {}, "expected a Fleet, a list of"),
        ([10, 0], {"dimension": 2}, "must be a whole number of at least 1, got 0"),
        ([10, 20], {}, "dimension, which is needed"),
        ([(np.ones((3, 2)), np.ones(2))], {}, "agent 0: X must be"),
        ([(np.ones((3, 2)), np.ones(3))], {"dimension": 3}, "expected 2, as the data have, got 3"),
        ([10, 20], {"dimension": 2, "graph": "ring"}, "unknown graph 'ring'"),
    ],
)
def test_facts_that_cannot_be(data: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(fg.InputError, match=message):
        facts_of(data, **given)
