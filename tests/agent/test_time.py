"""The time in a fleet of processes: its name in fleet.toml, dates in files, and questions about now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fleetgp as fg
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.service import time_facts
from fleetgp.cli.app import app
from fleetgp.cli.requests import _moment_at
from fleetgp.data.times import clock
from fleetgp.errors import InputError
from fleetgp.operator.launch import free_ports
from tests.agent.fleets import running, serving, until

INPUTS = ["lon", "lat", "day"]
HEAD = 'name = "bay"\ninputs = ["lon", "lat", "day"]\ntarget = "sst"\n'
AGENT = '\n[[agent]]\nname = "{}"\nendpoint = "tcp/127.0.0.1:{}"\ndata = "{}.csv"\nneighbours = {}\n'


def describe(folder: Path, settings: str = 'time = "day"\n') -> Description:
    first, second = free_ports(2)
    agents = AGENT.format("a0", first, "a0", '["a1"]') + AGENT.format("a1", second, "a1", "[]")
    (folder / "fleet.toml").write_text(HEAD + settings + agents, encoding="utf-8")
    return read_description(folder / "fleet.toml")


def rows(seed: int, count: int = 40) -> pd.DataFrame:
    """A field that moves to the east."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 96, count)
    lon, lat = rng.uniform(0.0, 2.0, count), rng.uniform(40.0, 42.0, count)
    sst = np.sin(2.0 * lon - hours / 48.0) + np.cos(2.0 * lat) + 0.1 * rng.standard_normal(count)
    day = (pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, "h")).strftime("%Y-%m-%d %H:%M")
    return pd.DataFrame({"lon": lon, "lat": lat, "day": day, "sst": sst})


@pytest.mark.parametrize(
    ("settings", "kernel"),
    [
        ("", "matern32"),
        ('time = "day"\n', "matern32(lon, lat) * matern12(day)"),
        ('time = "day"\ncoordinates = "sphere"\n', "iso-matern32(lon, lat) * matern12(day)"),
        ('time = "day"\ncoordinates = "kilometres"\n', "matern32(lon, lat) * matern12(day)"),
        ('time = "day"\nkernel = "se"\n', "se"),
        ('time = "day"\n[training]\nmethod = "dec-full-gp"\n', "se"),
    ],
)
def test_the_time_has_a_kernel_of_its_own_unless_one_is_chosen(tmp_path: Path, settings: str, kernel: str) -> None:
    assert describe(tmp_path, settings).kernels[0].name == kernel


def test_time_and_now_are_common_settings(tmp_path: Path) -> None:
    kernel = 'kernel = "matern32"\n'
    one = describe(tmp_path, kernel + 'time = "day"\n')
    (tmp_path / "fleet.toml").write_text(
        (tmp_path / "fleet.toml").read_text(encoding="utf-8").replace('time = "day"', 'time = "lat"\nnow = "data"'),
        encoding="utf-8",
    )
    other = read_description(tmp_path / "fleet.toml")
    assert one.differences(other.digest).endswith("different now ('clock' here), time ('day' here)")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('time = "hour"\n', "line 4: time: expected one of the inputs (lon, lat, day), got 'hour'"),
        ('now = "later"\n', "line 4: now must be 'clock' or 'data'"),
        ('now = "data"\n', "line 4: now: expected the time as well"),
        ("time = 3\n", "line 4: time should be a valid string"),
    ],
)
def test_what_is_no_time_is_one_clear_error(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        describe(tmp_path, settings)
    assert message in str(error.value)


def test_now_is_the_clock_for_dates_and_the_newest_row_for_numbers_and_replays(tmp_path: Path) -> None:
    table = rows(0)
    table.to_csv(tmp_path / "dates.csv", index=False)
    numbers = (pd.to_datetime(table["day"]) - pd.Timestamp("1970-01-01")) / pd.Timedelta("1D")
    table.assign(day=numbers).to_csv(tmp_path / "numbers.csv", index=False)

    def facts(file: str, settings: str) -> dict[str, Any]:
        store = ObservationStore(tmp_path / file, INPUTS, "sst", tmp_path / "journal.jsonl")
        return time_facts(describe(tmp_path, settings), store) or {}

    units, newest = "days since 1970-01-01", pytest.approx(numbers.max())
    live = facts("dates.csv", 'time = "day"\n')
    assert (live["input"], live["units"]) == ("day", units)
    assert live["now"] == pytest.approx(clock("days"), abs=1.0)
    replay = 'time = "day"\nnow = "data"\n'
    assert facts("dates.csv", replay) == {"input": "day", "units": units, "now": newest}
    assert facts("numbers.csv", 'time = "day"\n') == {"input": "day", "units": "", "now": newest}
    assert facts("dates.csv", "") == {}
    nothing = {"input": "day", "units": "", "now": None}  # an agent that has no rows yet
    assert facts("missing.csv", 'time = "day"\n') == facts("missing.csv", replay) == nothing


def test_an_agent_without_rows_does_not_know_what_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description, state = describe(tmp_path), {"time": {"input": "day", "units": "", "now": None}}
    monkeypatch.setattr("fleetgp.cli.requests.request", lambda *_: state)
    with pytest.raises(InputError, match="a1 has no rows, so it does not know what is now: ask another agent"):
        _moment_at(description, "a1", None)
    assert _moment_at(description, "a1", 3.0) == (3.0, "")


@pytest.mark.filterwarnings("ignore:sigma_eps stands at its floor")
def test_a_question_without_a_time_is_about_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are those of the simulator with the same rows."""
    monkeypatch.chdir(tmp_path)
    shards = [rows(0), rows(1)]
    for number, own in enumerate(shards):
        own.to_csv(f"a{number}.csv", index=False)
    description = describe(tmp_path, 'time = "day"\nnow = "data"\n')
    every = pd.concat([own.assign(agent=f"a{number}") for number, own in enumerate(shards)])
    fleet = fg.Fleet.from_frame(every, inputs=INPUTS, target="sst", agent="agent")
    places = shards[0][["lon", "lat"]][:4]
    places.to_csv("places.csv", index=False)
    command = ["ask", "fleet.toml", "places.csv", "--agent", "a1", "--out", "answer.csv", "--quiet"]

    def asked(*more: str) -> pd.DataFrame:
        result = CliRunner().invoke(app, [*command, *more])
        assert result.exit_code == 0, result.output
        return pd.read_csv("answer.csv")

    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        fleet.train()
        newest = shards[1]["day"].max()
        now = asked()
        assert pd.to_datetime(now["day"]).tolist() == [pd.Timestamp(newest)] * 4
        np.testing.assert_allclose(now["mean"], fleet.predict(places, at_time=newest).mean, rtol=1e-3)
        ahead = asked("--at-time", "2021-01-05T12:00")
        np.testing.assert_allclose(ahead["mean"], fleet.predict(places, at_time="2021-01-05T12:00").mean, rtol=1e-3)
        assert (ahead["std"] > now["std"]).all(), "a forecast"
        places.assign(day="2021-01-05T12:00").to_csv("places.csv", index=False)
        pd.testing.assert_frame_equal(asked()[["mean", "std"]], ahead[["mean", "std"]])
        twice = CliRunner().invoke(app, [*command, "--at-time", "2021-01-05"])
        assert twice.exit_code == 2
        assert "has a column 'day': leave one of them out" in " ".join(twice.stderr.split())
        state = CliRunner().invoke(app, ["status", "fleet.toml", "--json"])
        assert json.loads(state.stdout)["agents"]["a1"]["time"]["units"] == "days since 1970-01-01"
