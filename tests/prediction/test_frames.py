"""Deviations of f and of an observation, intervals, and answers as data frames and datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.fleet.queries import with_numbers

QUERIES = np.array([[0.3, 0.4], [1.5, 1.1], [0.9, 1.9]])


def fleet(**options: Any) -> fg.Fleet:
    field = fg.synthetic_field(150, seed=2)
    shards = fg.partition(field.inputs, field.observations, agents=3)
    return fg.Fleet(shards, **{"kernel": "se", "normalize": False, "theta": [1.2, 0.3, 1.3, 0.1], **options})


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("calibrated", [False, True])
def test_both_deviations_are_those_of_the_two_variances(noisy: bool, calibrated: bool) -> None:
    found = fleet()
    if calibrated:
        found.calibrate("dec-poe", holdout="rows", max_rows=60)
    out = found.predict(QUERIES, "dec-poe", observed=noisy)
    of_f, of_y = (found.predict(QUERIES, "dec-poe", observed=each).variance for each in (False, True))
    np.testing.assert_allclose(out.std, np.sqrt(of_f), rtol=1e-12)
    np.testing.assert_allclose(out.std_observed, np.sqrt(of_y), rtol=1e-12)
    np.testing.assert_allclose(of_y - of_f, out.factor**2 * 0.1**2, rtol=1e-9)
    assert (out.factor != 1.0).all() == calibrated
    assert out.observed is noisy


def test_the_noise_is_that_of_the_agent_that_asks() -> None:
    found = fleet(noise="agents", theta=[1.2, 0.3, 1.3, 0.1, 0.2, 0.4])
    for agent, noise in enumerate((0.1, 0.2, 0.4)):
        out = found.predict(QUERIES, "dec-rbcm", agent=agent)
        np.testing.assert_allclose(out.std_observed**2 - out.std**2, noise**2, rtol=1e-9)
    everyone = found.predict(QUERIES, "dec-rbcm", observed=True)
    plain = found.predict(QUERIES, "dec-rbcm")
    expected = np.repeat([[0.01], [0.04], [0.16]], 3, axis=1)
    np.testing.assert_allclose(everyone.variances - plain.variances, expected, rtol=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_hold_what_they_promise(level: float) -> None:
    out = fleet().predict(QUERIES)
    for observed, std in ((True, out.std_observed), (False, out.std)):
        low, high = out.interval(level, observed=observed)
        held = norm.cdf(high, out.mean, std) - norm.cdf(low, out.mean, std)
        np.testing.assert_allclose(held, level, rtol=1e-9)
        np.testing.assert_allclose((low + high) / 2, out.mean, rtol=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, float("nan"), "0.95"])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    with pytest.raises(InputError, match="level must"):
        fleet().predict(QUERIES).interval(level)


def test_a_frame_has_inputs_by_name_and_how_many_took_part() -> None:
    found = fleet(inputs=["lon", "lat"])
    out = found.predict(pd.DataFrame(QUERIES, columns=["lon", "lat"]))
    frame = out.to_frame()
    assert list(frame) == ["lon", "lat", "mean", "std", "std_observed", "n_agents", "prior_only"]
    np.testing.assert_array_equal(frame[["lon", "lat"]], QUERIES)
    np.testing.assert_array_equal(frame["n_agents"], out.participants.sum(axis=0))
    np.testing.assert_array_equal(frame["std_observed"], out.std_observed)
    asked = pd.DataFrame({"name": ["p", "q", "r"], "lon": QUERIES[:, 0], "lat": QUERIES[:, 1]})
    assert list(out.to_frame(asked))[:4] == ["name", "lon", "lat", "mean"]
    assert out.to_frame(QUERIES)["x2"].tolist() == QUERIES[:, 1].tolist()
    with pytest.raises(InputError, match=r"3 rows, got the shape \(2, 2\)"):
        out.to_frame(QUERIES[:2])
    with pytest.raises(InputError, match="a column 'mean' too"):
        out.to_frame(pd.DataFrame({"mean": [1.0, 2.0, 3.0]}))
    (_, block), *_ = found.condition().predict_in_blocks(QUERIES)
    with pytest.raises(InputError, match="give them"):
        block.to_frame()
    assert block.to_frame(QUERIES)["mean"].tolist() == out.mean.tolist()


def test_an_answer_in_blocks_knows_all_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fleet().predict(QUERIES, observed=True).to_frame()
    monkeypatch.setattr("fleetgp.prediction.methods.BLOCK", 2)
    pd.testing.assert_frame_equal(fleet().predict(QUERIES, observed=True).to_frame(), whole)


def test_a_grid_in_any_order_becomes_a_dataset() -> None:
    found = fleet(inputs=["lon", "lat"])
    lon, lat = np.linspace(0.0, 2.0, 5), np.linspace(0.5, 1.5, 3)
    cells = np.array([[x, y] for x in lon for y in lat])
    shuffled = np.random.default_rng(0).permutation(cells)
    data = found.predict(shuffled).to_dataset()
    assert (data["mean"].dims, data["mean"].shape) == (("lat", "lon"), (3, 5))
    assert data["lon"].attrs["units"] == "degrees_east"
    again = found.predict(shuffled)
    picked = data["std"].sel(lon=xr.DataArray(shuffled[:, 0]), lat=xr.DataArray(shuffled[:, 1]))
    np.testing.assert_array_equal(picked, again.std)
    line = found.predict(np.column_stack([lon, np.full(5, 0.7)])).to_dataset()
    assert line["mean"].dims == ("lon",)
    assert float(line["lat"]) == 0.7
    for wrong in (cells[:-1], np.concatenate([cells[:-1], cells[:1]])):
        with pytest.raises(InputError, match="expected queries on a grid"):
            found.predict(wrong).to_dataset()


def test_queries_of_times_become_numbers_and_times_again() -> None:
    found = fleet(inputs=["time", "lat"])
    found.set_metadata(("a", "b", "c"), "sst", {"time": "days since 1970-01-01", "sst": "degC"})
    moments = pd.to_datetime(["1970-01-01T06:00", "1970-01-02T12:00", "1970-01-01T21:36"])
    expected = found.predict(np.column_stack([[0.25, 1.5, 0.9], QUERIES[:, 1]]))
    for times in (moments, moments.tz_localize("UTC").tz_convert("Asia/Tokyo"), moments.strftime("%Y-%m-%dT%H:%M")):
        out = found.predict(pd.DataFrame({"lat": QUERIES[:, 1], "time": times}))
        np.testing.assert_allclose(out.mean, expected.mean, rtol=1e-12)
        assert (out.to_frame()["time"].to_numpy() == moments.to_numpy()).all()
    data = expected.to_frame()
    assert data["time"].dtype.kind == "M"
    grid = found.predict(np.array([[t, y] for t in (0.0, 1.0) for y in (0.5, 1.0)])).to_dataset()
    assert grid["time"].values.tolist() == np.array(["1970-01-01", "1970-01-02"], dtype="M8[ns]").tolist()
    assert grid["mean"].attrs == {"units": "degC"}
    assert with_numbers(QUERIES, found.units) is QUERIES
