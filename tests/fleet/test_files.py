"""Fleets from files: as with the same rows in memory, in chunks of any size; what is read, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.data.transforms import Scaling
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.io import file_dataset
from fleetgp.io import file_dataset as file_source
from fleetgp.io.file_dataset import FileDataset
from fleetgp.prediction import methods
from fleetgp.training import moments as whole
from tests.conftest import mostly_long

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

FIELD = fg.synthetic_field(400, seed=1)
SHARDS: list[Shard] = fg.partition(FIELD.inputs, FIELD.observations, agents=3, by="random")
QUERIES = np.random.default_rng(0).uniform(0.2, 1.8, (20, 2))
WHAT: dict[str, Any] = {"inputs": ["a", "b"], "target": "y"}
BOX, SIZES = Box(np.array([1.0, 1.0]), np.array([1.1, 1.1])), (21, 17)


def frame(number: int) -> pd.DataFrame:
    x, y = SHARDS[number]
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "who": f"agent {number}"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every agent's rows in a file of each kind, and the rows of all agents mixed in two files."""
    place = tmp_path_factory.mktemp("files")
    frames = [frame(number) for number in range(3)]
    for number, own in enumerate(frames):
        own.to_csv(place / f"s{number}.csv", index=False)
        own.to_parquet(place / f"s{number}.parquet")
        own.rename_axis("row").to_xarray().to_netcdf(place / f"s{number}.nc")
    mixed = pd.concat(frames).sample(frac=1.0, random_state=1)
    mixed[:150].to_parquet(place / "mixed0.parquet")
    mixed[150:].to_csv(place / "mixed1.csv", index=False)
    return place


def of_files(folder: Path, pattern: str = "s*.parquet", **options: Any) -> fg.Fleet:
    return fg.Fleet.from_files(str(folder / pattern), **{"kernel": "se", "normalize": False, **WHAT, **options})


def files_of(fleet: fg.Fleet) -> FileDataset:
    assert isinstance(fleet.data, FileDataset)
    return fleet.data


def relative(found: Array, expected: Array) -> float:
    """The largest difference, as a part of the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# ---- noise that differs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Array, Array, Array]]]:
    """Files with a column of known deviations, and what is in them."""
    place, rng = tmp_path_factory.mktemp("noisy"), np.random.default_rng(2)
    shards = []
    for number, (x, y) in enumerate(SHARDS):
        s = rng.choice([0.0, 0.2, 0.5], 40)
        shards.append((x[:40], y[:40] + s * rng.standard_normal(40), s))
        told = pd.DataFrame({"a": x[:40, 0], "b": x[:40, 1], "y": shards[-1][1], "s": s, "who": f"agent {number}"})
        told.to_csv(place / f"s{number}.csv", index=False, float_format="%.17g")
    return place, shards


def covariance(one: Array, other: Array, theta: Array) -> Array:
    return np.asarray(theta[2] ** 2 * np.exp(-(((one[:, None] - other) / theta[:2]) ** 2).sum(axis=2)))


@pytest.mark.parametrize("coordinates", ["as-given", "scaled"])
def test_known_noise_and_that_of_agents_are_those_of_the_dense_formula(
    noisy: tuple[Path, list[tuple[Array, Array, Array]]], coordinates: Any
) -> None:
    folder, shards = noisy
    theta = np.array([0.8, 0.5, 1.2, 0.1, 0.2, 0.3])
    made: dict[str, Any] = {"deviation": "s", "noise": "agents", "coordinates": coordinates}
    fleet = of_files(folder, "s*.csv", **made, theta=theta, rows=11)
    assert fleet.names[3:] == ("sigma_eps_s0", "sigma_eps_s1", "sigma_eps_s2")
    x, y, s = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    c = covariance(x, x, theta) + np.diag(np.repeat(theta[3:], 40) ** 2 + s**2)
    cross = covariance(QUERIES, x, theta)
    found = fleet.predict(QUERIES, "full-gp")
    np.testing.assert_allclose(found.mean, cross @ np.linalg.solve(c, y), atol=1e-9)
    expected = theta[2] ** 2 - (cross * np.linalg.solve(c, cross.T).T).sum(axis=1)
    np.testing.assert_allclose(found.variance, expected, atol=1e-9)
    # A training is that of the same rows in memory.
    there = fg.Fleet(shards, kernel="se", normalize=False, noise=["s0", "s1", "s2"], coordinates=coordinates)
    one, other = (own.train("dec-fact-gp", theta0=theta, rounds=5) for own in (fleet, there))
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-6)
    with pytest.raises(InputError, match="dec-full-gp needs one noise for all observations"):
        fleet.train("dec-full-gp")


def test_outliers_in_files_are_weighed_down(noisy: tuple[Path, list[tuple[Array, Array, Array]]]) -> None:
    folder, shards = noisy
    fleet = of_files(folder, "s*.csv", deviation="s", robust=True, theta=[0.8, 0.5, 1.2, 0.1])
    there = fg.Fleet(shards, kernel="se", normalize=False, robust=True, theta=[0.8, 0.5, 1.2, 0.1])
    one, other = (own.predict(QUERIES, "dec-rbcm") for own in (fleet, there))
    np.testing.assert_array_equal(one.mean, other.mean)


def test_deviations_of_files_are_checked(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0], "y": [1.0, 2.0], "s": [0.1, -0.1]}).to_csv(tmp_path / "s.csv")
    with pytest.raises(InputError, match=r"column 's': expected standard deviations of at least 0, got -0.1"):
        of_files(tmp_path, "s.csv", deviation="s")
    with pytest.raises(InputError, match="expected different columns as inputs, target, agent and deviation"):
        of_files(tmp_path, "s.csv", deviation="y")


# ---- the same as in memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", mostly_long(["csv", "parquet", "nc"], "parquet"))
def test_training_and_prediction_are_those_of_the_same_rows_in_memory(kind: str, folder: Path) -> None:
    expected = fg.Fleet(SHARDS, normalize=True, kernel="se")
    found = of_files(folder, f"s*.{kind}", normalize=True)
    one, other = (fleet.train("dec-full-gp", theta0=[1.0, 0.5, 1.0, 0.2]) for fleet in (found, expected))
    assert one.moments is not None
    assert other.moments is not None
    np.testing.assert_allclose(one.moments.packed, other.moments.packed, rtol=0, atol=1e-12 * 400)
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-8)
    assert one.ledger.bytes == other.ledger.bytes
    assert files_of(found)._loaded is None, "nothing was loaded"
    for method in ("dec-full-gp", "dec-nn-grbcm", "dec-summary"):
        mine, its = (fleet.predict(QUERIES, method) for fleet in (found, expected))
        np.testing.assert_allclose(mine.mean, its.mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(mine.variance, its.variance, rtol=1e-7)


def test_chunks_of_another_size_change_no_more_than_rounding_can(folder: Path) -> None:
    start = [1.0, 0.5, 1.0, 0.2]
    one, other = (of_files(folder, rows=rows).train("dec-full-gp", theta0=start, tol=1e-8) for rows in (50, 7))
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-6)


@given(st.permutations([0, 1, 2]), st.integers(1, 200), st.floats(-3, 3), st.floats(0.1, 10))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_moments_depend_neither_on_chunks_nor_on_the_order_of_files(
    folder: Path, order: list[int], rows: int, offset: float, scale: float
) -> None:
    fleet = fg.Fleet.from_files(
        [folder / f"s{number}.parquet" for number in order], **{"kernel": "se", "normalize": False, **WHAT}, rows=rows
    )
    found = files_of(fleet).rescaled(Scaling(offset, scale)).moments(BOX, SIZES)
    for number, own in zip(order, found, strict=True):
        x, y = SHARDS[number]
        expected = FleetMoments.of(ChebyshevSums(x, (y - offset) / scale, BOX), SIZES)
        assert relative(own.sums, expected.sums) < 1e-12
        assert relative(own.responses, expected.responses) < 1e-12
        assert abs(own.squares / expected.squares - 1) < 1e-12
    assert fleet.shards[0][1].tolist() == SHARDS[order[0]][1].tolist()


@given(st.integers(1, 300), st.booleans())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_column_says_whose_rows_are_whose(folder: Path, rows: int, turned: bool) -> None:
    files = [folder / "mixed0.parquet", folder / "mixed1.csv"][:: -1 if turned else 1]
    fleet = fg.Fleet.from_files(files, **{"kernel": "se", "normalize": False, **WHAT}, agent="who", rows=rows)
    shards = files_of(fleet)
    found = dict(zip(shards.names, shards.moments(BOX, SIZES), strict=True))
    counts = dict(zip(shards.names, [one.count for one in shards.summaries], strict=True))
    for number, (x, y) in enumerate(SHARDS):
        expected = FleetMoments.of(ChebyshevSums(x, y, BOX), SIZES)
        assert relative(found[f"agent {number}"].packed, expected.packed) < 1e-12
        assert counts[f"agent {number}"] == len(y)
    loaded = dict(zip(shards.names, shards, strict=True))
    for number, (_, y) in enumerate(SHARDS):
        np.testing.assert_array_equal(np.sort(loaded[f"agent {number}"].values), np.sort(y))


@given(st.integers(1, 100), st.floats(-3, 3), st.floats(0.1, 10))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_summaries_are_those_of_the_rows(folder: Path, rows: int, offset: float, scale: float) -> None:
    found = files_of(of_files(folder, rows=rows)).rescaled(Scaling(offset, scale)).summaries
    for one, (x, y) in zip(found, SHARDS, strict=True):
        z = (y - offset) / scale
        np.testing.assert_array_equal([one.low, one.high], [x.min(axis=0), x.max(axis=0)])
        np.testing.assert_allclose(one.centre, x.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose([one.mean, one.squares], [z.mean(), z.var() * len(z)], rtol=1e-10, atol=1e-12)


def test_any_graph_by_places_too(folder: Path) -> None:
    found, expected = of_files(folder, graph="places"), fg.Fleet(SHARDS, graph="places", kernel="se", normalize=False)
    np.testing.assert_array_equal(found.graph.at(0).edges, expected.graph.at(0).edges)
    assert "points=400" in repr(found)
    assert found.dimension == 2


def test_full_gp_is_that_of_the_rows_and_moments_are_all_that_is_sent(folder: Path) -> None:
    start = [1.0, 0.5, 1.0, 0.2]
    found, expected = of_files(folder, normalize=True, memory=1), fg.Fleet(SHARDS, normalize=True, kernel="se")
    fit, rows = found.train("full-gp", theta0=start), expected.train("full-gp", theta0=start, engine="dense")
    assert (fit.status, fit.engine) == ("converged", ("moments",) * 3)
    np.testing.assert_allclose(fit.theta, rows.theta, rtol=1e-4)
    assert fit.nll == pytest.approx(rows.nll, abs=1e-5)
    assert fit.moments is not None
    assert set(fit.ledger.kinds) == {"statistics", "moments", "hyperparameters"}
    assert fit.ledger.by_kind()["moments"].scalars == 3 * len(fit.moments.packed), "each agent's own, to the server"
    mine, its = found.predict(QUERIES, "full-gp"), expected.predict(QUERIES, "full-gp", theta=fit.theta, engine="dense")
    np.testing.assert_allclose(mine.means, its.means, atol=1e-6)
    np.testing.assert_allclose(mine.variances, its.variances, atol=1e-6)
    assert set(mine.ledger.kinds) == {"predictions"}
    # The moments are the server's: agents who answer alone must get them first, and the other way round.
    other = found.predict(QUERIES, "dec-full-gp")
    np.testing.assert_allclose(other.mean, mine.mean, rtol=1e-9)
    assert "moments" in other.ledger.kinds
    found.train("dec-full-gp", theta0=start)
    assert "moments" in found.predict(QUERIES, "full-gp").ledger.kinds
    assert found.predict(QUERIES, "dec-full-gp").ledger.bytes == 0


def test_one_answer_of_many_agents_is_in_memory_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = of_files(folder, theta=[1.0, 0.5, 1.0, 0.2])
    whole = fleet.predict(QUERIES, "dec-full-gp")
    monkeypatch.setattr(methods, "BLOCK", 7)
    found = fleet.predict(QUERIES, "dec-full-gp")
    for name in ("means", "variances", "explained", "participants"):
        assert getattr(found, name).strides[0] == 0
        assert getattr(found, name).shape == (3, 20)
    np.testing.assert_allclose(found.means, whole.means, rtol=1e-9)
    np.testing.assert_allclose(found.variances, whole.variances, rtol=1e-9)


def test_full_gp_loads_rows_where_moments_will_not_do_or_says_why_not(folder: Path) -> None:
    sharp, places = [0.01, 0.01, 1.0, 0.1], SHARDS[0][0][:9]
    kinds: list[dict[str, Any]] = [{"kernel": "matern32"}, {}]
    for options in kinds:
        expected = fg.Fleet(SHARDS, **{"kernel": "se", "normalize": False, **options}).predict(
            places, "full-gp", theta=sharp
        )
        found = of_files(folder, **options).predict(places, "full-gp", theta=sharp)
        np.testing.assert_array_equal(found.mean, expected.mean)
        assert "observations" in found.ledger.kinds
    tight = of_files(folder, memory=1)
    for ask in (lambda: tight.predict(places, "full-gp", theta=sharp), lambda: tight.train("full-gp", theta0=sharp)):
        with pytest.raises(
            InputError, match=r"moments of the data do not suffice \(.*\), and their rows are not loaded: .*1 byt"
        ):
            ask()
    with pytest.raises(InputError, match="expected observations of at most 1 bytes"):
        of_files(folder, memory=1, kernel="matern32").train("full-gp")
    sampled = of_files(folder, sample=30).train("full-gp", theta0=[1.0, 0.5, 1.0, 0.2], engine="dense")
    assert sampled.held.sum() == 400


@pytest.mark.parametrize("method", mostly_long(["full-gp", "dec-full-gp"], "dec-full-gp"))
def test_a_sample_tells_the_grid_so_that_one_pass_will_do(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = of_files(folder, normalize=True).train(method)
    for module in (file_dataset, whole):
        monkeypatch.setattr(module, "FIRST", 30)
    grids: list[tuple[int, ...]] = []
    gathered = file_source.FileReader.moments

    def gather(self: file_source.FileReader, box: Box, sizes: tuple[int, ...], *more: Any) -> Any:
        grids.append(sizes)
        return gathered(self, box, sizes, *more)

    monkeypatch.setattr(file_source.FileReader, "moments", gather)
    found = of_files(folder, normalize=True).train(method)
    assert len(grids) == 1
    assert found.moments is not None
    assert (found.moments.count, found.sample.tolist()) == (400, [30, 30, 30])
    assert found.status == "converged"
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-4)
    assert found.nll == pytest.approx(expected.nll, abs=1e-5)
    # A sample that leads nowhere is left alone.
    monkeypatch.setattr(whole, "sizes_around", lambda *_: None)
    again = of_files(folder, normalize=True).train(method)
    np.testing.assert_array_equal(again.theta, expected.theta)
    assert len(again.sample) == 0


# ---- what is loaded ----------------------------------------------------------------------------------------------


def test_beyond_the_limit_nothing_is_loaded_and_the_error_says_how_much_it_would_be(folder: Path) -> None:
    fleet = of_files(folder, memory=9599)  # of 400 x 3 x 8
    for ask in (lambda: fleet.train("dec-fact-gp"), lambda: fleet.predict(QUERIES, "poe", theta=[1, 1, 1, 0.1])):
        with pytest.raises(
            InputError, match=r"at most 9,599 bytes .* got 400 rows, 9,600 bytes: .*dec-full-gp.*sample=.*memory="
        ):
            ask()
    fit = fleet.train("dec-full-gp", theta0=[1.0, 0.5, 1.0, 0.2])
    assert np.isfinite(fleet.predict(QUERIES, "dec-full-gp").mean).all()
    assert len(fit.held) == 0
    of_files(folder, memory=9600).train("dec-fact-gp", rounds=2)


def test_on_a_sample_and_the_result_says_so(folder: Path) -> None:
    fleet = of_files(folder, sample=40, memory=3000)
    fit = fleet.train("dec-fact-gp")
    assert fit.drawn.tolist() == [40, 40, 40]
    assert fit.held.tolist() == [len(y) for _, y in SHARDS]
    for (x, y), (all_x, all_y) in zip(fleet.shards, SHARDS, strict=True):
        own = {(*row, value) for row, value in zip(all_x.tolist(), all_y.tolist(), strict=True)}
        assert {(*row, value) for row, value in zip(x.tolist(), y.tolist(), strict=True)} < own
        assert len(y) == 40
    again = of_files(folder, sample=40, memory=3000, rows=11)
    np.testing.assert_array_equal(again.shards[1][1], fleet.shards[1][1])
    assert (of_files(folder, sample=40, seed=1).shards[1][1] != fleet.shards[1][1]).any()
    answer = fleet.predict(QUERIES, "dec-nn-grbcm")
    assert (answer.drawn.tolist(), answer.held.tolist()) == (fit.drawn.tolist(), fit.held.tolist())
    assert len(fleet.predict(QUERIES, "dec-full-gp").held) == 0, "moments are of all rows"
    assert len(of_files(folder, theta=[1.0, 0.5, 1.0, 0.2]).predict(QUERIES, "poe").held) == 0
    whole = fleet.train("dec-full-gp", theta0=[1.0, 0.5, 1.0, 0.2])
    assert whole.moments is not None
    assert whole.moments.count == 400, "moments are of all rows"
    assert len(whole.held) == 0
    with pytest.raises(InputError, match=r"at most 2,000 bytes .* got 120 rows, .*: give a smaller sample"):
        of_files(folder, sample=40, memory=2000)


def test_files_do_not_grow(folder: Path) -> None:
    with pytest.raises(InputError, match="got one from files: add a file"):
        of_files(folder).observe(0, [[1.0, 1.0]], [1.0])


BOUND = """
import resource, sys
import fleetgp as fg
from fleetgp.engines.basis import Box
import numpy as np

def passes(pattern):
    fleet = fg.Fleet.from_files(pattern, inputs=["a", "b"], target="y", rows=16_384)
    fleet.data.moments(Box(np.zeros(2), np.ones(2)), (9, 9))
    return sum(one.count for one in fleet.data.summaries)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

passes(sys.argv[1])  # all libraries are loaded
before = peak()
print(passes(sys.argv[2]), peak() - before)
"""


def test_memory_stays_far_below_the_size_of_the_data(tmp_path: Path) -> None:
    rows, rng = 1_500_000, np.random.default_rng(0)
    small = {name: rng.uniform(-1, 1, 20_000) for name in "aby"}
    pq.write_table(pa.table(small), tmp_path / "small.parquet")
    large = {name: rng.uniform(-1, 1, rows) for name in "aby"}
    pq.write_table(pa.table(large), tmp_path / "large.parquet", row_group_size=rows, use_dictionary=False)
    arguments = [str(tmp_path / f"{name}.parquet") for name in ("small", "large")]
    done = subprocess.run([sys.executable, "-c", BOUND, *arguments], capture_output=True, text=True, check=True)
    count, growth = map(int, done.stdout.split())
    assert count == rows
    assert growth < 3 * 8 * rows / 2, "half of what the rows take in memory"


# ---- what is wrong with files ------------------------------------------------------------------------------------


def read_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are really read from now on."""
    read: list[str] = []

    def heard(name: str) -> None:
        function = getattr(file_source, name)

        def hear(file: Path, *more: Any) -> Any:
            read.append(file.name)
            return function(file, *more)

        monkeypatch.setattr(file_source, name, hear)

    heard("survey")
    heard("rows_of")
    return read


def test_a_broken_file_is_named_and_a_second_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        frame(number).to_csv(tmp_path / f"s{number}.csv", index=False)
    sound = (tmp_path / "s1.csv").read_text(encoding="utf-8")
    lines = sound.splitlines()
    lines[100] = "1.0,2.0,?,agent 1"
    (tmp_path / "s1.csv").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(file_source, "cores", lambda: 1)
    read = read_names(monkeypatch)
    options: dict[str, Any] = {"cache": tmp_path / "cache", "rows": 30}
    with pytest.raises(InputError, match=r"s1\.csv: column 'y' .*got '\?' \(first: row 100\)"):
        of_files(tmp_path, "s*.csv", **options)
    assert read == ["s0.csv", "s1.csv"]
    (tmp_path / "s1.csv").write_text(sound, encoding="utf-8")
    read.clear()
    first = of_files(tmp_path, "s*.csv", **options)
    assert read == ["s1.csv", "s2.csv"]
    expected = files_of(first).moments(BOX, SIZES)
    read.clear()
    found = files_of(of_files(tmp_path, "s*.csv", **options))
    assert read == []
    assert [one.packed.tolist() for one in found.summaries] == [one.packed.tolist() for one in first.data.summaries]
    # Moments are kept where they are shorter than the file, which these are not: nothing is gained by it.
    assert [one.packed.tolist() for one in found.moments(BOX, SIZES)] == [one.packed.tolist() for one in expected]
    assert read == ["s0.csv", "s1.csv", "s2.csv"]
    found.moments(BOX, (5, 5))
    read.clear()
    small = found.moments(BOX, (5, 5))
    assert read == []
    assert relative(small[0].packed, files_of(of_files(tmp_path, "s*.csv")).moments(BOX, (5, 5))[0].packed) < 1e-12


def test_a_run_that_is_interrupted_in_a_pass_goes_on_from_what_was_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first one, and in the one for moments."""
    monkeypatch.setattr(file_source, "cores", lambda: 1)
    read = read_names(monkeypatch)
    heard = {name: getattr(file_source, name) for name in ("survey", "rows_of")}

    def interrupt_at(name: str, file_name: str) -> None:
        def hear(file: Path, *more: Any) -> Any:
            if file.name == file_name:
                raise KeyboardInterrupt
            return heard[name](file, *more)

        monkeypatch.setattr(file_source, name, hear)

    options: dict[str, Any] = {"cache": tmp_path / "cache"}
    interrupt_at("survey", "s1.parquet")
    with pytest.raises(KeyboardInterrupt):
        of_files(folder, **options)
    assert read == ["s0.parquet"]
    monkeypatch.setattr(file_source, "survey", heard["survey"])
    read.clear()
    fleet = of_files(folder, **options)
    assert read == ["s1.parquet", "s2.parquet"]
    read.clear()
    interrupt_at("rows_of", "s2.parquet")
    with pytest.raises(KeyboardInterrupt):
        files_of(fleet).moments(BOX, (5, 5))
    assert read == ["s0.parquet", "s1.parquet"]
    monkeypatch.setattr(file_source, "rows_of", heard["rows_of"])
    read.clear()
    files_of(of_files(folder, **options)).moments(BOX, (5, 5))
    assert read == ["s2.parquet"]


def test_what_was_kept_of_a_file_that_has_changed_is_not_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"s{number}.parquet").write_bytes((folder / f"s{number}.parquet").read_bytes())
    read = read_names(monkeypatch)
    of_files(tmp_path, cache=tmp_path / "cache")
    read.clear()
    os.utime(tmp_path / "s1.parquet", ns=(1, 1))
    of_files(tmp_path, cache=tmp_path / "cache")
    assert read == ["s1.parquet"]
    read.clear()
    of_files(tmp_path, cache=tmp_path / "cache", missing="drop")
    assert len(read) == 3, "other settings"
    for piece in (tmp_path / "cache").rglob("*.json"):
        piece.write_text(piece.read_text(encoding="utf-8")[:40], encoding="utf-8")
    read.clear()
    of_files(tmp_path, cache=tmp_path / "cache")
    assert len(read) == 3, "damaged pieces"


def test_a_sample_depends_on_the_rows_alone(folder: Path, tmp_path: Path) -> None:
    expected = of_files(folder, sample=30)
    for number, name in enumerate(("z", "y", "x")):
        shutil.copy(folder / f"s{number}.parquet", tmp_path / f"{name}.parquet")
    found = dict(zip("xyz", of_files(tmp_path, "*.parquet", sample=30).shards, strict=True))
    for name, (x, y) in zip("zyx", expected.shards, strict=True):
        np.testing.assert_array_equal(found[name][0], x)
        np.testing.assert_array_equal(found[name][1], y)


def test_a_kept_sample_is_the_sample(folder: Path, tmp_path: Path) -> None:
    first, second = (of_files(folder, sample=20, cache=tmp_path / "cache") for _ in range(2))
    np.testing.assert_array_equal(first.shards[2][0], second.shards[2][0])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_that_cannot_be_used_are_refused_or_counted(kind: str, tmp_path: Path) -> None:
    own = frame(0)
    own.loc[70, "y"] = np.nan
    own.loc[90, "a"] = np.inf
    path = tmp_path / f"s.{kind}"
    own.to_csv(path, index=False) if kind == "csv" else own.to_parquet(path)
    with pytest.raises(
        InputError, match=rf"s\.{kind}: 2 of 134 rows have missing or infinite values \(first: row 71\)"
    ):
        fg.Fleet.from_files(path, **{"kernel": "se", "normalize": False, **WHAT}, rows=30)
    fleet = fg.Fleet.from_files(path, **{"kernel": "se", "normalize": False, **WHAT}, rows=30, missing="drop")
    assert files_of(fleet).dropped == 2
    assert files_of(fleet).points == 132
    assert len(fleet.shards[0][1]) == 132


def test_an_agent_without_rows_is_named(tmp_path: Path) -> None:
    own = frame(0)
    own.loc[5, ["who", "y"]] = ["ghost", np.nan]
    own.to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(InputError, match="agent 'ghost' has no row with values in all of"):
        of_files(tmp_path, "s.csv", agent="who", missing="drop")
    own["y"] = np.nan
    own.to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(InputError, match=r"s\.csv: no row with values in all of"):
        of_files(tmp_path, "s.csv", missing="drop")


def test_fill_values_are_asked_about_and_named(tmp_path: Path) -> None:
    own = frame(0)
    own.loc[[3, 100], "y"] = -9999.0
    own.to_parquet(tmp_path / "s0.parquet")
    frame(1).to_parquet(tmp_path / "s1.parquet")
    with pytest.raises(InputError, match=r"s0\.parquet: column 'y' has the value -9999 2 times"):
        of_files(tmp_path, rows=30)
    fleet = of_files(tmp_path, fill=[-9999], missing="drop")
    assert files_of(fleet).dropped == 2
    assert of_files(tmp_path, fill=[]).shards[0][1].min() == -9999.0


def test_what_is_strange_in_all_files_together(tmp_path: Path) -> None:
    for number, east in enumerate((-20.0, 340.0)):
        frame(number).assign(lon=np.linspace(east, east + 9, len(frame(number)))).to_parquet(
            tmp_path / f"s{number}.parquet"
        )
    with pytest.raises(InputError, match="all files together: column 'lon' mixes two conventions of longitude"):
        of_files(tmp_path, inputs=["lon", "b"])
    frame(0).to_parquet(tmp_path / "s1.parquet")
    frame(0).to_parquet(tmp_path / "s0.parquet")
    with pytest.warns(FleetGPWarning, match="about 134 of 268 rows are exact copies"):
        of_files(tmp_path)
    frame(0).assign(b=2.0).to_parquet(tmp_path / "s1.parquet")
    with pytest.warns(FleetGPWarning, match="input 'b' has one value only") as told:
        of_files(tmp_path, "s1.parquet")
    assert Path(told[0].filename).name == Path(__file__).name


def test_fields_of_other_units_do_not_mix(tmp_path: Path) -> None:
    for number, units in enumerate(("degC", "K")):
        data = xr.Dataset(
            {"y": (("a", "b"), np.random.default_rng(number).standard_normal((8, 8)), {"units": units})},
            coords={"a": np.linspace(0, 1, 8), "b": np.linspace(0, 1, 8)},
        )
        data.to_netcdf(tmp_path / f"s{number}.nc")
    with pytest.raises(InputError, match=r"s1\.nc: expected the units none, none, degC .* got none, none, K: convert"):
        of_files(tmp_path, "s*.nc")


def test_wrong_options(folder: Path, tmp_path: Path) -> None:
    path = folder / "s0.csv"
    wrong: list[tuple[object, dict[str, Any], str]] = [
        (str(tmp_path / "*.csv"), {}, "there is no such file"),
        ([], {}, "expected at least one, got none"),
        ([path, path], {}, r"s0\.csv: it is given twice"),
        (path, {"target": "a"}, "expected different columns"),
        (path, {"agent": "y"}, "expected different columns"),
        (path, {"inputs": ["a", "c"]}, r"s0\.csv: there is no column 'c'; it has a, b, y, who"),
        (path, {"rows": 0}, "rows must be a whole number"),
        (path, {"sample": 0}, "sample must be a whole number"),
        (path, {"memory": 0}, "memory must be a number"),
        (path, {"missing": "ignore"}, "missing"),
        (path, {"theta": [1.0, 1.0]}, "theta"),
        ([3], {}, "files: expected a pattern, or a list of paths"),
    ]
    for files, options, message in wrong:
        with pytest.raises(InputError, match=message):
            fg.Fleet.from_files(files, **{"kernel": "se", "normalize": False, **WHAT, **options})  # type: ignore[arg-type]
    frame(0).assign(y=[0.0, 1.0, 2e100, *[0.5] * 131]).to_csv(tmp_path / "s0.csv", index=False)
    with pytest.raises(InputError, match=r"s0\.csv: expected values of at most 1e100, got a larger one in row 3"):
        of_files(tmp_path, "s0.csv", fill=[])


# ---- on disk -----------------------------------------------------------------------------------------------------


def test_a_model_of_files_has_their_moments_and_no_rows(folder: Path, tmp_path: Path) -> None:
    fleet = of_files(folder, normalize=True)
    fleet.train("dec-full-gp", theta0=[1.0, 0.5, 1.0, 0.2])
    model = fg.Model(fleet, files_of(fleet).names, ("a", "b"), "y")
    fg.save_model(model, tmp_path / "model")
    assert not list((tmp_path / "model").rglob("0000*"))
    loaded = fg.load_model(tmp_path / "model").fleet
    one, other = (known.predict(QUERIES, "dec-full-gp") for known in (loaded, fleet))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)
    assert "points=400" in repr(loaded)
    for ask in (
        lambda: loaded.predict(QUERIES),
        lambda: loaded.train("dec-fact-gp"),
        lambda: loaded.predict(QUERIES, "dec-full-gp", theta=[0.08, 0.08, 1.0, 0.05]),
    ):
        with pytest.raises(InputError, match="knows its 400 observations by their moments alone"):
            ask()
    fleet.train("full-gp", theta0=[1.0, 0.5, 1.0, 0.2])
    fg.save_model(model, tmp_path / "central")
    central = fg.load_model(tmp_path / "central").fleet
    np.testing.assert_array_equal(central.predict(QUERIES, "full-gp").mean, fleet.predict(QUERIES, "full-gp").mean)
    with pytest.raises(InputError, match=r"alone, .*: predict with full-gp and the theta"):
        central.predict(QUERIES, "dec-full-gp")
    facts = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    facts["moments"]["sizes"][0] += 2
    (tmp_path / "model" / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(InputError, match="moments"):
        fg.load_model(tmp_path / "model")


def test_a_model_of_a_sample_has_its_rows(folder: Path, tmp_path: Path) -> None:
    fleet = of_files(folder, sample=30)
    fleet.train("dec-fact-gp", rounds=2)
    fg.save_model(fg.Model(fleet, files_of(fleet).names, ("a", "b"), "y"), tmp_path / "model")
    loaded = fg.load_model(tmp_path / "model").fleet
    assert loaded.data.in_memory
    assert loaded.last_fit is not None
    assert loaded.last_fit.held.tolist() == [134, 133, 133]
    assert [len(y) for _, y in loaded.shards] == loaded.last_fit.drawn.tolist() == [30, 30, 30]
    loaded.observe(1, [[1.0, 1.0]], [0.5])
    answer = loaded.predict(QUERIES, "dec-poe")
    assert (answer.drawn.tolist(), answer.held.tolist()) == ([30, 31, 30], [134, 134, 133])
    assert loaded.train("dec-fact-gp", rounds=2).held.tolist() == [134, 134, 133]


def test_nothing_is_said_of_sound_files(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_files(folder)
