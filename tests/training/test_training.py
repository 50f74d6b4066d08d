"""One battery for all nine training methods: a new method is one row in the registry and is tested here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus.samples import augmented, sample
from fleetgp.data import Shard
from fleetgp.gp.kernels import KERNELS
from fleetgp.progress import Progress
from fleetgp.training import TrainingOptions, train, training_method
from tests.conftest import alternating_path, mostly_long, paper_shards

THETA0 = fg.PAPER_THETA0
CONVERGED_TO = {m: ("g-fact-gp" if training_method(m).augmented else "fact-gp") for m in fg.TRAINING_METHODS}
CONVERGED_TO["full-gp"] = "full-gp"


def fleet(n: int = 300, agents: int = 6, graph: object = "path", **options: object) -> fg.Fleet:
    return fg.Fleet(paper_shards(n, agents), graph, **options)  # type: ignore[arg-type]


def paper_options(method: str) -> dict[str, Any]:
    """The paper's constants that a method has."""
    constants = {"rho": 500.0, "kappa": 5000.0, "lipschitz": 5000.0}
    return {name: constants[name] for name in training_method(method).options if name in constants}


def optimum(shards: Sequence[Shard], method: str, theta0: Sequence[float]) -> Array:
    """Where full-gp, fact-gp and g-fact-gp must end: by SciPy on densities written out, with none of our gradients."""
    parts = list(shards)
    if method == "full-gp":
        parts = [(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]))]
    elif method == "g-fact-gp":
        samples = [sample(shard, i, len(parts), seed=0) for i, shard in enumerate(parts)]
        parts = [augmented(shard, i, samples) for i, shard in enumerate(parts)]

    def nll(log_theta: Array) -> float:
        *scales, signal, noise = np.exp(log_theta)
        found = 0.0
        for x, y in parts:
            distance = (((x[:, None] - x) / scales) ** 2).sum(axis=2)
            lower = np.linalg.cholesky(signal**2 * np.exp(-distance) + noise**2 * np.eye(len(y)))
            found += 0.5 * float((np.linalg.solve(lower, y) ** 2).sum()) + float(np.log(np.diagonal(lower)).sum())
        return found

    options = {"ftol": 1e-14, "gtol": 1e-6}
    found = minimize(nll, np.log(theta0), method="L-BFGS-B", jac="3-point", options=options)
    return np.asarray(np.exp(found.x))


def destination(f: fg.Fleet, method: str, theta0: Sequence[float] = THETA0) -> Array:
    """Where a method must end: the ADMM ones where the server's minimizer does, and that one where SciPy does."""
    if method == CONVERGED_TO[method]:
        return optimum(f.shards, CONVERGED_TO[method], theta0)
    return f.train(CONVERGED_TO[method], theta0=theta0, tol=1e-6).theta


def relative_error(thetas: Array, reference: Array) -> float:
    return float(np.abs(thetas / reference - 1.0).max())


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_result_is_complete_and_honest(method: str) -> None:
    f = fleet()
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert fit.thetas.shape == (6, 4)
    assert fit.history.shape == (fit.rounds + 1, 6, 4)
    assert np.allclose(fit.history[0], THETA0)
    assert np.array_equal(fit.history[-1], fit.thetas)
    assert fit.disagreement <= (1e-5 if training_method(method).decentralized else 1e-4)
    assert fit.jitter.tolist() == [0.0] * 6
    assert np.isfinite(fit.nll)
    assert f.theta is not None
    assert np.array_equal(f.theta, fit.theta)
    assert fit.method in repr(fit)


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_reaches_the_optimum_of_its_likelihood(method: str) -> None:
    f = fleet(400, 5)
    reference = destination(f, method)
    assert relative_error(f.train(method, theta0=THETA0).thetas, reference) < 1e-3


GRAPHS = ("path", "cycle", "geometric", "complete", "star", "grid")


@pytest.mark.parametrize(
    ("method", "graph"),
    [("dec-apx-gp", graph) for graph in GRAPHS]
    + [("dec-c-gp", "path"), ("dec-gapx-gp", "geometric")]
    + [pytest.param("dec-c-gp", graph, marks=pytest.mark.long) for graph in GRAPHS if graph != "path"]
    + [pytest.param("dec-gapx-gp", graph, marks=pytest.mark.long) for graph in GRAPHS if graph != "geometric"],
)
def test_decentralized_methods_reach_the_centralized_optimum(method: str, graph: str) -> None:
    f = fleet(500, 8, graph)
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert relative_error(fit.thetas, destination(f, method)) < 1e-3


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp", "dec-gapx-gp"])
def test_time_varying_graph_that_is_never_connected(method: str) -> None:
    f = fleet(240, 4, alternating_path(4))
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert relative_error(fit.thetas, destination(f, method)) < 1e-3


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_one_agent_is_the_full_gp(method: str) -> None:
    f = fleet(120, 1)
    full = optimum(f.shards, "full-gp", THETA0)
    assert relative_error(f.train(method, theta0=THETA0).thetas, full) < 1e-4


@pytest.mark.parametrize("method", mostly_long(fg.TRAINING_METHODS, "fact-gp", "gapx-gp", "dec-apx-gp"))
def test_two_agents(method: str) -> None:
    f = fleet(100, 2)
    reference = destination(f, method)
    assert relative_error(f.train(method, theta0=THETA0).thetas, reference) < 1e-3


@pytest.mark.parametrize("method", mostly_long(fg.TRAINING_METHODS, "full-gp", "g-fact-gp", "apx-gp", "dec-apx-gp"))
def test_default_starts_find_the_same_optimum(method: str) -> None:
    f = fleet(300, 3)
    reference = destination(f, method)
    fit = f.train(method)
    assert len(fit.starts) == 3
    # Starts are compared where they stand after a coarse run, in which agents may still differ a little.
    assert fit.nll == pytest.approx(min(s.nll for s in fit.starts), abs=0.1)
    assert relative_error(fit.thetas, reference) < 1e-3


@pytest.mark.parametrize("method", mostly_long(["full-gp", "fact-gp", "apx-gp", "dec-apx-gp"], "fact-gp", "dec-apx-gp"))
def test_the_best_of_several_starts_wins(method: str) -> None:
    """From a start that explains everything as noise the likelihood has an optimum of its own."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 45))[:, None]
    y = np.sin(3.0 * x[:, 0]) + 0.1 * rng.standard_normal(45)
    f = fg.Fleet(fg.partition(x, y, agents=3))
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
    return fg.Fleet(fg.partition(x, y, agents=3))


@pytest.mark.parametrize("seed", [4, 5, 6, 7])
@pytest.mark.parametrize("method", ["fact-gp", "apx-gp", "dec-apx-gp"])
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


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_unequal_and_tiny_shards(method: str) -> None:
    field = fg.synthetic_field(200, seed=2)
    cuts = np.split(np.argsort(field.inputs[:, 0]), [1, 3, 20, 90])
    f = fg.Fleet([(field.inputs[c], field.observations[c]) for c in cuts], graph="cycle")
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert relative_error(fit.thetas, destination(f, method)) < 2e-3


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize(
    "method", mostly_long(["full-gp", "g-fact-gp", "apx-gp", "dec-c-gp", "dec-gapx-gp"], "full-gp", "dec-gapx-gp")
)
def test_any_dimension(method: str, dimension: int) -> None:
    theta = [*[1.0, 0.7, 0.5][:dimension], 1.2, 0.2]
    field = fg.synthetic_field(200, theta, seed=4)
    f = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3))
    start = [1.5] * dimension + [1.0, 0.5]
    fit = f.train(method, theta0=start)
    assert fit.thetas.shape == (3, dimension + 2)
    assert relative_error(fit.thetas, destination(f, method, start)) < 1e-3


@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_other_kernels(kernel: str) -> None:
    f = fleet(240, 4, kernel=kernel)
    reference = f.train("fact-gp", theta0=THETA0, tol=1e-6).theta
    assert relative_error(f.train("dec-apx-gp", theta0=THETA0).thetas, reference) < 1e-3


# ---- the truth about how it ended -----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["c-gp", "apx-gp", "gapx-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp"])
def test_fixed_rounds_are_exact(method: str) -> None:
    fit = fleet(90, 3).train(method, theta0=THETA0, rounds=7, tol=0, **paper_options(method))
    assert (fit.rounds, fit.status) == (7, "round limit")
    assert fit.history.shape[0] == 8
    assert fit.ledger.total(kind="stopping").scalars == 0 or not training_method(method).decentralized


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_a_round_limit_is_not_called_converged(method: str) -> None:
    fit = fleet(120, 3).train(method, theta0=THETA0, rounds=3)
    assert fit.status == "round limit"
    assert fit.rounds == 3


@pytest.mark.parametrize("method", ["apx-gp", "dec-apx-gp"])
@pytest.mark.parametrize("tol", [0.0, 1e-3])
def test_divergence_is_said(method: str, tol: float) -> None:
    """Steps that are far too long throw theta out of any range."""
    weak: dict[str, Any] = dict.fromkeys(paper_options(method), 0.01)
    fit = fleet(200, 4).train(method, theta0=THETA0, rounds=400, tol=tol, **weak)
    assert fit.status == "diverged"


@pytest.mark.filterwarnings("ignore:.*exact copies:fleetgp.errors.FleetGPWarning")
def test_jitter_is_reported() -> None:
    x = np.linspace(0, 1, 8)[:, None]
    shards = [(np.concatenate([x, x]), np.zeros(16) + i) for i in range(2)]
    fit = fg.Fleet(shards).train(
        "dec-apx-gp", theta0=[1.0, 1.0, 1e-11], rounds=1, tol=0, rho=1e6, kappa=1e14, noise_floor=0
    )
    assert (fit.jitter > 0).all()


@pytest.mark.parametrize("rho", [500.0, 1e5, 1e7])
@pytest.mark.parametrize("method", ["dec-apx-gp", "dec-c-gp"])
def test_a_stiff_penalty_does_not_pass_for_convergence(method: str, rho: float) -> None:
    """With a large rho every step is tiny wherever the agents stand."""
    f = fleet(120, 3)
    fit = f.train(method, theta0=THETA0, rounds=40, tol=1e-3, rho=rho)
    error = relative_error(fit.thetas, f.train("fact-gp", theta0=THETA0).theta)
    assert fit.status == "round limit" or error < 1e-2


def test_an_unsolved_nested_problem_does_not_pass_for_convergence() -> None:
    """Ten gradient steps of 1e-5 stay close to z without solving anything."""
    options = {"rho": 500.0, "tol": 1e-3, "nested": "gradient-descent"}
    assert fleet(300, 3).train("c-gp", theta0=THETA0, rounds=30, **options).status == "round limit"  # type: ignore[arg-type]


def test_zero_tolerance_never_says_converged() -> None:
    fit = fg.Fleet([([[0.5]], [1.0])]).train("dec-apx-gp", theta0=[1.0, 1.0, 1.0], rounds=50, tol=0)
    assert (fit.rounds, fit.status) == (50, "round limit")


def test_a_diverged_training_leaves_the_fleet_its_theta() -> None:
    f = fleet(200, 4, theta=fg.PAPER_THETA)
    fit = f.train("dec-apx-gp", theta0=THETA0, rounds=60, rho=0.01, kappa=0.01)
    assert fit.status == "diverged"
    assert f.theta is not None
    assert f.theta.tolist() == list(fg.PAPER_THETA)
    assert np.isfinite(fit.jitter).all()


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_every_method_scales_by_the_pooled_moments(method: str) -> None:
    kelvin = [(x, 290.0 + 3.0 * y) for x, y in paper_shards(90, 3)]
    pooled = np.concatenate([y for _, y in kelvin])
    fit = fg.Fleet(kelvin, normalize=True).train(method, theta0=[2.0, 0.5, 3.0, 3.0], rounds=2)
    assert fit.scaling.offset == pytest.approx(pooled.mean(), rel=1e-12)
    assert fit.scaling.scale == pytest.approx(pooled.std(), rel=1e-12)


def test_normalization_by_consensus() -> None:
    """Data near 290 K: the agreed mean and deviation are the pooled ones, and theta is in Kelvin."""
    plain = paper_shards(300, 4)
    kelvin = [(x, 290.0 + 3.0 * y) for x, y in plain]
    pooled = np.concatenate([y for _, y in kelvin])
    f = fg.Fleet(kelvin, normalize=True)
    fit = f.train("dec-apx-gp", theta0=[2.0, 0.5, 3.0, 3.0])
    assert fit.scaling.offset == pytest.approx(pooled.mean(), rel=1e-12)
    assert fit.scaling.scale == pytest.approx(pooled.std(), rel=1e-12)
    centred = [(x, y - pooled.mean()) for x, y in kelvin]
    reference = fg.Fleet(centred).train("fact-gp", theta0=[2.0, 0.5, 3.0, 3.0], tol=1e-6).theta
    assert relative_error(fit.thetas, reference) < 1e-3
    assert np.allclose(fit.starts[0].theta0, [2.0, 0.5, 3.0, 3.0])
    assert fit.ledger.by_phase()["normalize"].scalars > 0


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
@pytest.mark.parametrize(
    ("option", "value", "having"),
    [
        ("rho", 500.0, ["c-gp", "apx-gp", "gapx-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp"]),
        ("kappa", 5000.0, ["dec-apx-gp", "dec-gapx-gp"]),
        ("lipschitz", 5000.0, ["apx-gp", "gapx-gp"]),
        ("nested", "gradient-descent", ["c-gp", "dec-c-gp"]),
        ("nested_iterations", 3, ["c-gp", "dec-c-gp"]),
    ],
)
def test_an_option_that_a_method_does_not_have_is_refused(
    method: str, option: str, value: Any, having: list[str]
) -> None:
    """What a method has is what changes its iterates."""
    f = fleet(45, 3)
    options: dict[str, Any] = {"theta0": THETA0, "rounds": 3, "tol": 0}
    if method in having:
        assert not np.array_equal(
            f.train(method, **options, **{option: value}).history, f.train(method, **options).history
        )
    else:
        with pytest.raises(fg.InputError) as refused:
            f.train(method, **options, **{option: value})
        assert str(refused.value) == f"{method} has no option {option}: methods with {option}: {', '.join(having)}"


def test_a_step_without_gradient_descent_is_refused() -> None:
    with pytest.raises(fg.InputError, match='step is the step size of nested "gradient-descent", and the nested solve'):
        fleet(45, 3).train("c-gp", theta0=THETA0, rounds=1, step=1e-3)


# ---- what left the agents -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp"])
@pytest.mark.parametrize("theta0", [THETA0, None])
def test_no_data_leave_an_agent(method: str, theta0: object) -> None:
    fit = fleet(90, 3).train(method, theta0=theta0)  # type: ignore[arg-type]
    assert not {"inputs", "observations"} & set(fit.ledger.kinds)
    for agent in range(3):
        assert not {"inputs", "observations"} & set(fit.ledger.sent_by(agent))


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp"])
def test_no_number_of_the_data_is_in_any_message(method: str) -> None:
    """Not by its label: by looking at every scalar that is sent. The hardest case is one point per agent."""
    seen: list[Array] = []

    class Spy(fg.InProcess):
        def exchange_parts(self, parts, carries=None):  # type: ignore[no-untyped-def]
            seen.extend(np.abs(x).ravel() for x in parts.values())
            return super().exchange_parts(parts, carries)

        def flood_parts(self, parts):  # type: ignore[no-untyped-def]
            seen.extend(np.abs(np.concatenate([np.ravel(v) for v in x])) for x in parts.values())
            return super().flood_parts(parts)

    field = fg.synthetic_field(5, seed=7)
    shards = [(field.inputs[i : i + 1], field.observations[i : i + 1]) for i in range(5)]
    options = TrainingOptions(rounds=5)
    train(training_method(method), shards, Spy(fg.Graph.path(5)), KERNELS["se"], options)
    sent = np.concatenate(seen)
    private = np.concatenate([field.inputs.ravel(), field.observations])
    for value in np.concatenate([private, private**2, np.exp(private)]):
        assert not np.isclose(sent, abs(value), rtol=1e-9).any()


def test_dec_gapx_gp_sends_exactly_the_sampled_rows() -> None:
    shards = paper_shards(200, 5)
    fit = fleet(200, 5).train("dec-gapx-gp", theta0=THETA0, rounds=2, tol=0, noise_floor=0)
    rows = sum(max(1, len(y) // 5) for _, y in shards)
    # On a path of five every row crosses every one of the four edges once.
    assert fit.ledger.total(kind="inputs").scalars == 4 * rows * 2
    assert fit.ledger.total(kind="observations").scalars == 4 * rows
    assert set(fit.ledger.rounds_by_phase) == {"augment", "training"}


@pytest.mark.parametrize("method", ["dec-apx-gp", "dec-c-gp"])
def test_paper_faithful_traffic_is_the_complexity_table(method: str) -> None:
    """O(s_end (D + 2)) per agent and neighbour, and nothing else."""
    fit = fleet(90, 4).train(method, theta0=THETA0, rounds=10, tol=0, noise_floor=0, **paper_options(method))
    directed_edges = 2 * 3
    assert fit.ledger.scalars == 10 * directed_edges * 4
    assert fit.ledger.messages == 10 * directed_edges
    assert fit.ledger.rounds == 10


@pytest.mark.parametrize("method", ["apx-gp", "gapx-gp", "c-gp", "fact-gp", "full-gp", "g-fact-gp"])
def test_centralized_methods_use_no_edges_of_the_graph(method: str) -> None:
    fit = fleet(90, 4).train(method, theta0=THETA0, rounds=5)
    assert all(fg.network.SERVER in edge for edge in fit.ledger.by_edge())


def test_samples_are_seeded_per_agent_and_not_repeated() -> None:
    shards = paper_shards(60, 3)
    samples = [sample(s, i, 3, seed=5) for i, s in enumerate(shards)]
    assert all(
        np.array_equal(a[0], sample(s, i, 3, 5)[0]) for i, (a, s) in enumerate(zip(samples, shards, strict=True))
    )
    assert not np.array_equal(samples[0][0], sample(shards[0], 0, 3, seed=6)[0])
    for i, shard in enumerate(shards):
        x, y = augmented(shard, i, samples)
        assert len(np.unique(x, axis=0)) == len(x) == len(y)
        assert len(x) == 20 + sum(len(samples[j][1]) for j in range(3) if j != i)
        assert np.array_equal(x[:20], shard[0])


# ---- using it -------------------------------------------------------------------------------------------


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
    assert f.fit is None


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
    assert (f.theta, f.fit, f.unfinished) == (None, None, None)
    note, seen = interrupted(f, lambda p: p.round == 4, theta0=THETA0)
    assert seen[-1].thetas is not None
    assert f.theta is not None
    np.testing.assert_allclose(f.theta, np.exp(np.log(seen[-1].thetas).mean(axis=0)))
    assert (f.fit, f.unfinished) == (None, seen[-1])
    assert "interrupted after 4 rounds of dec-apx-gp: fleet.theta holds its estimates" in note
    assert np.isfinite(f.predict([[1.0, 1.0]]).mean).all()
    earlier = f.theta
    interrupted(f, lambda p: p.round == 6, theta0=f.theta)
    assert not np.array_equal(f.theta, earlier), "later estimates are worth more than earlier ones"
    fit = f.train("dec-apx-gp", theta0=f.theta)
    assert (f.fit, f.unfinished) == (fit, None)
    note, _ = interrupted(f, lambda p: p.round == 2, theta0=THETA0)
    assert "keeps the theta that it had" in note
    assert np.array_equal(f.theta, fit.theta), "a finished training is worth more than an interrupted one"
    assert (f.fit, f.unfinished) == (fit, None)


@pytest.mark.parametrize("method", ["full-gp", "dec-apx-gp"])
def test_an_interrupt_keeps_the_start_that_was_chosen(method: str) -> None:
    """Not one that took more rounds and lost."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 45))[:, None]
    y = np.sin(3.0 * x[:, 0]) + 0.1 * rng.standard_normal(45)
    signal, noise = [0.7, 1.0, 0.1], [30.0, 0.3, 1.0]
    f = fg.Fleet(fg.partition(x, y, agents=3))
    whole = fg.Fleet(f.shards).train(method, theta0=np.array([signal, noise]))
    assert whole.nll == pytest.approx(whole.starts[0].nll, abs=0.1)
    _, seen = interrupted(f, lambda p: p.chosen, method, theta0=np.array([signal, noise]))
    assert seen[-1].task.endswith("#1")
    assert any(p.round > seen[-1].round for p in seen), "the other start must have had more rounds"
    assert f.theta is not None
    np.testing.assert_allclose(np.log(f.theta), np.log(whole.theta), atol=0.05)


def test_a_bar_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    fleet(60, 2).train("dec-apx-gp", theta0=THETA0, rounds=3, progress=True)
    assert "dec-apx-gp" in capsys.readouterr().err, "what is printed to stdout stays clean"


def test_same_seed_same_bits() -> None:
    one, two = (fleet(120, 4).train("dec-gapx-gp", theta0=THETA0, seed=3) for _ in range(2))
    assert np.array_equal(one.history, two.history)
    other = fleet(120, 4).train("dec-gapx-gp", theta0=THETA0, seed=4)
    assert not np.array_equal(one.thetas, other.thetas)
