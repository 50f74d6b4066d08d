"""Files to read in tests: tables, and fields of sea-surface temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from fleetgp.io import ObservationTable, read_observations


def table(n: int = 30) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "lon": rng.uniform(-5, 5, n),
        "lat": rng.uniform(40, 50, n),
        "sst": rng.standard_normal(n) + 12.0,
        "boat": np.array(["Ada", "Bo", "Cy"])[np.arange(n) % 3],
    }


def write(columns: dict[str, np.ndarray], path: Path) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **columns)  # type: ignore[arg-type]
    elif path.suffix == ".csv":
        pd.DataFrame(columns).to_csv(path, index=False)
    else:
        pd.DataFrame(columns).to_parquet(path)
    return path


def packed(path: Path, *, units: str = "kelvin", lon: np.ndarray | None = None, descending: bool = False) -> Path:
    """A file as GHRSST products are: packed integers with scale, offset and fill value, several days."""
    lat = np.linspace(30, 31, 11)[:: -1 if descending else 1]
    lon = np.linspace(-75, -74, 21) if lon is None else lon
    field = 290.0 + np.arange(2)[:, None, None] + lat[:, None] / 10 + lon / 100
    field[:, 0, 0] = np.nan
    data = xr.Dataset(
        {"analysed_sst": (("time", "lat", "lon"), field if units != "celsius" else field - 273.15, {"units": units})},
        coords={"time": np.array(["2021-01-01T09", "2021-01-02T09"], "M8[ns]"), "lat": lat, "lon": lon},
        attrs={"title": "A made-up analysis"},
    )
    packing = {
        "dtype": "int16",
        "scale_factor": 0.001,
        "add_offset": 290.0 if units != "celsius" else 17.0,
        "_FillValue": -32768,
    }
    data.to_netcdf(path, encoding={"analysed_sst": packing})
    return path


def read(path: Path, **options: Any) -> ObservationTable:
    """The columns of `table`, by name."""
    return read_observations(path, inputs=["lon", "lat"], target="sst", **options)
