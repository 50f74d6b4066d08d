"""Files in chunks: the rows of the file, whatever the size of the chunks; every wrong file gets one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.io import Reading
from fleetgp.io.fields import load_sst
from fleetgp.io.formats import Columns
from fleetgp.io.survey import Chunk, chunks
from tests.io.sources import packed, read, table, write

COLUMNS = Columns(("lon", "lat"), "sst", "boat")


def all_of(path: Path, columns: Columns = COLUMNS, rows: int = 7) -> tuple[Array, list[str], list[Chunk]]:
    found = list(chunks(path, columns, rows))
    labels = [label for chunk in found if chunk.labels is not None for label in chunk.labels]
    return np.concatenate([chunk.numbers for chunk in found]), labels, found


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("rows", [1, 7, 30, 1000])
def test_the_rows_are_those_of_the_whole_file(ending: str, rows: int, tmp_path: Path) -> None:
    path = write(table(), tmp_path / f"t{ending}")
    whole = read(path, agent="boat")
    numbers, labels, found = all_of(path, rows=rows)
    np.testing.assert_array_equal(numbers, np.column_stack([whole.inputs, whole.observations]))
    assert tuple(labels) == whole.labels
    assert all(len(chunk.numbers) <= rows for chunk in found)
    assert [chunk.before for chunk in found] == list(range(0, 30, rows))


def test_values_that_stand_for_nothing_and_labels_as_they_are_written(tmp_path: Path) -> None:
    columns = table()
    columns["sst"][3] = -9999.0
    columns["boat"] = np.array(["NA", "007", ""] * 10, dtype=object)
    numbers, labels, _ = all_of(
        write(columns, tmp_path / "t.csv"), Columns(("lon", "lat"), "sst", "boat", fill=(-9999.0,))
    )
    assert np.isnan(numbers[3, 2])
    assert np.isfinite(np.delete(numbers, 3, axis=0)).all()
    assert labels == ["NA", "007", ""] * 10


def test_other_csv_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame(table()).to_csv(path, index=False, sep=";", decimal=",")
    how = Columns(("lon", "lat"), "sst", reading=Reading(sep=";", decimal=","))
    np.testing.assert_array_equal(all_of(path, how)[0][:, 2], table()["sst"])
    with pytest.raises(InputError, match=r"t\.csv: there is no column 'lon'.*--sep ';'"):
        all_of(path)


def field(tmp_path: Path) -> tuple[xr.Dataset, Array]:
    """A field over time, lat and lon with land in it, and its rows."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((3, 4, 5))
    values[:, 1, 2] = np.nan
    time = np.array(["2021-01-01T12", "2021-01-02", "2021-01-04"], "M8[ns]")
    lat, lon = np.linspace(40, 43, 4), np.linspace(-5, -1, 5)
    depth = rng.standard_normal((4, 5))
    data = xr.Dataset(
        {"sst": (("time", "lat", "lon"), values, {"units": "degC"}), "depth": (("lat", "lon"), depth)},
        coords={"time": time, "lat": lat, "lon": lon},
    )
    days = np.array([18628.5, 18629.0, 18631.0])
    cells = [
        [lon[k], days[i], depth[j, k], values[i, j, k]]
        for i in range(3)
        for j in range(4)
        for k in range(5)
        if np.isfinite(values[i, j, k])
    ]
    return data, np.array(cells)


@pytest.mark.parametrize("kind", ["nc", "zarr", "packed"])
@pytest.mark.parametrize("rows", [1, 7, 13, 1000])
def test_fields_are_tables_of_their_known_cells(kind: str, rows: int, tmp_path: Path) -> None:
    data, expected = field(tmp_path)
    path = tmp_path / ("f.zarr" if kind == "zarr" else "f.nc")
    if kind == "zarr":
        pytest.importorskip("zarr")
        data.to_zarr(path, encoding={"sst": {"chunks": (2, 2, 3)}}, consolidated=False, zarr_format=2)
    else:
        data.to_netcdf(path, encoding={"sst": {"chunksizes": (1, 2, 5)}} if kind == "packed" else None)
    numbers, _, found = all_of(path, Columns(("lon", "time", "depth"), "sst"), rows)
    assert sum(chunk.empty for chunk in found) == 3
    assert found[0].units[-1] == "degC"
    np.testing.assert_allclose(numbers[np.lexsort(numbers.T)], expected[np.lexsort(expected.T)], rtol=1e-14)


def test_an_input_over_other_axes_than_the_target_is_refused(tmp_path: Path) -> None:
    data, _ = field(tmp_path)
    data.to_netcdf(tmp_path / "f.nc")
    with pytest.raises(InputError, match=r"f\.nc: 'sst' runs over time, which 'depth' does not"):
        all_of(tmp_path / "f.nc", Columns(("sst",), "depth"))


def test_a_list_of_observations_in_netcdf_is_a_table(tmp_path: Path) -> None:
    columns = table()
    columns["sst"][4] = np.nan  # a row that is missing, no land
    xr.Dataset({name: ("obs", column) for name, column in columns.items()}).to_netcdf(tmp_path / "t.nc")
    numbers, labels, found = all_of(tmp_path / "t.nc")
    np.testing.assert_array_equal(numbers[:, 2], columns["sst"])
    assert labels == columns["boat"].tolist()
    assert sum(chunk.empty for chunk in found) == 0


def test_a_text_far_down_is_named_with_its_row(tmp_path: Path) -> None:
    lines = write(table(), tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()
    lines[20] = "1.0,2.0,warm,Ada"
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.csv: column 'sst' must hold numbers: .*'warm' \(first: row 20\)"):
        all_of(tmp_path / "t.csv")


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    lines = write(table(), tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()
    lines[20] = "1.0,2.0,3.0,Ada,5.0"
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.csv: it cannot be read as CSV: .*line 21.*\(after row 14\)"):
        all_of(tmp_path / "t.csv")


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    lines = write(table(3000), tmp_path / "t.csv").read_bytes().splitlines()
    lines[-2] = lines[-2].replace(b"A", b"\xff").replace(b"B", b"\xff").replace(b"C", b"\xff")
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=r"t\.csv: it is not written in utf-8"):
        all_of(tmp_path / "t.csv")


def test_rows_with_more_fields_than_the_header_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("lon,lat,sst,boat\n" + "1,2,3,Ada,5\n" * 20, encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.csv: its rows have more fields than the 4 of its header"):
        all_of(tmp_path / "t.csv")


def test_a_damaged_page_of_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(table(3000)), path, row_group_size=1000, write_page_checksum=True, use_dictionary=False)
    place = pq.read_metadata(path).row_group(1).column(2).data_page_offset + 4000
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"t\.parquet: it cannot be read as PARQUET: .*\(after row 1000\)"):
        all_of(path, rows=500)
    path.write_bytes(content[:-100])
    with pytest.raises(InputError, match=r"t\.parquet: it cannot be read as PARQUET"):
        all_of(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.npz", "NPZ is read as a whole only, write Parquet"),
        ("t.txt", "expected a file that ends in .csv"),
        ("t.csv", "there is no such file"),
        ("t.nc", "it cannot be read as NC"),
        ("t.zarr", "expected a folder, as Zarr is one"),
    ],
)
def test_what_cannot_be_read_in_chunks_is_refused(name: str, message: str, tmp_path: Path) -> None:
    if name not in ("t.csv", "t.txt"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=f"{name}: .*{message}"):
        all_of(tmp_path / name)


def test_options_of_a_field_are_for_fields(tmp_path: Path) -> None:
    path = write(table(), tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"stride \(--stride\) is for files that end in \.nc or \.zarr"):
        all_of(path, Columns(("lon", "lat"), "sst", reading=Reading(stride=2)))


BOX = (-74.8, 30.2, -74.2, 30.8)


@pytest.mark.parametrize("units", ["kelvin", "celsius", ""])
@pytest.mark.parametrize("east", [False, True])
@pytest.mark.parametrize("part", [{}, {"box": BOX}, {"stride": 3}, {"box": BOX, "stride": 2}])
def test_a_part_of_a_field_is_that_of_the_field_read_as_a_whole(
    units: str, east: bool, part: dict[str, Any], tmp_path: Path
) -> None:
    lon = np.linspace(285, 286, 21) if east else None
    path = packed(tmp_path / "f.nc", units=units, lon=lon, descending=east)
    whole = load_sst(path, date="2021-01-02", **part)
    expected = np.column_stack(whole.points())
    columns = Columns(("lon", "lat"), "sst", reading=Reading(date="2021-01-02", celsius=True, **part))
    found, _, read = all_of(path, columns)
    if east and "box" not in part:
        found[:, 0] -= 360.0  # without a box they stay as they are
    np.testing.assert_allclose(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)], rtol=0, atol=1e-9)
    notes = [note for note in read[0].notes if "longitudes" not in note]
    assert notes == ([whole.converted] if whole.converted else [])
    assert len(read[0].notes) == len(notes) + (east and "box" in part)
    assert read[0].units[-1] == "degC"


def test_a_part_of_a_zarr_field_and_what_is_not_in_it(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    data, cells = field(tmp_path)
    data.to_zarr(tmp_path / "f.zarr", encoding={"sst": {"chunks": (2, 2, 3)}}, consolidated=False, zarr_format=2)
    names = ("lon", "time", "depth")
    found, _, _ = all_of(tmp_path / "f.zarr", Columns(names, "sst", reading=Reading("2021-01-04", (-5, 40, -2, 41))))
    expected = cells[(cells[:, 1] == 18631.0) & (cells[:, 0] <= -2)]
    kept = np.isin(expected[:, 2], data["depth"].sel(lat=slice(40, 41)))
    np.testing.assert_allclose(found[np.lexsort(found.T)], expected[kept][np.lexsort(expected[kept].T)], rtol=1e-14)
    wrong: list[tuple[Reading, str]] = [
        (Reading("2022-01-01"), "no field of 2022-01-01; it has 2021-01-01, 2021-01-02, 2021-01-04"),
        (Reading(box=(10, 40, 20, 41)), "nothing lies in the box"),
        (Reading(stride=0), "stride"),
    ]
    for reading, message in wrong:
        with pytest.raises(InputError, match=message):
            all_of(tmp_path / "f.zarr", Columns(names, "sst", reading=reading))
    square = xr.Dataset(
        {"sst": (("a", "b"), np.ones((3, 3)), {"units": "degF"})}, {"a": np.arange(3), "b": np.arange(3)}
    )
    square.to_netcdf(tmp_path / "g.nc")
    with pytest.raises(InputError, match=r"'sst' has 3 cells along b, which is no input: .*--at b="):
        all_of(tmp_path / "g.nc", Columns(("a",), "sst"))
    with pytest.raises(InputError, match="expected temperatures in K or degrees Celsius, got the units 'degF'"):
        all_of(tmp_path / "g.nc", Columns(("a", "b"), "sst", reading=Reading(celsius=True)))
    with pytest.raises(InputError, match=r"g\.nc: expected an axis lat or latitude"):
        all_of(tmp_path / "g.nc", Columns(("a", "b"), "sst", reading=Reading(stride=2)))
