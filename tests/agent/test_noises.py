"""Noise that differs in a fleet of processes: as in the simulator, from the description to new rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.observations import store_of
from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until

NOISY = 'deviation = "error"\nnoise = "agents"\nrobust = true\n'
START = [2.0, 0.5, 1.0, 0.5, 0.5]


def noisy(folder: Path) -> tuple[Description, list[tuple[Array, Array, Array]]]:
    """Two agents with a column of deviations."""
    describe(folder, 2, training="dec-fact-gp", training_options="tol = 1e-6")
    file = folder / "fleet.toml"
    rng = np.random.default_rng(0)
    found = []
    for name in ("a0", "a1"):
        arrays = dict(np.load(folder / f"{name}.npz"))
        arrays["error"] = rng.choice([0.0, 0.2], len(arrays["x"]))
        arrays["temperature"][3] += 8.0
        np.savez(folder / f"{name}.npz", **arrays)
        found.append((np.column_stack([arrays["x"], arrays["y"]]), arrays["temperature"], arrays["error"]))
    text = file.read_text(encoding="utf-8").replace("normalize = true", f"{NOISY}normalize = true")
    file.write_text(text.replace("tol = 1e-6", f"theta0 = {START}\ntol = 1e-6"), encoding="utf-8")
    return read_description(file), found


def test_a_fleet_of_agents_is_as_the_simulator(tmp_path: Path) -> None:
    description, shards = noisy(tmp_path)
    assert description.parameters == ("l_x", "l_y", "sigma_f", "sigma_eps_a0", "sigma_eps_a1")
    expected = fg.Fleet(shards, "path", normalize=True, noise=["a0", "a1"], robust=True, kernel="se")
    fit = expected.train("dec-fact-gp", theta0=START, tol=1e-6)
    assert fit.outliers.min() >= 1
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents) and all(a.memory.trained for a in agents))
        trained = agents[0].memory.trained
        assert trained is not None
        np.testing.assert_allclose(trained.theta, fit.theta, rtol=1e-6)
        for agent, name in enumerate(description.names):
            told = ask(description, name, QUERIES)
            found = expected.predict(QUERIES, "dec-rbcm", agent=agent)
            np.testing.assert_allclose(told["mean"], found.mean, rtol=1e-6)
            np.testing.assert_allclose(told["variance"], found.variance, rtol=1e-6)
            np.testing.assert_allclose(told["std_observed"], found.std_observed, rtol=1e-6)
        row = [0.6, 0.6, 0.4, 11.0]
        with AgentClient(description, "a0") as client:
            assert client.request("observe", 30.0, rows=[row])["rows"] == 1
        expected.observe(0, [row[:2]], row[3:], row[2:3])
        told, found = ask(description, "a1", QUERIES), expected.predict(QUERIES, "dec-rbcm")
        np.testing.assert_allclose(told["mean"], found.mean, rtol=1e-6)
    assert '"outliers": ' in (tmp_path / "a0.log").read_text(encoding="utf-8")


def test_an_agents_rows_have_its_deviations_and_its_noise(tmp_path: Path) -> None:
    description, shards = noisy(tmp_path)
    log = Log("a1", file=tmp_path / "a1.log")
    data = store_of(description, "a1", tmp_path / "kept", log)
    log.close()
    shard = data.shard
    x, y, s = shards[1]
    np.testing.assert_array_equal(shard.packed, np.column_stack([x, s, np.ones(len(y)), np.ones(len(y))]))
    np.testing.assert_array_equal(shard.values, y)
    data.append([[0.1, 0.2, 0.3, 4.0]])
    assert data.shard.packed[-1].tolist() == [0.1, 0.2, 0.3, 1.0, 1.0]
    with pytest.raises(InputError, match=r"expected rows of 4 numbers \(x, y, error, temperature\)"):
        data.append([[0.1, 0.2, 4.0]])
    with pytest.raises(InputError, match="column 'error': expected standard deviations of at least 0, got -1"):
        data.append([[0.1, 0.2, -1.0, 4.0]])


def test_another_noise_is_another_model(tmp_path: Path) -> None:
    description, _ = noisy(tmp_path)
    assert description.model.endswith("kernel se, deviation error, noise agents, robust True")
    file, text = tmp_path / "fleet.toml", (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    for old, new, match in (
        ('deviation = "error"', 'deviation = "x"', "expected a column of its own, got 'x'"),
        ('noise = "agents"', 'noise = "boats"', "noise must be 'agents', got 'boats'"),
        ("robust = true", 'robust = "yes"', "robust .* got 'yes'"),
        ('method = "dec-fact-gp"', 'method = "dec-full-gp"', "dec-full-gp needs one noise for all observations"),
    ):
        file.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(InputError, match=match):
            read_description(file)
