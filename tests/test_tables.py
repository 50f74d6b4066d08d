"""Observations from files: what is read is what was written, and every wrong file gets one clear error."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from fleetgp.data import partition, partition_by_label, read_observations
from fleetgp.data.sst import load_sst
from fleetgp.errors import InputError

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"


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


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_every_format_gives_the_same_observations(ending: str, tmp_path: Path) -> None:
    columns = table()
    found = read_observations(
        write(columns, tmp_path / f"t{ending}"), inputs=["lon", "lat"], target="sst", agent="boat"
    )
    assert np.allclose(found.inputs, np.column_stack([columns["lon"], columns["lat"]]))
    assert np.allclose(found.observations, columns["sst"])
    assert found.labels == tuple(columns["boat"].tolist())
    assert found.dropped == 0
    names, shards = partition_by_label(found.inputs, found.observations, found.labels)
    assert names == ["Ada", "Bo", "Cy"]
    assert [len(y) for _, y in shards] == [10, 10, 10]
    assert np.allclose(shards[1][1], columns["sst"][1::3])


def test_missing_values_are_refused_or_dropped_and_counted(tmp_path: Path) -> None:
    columns = table()
    columns["sst"][4] = np.nan
    columns["lon"][7] = np.inf
    columns["boat"] = columns["boat"].astype(object)
    columns["boat"][9] = ""
    path = write(columns, tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"t\.csv: 3 of 30 rows .*first: row 5"):
        read_observations(path, inputs=["lon", "lat"], target="sst", agent="boat")
    found = read_observations(path, inputs=["lon", "lat"], target="sst", agent="boat", missing="drop")
    assert found.dropped == 3
    assert len(found.observations) == 27
    assert found.labels is not None
    assert len(found.labels) == 27


def test_numbers_name_agents_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,id\n0,1,3\n1,2,\n2,3,4\n")
    found = read_observations(tmp_path / "t.csv", inputs=["x"], target="y", agent="id", missing="drop")
    assert found.labels == ("3", "4")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "no such file"),
        ("t.xlsx", "x", r"\.csv, \.parquet, \.npz"),
        ("t.parquet", "not parquet", "cannot be read as PARQUET"),
        ("t.npz", "not npz", "cannot be read as NPZ"),
        ("t.csv", "", "cannot be read as CSV"),
        ("t.csv", "lon,lat,SST\n1,2,3\n", "no column 'sst'; it has lon, lat, SST"),
        ("t.csv", "lon,lat,sst\n1,north,3\n", "column 'lat' must hold numbers"),
        ("t.csv", "lon,lat,sst\n", "no row"),
    ],
)
def test_wrong_files_are_one_clear_error(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_observations(path, inputs=["lon", "lat"], target="sst")


@pytest.mark.parametrize("by", ["stripes", "grid", "kmeans", "random"])
@pytest.mark.parametrize("agents", [1, 2, 5, 7, 12])
def test_partitions_keep_every_point_once(by: str, agents: int) -> None:
    rng = np.random.default_rng(agents)
    x = rng.uniform(0, 1, (97, 2))
    shards = partition(x, np.arange(97.0), agents=agents, by=by)  # type: ignore[arg-type]
    assert len(shards) == agents
    assert sorted(np.concatenate([y for _, y in shards]).tolist()) == list(range(97))
    sizes = [len(y) for _, y in shards]
    assert min(sizes) >= 1
    if by != "kmeans":
        assert max(sizes) - min(sizes) <= 1 + (by == "grid")
    if by in ("grid", "kmeans") and agents == 12:
        spread = np.mean([x_i.std(axis=0).prod() for x_i, _ in shards])
        assert spread < 0.25 * x.std(axis=0).prod()


def test_kmeans_gives_every_agent_a_point_even_of_repeated_places() -> None:
    shards = partition(np.zeros((6, 2)), np.arange(6.0), agents=4, by="kmeans")
    assert all(len(y) for _, y in shards)


# ---- sea-surface temperature -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("units", ["kelvin", "K", "celsius", ""])
@pytest.mark.parametrize("descending", [False, True])
def test_sst_is_celsius_on_ascending_axes(units: str, descending: bool, tmp_path: Path) -> None:
    found = load_sst(packed(tmp_path / "f.nc", units=units, descending=descending), date="2021-01-02")
    assert (found.product, found.date) == ("A made-up analysis", "2021-01-02")
    assert (np.diff(found.latitude) > 0).all()
    assert (np.diff(found.longitude) > 0).all()
    expected = 291.0 - 273.15 + found.latitude[:, None] / 10 + found.longitude / 100
    known = np.isfinite(found.celsius)
    assert (~known).sum() == 1
    assert np.allclose(found.celsius[known], expected[known], atol=1e-3)
    points, values = found.points()
    assert points.shape == (known.sum(), 2)
    assert values.shape == (known.sum(),)


def test_sst_box_stride_and_both_kinds_of_longitude(tmp_path: Path) -> None:
    west = packed(tmp_path / "a.nc")
    east = packed(tmp_path / "b.nc", lon=np.linspace(285, 286, 21))
    for path in (west, east):
        found = load_sst(path, box=(-74.8, 30.2, -74.2, 30.8), stride=2)
        assert found.celsius.shape == (4, 7)
        assert found.longitude[0] == pytest.approx(-74.8)
    assert load_sst(west, box=(285.2, 30.2, 285.8, 30.8)).celsius.shape == (7, 13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (0, 0, 1, 1)}, "nothing lies in the box"),
        ({"box": (-74, 30, -75, 31)}, "west < east"),
        ({"date": "1999-01-01"}, "no field of 1999-01-01; it has 2021-01-01 to 2021-01-02"),
        ({"variable": "ice"}, "no variable ice; it has"),
        ({"stride": 0}, "stride"),
    ],
)
def test_sst_wrong_questions(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_sst(packed(tmp_path / "f.nc"), **options)  # type: ignore[arg-type]


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "f.nc")
    (tmp_path / "t.csv").write_text("lon,lat,sst\n1,2,3\n")
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(InputError, match='extra "data"'):
        read_observations(tmp_path / "t.csv", inputs=["lon", "lat"], target="sst")
    with pytest.raises(InputError, match='extra "data"'):
        load_sst(path)


def test_sst_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_sst(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("not NetCDF")
    with pytest.raises(InputError, match="cannot be read as NetCDF"):
        load_sst(tmp_path / "text.nc")


@pytest.mark.skipif(not REAL.is_dir(), reason="the real sea-surface temperatures are not at hand")
def test_real_products() -> None:
    mur = load_sst(REAL / "mur_v41_socal_20210101-10.nc", date="2021-01-03", stride=4)
    assert 5 < np.nanmin(mur.celsius) < np.nanmax(mur.celsius) < 25
    assert 0.1 < np.isnan(mur.celsius).mean() < 0.25
    g1 = load_sst(REAL / "g1sst_nw_atlantic_1km.nc", box=(-73.0, 36.4, -69.4, 40.0))
    assert np.isfinite(g1.celsius).all()
    assert 3.5 < g1.celsius.std() < 5.0
