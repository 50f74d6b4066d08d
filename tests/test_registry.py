"""Kernels, engines and graphs of other packages, through the public names alone."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.engines import DataEngine, DenseEngine, Evaluation, Posterior, Trend
from fleetgp.engines.expert import Expert
from fleetgp.kernels.expression import as_kernel
from fleetgp.kernels.stationary import KERNELS, Matern12, Matern32
from fleetgp.model.observations import Observations

ROOT3 = np.sqrt(3.0)
THETA = [0.6, 0.9, 1.3, 0.2]


def smooth(r: Array) -> Array:
    return np.asarray((1.0 + ROOT3 * r) * np.exp(-ROOT3 * r))


def smooth_slope(r: Array) -> Array:
    return np.asarray(-3.0 * r * np.exp(-ROOT3 * r))


def rough(r: Array) -> Array:
    return np.asarray(np.exp(-r))


def rough_slope(r: Array) -> Array:
    return np.asarray(-np.exp(-r))


def observed(size: int = 80) -> Observations:
    rng = np.random.default_rng(3)
    inputs = rng.uniform(0.0, 2.0, (size, 2))
    return Observations(
        inputs, np.sin(4.0 * inputs[:, 0]) + np.cos(3.0 * inputs[:, 1]) + 0.2 * rng.standard_normal(size)
    )


def fleet(**settings: Any) -> fg.Fleet:
    data = observed()
    shards = [(data.inputs[i::2], data.values[i::2]) for i in range(2)]
    return fg.Fleet(shards, **{"theta": THETA, "normalize": False, **settings})


# ---- kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["dense", "vecchia"])
def test_a_kernel_that_says_what_ours_says_is_the_same_kernel(engine: str) -> None:
    mine = fg.register_kernel("smooth", smooth, smooth_slope), fg.register_kernel("rough", rough, rough_slope)
    for one, other in zip(mine, (Matern32(), Matern12()), strict=True):
        assert one.kinked == other.kinked
        found, wanted = (Expert(observed(), kernel, 0, engine, 10).evaluate(np.log(THETA)) for kernel in (one, other))
        np.testing.assert_allclose(found.nll, wanted.nll, rtol=1e-9)
        np.testing.assert_allclose(found.gradient, wanted.gradient, rtol=1e-6, atol=1e-8)
        queries = np.array([[0.5, 0.5], observed().inputs[0]])
        posteriors = [Expert(observed(), kernel, 0, engine, 20).condition(np.array(THETA)) for kernel in (one, other)]
        slopes, wanted_slopes = (posterior.slopes(queries) for posterior in posteriors)
        np.testing.assert_allclose(slopes.mean, wanted_slopes.mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("expression", ["{} * matern12(2)", "iso-{}(1, 2)", "{}(1) + linear(2)"])
@pytest.mark.parametrize("engine", ["dense", "vecchia"])
def test_it_is_a_part_of_expressions(expression: str, engine: str) -> None:
    fg.register_kernel("smooth", smooth, smooth_slope)
    mine, ours = (as_kernel(expression.format(name), 2) for name in ("smooth", "matern32"))
    theta = np.linspace(0.5, 1.0, ours.count(2))
    assert mine.names(2) == tuple(name.replace("matern32", "smooth") for name in ours.names(2))
    found, wanted = (Expert(observed(), kernel, 0, engine, 10).evaluate(np.log(theta)) for kernel in (mine, ours))
    np.testing.assert_allclose(found.nll, wanted.nll, rtol=1e-8)
    np.testing.assert_allclose(found.gradient, wanted.gradient, rtol=1e-5, atol=1e-7)


def test_a_fleet_takes_it_by_name_alone_or_among_others(tmp_path: Path) -> None:
    fg.register_kernel("smooth", smooth, smooth_slope)
    mine, ours = (fleet(kernel=name).predict([[0.5, 0.5]]).mean for name in ("smooth", "matern32"))
    np.testing.assert_allclose(mine, ours, rtol=1e-8)
    assert [kernel.name for kernel in fleet(kernel=["se", "smooth"], theta=None).kernels] == ["se", "smooth"]
    fg.save_model(fg.Model(fleet(kernel="smooth"), ("a", "b"), ("x", "y"), "z"), tmp_path / "model")
    assert fg.load_model(tmp_path / "model").fleet.kernel == as_kernel("smooth")
    noisy = fleet(kernel="smooth", noise="agents", theta=[*THETA, 0.2])
    assert noisy.names == ("l_1", "l_2", "sigma_f", "sigma_eps_0", "sigma_eps_1")


def test_it_can_be_sent_and_replaced() -> None:
    kernel = fg.register_kernel("smooth", smooth, smooth_slope)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert fg.register_kernel("smooth", rough, rough_slope) != kernel  # a cell of a notebook runs again
    assert as_kernel("smooth") != kernel


@pytest.mark.parametrize(
    ("name", "correlation", "derivative", "told"),
    [
        ("se", smooth, smooth_slope, "FleetGP has a kernel 'se' itself"),
        ("mine(1)", smooth, smooth_slope, "expected a name of letters"),
        ("mine", smooth, rough_slope, "at distance 0.05 it should be about"),
        ("mine", lambda r: 2.0 * smooth(r), lambda r: 2.0 * smooth_slope(r), "a correlation of 1 at distance 0"),
        ("mine", lambda r: np.cos(3.0 * r**2), lambda r: -6.0 * r * np.sin(3.0 * r**2), "not positive definite"),
        ("mine", lambda r: np.ones_like(r[:1]), lambda r: np.zeros_like(r[:1]), "elementwise"),
    ],
)
def test_what_is_no_kernel_is_refused(name: str, correlation: Any, derivative: Any, told: str) -> None:
    with pytest.raises(fg.InputError) as caught:
        fg.register_kernel(name, correlation, derivative)
    assert told in str(caught.value)
    assert name == "se" or name not in KERNELS


# ---- engines -----------------------------------------------------------------------------------------------------


class Mine(DataEngine):
    """The dense engine under another name, and cheap."""

    name = "mine"
    error = 0.0

    def dense(self) -> DenseEngine:
        return DenseEngine(self.data, self.kernel, self.agent)

    def cost(self, theta: Array) -> float:
        return 0.0

    def evaluate(self, log_theta: Array) -> Evaluation | None:
        found = self.dense().evaluate(log_theta)
        return Evaluation(found.nll, found.gradient, found.jitter, self.name, self.error)

    def condition(self, theta: Array, before: Posterior | None = None) -> Posterior | None:
        return self.dense().condition(theta)

    def products(self, theta: Array, trend: Trend) -> Array | None:
        return self.dense().products(theta, trend)


def test_an_engine_is_used_by_who_names_it_alone() -> None:
    fg.register_engine("mine", Mine)
    named, auto = (fleet(theta=None).train(engine=name) for name in ("mine", "auto"))
    assert (set(named.engine), set(auto.engine)) == ({"mine"}, {"dense"})
    np.testing.assert_allclose(named.thetas, auto.thetas, rtol=1e-6)
    for method in ("dec-summary", "dec-nn-grbcm", "dec-nn-npae", "dec-gpoe"):
        found, wanted = (fleet().predict([[0.5, 0.5]], method, engine=name).mean for name in ("mine", "dense"))
        np.testing.assert_allclose(found, wanted, rtol=1e-8)
    with pytest.raises(fg.InputError, match="the mine engine needs the data"):
        fleet(kernel="se").predict([[0.5, 0.5]], "dec-full-gp", engine="mine")
    with pytest.raises(fg.InputError, match="choose one of auto, dense, moments, vecchia, mine"):
        fleet().predict([[0.5, 0.5]], engine="other")


def test_auto_takes_it_where_it_applies_is_cheaper_and_as_good_as_exact() -> None:
    def chosen(size: int, engine: type[Mine]) -> str:
        fg.register_engine("mine", engine, applies=lambda data, kernel: len(data) > 50 and kernel.name != "se")
        return Expert(observed(size), Matern32(), 0).evaluate(np.log(THETA)).engine

    class Dear(Mine):
        def cost(self, theta: Array) -> float:
            return 1e9

    class Uncertain(Mine):
        error = 0.1

    assert (chosen(40, Mine), chosen(60, Mine), chosen(60, Dear), chosen(60, Uncertain)) == (
        "dense",
        "mine",
        "dense",
        "dense",
    )


# ---- other processes ---------------------------------------------------------------------------------------------


def test_a_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """On the command line, where nobody imports it."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nimport fleetgp as fg\n"
        "fg.register_kernel('gone', lambda r: np.exp(-r), lambda r: -np.exp(-r))\n"
        "fg.register_graph('ring', fg.Graph.cycle)\n",
        encoding="utf-8",
    )
    for name, module in (("mine", "mine"), ("broken", "nowhere_at_all")):
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(f"[fleetgp]\n{name} = {module}\n", encoding="utf-8")
    data = observed()
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([data.inputs, data.values]), "%.6f", ",", header="x,y,z", comments=""
    )
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from fleetgp import cli\n"
        "words = 't.csv --inputs x y --target z --n-agents 3 --kernel gone --graph ring --out m'\n"
        "sys.argv = ['fleetgp', 'fit', *words.split()]\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the entry point 'nowhere_at_all' cannot be loaded" in " ".join(done.stderr.split())
    assert '"gone"' in (tmp_path / "m" / "model.json").read_text(encoding="utf-8")
