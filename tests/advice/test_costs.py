"""Costs by counting against the ledgers of real runs: kind by kind and edge by edge, to the byte."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.advice.costs import Asking, TrainingCost, prediction_cost, training_cost
from fleetgp.advice.facts import facts_of
from fleetgp.data import Shard
from fleetgp.kernels.expression import as_kernel
from fleetgp.network import Ledger
from fleetgp.network.counting import Bill
from fleetgp.options import PredictionOptions
from fleetgp.training import training_method
from tests.conftest import mostly_long, paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

TRAINERS = tuple(name for name in fg.TRAINING_METHODS if name.startswith("dec-"))
PREDICTORS = tuple(name for name in fg.PREDICTION_METHODS if name.startswith("dec-"))
#: Those whose likelihoods are the agents' own, and those whose answers are counted exactly where all take part.
LOCAL = tuple(name for name in TRAINERS if name != "dec-full-gp")
COUNTED = tuple(name for name in PREDICTORS if name not in ("dec-full-gp", "dec-nearest", "dec-summary"))
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


def check_within(ledger: Ledger, least: Bill, most: Bill) -> None:
    """In all, by kind and by edge."""
    kinds = {kind: traffic.bytes for kind, traffic in ledger.by_kind().items() if traffic.messages}
    edges = {edge: traffic.bytes for edge, traffic in ledger.by_edge().items()}
    assert least.bytes <= ledger.bytes <= most.bytes
    assert least.messages <= ledger.messages <= most.messages
    assert least.rounds <= ledger.rounds <= most.rounds
    assert all(size <= most.kinds.get(kind, 0) for kind, size in kinds.items())
    assert all(size <= most.edges.get(edge, 0) for edge, size in edges.items())


#: What else a model may have: a mean function, coordinates, weights of outliers, noises of agents.
MODELS: dict[str, dict[str, Any]] = {
    "constant mean": {"mean": "constant"},
    "linear mean, scaled": {"mean": "linear", "coordinates": "scaled", "normalize": False},
    "linear mean, kilometres": {"mean": "linear", "coordinates": "kilometres"},
    "constant mean, sphere": {"mean": "constant", "coordinates": "sphere", "kernel": "iso-matern32(lon, lat)"},
    "sphere": {"coordinates": "sphere", "kernel": "iso-matern32(lon, lat)"},
    "robust": {"robust": True},
    "robust, linear mean": {"robust": True, "mean": "linear"},
    "noises of agents": {"noise": "agents"},
}


def fleet_with(model: dict[str, Any], agents: int = 5, graph: str = "lopsided", **given: Any) -> fg.Fleet:
    settings = {"kernel": "matern32", "inputs": ["lon", "lat"], **model, **given}
    return fg.Fleet(uneven(agents), GRAPHS[graph] if agents == 6 else graph, **settings)


def rounds_of(fit: fg.Fit, cost: TrainingCost) -> int:
    """Of a fit in all, by its ledger."""
    if training_method(fit.method).meet == "tree":
        return round(fit.ledger.rounds_by_phase["training"] / cost.each.rounds)
    return round(fit.ledger.total(phase="training", kind="stopping").messages / cost.each.messages)


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


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "method", mostly_long([n for n in TRAINERS if n != "dec-full-gp"], "dec-fact-gp", "dec-gapx-gp")
)
def test_every_model_is_counted(method: str, model: str) -> None:
    """Given how many rounds it took, and how often it was taken up with other weights or another mean function."""
    fleet = fleet_with(MODELS[model], graph="star")
    for rounds in (2, 300):
        fit = fleet.train(method, rounds=rounds, tol=1e-2)
        cost = training_cost(method, facts_of(fleet), rounds=rounds)
        spent = [cost.total(rounds_of(fit, cost), turns) for turns in range(1 + cost.turns)]
        found = next(bill for bill in spent if bill.bytes == fit.ledger.bytes)
        check(found, fit.ledger)
        assert rounds > 2 or found == spent[0]
        assert cost.most is not None
        check_within(fit.ledger, cost.least, cost.most)


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_moments_of_residuals_are_not_sent_again(mean: str) -> None:
    fleet = fleet_with({"mean": mean, "kernel": "se"}, agents=6, coordinates="kilometres")
    fit, cost = fleet.train("dec-full-gp"), training_cost("dec-full-gp", facts_of(fleet))
    assert fit.mean is not None
    check(cost.total(1, fit.mean.turns - 1), fit.ledger)


@pytest.mark.parametrize("method", LOCAL)
@pytest.mark.parametrize("starts", [1, 2])
def test_with_starts_that_were_given(method: str, starts: int) -> None:
    fleet = fg.Fleet(uneven(4), "cycle", kernel="matern32", normalize=False)
    theta0 = np.array([THETA, (2.0, 0.5, 1.0, 1.0)])[:starts]
    fit = fleet.train(method, theta0=theta0, rounds=3, tol=1e-2)
    cost = training_cost(method, facts_of(fleet), theta0=theta0)
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
    bill = training_cost("dec-apx-gp", facts_of(fleet), theta0=np.array(THETA)).total(6)
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


def asked_of(fleet: fg.Fleet, method: str, queries: int, **given: Any) -> tuple[Ledger, Asking]:
    """The ledger of an answer, and what is known of it beforehand."""
    points = np.random.default_rng(5).uniform(0, 2, (queries, 2))
    found = fleet.predict(points, method, **given)
    options = PredictionOptions().changed({name: value for name, value in given.items() if name != "agent"})
    return found.ledger, Asking(queries, given.get("agent"), "", options)


#: With eta=0 all agents take part in all queries, as is usual.
EVERYONE = {name: {"eta": 0.0} if "-nn-" in name else {} for name in PREDICTORS}


@pytest.mark.parametrize("graph", mostly_long(GRAPHS, "lopsided"))
@pytest.mark.parametrize("method", COUNTED)
def test_an_answer_costs_what_was_said(method: str, graph: str) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS[graph], theta=THETA, normalize=True, kernel="matern32")
    ledger, asking = asked_of(fleet, method, 17, **EVERYONE[method])
    cost = prediction_cost(method, facts_of(fleet), asking)
    assert cost.exact
    check(cost.total, ledger)
    again, _ = asked_of(fleet, method, 17, **EVERYONE[method])
    check(cost.asked, again)


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "method",
    mostly_long(COUNTED, "dec-nn-grbcm", "dec-npae"),
)
def test_an_answer_of_every_model(method: str, model: str) -> None:
    """With a theta that was given, and after a training."""
    fleet = fleet_with(MODELS[model], agents=4, graph="star")
    count = len(fleet.names)
    fleet.theta = np.array([2.0] * (count - 1) + [0.5])
    ledger, asking = asked_of(fleet, method, 5, **EVERYONE[method])
    check(prediction_cost(method, facts_of(fleet), asking).total, ledger)
    fleet.train("dec-apx-gp", rounds=2, tol=0)
    ledger, asking = asked_of(fleet, method, 5, **EVERYONE[method])
    trained = Asking(5, trained="dec-apx-gp", options=asking.options)
    check(prediction_cost(method, facts_of(fleet), trained).total, ledger)


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-nn-poe", "dec-rbcm", "dec-npae"])
@pytest.mark.parametrize("agent", [0, 4])
def test_only_one_agent_asks(method: str, agent: int) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS["lopsided"], theta=THETA, kernel="matern32", normalize=False)
    ledger, asking = asked_of(fleet, method, 9, agent=agent, **EVERYONE[method])
    check(prediction_cost(method, facts_of(fleet), asking).total, ledger)


@pytest.mark.parametrize("method", ["dec-npae", "dec-npae-star", "dec-nn-npae"])
def test_npae_by_weights_that_were_asked_for(method: str) -> None:
    fleet = fg.Fleet(uneven(), GRAPHS["lopsided"], theta=THETA, kernel="se", normalize=False)
    ledger, asking = asked_of(fleet, method, 5, engine="dense", **EVERYONE[method])
    check(prediction_cost(method, facts_of(fleet), asking).total, ledger)


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


def test_noises_of_rows_travel_with_them() -> None:
    shards = [(x, y, np.full(len(y), 0.1)) for x, y in uneven(4)]
    fleet = fg.Fleet(
        shards, "path", theta=(*THETA[:3], 0.1, 0.2, 0.1, 0.2), noise="agents", kernel="se", normalize=False
    )
    ledger, asking = asked_of(fleet, "dec-grbcm", 3)
    check(prediction_cost("dec-grbcm", facts_of(fleet), asking).total, ledger)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        pytest.param(method, given, id=f"{method}, {case}")
        for method in ("dec-nn-grbcm", "dec-nn-rbcm", "dec-nn-npae", "dec-nearest", "dec-summary")
        for case, given in (("usual", {}), ("the best", {"eta": "auto"}), ("one asks", {"agent": 3}))
        if case != "the best" or "-nn-" in method  # the others have no eta
    ],
)
def test_where_it_depends_on_the_data_it_is_a_range(method: str, given: dict[str, Any]) -> None:
    fleet = fg.Fleet(uneven(), "path", theta=THETA, kernel="matern32", normalize=False)
    ledger, asking = asked_of(fleet, method, 40, **given)
    cost = prediction_cost(method, facts_of(fleet), asking)
    assert not cost.exact
    check_within(ledger, cost.least, cost.most)
    assert 0.1 * cost.total.bytes < ledger.bytes <= cost.total.bytes


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")
@pytest.mark.parametrize("model", mostly_long(MODELS, "robust, linear mean", "constant mean, sphere"))
def test_groups_of_every_model(model: str) -> None:
    """With a theta that was given, and after a training."""
    fleet = fleet_with(MODELS[model], agents=4, graph="star")
    fleet.theta = np.array([2.0] * (len(fleet.names) - 1) + [0.5])
    for trained in ("", "dec-apx-gp"):
        if trained:
            fleet.train(trained, rounds=2, tol=0)
        ledger, _ = asked_of(fleet, "dec-summary", 5)
        cost = prediction_cost("dec-summary", facts_of(fleet), Asking(5, trained=trained))
        check_within(ledger, cost.least, cost.most)


@pytest.mark.parametrize("given", [{"budget": 2000.0}, {"budget": 500.0}, {"min_rows": 12}, {"local": True}])
@pytest.mark.parametrize("graph", ["lopsided", "star"])
def test_groups_are_within_the_budget_on_every_link(graph: str, given: dict[str, Any]) -> None:
    """Both directions of a link together."""
    fleet = fg.Fleet(uneven(), GRAPHS[graph], theta=THETA, kernel="matern32", normalize=False)
    ledger, asking = asked_of(fleet, "dec-summary", 7, **given)
    cost = prediction_cost("dec-summary", facts_of(fleet), asking)
    check_within(ledger, cost.least, cost.most)
    for groups in (cost.total.kinds["groups"], cost.most.kinds["groups"], ledger.total(kind="groups").bytes):
        assert 0 < groups <= (fleet.agents - 1) * asking.options.budget


def test_no_agent_has_rows_enough_for_a_group() -> None:
    fleet = fg.Fleet([(x[:4], y[:4]) for x, y in uneven(3)], "path", theta=THETA, kernel="matern32", normalize=False)
    ledger, asking = asked_of(fleet, "dec-summary", 6)
    cost = prediction_cost("dec-summary", facts_of(fleet), asking)
    check_within(ledger, cost.least, cost.most)
    assert "groups" not in ledger.kinds


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
            given: dict[str, Any] = {"n_nearest": 3} if method == "dec-nearest" else {}
            asking = Asking(len(points), agent, "", options=PredictionOptions().changed(given))
            cost = prediction_cost(method, facts_of(fleet), asking)
            found = fleet.predict(points, method, agent=agent, **given).ledger
            check_within(found, cost.least, cost.most)
            if cost.exact:
                check(cost.total, found)


def test_which_answers_are_exact() -> None:
    def exact(kernel: str | None) -> set[str]:
        facts = facts_of([32, 19], dimension=2, kernel=kernel)
        names = [name for name in PREDICTORS if name != "dec-full-gp" or kernel == "se"]
        return {method for method in names if prediction_cost(method, facts, Asking(5)).exact}

    plain = {"dec-poe", "dec-gpoe", "dec-bcm", "dec-rbcm", "dec-grbcm", "dec-nearest"}  # which takes all 51 rows
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


def test_few_rows_are_all_near() -> None:
    fleet = fg.Fleet([(x[:9], y[:9]) for x, y in uneven(3)], "path", theta=THETA, kernel="matern32", normalize=False)
    ledger, asking = asked_of(fleet, "dec-nearest", 6)
    cost = prediction_cost("dec-nearest", facts_of(fleet), asking)
    assert cost.exact
    check(cost.total, ledger)


def test_large_agents_are_counted_without_their_rows() -> None:
    """Bytes of samples grow with the rows, and with nothing else."""
    few, many = (
        prediction_cost("dec-grbcm", facts_of([size, 3000], dimension=2, kernel="matern32"), Asking(5, trained=""))
        for size in (4000, 4_000_000)
    )
    assert many.total.kinds["observations"] - few.total.kinds["observations"] == 8 * (4_000_000 - 4000) // 2
    assert many.asked == few.asked
