"""Observations from files: what is read is what was written, and every wrong file gets one clear error."""

from __future__ import annotations

import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from fleetgp.data import partition, partition_by_label
from fleetgp.errors import InputError
from fleetgp.io import Reading, read_observations
from fleetgp.io.sst import load_sst

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


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


# ---- what files do not say of themselves ---------------------------------------------------------------------

COLUMNS = {"inputs": ["lon", "lat"], "target": "sst"}


def test_files_separated_otherwise_get_a_hint_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for separator, option in ((";", ";"), ("\t", "tab")):
        path.write_text(separator.join(["lon", "lat", "sst"]) + "\n" + separator.join(["1,5", "2,5", "12,25"]) + "\n")
        with pytest.raises(InputError, match=f"by commas, or say how they are .--sep '{option}'"):
            read_observations(path, **COLUMNS)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"Are these decimal commas\? Then say so \(--decimal ,\)"):
            read_observations(path, **COLUMNS, reading=Reading(sep=option))  # type: ignore[arg-type]
        found = read_observations(path, **COLUMNS, reading=Reading(sep=option, decimal=","))  # type: ignore[arg-type]
        assert found.inputs.tolist() == [[1.5, 2.5]]
        assert found.observations.tolist() == [12.25]
    with pytest.raises(InputError, match=r"sep .--sep. must be one character"):
        read_observations(path, **COLUMNS, reading=Reading(sep=";;"))  # type: ignore[arg-type]


def test_files_in_another_encoding_get_a_hint_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("lon,lat,sst,boat\n1,2,3,J\xf6rg\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"not written in utf-8: save it as UTF-8, or .*--encoding latin-1"):
        read_observations(path, **COLUMNS, agent="boat")  # type: ignore[arg-type]
    found = read_observations(path, **COLUMNS, agent="boat", reading=Reading(encoding="latin-1"))  # type: ignore[arg-type]
    assert found.labels == ("J\xf6rg",)
    with pytest.raises(InputError, match="unknown encoding 'martian'"):
        read_observations(path, **COLUMNS, reading=Reading(encoding="martian"))  # type: ignore[arg-type]


def test_options_for_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    csv, field = write(table(), tmp_path / "t.csv"), packed(tmp_path / "f.nc")
    for options in ({"date": "2021-01-01"}, {"box": (0, 0, 1, 1)}, {"stride": 2}):
        with pytest.raises(InputError, match=r"is for files that end in \.nc: leave it out"):
            read_observations(csv, **COLUMNS, reading=Reading(**options))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"sep \(--sep\) is for files that end in \.csv"):
        read_observations(field, **COLUMNS, reading=Reading(sep=";"))  # type: ignore[arg-type]
    found = read_observations(field, **COLUMNS, reading=Reading(date="2021-01-02", stride=2))  # type: ignore[arg-type]
    assert found.notes == ("temperatures converted from K to degrees Celsius",)
    assert len(found.observations) == 6 * 11 - 1


def test_rows_wider_than_the_header_and_names_that_come_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("lon,lat,sst\n9,1,2,3\n9,4,5,6\n")  # pandas takes the first field for an index
    with pytest.raises(InputError, match="more fields than the 3 of its header"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]
    path.write_text("lon,lat,sst,sst\n1,2,3,4\n")
    with pytest.raises(InputError, match="two columns are called 'sst'"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]


def test_labels_are_stripped_and_missing_values_of_any_kind_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("lon,lat,sst,boat\n1,2,3,Ada\n1,3,4, Ada \n2,2,5,J\xf6rg B\n")
    found = read_observations(path, **COLUMNS, agent="boat")  # type: ignore[arg-type]
    assert found.labels == ("Ada", "Ada", "J\xf6rg B")
    frame = pd.DataFrame(table(4)).assign(sst=pd.array([1.0, pd.NA, 3.0, 4.0], dtype="Float64"))
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"1 of 4 rows have missing or infinite values \(first: row 2\)"):
        read_observations(tmp_path / "t.parquet", **COLUMNS)  # type: ignore[arg-type]


@pytest.mark.parametrize("fill", [-9999.0, -999.0, 1e20, -32768.0, np.float32(9.96921e36)])
@pytest.mark.parametrize("column", ["sst", "lat"])
def test_fill_values_are_an_error_until_they_are_named(fill: float, column: str, tmp_path: Path) -> None:
    columns = table()
    columns[column][[3, 8]] = fill
    path = write(columns, tmp_path / "t.csv")
    with pytest.raises(InputError, match=rf"column '{column}' has the value \S+ 2 times, far from all others.*--fill"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"2 of 30 rows have missing .*first: row 4"):
        read_observations(path, **COLUMNS, fill=[fill])  # type: ignore[arg-type]
    found = read_observations(path, **COLUMNS, fill=[fill], missing="drop")  # type: ignore[arg-type]
    assert (found.dropped, len(found.observations)) == (2, 28)
    insisted = read_observations(path, **COLUMNS, fill=[])  # type: ignore[arg-type]
    assert len(insisted.observations) == 30
    columns["sst"][5] = -99999.0
    with pytest.raises(InputError, match="has the value -99999 once"):
        read_observations(write(columns, path), **COLUMNS, fill=[fill])  # type: ignore[arg-type]


def test_values_that_only_look_like_fill_values_are_left_alone(tmp_path: Path) -> None:
    columns = table()
    columns["sst"] = np.linspace(-9999.0, 9999.0, 30)
    assert len(read_observations(write(columns, tmp_path / "t.csv"), **COLUMNS).observations) == 30  # type: ignore[arg-type]


def test_two_conventions_of_longitude_in_a_column_are_refused(tmp_path: Path) -> None:
    columns = table()
    columns["lon"] = np.where(np.arange(30) < 12, columns["lon"] - 60.0, columns["lon"] + 300.0)
    path = write(columns, tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"'lon' mixes two conventions.*12 values are below 0 and 18 above 180"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]
    renamed = {("x" if name == "lon" else name): values for name, values in columns.items()}
    assert len(read_observations(write(renamed, path), inputs=["x", "lat"], target="sst").observations) == 30


def test_the_first_cell_that_is_no_number_is_named_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("lon,lat,sst\n1,2,281.4\n2,3,\n3,4,n/k\n4,5,x\n")
    with pytest.raises(InputError, match=r"column 'sst' must hold numbers: .*got 'n/k' \(first: row 3\)$"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]
    path.write_text("lon;lat;sst\n1;2;281,4\n2;3;warm\n")
    with pytest.raises(InputError, match=r"got 'warm' \(first: row 2\)"):
        read_observations(path, **COLUMNS, reading=Reading(sep=";", decimal=","))  # type: ignore[arg-type]


def test_utf_16_and_bars_between_columns_are_recognized(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("lon,lat,sst\n1,2,3\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"written in UTF-16, not in utf-8: .*--encoding utf-16"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]
    assert len(read_observations(path, **COLUMNS, reading=Reading(encoding="utf-16")).observations) == 1  # type: ignore[arg-type]
    path.write_text("lon|lat|sst\n1|2|3\n")
    with pytest.raises(InputError, match=r"--sep '\|'"):
        read_observations(path, **COLUMNS)  # type: ignore[arg-type]


# ---- hostile files ---------------------------------------------------------------------------------------------


def array_file(shape: tuple[int, ...], content: bytes, *, header: bytes | None = None) -> bytes:
    """An .npy file whose description says what we like."""
    told = header or repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(told).to_bytes(4, "little") + told + content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (array_file((10**12,), b"\0" * 80), r"says that it has the shape \(1000000000000,\), but holds"),
        (array_file((-1,), b"\0" * 80), "says that it has the shape"),
        (array_file((10,), b"\0" * 72), "says that it has the shape"),
        (array_file((10,), b"\0" * 80, header=b"(" * 5000), "its description cannot be read"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 80, "its description cannot be read"),
        (b"no array", "its description cannot be read"),
        (
            array_file((1,), b"\0" * 8, header=b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n"),
            "Python objects",
        ),
    ],
)
def test_absurd_arrays_in_an_archive_are_one_clear_error(content: bytes, said: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("sst.npy", content)
    with pytest.raises(InputError, match=said):
        read_observations(tmp_path / "t.npz", **COLUMNS)  # type: ignore[arg-type]


def test_an_archive_that_would_fill_the_memory_is_refused_unopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros, packed a thousandfold; the limit is lowered so that they need not be gigabytes."""
    monkeypatch.setattr("fleetgp.io.formats.UNPACKED", 1 << 24)
    count = (1 << 27) // 8
    with (
        zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("sst.npy", "w", force_zip64=True) as member,
    ):
        member.write(array_file((count,), b""))
        for _ in range(1 << 7):
            member.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"unpacks to 0.134 GB, .* times its own size"):
            read_observations(tmp_path / "t.npz", **COLUMNS)  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


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
        found = load_sst(path, box=(-74.8, 30.2, -74.2, 30.8), stride=2, date="2021-01-01")
        assert found.celsius.shape == (4, 7)
        assert found.longitude[0] == pytest.approx(-74.8)
    assert load_sst(west, box=(285.2, 30.2, 285.8, 30.8), date="2021-01-02").celsius.shape == (7, 13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (0, 0, 1, 1)}, "nothing lies in the box"),
        ({"box": (-74, 30, -75, 31)}, "west < east"),
        ({"box": (-75, 30, -74)}, "four numbers: west, south, east, north"),
        ({"date": "1999-01-01"}, "no field of 1999-01-01; it has 2021-01-01, 2021-01-02"),
        ({"date": "yesterday"}, "date must be like 2021-01-31"),
        ({"date": None}, r"2 fields, of 2021-01-01, 2021-01-02: give one as date \(--date\)"),
        ({"variable": "ice"}, "no variable ice; it has"),
        ({"stride": 0}, "stride"),
        ({"stride": 1.5}, "stride"),
    ],
)
def test_sst_wrong_questions(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_sst(packed(tmp_path / "f.nc"), **{"date": "2021-01-01", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("units", "said"),
    [("kelvin", "from K to degrees"), ("K", "from K to degrees"), ("", "no units"), ("celsius", ""), ("degrees_C", "")],
)
def test_a_conversion_is_told(units: str, said: str, tmp_path: Path) -> None:
    found = load_sst(packed(tmp_path / "f.nc", units=units), date="2021-01-01") if units != "degrees_C" else None
    if found is None:
        with xr.open_dataset(packed(tmp_path / "f.nc", units="celsius")) as data:
            data.load()
        data["analysed_sst"].attrs["units"] = units
        data.to_netcdf(tmp_path / "g.nc")
        found = load_sst(tmp_path / "g.nc", date="2021-01-01")
    assert said in found.converted
    assert bool(found.converted) == bool(said)
    assert 15.0 < np.nanmean(found.celsius) < 25.0


def test_units_that_nobody_expects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in K or degrees Celsius, got the units 'degF'"):
        load_sst(packed(tmp_path / "f.nc", units="degF"), date="2021-01-01")


def test_one_of_several_times_of_a_day_must_be_chosen(tmp_path: Path) -> None:
    with xr.open_dataset(packed(tmp_path / "f.nc")) as data:
        data.load()
    hours = np.array(["2021-01-01T09", "2021-01-01T21"], "M8[ns]")
    data.assign_coords(time=hours).to_netcdf(tmp_path / "g.nc")
    with pytest.raises(InputError, match="2 fields, of 2021-01-01T09:00, 2021-01-01T21:00: give one"):
        load_sst(tmp_path / "g.nc", date="2021-01-01")
    early, late = (load_sst(tmp_path / "g.nc", date=f"2021-01-01T{hour}") for hour in ("09", "21:00"))
    assert np.nanmean(late.celsius - early.celsius) == pytest.approx(1.0, abs=1e-2)
    one = data.isel(time=0)  # time is a coordinate, no axis: another day must not pass for it
    one.to_netcdf(tmp_path / "h.nc")
    assert load_sst(tmp_path / "h.nc").date == "2021-01-01"
    with pytest.raises(InputError, match="no field of 2021-01-02; it has 2021-01-01"):
        load_sst(tmp_path / "h.nc", date="2021-01-02")
    deep = data.isel(time=0).expand_dims(depth=[0.0, 5.0])
    deep.to_netcdf(tmp_path / "d.nc")
    with pytest.raises(InputError, match=r"over latitude and longitude, got one over depth \(2\)"):
        load_sst(tmp_path / "d.nc")


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
