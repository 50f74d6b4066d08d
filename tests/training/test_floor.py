"""The floor under sigma_eps: every trainer ends at the optimum of the bounded problem, and says so."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import Network
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from fleetgp.training import TrainingOptions, train, training_method
from tests.conftest import alternating_path, mostly_long, paper_shards
from tests.shared import observed
from tests.training.problems import CONVERGED_TO, parts_of

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

START = [1.0, 1.0, 1.0, 0.3]
SEA = Path(__file__).resolve().parents[3] / "shared" / "data" / "g1sst_gulfstream_paperbox_360x360.npz"


def smooth_shards(n: int = 72, agents: int = 3, noise: float = 0.0) -> list[Shard]:
    """A smooth function of two inputs; without noise nothing bounds sigma_eps from below."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 2, (n, 2))
    y = np.sin(2 * x[:, 0]) + np.cos(3 * x[:, 1]) * x[:, 0] + noise * rng.standard_normal(n)
    return fg.partition(x, y, agents=agents)


def trained(fleet: fg.Fleet, method: str, **options: Any) -> fg.Fit:
    """With the warning that the floor is active."""
    with pytest.warns(fg.FleetGPWarning, match="stands at its floor"):
        return fleet.train(method, **{"theta0": START, **options})


def reference(shards: list[Shard], kernel: str, lowest: float) -> Array:
    """log theta of the smallest sum of dense likelihoods, by scipy with a bound and none of our gradients."""

    def nll(log_theta: Array) -> float:
        h = Hyperparameters.from_log(log_theta)
        total = 0.0
        for x, y in shards:
            lower = np.linalg.cholesky(KERNELS[kernel](x, x, h) + h.noise**2 * np.eye(len(y)))
            total += 0.5 * float((np.linalg.solve(lower, y) ** 2).sum()) + float(np.log(np.diag(lower)).sum())
        return total

    bounds = [(-3.0, 4.0)] * 3 + [(np.log(lowest), 1.0)]
    options = {"ftol": 1e-15, "gtol": 1e-6, "finite_diff_rel_step": 1e-5}
    found = minimize(nll, np.log(START), jac="3-point", method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x)


@cache
def bounded_optimum(method: str, kernel: str, lowest: float) -> Array:
    """log theta where full-gp, fact-gp and g-fact-gp must end on the smooth shards."""
    return reference(parts_of(smooth_shards(), method), kernel, lowest)


# ---- where it ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["se", "matern32"])
def test_without_noise_fact_gp_ends_at_the_bounded_optimum(kernel: str) -> None:
    shards = smooth_shards()
    fit = trained(fg.Fleet(shards, kernel=kernel, normalize=False), "fact-gp")
    assert fit.status == "converged"
    assert fit.theta[-1] == pytest.approx(fit.noise_floor, rel=1e-12)
    np.testing.assert_allclose(np.log(fit.theta), reference(shards, kernel, fit.noise_floor), atol=1e-3)


@pytest.mark.parametrize("kernel", ["se", "matern32"])
def test_with_noise_the_floor_changes_nothing(kernel: str) -> None:
    shards = smooth_shards(noise=0.1)
    fits = [
        fg.Fleet(shards, kernel=kernel, normalize=False).train("fact-gp", theta0=START, noise_floor=f)
        for f in (1e-3, 0.0)
    ]
    for fit in fits:
        assert fit.status == "converged"
        assert not fit.at_floor.any()
        np.testing.assert_allclose(np.log(fit.theta), reference(shards, kernel, 1e-6), atol=1e-3)
    assert (fits[0].noise_floor > 0.0, fits[1].noise_floor) == (True, 0.0)


#: Those that are tested with a second kernel in every run.
BRIEF = ("fact-gp", "dec-fact-gp")


def beyond(method: str, kernel: str) -> bool:
    """What only repeats a proof: that nested minimizations over edges end at a bound is tried by test_bounds.py."""
    return method == "dec-c-gp" or (kernel != "se" and method not in BRIEF)


#: dec-full-gp with matern32 is refused: tests/training/test_whole.py.
METHODS_AND_KERNELS = [
    pytest.param(method, kernel, marks=[pytest.mark.long] if beyond(method, kernel) else [])
    for method in fg.TRAINING_METHODS
    for kernel in ("se", "matern32")
    if (method, kernel) != ("dec-full-gp", "matern32")
]


@pytest.mark.parametrize(("method", "kernel"), METHODS_AND_KERNELS)
def test_every_method_ends_at_the_bounded_optimum_and_says_so(method: str, kernel: str) -> None:
    f = fg.Fleet(smooth_shards(), "path", kernel=kernel, normalize=False)
    fit = trained(f, method)
    assert fit.status == "converged"
    assert fit.at_floor.all()
    assert (fit.history[..., -1] >= fit.noise_floor * (1 - 1e-12)).all()
    expected = bounded_optimum(CONVERGED_TO[method], kernel, fit.noise_floor)
    np.testing.assert_allclose(np.log(fit.thetas), np.tile(expected, (3, 1)), atol=3e-3)


@pytest.mark.parametrize("graph", ["complete", alternating_path(3)])
def test_on_other_graphs(graph: object) -> None:
    f = fg.Fleet(smooth_shards(), graph, kernel="se", normalize=False)
    fit = trained(f, "dec-apx-gp")
    assert fit.status == "converged"
    np.testing.assert_allclose(np.log(fit.theta), np.log(trained(f, "fact-gp", tol=1e-6).theta), atol=3e-3)


@pytest.mark.parametrize(
    "method",
    mostly_long(
        ["dec-fact-gp", "dec-g-fact-gp", "dec-apx-gp", "dec-gapx-gp", "dec-c-gp"], "dec-fact-gp", "dec-gapx-gp"
    ),
)
def test_same_bits_however_the_agents_are_hosted(method: str) -> None:
    shards = smooth_shards()
    options = TrainingOptions(starts=np.log([START]), rounds=40)

    def work(network: Network) -> fg.Fit:
        return train(
            training_method(method), observed(shards[i] for i in network.hosted), network, KERNELS["matern32"], options
        )

    whole = work(fg.InProcess(fg.Graph.path(3)))
    assert whole.at_floor.any()
    for hosting in ([[0], [1], [2]], [[0, 1], [2]]):
        loopback = fg.Loopback(fg.Graph.path(3), hosting, timeout=120)
        for group, fit in zip(hosting, loopback.run(work), strict=True):
            assert np.array_equal(fit.history, whole.history[:, group])
            assert (fit.noise_floor, fit.status, fit.rounds) == (whole.noise_floor, whole.status, whole.rounds)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


# ---- the paper's fixed steps ----------------------------------------------------------------------------

PAPER: dict[str, dict[str, Any]] = {
    "apx-gp": {"rho": 500.0, "lipschitz": 5000.0},
    "c-gp": {"rho": 500.0, "nested": "gradient-descent"},
    "dec-apx-gp": {"rho": 500.0, "kappa": 5000.0},
    "dec-c-gp": {"rho": 500.0, "nested": "gradient-descent"},
}


@pytest.mark.parametrize("method", PAPER)
def test_an_inactive_floor_leaves_the_papers_trajectories_as_they_are(method: str) -> None:
    f = fg.Fleet(paper_shards(90, 3), kernel="se", normalize=False)
    one, two = (
        f.train(method, theta0=fg.PAPER_THETA0, rounds=8, tol=0, noise_floor=floor, **PAPER[method])
        for floor in (1e-3, 0.0)
    )
    assert np.array_equal(one.history, two.history)


@pytest.mark.parametrize("method", PAPER)
def test_the_papers_steps_are_projected(method: str) -> None:
    """They go below without the floor, and are what they were in the other coordinates for one step."""
    options = {**PAPER[method], "rho": 5.0, "theta0": [1.0, 1.0, 1.0, 0.11], "tol": 0.0}
    options |= {"lipschitz": 200.0} if method == "apx-gp" else {}
    options |= {"kappa": 200.0} if method == "dec-apx-gp" else {}
    options |= {"step": 2e-3, "nested_iterations": 1} if "nested" in options else {}
    f = fg.Fleet(smooth_shards(), normalize=True, kernel="se")
    free = f.train(method, rounds=1, noise_floor=0, **options)
    held = trained(f, method, rounds=1, noise_floor=0.114, **options)
    assert (free.thetas[:, -1] < held.noise_floor).all()
    assert held.thetas[:, -1] == pytest.approx(held.noise_floor, rel=1e-12)
    assert np.array_equal(free.thetas[:, :-1], held.thetas[:, :-1])


# ---- what it is, and what is sent for it ----------------------------------------------------------------


@pytest.mark.parametrize("method", ["full-gp", "apx-gp", "dec-apx-gp"])
def test_it_is_in_units_of_the_observations_deviation(method: str) -> None:
    shards = [(x, 290.0 + 3.0 * y) for x, y in paper_shards(90, 3)]
    pooled = np.concatenate([y for _, y in shards])
    start = [2.0, 0.5, 3.0, 3.0]
    scaled = fg.Fleet(shards, normalize=True, kernel="se").train(method, theta0=start, rounds=1, noise_floor=1e-4)
    assert scaled.noise_floor == pytest.approx(1e-4 * pooled.std(), rel=1e-12)
    with pytest.warns(fg.FleetGPWarning, match="far from zero"):
        plain = fg.Fleet(shards, kernel="se", normalize=False).train(method, theta0=start, rounds=1, noise_floor=1e-4)
    own = pooled.std() if method == "full-gp" else max(y.std() for _, y in shards)
    assert plain.noise_floor == pytest.approx(1e-4 * 2.0 ** np.ceil(np.log2(own)), rel=1e-12)


def test_where_no_agents_observations_vary_their_size_counts() -> None:
    one_each = [(np.array([[float(i)]]), np.array([5.0 + i])) for i in range(3)]

    def floor(shards: list[Shard]) -> float:
        fleet = fg.Fleet(shards, kernel="se", normalize=False)
        return fleet.train("dec-apx-gp", theta0=[1, 1, 1], rounds=1).noise_floor

    assert floor(one_each) == pytest.approx(8e-3)
    assert floor([(one_each[0][0], np.zeros(1))]) == pytest.approx(1e-3)  # several equal ones are refused


def test_what_is_sent_for_it() -> None:
    def sent(normalize: bool, theta0: object, floor: float) -> dict[str, int]:
        f = fg.Fleet(paper_shards(60, 3), normalize=normalize, kernel="se")
        fit = f.train("dec-apx-gp", theta0=theta0, rounds=1, tol=0, noise_floor=floor)  # type: ignore[arg-type]
        return {phase: traffic.scalars for phase, traffic in fit.ledger.by_phase().items()}

    crossings = 2 * 2  # once up and once down each of two edges
    assert sent(False, START, 1e-3)["floor"] == 2 * crossings, "the size and the deviation"
    assert "floor" not in sent(False, START, 0.0)
    assert "floor" not in sent(True, START, 1e-3), "scaled observations have a deviation of 1"
    assert sent(False, None, 1e-3)["starts"] == sent(False, None, 0.0)["starts"] + crossings
    assert sent(True, None, 1e-3) == sent(True, None, 0.0)


def test_a_start_below_begins_at_the_floor() -> None:
    fit = trained(
        fg.Fleet(smooth_shards(), kernel="se", normalize=False),
        "dec-apx-gp",
        theta0=[1.0, 1.0, 1.0, 1e-9],
        rounds=3,
        tol=0,
    )
    assert fit.history[0, :, -1] == pytest.approx(fit.noise_floor)
    assert fit.starts[0].theta0[-1] == pytest.approx(fit.noise_floor)


@pytest.mark.parametrize("wrong", [-1e-3, 1.0, 5, np.nan, np.inf, "1e-3", True, [1e-3]])
def test_a_wrong_floor_is_one_clear_error(wrong: object) -> None:
    with pytest.raises(fg.InputError, match="noise_floor: expected a number of at least 0 and below 1, got"):
        fg.Fleet(paper_shards(60, 3), kernel="se", normalize=False).train("dec-apx-gp", noise_floor=wrong)  # type: ignore[arg-type]


# ---- where it is told -----------------------------------------------------------------------------------


def test_model_folders_keep_it_and_older_ones_can_be_read(tmp_path: Path) -> None:
    fleet = fg.Fleet(smooth_shards(), kernel="se", normalize=False)
    fit = trained(fleet, "dec-apx-gp", rounds=30)
    folder = save_model(Model(fleet, ("a", "b", "c"), ("u", "v"), "w"), tmp_path / "model")
    again = load_model(folder).fleet.last_fit
    assert again is not None
    assert again.noise_floor == fit.noise_floor
    assert again.at_floor.tolist() == fit.at_floor.tolist()
    facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    del facts["training"]["noise_floor"]
    (folder / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    older = load_model(folder).fleet.last_fit
    assert older is not None
    assert older.noise_floor == 0.0
    assert not older.at_floor.any()


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from fleetgp.cli.app import app

    x, y = (np.concatenate(parts) for parts in zip(*smooth_shards(), strict=True))
    np.savetxt(tmp_path / "w.csv", np.column_stack([x, y]), delimiter=",", header="u,v,w", comments="")
    fit = ["fit", str(tmp_path / "w.csv"), "--inputs", "u", "v", "--target", "w", "--n-agents", "3", "--quiet"]
    more = ["--training", "fact-gp", "--noise-floor", "0.01", "--json", "--out", str(tmp_path / "model")]
    found = CliRunner().invoke(app, [*fit, *more], catch_exceptions=False)
    said = [line for line in found.stderr.splitlines() if line.startswith("warning:")]
    assert len(said) == 1
    assert "sigma_eps stands at its floor" in said[0]
    facts = json.loads(found.stdout)
    assert facts["at_noise_floor"]
    assert facts["noise_floor"] == pytest.approx(0.01 * y.std())
    refused = CliRunner().invoke(app, [*fit, "--noise-floor", "2", "--out", str(tmp_path / "other")])
    assert refused.exit_code == 2
    assert "noise-floor: expected a number of at least 0 and below 1, got 2.0" in " ".join(refused.stderr.split())


def test_a_diverged_training_does_not_speak_of_the_floor() -> None:
    f = fg.Fleet(paper_shards(200, 4), kernel="se", normalize=False)
    with pytest.warns(fg.FleetGPWarning) as said:
        fit = f.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=400, rho=0.01, kappa=0.01)
    assert not any("floor" in str(each.message) for each in said)
    assert fit.status == "diverged"
    assert "diverged" in repr(fit)


@pytest.mark.skipif(not SEA.exists(), reason="the sea-surface temperatures of ../shared/data are not here")
@pytest.mark.parametrize("method", ["full-gp", "dec-apx-gp"])
def test_a_gap_free_analysis_of_the_sea(method: str) -> None:
    """600 points of a smooth analysis: without a floor the full GP sends sigma_eps below 1e-5 of the deviation."""
    with np.load(SEA) as sea:
        lat, lon = np.meshgrid(sea["lat"], sea["lon"], indexing="ij")
        rows = np.random.default_rng(0).choice(lat.size, 600, replace=False)
        x = np.column_stack([lon.ravel()[rows], lat.ravel()[rows]]).astype(float)
        y = sea["sst_kelvin"].ravel()[rows].astype(float)
    f = fg.Fleet(fg.partition(x, y, agents=6), "path", normalize=True, kernel="matern32")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", fg.FleetGPWarning)
        fit = f.train(method, rounds=400)
    assert fit.status == "converged" or (fit.status, fit.rounds) == ("round limit", 400)
    assert all(start.status != "diverged" for start in fit.starts)
    assert fit.noise_floor == pytest.approx(1e-3 * y.std(), rel=1e-12)
    assert fit.at_floor.any() == any("stands at its floor" in str(w.message) for w in caught)
    assert fit.at_floor.any() == (method == "full-gp")
