"""The time as an input: its name, its kernel, and questions that are about one moment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.options import default_kernel

INPUTS = ("lon", "day", "lat")
THETA = [0.8, 0.9, 3.0, 1.0, 0.1]
KERNEL = "matern32(lon, lat) * matern12(day)"


def table(count: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.uniform(0.0, 4.0, count), "D")
    rows = pd.DataFrame({"lon": rng.uniform(0, 2, count), "day": days, "lat": rng.uniform(40, 42, count)})
    return rows.assign(
        sst=np.sin(2 * rows["lon"]) + 0.1 * rng.standard_normal(count), boat=["Di", "Ada"] * (count // 2)
    )


def at_sea(**model: Any) -> fg.Fleet:
    return fg.Fleet.from_frame(
        table(), inputs=INPUTS, target="sst", agent="boat", **{"theta": THETA, "normalize": False, **model}
    )


FLEET = at_sea()


def numbered(**model: Any) -> fg.Fleet:
    """The same rows without dates, and with the time by its name."""
    return fg.Fleet(FLEET.shards, inputs=INPUTS, time="day", **{"theta": THETA, "normalize": False, **model})


def test_the_time_is_the_only_input_with_dates_or_the_one_that_is_named() -> None:
    named = numbered()
    assert (FLEET.time, FLEET.kernel.name, FLEET.names) == ("day", KERNEL, named.names)
    assert (named.time, named.kernel.name, named.now) == ("day", KERNEL, FLEET.now)
    assert FLEET.now == max(x[:, 1].max() for x, *_ in FLEET.shards)
    plain = fg.Fleet(FLEET.shards, inputs=INPUTS, theta=THETA)
    assert (plain.time, plain.now, plain.kernel.name) == (None, None, "matern32")
    two = table().assign(since=lambda rows: rows["day"])
    both = fg.Fleet.from_frame(two, inputs=["day", "since"], target="sst", theta=[1, 1, 1, 0.1])
    assert (both.time, both.kernel.name) == (None, "matern32")
    assert fg.Fleet.from_frame(two, inputs=["day", "since"], target="sst", time="since").time == "since"
    outputs = fg.Outputs([(x, np.column_stack([y, y])) for x, y in FLEET.shards], targets=["a", "b"], inputs=INPUTS,
                         time="day")  # fmt: skip
    assert outputs.fleets["b"].kernel.name == KERNEL
    with pytest.raises(InputError, match=r"time: expected one of the inputs \(lon, day, lat\), got 'hour'"):
        at_sea(time="hour")


def test_units_that_come_later_name_the_time_and_its_kernel() -> None:
    fleet = fg.Fleet(FLEET.shards, inputs=INPUTS)
    assert fleet.kernel.name == "matern32"
    fleet.set_metadata(("Di", "Ada"), "sst", FLEET.units)
    assert (fleet.time, fleet.kernel.name) == ("day", KERNEL)
    chosen = fg.Fleet(FLEET.shards, inputs=INPUTS, kernel="se").set_metadata(("Di", "Ada"), "sst", FLEET.units)
    given = fg.Fleet(FLEET.shards, inputs=INPUTS, theta=THETA).set_metadata(("Di", "Ada"), "sst", FLEET.units)
    assert (chosen.kernel.name, given.kernel.name) == ("se", "matern32")
    for one in (fleet, chosen, given, FLEET):
        assert fg.Fleet(one.shards, theta=THETA, **one.settings).kernel == one.kernel


@pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")
def test_a_training_that_needs_another_kernel_takes_it() -> None:
    fleet = numbered(theta=None)
    with pytest.warns(match='needs kernel="se" instead of the default "matern32'):
        fleet.train("dec-full-gp", rounds=1)
    assert fleet.kernel.name == "se"


@pytest.mark.parametrize(
    ("inputs", "time", "kernel"),
    [
        (["day"], "day", "matern32"),
        (["x", "day"], None, "matern32"),
        (["x", "day"], "day", "matern32(x) * matern12(day)"),
        (["sea depth", "day's"], "day's", 'matern32("sea depth") * matern12("day\'s")'),
    ],
)
def test_the_default_kernel(inputs: list[str], time: str | None, kernel: str) -> None:
    assert default_kernel(inputs=inputs, time=time) == kernel
    shards = [(np.random.default_rng(0).standard_normal((3, len(inputs))), np.arange(3.0))]
    assert fg.Fleet(shards, inputs=inputs, time=time).kernel.name == kernel


@pytest.mark.filterwarnings("ignore:distances in kilometres")
@pytest.mark.parametrize("coordinates", ["kilometres", "scaled", "sphere"])
def test_the_time_is_no_place(coordinates: Any) -> None:
    theta = {"kilometres": [70.0, 90.0, 3.0, 1.0, 0.1], "scaled": THETA, "sphere": [80.0, 3.0, 1.0, 0.1]}
    fleet = at_sea(theta=theta[coordinates], coordinates=coordinates)
    places = table()[["lon", "lat"]][:5]
    there = fleet.predict(places, "full-gp", at_time="2021-01-06")
    np.testing.assert_array_equal(there.mean, fleet.predict(places.assign(day="2021-01-06"), "full-gp").mean)
    assert (there.variance > fleet.predict(places, "full-gp").variance).all()


@pytest.mark.filterwarnings("ignore:.*no better known than the prior")
@given(st.floats(18_620.0, 18_640.0))
def test_a_question_at_a_time_is_one_with_a_column_of_it(day: float) -> None:
    places = table()[["lon", "lat"]][:4]
    full = places.assign(day=day)[list(INPUTS)].to_numpy()
    expected = FLEET.predict(full, "dec-rbcm")
    for queries in (places, places.to_numpy(), places.to_numpy().tolist(), places[["lat", "lon"]]):
        answer = FLEET.predict(queries, "dec-rbcm", at_time=day)
        np.testing.assert_array_equal(answer.mean, expected.mean)
        np.testing.assert_array_equal(answer.variance, expected.variance)
    assert answer.to_frame()["day"].nunique() == 1


def test_every_question_can_be_about_one_time() -> None:
    places, full = table()[["lon", "lat"]][:4], table()[["lon", "lat"]][:4].assign(day="2021-01-05T12:00")
    for moment in ("2021-01-05T12:00", datetime(2021, 1, 5, 12, tzinfo=UTC), pd.Timestamp("2021-01-05 12:00"), 18632.5):
        about: dict[str, Any] = {"method": "dec-rbcm", "at_time": moment}
        np.testing.assert_array_equal(FLEET.joint(places, **about).mean, FLEET.joint(full, "dec-rbcm").mean)
        np.testing.assert_array_equal(FLEET.sample(places, **about), FLEET.sample(full, method="dec-rbcm"))
        slopes = FLEET.gradient(places, **about).gradient
        np.testing.assert_array_equal(slopes, FLEET.gradient(full, "dec-rbcm").gradient)
        two = [FLEET.suggest(0, places, 2, **about), FLEET.suggest(0, full, 2, method="dec-rbcm")]
        np.testing.assert_array_equal(two[0].places, two[1].places)
        parts = FLEET.condition().predict_in_blocks(places, **about)
        np.testing.assert_array_equal(next(parts)[1].mean, FLEET.predict(full, "dec-rbcm").mean)
    cells = xr.Dataset(coords={"lon": [0.5, 1.0], "lat": [40.5, 41.0]})
    assert FLEET.predict(cells, at_time="2021-01-05").to_dataset()["mean"].size == 4


@pytest.mark.parametrize(
    ("fleet", "columns", "at_time", "message"),
    [
        (FLEET, ["lon", "lat", "day"], 5.0, "at_time: expected queries without 'day', which they have"),
        (FLEET, ["lon", "lat"], "noon", "at_time: expected a date like 2021-01-31"),
        (FLEET, ["lon", "lat"], True, "at_time: expected a date or a number, got True"),
        (FLEET, ["lon", "lat"], np.inf, "at_time: expected a point in time, got inf"),
        (numbered(), ["lon", "lat"], "2021-01-05", "at_time: expected a number in the unit of the time input"),
        (FLEET, ["lon"], None, "'lat'"),
        (fg.Fleet(FLEET.shards, theta=THETA, inputs=INPUTS), ["lon", "lat"], None, "'day'"),
        (fg.Fleet(FLEET.shards, theta=THETA, inputs=INPUTS), ["lon", "lat"], 5.0, "at_time|'day'"),
    ],
)
def test_what_is_about_no_time_is_one_clear_error(fleet: fg.Fleet, columns: Any, at_time: Any, message: str) -> None:
    queries = table()[columns][:3].assign(**({"day": 18630.0} if "day" in columns else {}))
    with pytest.raises(InputError, match=message):
        fleet.predict(queries, at_time=at_time)


def test_scores_and_folds_have_their_own_times() -> None:
    with pytest.raises(InputError, match="score has no option 'at_time'"):
        FLEET.score(table(), table()["sst"], at_time=5.0)  # type: ignore[call-arg]
    assert FLEET.cross_validate(2, method="dec-rbcm", train=False).scores.rows == 60


@pytest.mark.filterwarnings("error::fleetgp.FleetGPWarning")
def test_a_map_is_of_now_and_forecasts_within_the_scale_of_the_time_are_no_extrapolation() -> None:
    box = (0.3, 40.3, 1.7, 41.7)
    now = FLEET.map((4, 3), box=box, within=1.0, method="full-gp")
    assert now.attrs["map_time"] == "2021-01-04 21:27 UTC"
    assert float((now["day"].values - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")) == pytest.approx(FLEET.now)
    assert FLEET.now is not None
    ahead = FLEET.map((4, 3), box=box, at_time=FLEET.now + 1.0, within=1.0, method="full-gp")
    assert (ahead["cell_status"] == 0).all()
    assert (ahead["sst_std"] > now["sst_std"]).all()
    assert (ahead["sst_std"] < 1.0).all()
    with pytest.raises(InputError, match="the map is empty"):
        FLEET.map((4, 3), box=box, at_time=FLEET.now + 30.0)
    across = FLEET.map((4, 3), at={"lat": 41.0}, within=np.inf, method="full-gp")
    assert across["sst"].dims == ("day", "lon")
    assert "map_time" not in across.attrs


def test_a_folder_keeps_the_time(tmp_path: Path) -> None:
    fleet = numbered().set_metadata(("Di", "Ada"), "sst", {})
    again = fg.load_model(fg.save_model(fleet, tmp_path / "model")).fleet
    assert (again.time, again.now, again.kernel) == ("day", fleet.now, fleet.kernel)
    places = table()[["lon", "lat"]][:4]
    np.testing.assert_array_equal(again.predict(places, "full-gp").mean, fleet.predict(places, "full-gp").mean)


def test_a_time_that_is_no_input_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"time: expected one of the inputs \(lon, day, lat\), got 'noon'"):
        fg.Fleet(FLEET.shards, theta=THETA, kernel="se", inputs=INPUTS, time="noon")


def test_no_places_and_no_input_but_the_time() -> None:
    assert FLEET.predict(np.zeros((0, 2)), at_time=5.0).mean.shape == (0,)
    alone = fg.Fleet([(np.arange(9.0)[:, None], np.arange(9.0))], theta=[3.0, 3.0, 0.1], inputs=["day"], time="day")
    with pytest.raises(InputError, match="'day'"):
        alone.predict(table()[["lon"]])
    assert alone.predict([[alone.now]]).mean.shape == (1,)
