"""Folders to work in: a table of three boats, or of two with a model of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.storage.folder import save_model
from fleetgp.storage.model import Model
from tests.cli.commands import truth


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    lon, lat = rng.uniform(0, 2, 240), rng.uniform(40, 42, 240)
    boat = np.array(["Ada", "Bo", "Cy"])[np.minimum((lon * 1.5).astype(int), 2)]
    table = pd.DataFrame(
        {"boat": boat, "lat": lat, "lon": lon, "sst": truth(lon, lat) + 0.05 * rng.standard_normal(240)}
    )
    table.to_csv("observations.csv", index=False)
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [0.5, 1.5], "name": ["p", "q"]}).to_csv("points.csv", index=False)
    return tmp_path


@pytest.fixture
def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, points, and a model of it that nobody had to train."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"lon": rng.uniform(-72, -70, 120), "lat": rng.uniform(40, 42, 120)})
    table["sst"] = 15 + np.sin(2 * table["lon"]) + np.cos(3 * table["lat"])
    table["boat"] = np.where(table["lon"] < -71, "Ada", "Bo")
    table.to_csv("observations.csv", index=False)
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [-71.5, -70.5]}).to_csv("points.csv", index=False)
    shards = [(part[["lon", "lat"]], part["sst"]) for _, part in table.groupby("boat")]
    fleet = fg.Fleet(shards, theta=(0.5, 0.5, 1.0, 0.05), normalize=True, kernel="se")
    save_model(Model(fleet, ("Ada", "Bo"), ("lon", "lat"), "sst"), "m")
    return tmp_path
