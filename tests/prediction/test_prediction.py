"""One battery for all prediction methods, against formulas written out and against the joint Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.agreements import augmented, sample
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.network.wire import HEADER_BYTES
from fleetgp.options import Consensus
from fleetgp.prediction import Conditioned, PredictionOptions, Question, predict, prediction_method
from fleetgp.prediction.selection import Selection, agree_on_participants, bridged
from tests.conftest import alternating_path, every_graph
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

THETA = (0.5, 0.4, 1.3, 0.2)
AGENTS = 5
DECENTRALIZED = [m for m in fg.PREDICTION_METHODS if m.startswith("dec-")]
AVERAGED = ["dec-poe", "dec-gpoe", "dec-bcm", "dec-rbcm", "dec-grbcm"]
SUMMANDS = {"poe": 2, "gpoe": 2, "bcm": 2, "rbcm": 3, "grbcm": 3}


@cache
def shards(n: int = 150, agents: int = AGENTS, seed: int = 0) -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(n, THETA, seed=seed)
    return tuple(fg.partition(field.inputs, field.observations, agents=agents))


def fleet(graph: object = "path", n: int = 150, agents: int = AGENTS) -> fg.Fleet:
    return fg.Fleet(shards(n, agents), graph, theta=THETA, kernel="se", normalize=False)


def queries(count: int = 7) -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


def twin(method: str) -> str:
    return method.replace("dec-nn-", "").replace("dec-", "").replace("-star", "")


def posterior(x: Array, y: Array, points: Array) -> tuple[Array, Array]:
    """The exact GP with plain inverses."""
    h = Hyperparameters.from_theta(THETA)
    inverse = np.linalg.inv(KERNELS["se"](x, x, h) + h.noise**2 * np.eye(len(y)))
    cross = KERNELS["se"](x, points, h)
    return cross.T @ inverse @ y, h.signal**2 - np.einsum("nt,nm,mt->t", cross, inverse, cross)


def pooled(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def by_hand(
    rule: str, parts: tuple[tuple[Array, Array], ...], points: Array, beta_1: float | None = None
) -> tuple[Array, Array]:
    """The paper's equations, one query and one agent at a time. beta_1: of grBCM; None: weights of norm 1."""
    m, prior = len(parts), THETA[2] ** 2
    data = list(parts)
    mean_c, var_c = np.zeros(len(points)), np.full(len(points), prior)
    if rule == "grbcm":
        samples = [sample(s, m, 0) for s in observed(parts)]
        data = [augmented(s, i, samples).as_given for i, s in enumerate(observed(parts))]
        pool = Observations.joined(samples)
        mean_c, var_c = posterior(pool.inputs, pool.values, points)
    local = [posterior(x, y, points) for x, y in data]
    means, variances = np.zeros(len(points)), np.zeros(len(points))
    for t in range(len(points)):
        mu, var = np.array([a[0][t] for a in local]), np.array([a[1][t] for a in local])
        if rule == "poe":
            beta = np.ones(m)
        elif rule == "gpoe":
            beta = np.full(m, 1 / m)
        elif rule == "bcm":
            beta = np.ones(m)
        elif rule == "rbcm":
            beta = 0.5 * (np.log(prior) - np.log(var))
        else:
            beta = np.maximum(0.5 * (np.log(var_c[t]) - np.log(var)), 0.0)
            if beta_1 is None:
                beta /= np.linalg.norm(beta)
            else:
                beta[0] = beta_1
        precision, first = (beta / var).sum(), (beta * mu / var).sum()
        if rule in ("bcm", "rbcm"):
            precision += (1 - beta.sum()) / prior
        if rule == "grbcm":
            precision += (1 - beta.sum()) / var_c[t]
            first -= (beta.sum() - 1) * mean_c[t] / var_c[t]
        means[t], variances[t] = first / precision, 1 / precision
    return means, variances


@pytest.mark.parametrize(
    ("rule", "given"), [*[(rule, {}) for rule in ("poe", "gpoe", "bcm", "rbcm", "grbcm")], ("grbcm", {"beta": "paper"})]
)
def test_aggregations_are_the_papers_equations(rule: str, given: dict[str, Any]) -> None:
    out = fleet().predict(queries(), rule, **given)
    mean, variance = by_hand(rule, shards(), queries(), 1.0 if given else None)
    assert np.allclose(out.mean, mean, rtol=1e-8, atol=1e-10)
    assert np.allclose(out.variance, variance, rtol=1e-8)


def test_full_gp_is_the_pooled_posterior() -> None:
    mean, variance = posterior(*pooled(shards()), queries())
    out = fleet().predict(queries(), "full-gp")
    assert np.allclose(out.means, mean, rtol=1e-8)
    assert np.allclose(out.variances, variance, rtol=1e-6)


def test_npae_is_the_conditional_expectation_given_the_agents_means() -> None:
    """E[f* | mu_1 .. mu_M] in the joint Gaussian of all observations and f*: no C_A, no k_A of ours."""
    parts, points = shards(60, 4), queries()
    h = Hyperparameters.from_theta(THETA)
    x, y = np.concatenate([s[0] for s in parts]), np.concatenate([s[1] for s in parts])
    out = fleet(n=60, agents=4).predict(points, "npae")
    for t, point in enumerate(points):
        everything = np.concatenate([x, point[None]])
        joint = KERNELS["se"](everything, everything, h)
        joint[:-1, :-1] += h.noise**2 * np.eye(60)
        maps = np.zeros((4, 61))
        for i in range(4):
            rows = slice(15 * i, 15 * i + 15)
            maps[i, rows] = np.linalg.solve(joint[rows, rows], joint[rows, -1])
        own, cross = maps @ joint @ maps.T, maps @ joint[:, -1]
        weights = np.linalg.solve(own, cross)
        assert out.mean[t] == pytest.approx(weights @ maps[:, :-1] @ y, rel=1e-7, abs=1e-9)
        assert out.variance[t] == pytest.approx(h.signal**2 - weights @ cross, rel=1e-6)


@pytest.mark.parametrize("name", every_graph(AGENTS))
@pytest.mark.parametrize("method", AVERAGED)
def test_decentralized_equals_centralized_on_every_graph(method: str, name: str) -> None:
    f = fleet(every_graph(AGENTS)[name])
    out, reference = f.predict(queries(), method, consensus="average"), f.predict(queries(), twin(method))
    assert out.status == "converged"
    scale = np.sqrt(reference.variance)
    assert (np.abs(out.means - reference.mean) < 2e-5 * scale + 1e-6 * np.abs(reference.mean)).all()
    assert np.allclose(out.variances, reference.variance, rtol=2e-5)
    assert out.participants.all()


@pytest.mark.parametrize(
    ("method", "graph"),
    [
        pytest.param(method, graph, marks=[] if graph == often else [pytest.mark.long])
        for method, often in (("dec-npae", "path"), ("dec-npae-star", "complete"))
        for graph in ("complete", "path", "star")
    ],
)
def test_npae_by_jor(method: str, graph: str) -> None:
    f = fleet(graph)
    out, reference = f.predict(queries(4), method, consensus="average"), f.predict(queries(4), "npae")
    assert out.status == "converged"
    assert np.abs(out.means - reference.mean).max() < 1e-4
    assert np.abs(out.variances - reference.variance).max() < 1e-4
    assert (out.solver_rounds > 0).all()


def test_the_optimal_relaxation_saves_iterations() -> None:
    f = fleet("complete")
    plain, star = (f.predict(queries(4), m, consensus="average") for m in ("dec-npae", "dec-npae-star"))
    assert star.solver_rounds.sum() < plain.solver_rounds.sum()


def test_npae_by_dale_is_right_or_says_that_it_is_not() -> None:
    f = fleet("path", n=60, agents=3)
    out = f.predict(queries(3), "dec-nn-npae", eta=0, consensus="average")
    reference = f.predict(queries(3), "npae")
    assert out.status == "converged"
    assert np.abs(out.means - reference.mean).max() < 1e-3
    capped = f.predict(queries(3), "dec-nn-npae", eta=0, consensus="average", rounds=20)
    assert capped.status == "round limit"
    assert (capped.residual > 1e-6).any()


@pytest.mark.parametrize("method", ["poe", "bcm", "npae", "dec-poe", "dec-bcm", "dec-npae", "dec-npae-star", "gpoe"])
def test_one_agent_is_the_exact_gp(method: str) -> None:
    f = fleet(n=40, agents=1)
    full, out = f.predict(queries(), "full-gp"), f.predict(queries(), method)
    assert np.abs(out.mean - full.mean).max() < 1e-8
    assert np.abs(out.variance - full.variance).max() < 1e-8


# ---- CBNN ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["path", "grid", "alternating"])
@pytest.mark.parametrize("rule", ["poe", "gpoe", "bcm", "rbcm", "grbcm"])
def test_threshold_zero_keeps_everyone(rule: str, name: str) -> None:
    f = fleet(every_graph(AGENTS)[name])
    nearest = f.predict(queries(), f"dec-nn-{rule}", eta=0, consensus="average")
    everyone = f.predict(queries(), rule)
    assert nearest.participants.all()
    assert np.allclose(nearest.means, everyone.mean, atol=1e-4)
    assert np.allclose(nearest.variances, everyone.variance, rtol=1e-4)


@pytest.mark.parametrize("name", every_graph(AGENTS))
@pytest.mark.parametrize("rule", ["poe", "gpoe", "bcm", "rbcm"])
def test_only_the_correlated_agents_have_a_say(rule: str, name: str) -> None:
    """The answer is the centralized one of the participants alone, at every agent, connected or not."""
    f = fleet(every_graph(AGENTS)[name])
    points = queries()
    out = f.predict(points, f"dec-nn-{rule}", eta=0.3, consensus="average")
    assert out.status == "converged"
    dropped = 0
    for t in range(len(points)):
        chosen = np.flatnonzero(out.participants[:, t])
        dropped += AGENTS - len(chosen)
        some = fg.Fleet([shards()[i] for i in chosen], "complete", theta=THETA, kernel="se", normalize=False).predict(
            points[t : t + 1], rule
        )
        assert np.allclose(out.means[:, t], some.mean, atol=1e-4)
        assert np.allclose(out.variances[:, t], some.variance, rtol=1e-4)
    assert dropped > 0


@pytest.mark.filterwarnings("ignore:.*exact copies:fleetgp.errors.FleetGPWarning")
def test_a_selection_that_falls_apart_is_bridged() -> None:
    """Agents 0 and 4 of a path hold the data around the query; the three between them only relay."""
    field = fg.synthetic_field(100, THETA, seed=1)
    left = field.inputs[:, 0] < 1.0
    near, far = (field.inputs[left], field.observations[left]), (field.inputs[~left] + 100.0, field.observations[~left])
    parts = [near, far, far, far, (near[0] + 0.01, near[1])]
    f = fg.Fleet(parts, "path", theta=THETA, kernel="se", normalize=False)
    out = f.predict([[0.5, 1.0]], "dec-nn-rbcm", consensus="average")
    assert out.participants[:, 0].tolist() == [True, False, False, False, True]
    both = fg.Fleet([parts[0], parts[4]], "path", theta=THETA, kernel="se", normalize=False).predict(
        [[0.5, 1.0]], "rbcm"
    )
    assert np.allclose(out.means[:, 0], both.mean[0], atol=1e-5)
    assert bridged(fg.Graph.cycle(6), np.array([0, 2])).tolist() == [0, 1, 2]


@pytest.mark.parametrize("consensus", [{}, {"consensus": "average", "rounds": 500}], ids=["tree", "average"])
@pytest.mark.parametrize("method", [m for m in DECENTRALIZED if "-nn-" in m])
@pytest.mark.filterwarnings("ignore:.*no better known than the prior:fleetgp.errors.FleetGPWarning")
def test_where_nobody_is_correlated_the_most_correlated_answers_alone(method: str, consensus: dict[str, Any]) -> None:
    out = fleet().predict([[2.6, 1.0], [-50.0, 0.0]], method, eta=0.9999, **consensus)
    assert out.participants.sum(axis=0).tolist() == [1, 1]
    assert out.participants[AGENTS - 1, 0]
    if not method.endswith(("rbcm", "npae")):
        alone = fg.Fleet([shards()[-1]], theta=THETA, kernel="se", normalize=False).predict([[2.6, 1.0]], twin(method))
        assert np.allclose(out.means[:, 0], alone.mean[0], atol=1e-6)


@pytest.mark.parametrize("agents", [10, *[pytest.param(agents, marks=pytest.mark.long) for agents in (20, 40)]])
def test_the_default_threshold_drops_a_third_and_keeps_the_accuracy(agents: int) -> None:
    """Length-scales of a tenth of the box, stripes on a path. (poe and gpoe get better by it: see the docs.)"""
    theta = (0.2, 0.2, 1.3, 0.1)
    field = fg.synthetic_field(2500, theta, seed=0)
    points = np.random.default_rng(1).uniform(0, 2, (100, 2))
    truth = fg.synthetic_field(theta=theta, seed=0, inputs=points).truth
    f = fg.Fleet(
        fg.partition(field.inputs, field.observations, agents=agents), theta=theta, kernel="se", normalize=False
    )
    for rule in ("bcm", "rbcm", "grbcm"):
        nearest, everyone = f.predict(points, f"dec-nn-{rule}"), f.predict(points, rule)
        assert nearest.participants.mean() < 2 / 3
        errors = [np.sqrt(((out.mean - truth) ** 2).mean()) for out in (nearest, everyone)]
        assert abs(errors[0] / errors[1] - 1) < 0.01
    poe, everyone = f.predict(points, "dec-nn-poe"), f.predict(points, "poe")
    assert ((poe.mean - truth) ** 2).mean() < ((everyone.mean - truth) ** 2).mean()


def test_selection_is_common_knowledge() -> None:
    rng = np.random.default_rng(2)
    correlation = rng.uniform(0, 1, (6, 8)) ** 3
    loopback = fg.Loopback(alternating_path(6), [[i] for i in range(6)])

    def work(network: Network) -> BoolArray:
        own = correlation[list(network.hosted)]
        return agree_on_participants(network, own >= 0.4, lambda t: own[:, t])

    answers = loopback.run(work)
    assert all(np.array_equal(a, answers[0]) for a in answers)
    expected = correlation >= 0.4
    for t in np.flatnonzero(~expected.any(axis=0)):
        expected[correlation[:, t].argmax(), t] = True
    assert np.array_equal(answers[0], expected)
    scope = Selection(fg.Graph.path(6), expected)
    for taking, active in zip(expected.T, scope.active.T, strict=True):
        first, last = np.flatnonzero(taking)[[0, -1]]
        assert np.flatnonzero(active).tolist() == list(range(first, last + 1)), "on a path all between them relay"
    assert (scope.size > scope.count).any(), "the example must need bridges"


# ---- what the paper proves -------------------------------------------------------------------------------


def test_poe_and_gpoe_have_the_same_mean() -> None:
    f = fleet()
    assert np.allclose(f.predict(queries(), "poe").mean, f.predict(queries(), "gpoe").mean, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*exact copies:fleetgp.errors.FleetGPWarning")
def test_variances_shrink_with_the_fleet_except_gpoes() -> None:
    """The same agent M times: PoE and (r)BCM grow sure without reason, gPoE does not."""
    one = shards(40, 1)[0]
    spread = {}
    for m in (1, 4, 16):
        f = fg.Fleet([one] * m, "complete", theta=THETA, kernel="se", normalize=False)
        spread[m] = {rule: f.predict(queries(3), rule).variance for rule in ("poe", "gpoe", "bcm", "rbcm")}
    for rule in ("poe", "bcm", "rbcm"):
        assert (spread[16][rule] < 0.5 * spread[4][rule]).all()
    assert np.allclose(spread[16]["gpoe"], spread[1]["gpoe"])


def test_grbcm_and_npae_approach_the_full_gp_as_data_grow() -> None:
    errors: dict[str, list[float]] = {"grbcm": [], "npae": [], "poe": []}
    for n in (60, 240, 960):
        field = fg.synthetic_field(n, THETA, seed=5)
        f = fg.Fleet(
            fg.partition(field.inputs, field.observations, agents=4, by="random"),
            theta=THETA,
            kernel="se",
            normalize=False,
        )
        full = f.predict(queries(40), "full-gp")
        for rule, history in errors.items():
            history.append(float(np.abs(f.predict(queries(40), rule).mean - full.mean).mean()))
    for rule in ("grbcm", "npae"):
        assert errors[rule][0] > errors[rule][1] > errors[rule][2]
        assert errors[rule][2] < 0.3 * errors[rule][0]


# ---- the price -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", SUMMANDS)
def test_scalars_are_those_of_the_complexity_table(rule: str) -> None:
    """K chi with chi = s_end card(N_i), per query: two averages or three."""
    given: dict[str, Any] = {"beta": "paper"} if rule == "grbcm" else {}
    out = fleet().predict(queries(), f"dec-{rule}", consensus="average", **given)
    directed = 2 * (AGENTS - 1)
    averaged = out.ledger.total(phase="average", kind="predictions").scalars
    assert averaged == SUMMANDS[rule] * directed * out.query_rounds.sum()
    if rule != "grbcm":
        assert not {"inputs", "observations"} & set(out.ledger.kinds)


def test_jor_floods_on_graphs_that_are_not_complete() -> None:
    for graph in ("complete", "path"):
        f = fleet(graph)
        out = f.predict(queries(2), "dec-npae", consensus="average", tol=1e-3, engine="dense")
        rounds = out.ledger.rounds_by_phase["solve"]
        assert rounds == out.solver_rounds.max() * f.graph.diameter
        crossings = AGENTS * (AGENTS - 1)  # on a path every entry crosses every edge once, on a complete graph too
        assert out.ledger.total(phase="solve").scalars == 2 * crossings * out.solver_rounds.sum()
        inputs = sum(x.size for x, _ in shards())
        assert out.ledger.total(kind="inputs").scalars == (AGENTS - 1) * inputs


def test_nearest_neighbours_cost_less_and_answers_reach_everyone() -> None:
    points = np.array([[0.2, 1.0], [0.25, 0.5]])
    everyone = fleet().predict(points, "dec-rbcm", consensus="average")
    nearest = fleet().predict(points, "dec-nn-rbcm", eta=0.3, consensus="average")
    scalars = [o.ledger.total(phase="average", kind="predictions").scalars for o in (everyone, nearest)]
    assert scalars[1] < 0.5 * scalars[0]
    used = {edge for edge, t in nearest.ledger.by_edge().items() if t.scalars}
    assert used
    assert nearest.ledger.total(phase="average", kind="predictions", sender=4).scalars == 0
    assert nearest.ledger.total(phase="spread", sender=4).scalars == 0
    assert np.ptp(nearest.means, axis=0).max() < 1e-5


@pytest.mark.parametrize("method", ["dec-rbcm", "dec-nn-rbcm"])
@pytest.mark.parametrize("count", [1, 12])
def test_words_about_stopping_are_less_than_a_quarter_of_the_averages(method: str, count: int) -> None:
    """With a single query of few agents, what tells the others that it is over has headers of its own."""
    for graph in (*every_graph(8).values(), fg.Graph.path(2)):
        out = fleet(graph, agents=graph.agents).predict(queries(count), method, consensus="average")
        sent = out.ledger.total(phase="average").bytes
        words = sum(out.ledger.total(phase="average", kind=kind).bytes for kind in ("stopping", "statistics"))
        assert out.status == "converged"
        assert words <= 0.25 * sent
        if count > 1 or method == "dec-rbcm":
            summands = out.ledger.total(phase="average", kind="predictions")
            assert sent - summands.bytes - HEADER_BYTES * summands.messages <= 0.25 * sent


@pytest.mark.filterwarnings("ignore:.*no better known than the prior:fleetgp.errors.FleetGPWarning")
def test_queries_that_have_converged_stop_costing() -> None:
    points = np.concatenate([queries(5), [[60.0, 60.0]]])
    out = fleet().predict(points, "dec-poe", consensus="average")
    assert out.query_rounds[-1] < out.query_rounds[:-1].max()


# ---- behaviour -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"consensus": "average", "rounds": 300}], ids=["tree", "average"])
@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
@pytest.mark.filterwarnings("ignore:.*no better known than the prior:fleetgp.errors.FleetGPWarning")
def test_edges_of_use(method: str, given: dict[str, Any]) -> None:
    parts = [*shards(), (np.array([[1.0, 1.0]]), np.array([0.3]))]  # an agent with one point
    f = fg.Fleet(parts, "cycle", theta=THETA, kernel="se", normalize=False)
    assert f.predict(np.empty((0, 2)), method).mean.shape == (0,)
    out = f.predict([[1.0, 0.9], [400.0, -300.0]], method, **prediction_method(method).those_of(**given))
    assert out.means.shape == out.variances.shape == (6, 2)
    assert out.participants.shape == (6, 2)
    assert (out.variances > 0).all()
    assert np.isfinite(out.means).all()
    assert np.allclose(out.means[:, 1], 0.0, atol=1e-6)
    prior = THETA[2] ** 2
    expected = prior / 6 if method in ("poe", "dec-poe") else prior  # a product of six priors is what PoE says
    assert np.allclose(out.variances[:, 1], expected, rtol=1e-4)


@pytest.mark.parametrize("method", AVERAGED)
def test_a_capped_run_says_so(method: str) -> None:
    out = fleet().predict(queries(), method, consensus="average", rounds=6)
    assert out.status == "round limit"
    assert (out.residual > 1e-6).any()
    assert (out.variances > 0).all()


def test_noisy_adds_the_noise_and_agents_can_be_asked() -> None:
    f = fleet()
    plain, noisy = f.predict(queries(), "dec-rbcm"), f.predict(queries(), "dec-rbcm", observed=True, agent=3)
    assert np.allclose(noisy.variance - plain.variances[3], THETA[3] ** 2)
    assert np.array_equal(noisy.mean, plain.means[3])


def test_trained_and_normalized_fleets_predict_in_the_units_of_the_data() -> None:
    kelvin = [(x, 290.0 + 3.0 * y) for x, y in shards()]
    f = fg.Fleet(kelvin, normalize=True, kernel="se")
    f.train("dec-apx-gp", theta0=[0.5, 0.5, 3.0, 1.0])
    out = f.predict(queries(), "dec-rbcm")
    pooled = np.concatenate([y for _, y in kelvin])
    centred = fg.Fleet(
        [(x, y - pooled.mean()) for x, y in kelvin],
        theta=f.last_fit.theta if f.last_fit else None,
        kernel="se",
        normalize=False,
    )
    reference = centred.predict(queries(), "rbcm")
    assert np.allclose(out.mean, pooled.mean() + reference.mean, atol=1e-3)
    assert np.allclose(out.variance, reference.variance, rtol=1e-3)


@pytest.mark.parametrize("method", [m for m in fg.PREDICTION_METHODS if m != "dec-full-gp"])  # it refuses
def test_without_noise_no_variance_is_zero_and_all_agents_agree(method: str) -> None:
    parts = [([[0.0, 0.0], [1.0, 1.0]], [1.0, 2.0]), ([[0.5, 0.5]], [1.5])]
    out = fg.Fleet(parts, "path", theta=(1, 1, 1, 1e-9), kernel="se", normalize=False).predict(
        [[0.0, 0.0], [0.5, 0.5]], method
    )
    assert (out.variances > 0.0).all()
    if out.status == "converged":
        assert np.allclose(out.variances, out.variance, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("method", AVERAGED)
def test_agents_answer_alike_after_a_training_that_did_not_finish(method: str) -> None:
    f = fg.Fleet(shards(), kernel="se", normalize=False)
    fit = f.train("dec-apx-gp", theta0=[2, 0.5, 1, 1], rounds=3)
    assert fit.disagreement > 0.1
    out = f.predict(queries(), method)
    assert out.disagreement < 1e-4
    assert np.allclose(out.mean, f.predict(queries(), twin(method), theta=fit.theta).mean, atol=1e-4)


@pytest.mark.parametrize("method", ["rbcm", "dec-rbcm"])
@pytest.mark.filterwarnings("ignore:.*no better known than the prior:fleetgp.errors.FleetGPWarning")
def test_a_fleet_with_given_theta_normalizes_too(method: str) -> None:
    kelvin = [(x, 290.0 + y) for x, y in shards()]
    out = fg.Fleet(kelvin, theta=THETA, normalize=True, kernel="se").predict([[50.0, 50.0]], method)
    assert out.mean == pytest.approx(np.concatenate([y for _, y in kelvin]).mean())
    assert out.variance == pytest.approx(THETA[2] ** 2)


@pytest.mark.filterwarnings("ignore:.*exact copies:fleetgp.errors.FleetGPWarning")
def test_nearly_singular_aggregation_is_handled_and_reported() -> None:
    """Five agents with the same data and hardly any noise between them: C_A has rank one."""
    field = fg.synthetic_field(25, THETA, seed=0, inputs="grid")
    one = (field.inputs, field.truth)
    quiet = (*THETA[:3], 1e-6)
    out = fg.Fleet([one] * 5, "complete", theta=quiet, kernel="se", normalize=False).predict(queries(), "npae")
    single = fg.Fleet([one], theta=quiet, kernel="se", normalize=False).predict(queries(), "full-gp")
    assert single.jitter == 0.0
    assert out.jitter > 0.0
    assert np.allclose(out.mean, single.mean, rtol=1e-3, atol=1e-5)
    assert (out.variance > 0.0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "dec-gp"}, "unknown prediction method 'dec-gp': choose one of dec-full-gp, .*dec-nn-npae"),
        ({"queries": [[1.0, 2.0, 3.0]]}, r"expected shape \(T, 2\), got \(1, 3\)"),
        ({"queries": [[np.nan, 0.0]]}, "NaN"),
        ({"queries": "here"}, "queries"),
        ({"agent": 5}, "agent must lie between 0 and 4"),
        ({"method": "dec-nn-grbcm", "tol": 0, "consensus": "average"}, "tol must be a number above 0"),
        (
            {"method": "dec-nn-grbcm", "tol": 1e-3},
            "tol is of the paper's recursions, .*: leave it out, or give consensus average as well",
        ),
        ({"method": "dec-nn-grbcm", "consensus": "gossip"}, "unknown consensus 'gossip': choose one of tree, average"),
        ({"method": "poe", "consensus": "tree"}, "poe has no option consensus"),
        ({"method": "dec-nn-grbcm", "eta": -1}, "eta must be a number of at least 0"),
        ({"method": "dec-nn-grbcm", "rounds": 0, "consensus": "average"}, "rounds must be a whole number"),
        ({"method": "dec-nn-grbcm", "rounds": True, "consensus": "average"}, "rounds must be a whole number"),
        ({"method": "dec-nn-grbcm", "eta": "a"}, "eta must be a number"),
        (
            {"method": "dec-nn-grbcm", "eta": "some"},
            "eta must be a number of at least 0 and at most 1, or \"auto\", got 'some'",
        ),
        ({"method": "dec-nearest", "n_nearest": 0}, "n_nearest must be a whole number of at least 1, got 0"),
        ({"method": "dec-nearest", "n_nearest": 2.5}, "n_nearest must be a whole number of at least 1"),
        ({"method": "dec-nearest", "eta": 0.1}, "dec-nearest has no option eta: expected one of n_nearest"),
        ({"method": "dec-nearest", "consensus": "average"}, "dec-nearest has no option consensus"),
        ({"method": "dec-nearest", "engine": "dense"}, "dec-nearest has no option engine"),
        ({"n_neighbours": 0}, "n_neighbours must be a whole number of at least 1, got 0"),
        ({"method": "dec-nn-grbcm", "seed": -1}, "seed must be a whole number"),
        ({"method": "dec-nn-grbcm", "seed": 1.5}, "seed must be a whole number"),
        ({"theta": [1, 1, 1, -1]}, "got sigma_eps = -1"),
    ],
)
def test_bad_requests(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fleet().predict(**{"queries": queries(), **arguments})  # type: ignore[arg-type]


def test_a_fleet_without_hyperparameters_says_what_to_do() -> None:
    with pytest.raises(InputError, match="call train first, or give theta"):
        fg.Fleet(shards(), kernel="se", normalize=False).predict(queries())


def often(method: str, graph: str, consensus: str) -> bool:
    """Every method along the tree, and averages of every kind, in every run; the rest in long runs."""
    if graph != "alternating" or method == "dec-npae-star":
        return False
    return consensus == "tree" or method in ("dec-rbcm", "dec-nn-grbcm", "dec-npae", "dec-full-gp")


@pytest.mark.parametrize(
    ("method", "graph", "consensus", "to"),
    [
        pytest.param(method, graph, consensus, to, marks=[] if often(method, graph, consensus) else [pytest.mark.long])
        for method in DECENTRALIZED
        for graph in ("path", "alternating")
        for consensus, to in (("tree", None), ("tree", 4), ("average", None))
    ],
)
def test_same_answers_rounds_and_messages_in_every_hosting(
    method: str, graph: str, consensus: Consensus, to: int | None
) -> None:
    topology = every_graph(6)[graph]
    parts = shards(90, 6)
    options = PredictionOptions(consensus=consensus, rounds=150, eta=0.2)

    def work(network: Network) -> fg.Prediction:
        thetas = np.tile(THETA, (len(network.hosted), 1))
        mine = [parts[i] for i in network.hosted]
        conditioned = Conditioned(observed(mine), KERNELS["se"], thetas)
        return predict(conditioned, network, Question(prediction_method(method), queries(4), options, to=to))

    whole = work(fg.InProcess(topology))
    for hosting in ([[0, 1, 2], [3, 4, 5]], [[i] for i in range(6)]):
        loopback = fg.Loopback(topology, hosting)
        for group, out in zip(hosting, loopback.run(work), strict=True):
            assert np.array_equal(out.means, whole.means[group], equal_nan=True)
            assert np.array_equal(out.variances, whole.variances[group], equal_nan=True)
            if to in (None, *group):
                assert np.array_equal(out.participants, whole.participants)
            assert np.array_equal(out.query_rounds, whole.query_rounds)
            assert (out.status, out.residual.tolist()) == (whole.status, whole.residual.tolist())
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_an_answer_without_a_positive_variance_can_still_be_printed() -> None:
    f = fg.Fleet([(x[:20], y[:20]) for x, y in shards()[:2]], theta=[1.2, 0.3, 1.3, 0.1], kernel="se", normalize=False)
    out = f.predict([[0.5, 0.5], [1.0, 1.0]], "poe")
    wrong = replace(out, field_variances=-out.field_variances)
    assert wrong.disagreement == 0.0
    assert "disagreement=0.0e+00" in repr(wrong)
    apart = replace(wrong, means=out.means + np.array([[0.0], [1.0]]))
    assert apart.disagreement > 1e100, "no deviation is large enough for them to agree within it"
