"""Sea-surface temperature from NetCDF: degrees Celsius, ascending axes, one day, one box."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fleetgp.errors import InputError
from fleetgp.io.fields import load_sst
from tests.io.sources import packed

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


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


def test_sst_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_sst(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("not NetCDF", encoding="utf-8")
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
