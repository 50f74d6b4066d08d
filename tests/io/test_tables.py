"""Observations from files: what is read is what was written, and every wrong file gets one clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fleetgp.data import partition_by_label
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.io import Reading, read_observations
from tests.io.sources import read, table, write


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
    (tmp_path / "t.csv").write_text("x,y,id\n0,1,3\n1,2,\n2,3,4\n", encoding="utf-8")
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
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_observations(path, inputs=["lon", "lat"], target="sst")


def test_labels_are_stripped_and_missing_values_of_any_kind_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("lon,lat,sst,boat\n1,2,3,Ada\n1,3,4, Ada \n2,2,5,J\xf6rg B\n", encoding="utf-8")
    with pytest.warns(FleetGPWarning, match="' Ada ' and 'Ada' differ by blanks"):
        found = read(path, agent="boat")
    assert found.labels == ("Ada", "Ada", "J\xf6rg B")
    frame = pd.DataFrame(table(4)).assign(sst=pd.array([1.0, pd.NA, 3.0, 4.0], dtype="Float64"))
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"1 of 4 rows have missing or infinite values \(first: row 2\)"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize("fill", [-9999.0, -999.0, 1e20, -32768.0, np.float32(9.96921e36)])
@pytest.mark.parametrize("column", ["sst", "lat"])
def test_fill_values_are_an_error_until_they_are_named(fill: float, column: str, tmp_path: Path) -> None:
    columns = table()
    columns[column][[3, 8]] = fill
    path = write(columns, tmp_path / "t.csv")
    with pytest.raises(InputError, match=rf"column '{column}' has the value \S+ 2 times, far from all others.*--fill"):
        read(path)
    with pytest.raises(InputError, match=r"2 of 30 rows have missing .*first: row 4"):
        read(path, fill=[fill])
    found = read(path, fill=[fill], missing="drop")
    assert (found.dropped, len(found.observations)) == (2, 28)
    insisted = read(path, fill=[])
    assert len(insisted.observations) == 30
    columns["sst"][5] = -99999.0
    with pytest.raises(InputError, match="has the value -99999 once"):
        read(write(columns, path), fill=[fill])


def test_values_that_only_look_like_fill_values_are_left_alone(tmp_path: Path) -> None:
    columns = table()
    columns["sst"] = np.linspace(-9999.0, 9999.0, 30)
    assert len(read(write(columns, tmp_path / "t.csv")).observations) == 30


def test_two_conventions_of_longitude_in_a_column_are_refused(tmp_path: Path) -> None:
    columns = table()
    columns["lon"] = np.where(np.arange(30) < 12, columns["lon"] - 60.0, columns["lon"] + 300.0)
    path = write(columns, tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"'lon' mixes two conventions.*12 values are below 0 and 18 above 180"):
        read(path)
    renamed = {("x" if name == "lon" else name): values for name, values in columns.items()}
    assert len(read_observations(write(renamed, path), inputs=["x", "lat"], target="sst").observations) == 30


def test_the_first_cell_that_is_no_number_is_named_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("lon,lat,sst\n1,2,281.4\n2,3,\n3,4,n/k\n4,5,x\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"column 'sst' must hold numbers: .*got 'n/k' \(first: row 3\)$"):
        read(path)
    path.write_text("lon;lat;sst\n1;2;281,4\n2;3;warm\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"got 'warm' \(first: row 2\)"):
        read(path, reading=Reading(sep=";", decimal=","))
