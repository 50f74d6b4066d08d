"""fleetgp fit --deviation, --noise and --robust, and what is said of them later."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fleetgp.errors import InputError
from fleetgp.io import read_observations
from fleetgp.storage.folder import load_model
from tests.cli.commands import FIT, run, wrong

START = ["--tol", "1e-3", "--quiet"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Two boats, one with a cheap sensor, some rows with known errors, and an outlier."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    lon, lat = rng.uniform(0.0, 1.0, (2, 120))
    boat, error = np.where(np.arange(120) % 2, "Bo", "Ada"), rng.choice([0.0, 0.3], 120)
    noise = np.hypot(np.where(boat == "Bo", 0.4, 0.05), error) * rng.standard_normal(120)
    sst = np.sin(5.0 * lon) + np.cos(4.0 * lat) + noise
    sst[4] += 9.0
    found = pd.DataFrame({"lon": lon, "lat": lat, "sst": sst, "err": error, "boat": boat})
    found.to_csv("obs.csv", index=False)
    found[["lon", "lat"]].head(3).to_csv("points.csv", index=False)
    return found


def test_everything_at_once(table: pd.DataFrame) -> None:
    noisy = ["--deviation", "err", "--noise", "agents", "--robust"]
    found = json.loads(run("fit", "obs.csv", *FIT, *noisy, "--out", "m", *START, "--json").stdout)
    theta = found["theta"]
    assert list(theta) == ["l_lon", "l_lat", "sigma_f", "sigma_eps_Ada", "sigma_eps_Bo"]
    assert theta["sigma_eps_Bo"] > 2.0 * theta["sigma_eps_Ada"]
    assert found["outliers"][0] >= 1
    fleet = load_model("m").fleet
    assert fleet.dimension == 2
    assert fleet.robust
    for name, (_, _, known) in zip(("Ada", "Bo"), fleet.shards, strict=True):
        np.testing.assert_array_equal(known, table["err"][table["boat"] == name])
    told = run("predict", "m", "points.csv", "--agent", "Bo", "--out", "a.csv", "--quiet").stdout
    assert "includes sigma_eps_Bo = " in told
    assert "The known standard deviations of rows are not included." in " ".join(told.split())
    of_f, of_y = (fleet.predict(table[["lon", "lat"]].head(3), observed=noisy, agent=1) for noisy in (False, True))
    np.testing.assert_allclose(of_y.variance - of_f.variance, theta["sigma_eps_Bo"] ** 2, rtol=1e-6)
    again = run("fit", "obs.csv", *FIT, *noisy, "--from", "m", "--fix", "sigma_eps_Bo=0.4", "--out", "n", *START).stdout
    assert "rows are weighed down as outliers, most of" in " ".join(again.split())
    assert load_model("n").theta["sigma_eps_Bo"] == pytest.approx(0.4)
    run("map", "m", "--grid", "4x3", "--out", "map.nc", "--quiet")


def test_several_files_and_several_targets(table: pd.DataFrame) -> None:
    noisy = ["--noise", "agents", "--robust"]
    expected = json.loads(
        run("fit", "obs.csv", *FIT, *noisy, "--deviation", "err", "--out", "m", *START, "--json").stdout
    )
    files = ["ada.csv", "bo.csv"]
    for name, (_, rows) in zip(files, table.groupby("boat"), strict=True):
        rows.to_csv(name, index=False)
    found = json.loads(run("fit", *files, *FIT, *noisy, "--deviation", "err", "--out", "n", *START, "--json").stdout)
    assert list(found["theta"]) == list(expected["theta"])
    np.testing.assert_allclose(list(found["theta"].values()), list(expected["theta"].values()), rtol=1e-3)
    table.assign(salinity=table["sst"] + 30.0).to_csv("two.csv", index=False)
    both = [*FIT]
    both.insert(both.index("sst") + 1, "salinity")
    told = json.loads(run("fit", "two.csv", *both, *noisy, "--out", "both", "--rounds", "2", "--json").stdout)
    assert list(told["targets"]["sst"]["theta"])[-2:] == ["sigma_eps_Ada", "sigma_eps_Bo"]
    assert load_model("both/salinity").fleet.robust


def test_what_cannot_be_is_refused(table: pd.DataFrame) -> None:
    to = ["--out", "x", "--quiet"]
    assert "expected a column that is no input, target or agent, got lon" in wrong(
        "fit", "obs.csv", *FIT, "--deviation", "lon", *to
    )
    assert "unknown --noise 'boats': choose one of agents" in wrong("fit", "obs.csv", *FIT, "--noise", "boats", *to)
    assert "there is no column 'errors'" in wrong("fit", "obs.csv", *FIT, "--deviation", "errors", *to)
    whole = ["--training", "dec-full-gp", "--kernel", "se"]
    assert "dec-full-gp needs one noise for all" in wrong("fit", "obs.csv", *FIT, *whole, "--noise", "agents", *to)
    bound = ["--noise", "agents", "--bound", "sigma_eps_Cy=0.1:1"]
    assert "unknown name 'sigma_eps_Cy'" in wrong("fit", "obs.csv", *FIT, *bound, *to)
    assert not Path("x").exists()


def test_deviations_in_files(table: pd.DataFrame) -> None:
    columns = {"inputs": ["lon", "lat"], "target": "sst", "deviation": "err"}
    found = read_observations("obs.csv", **columns)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.deviations, table["err"])
    np.testing.assert_array_equal(found.rows, table[["lon", "lat", "err", "sst"]])
    gaps = table.assign(err=table["err"].where(np.arange(120) != 7))
    gaps.to_csv("gaps.csv", index=False)
    with pytest.raises(InputError, match="1 of 120 rows have missing or infinite values"):
        read_observations("gaps.csv", **columns)  # type: ignore[arg-type]
    kept = read_observations("gaps.csv", missing="drop", **columns)  # type: ignore[arg-type]
    assert (kept.dropped, kept.rows.shape) == (1, (119, 4))
    table.assign(err=table["err"] - 0.1).to_csv("below.csv", index=False)
    with pytest.raises(InputError, match=r"column 'err': expected standard deviations of at least 0, got -0\.1"):
        read_observations("below.csv", **columns)  # type: ignore[arg-type]
