"""The MUR downloader against a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetgp.cli.app import app
from fleetgp.errors import InputError, NetworkError
from fleetgp.io import download_mur, load_sst
from fleetgp.io import erddap as module
from fleetgp.progress import Progress
from tests.io.griddap import Griddap, temperature

xr = pytest.importorskip("xarray")
BOX = (-73.0, 36.4, -72.6, 36.9)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("fleetgp.io.erddap.time.sleep", lambda _: None)
    (tmp_path / "served").mkdir()
    running: Any = ThreadingHTTPServer(("127.0.0.1", 0), Griddap)
    running.asked, running.trouble, running.folder = [], [], tmp_path / "served"
    running.address = f"http://127.0.0.1:{running.server_port}/erddap"
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def fetch(server: Any, tmp_path: Path, **options: Any) -> Path:
    given: dict[str, Any] = {"box": BOX, "date": "2021-01-03", **options}
    return download_mur(
        given.pop("box"), given.pop("date"), folder=tmp_path / "cache", server=server.address, timeout=60, **given
    )


def test_the_box_arrives_as_the_server_has_it(server: Any, tmp_path: Path) -> None:
    field = load_sst(fetch(server, tmp_path))
    assert field.latitude.shape == (51,)
    assert field.longitude.shape == (41,)
    np.testing.assert_allclose(field.latitude[[0, -1]], [36.4, 36.9])
    expected = temperature(field.latitude, field.longitude)
    np.testing.assert_allclose(field.celsius, expected, rtol=1e-12)
    assert np.isnan(field.celsius).sum() == 2 * 51  # 73.00 W and 72.99 W
    assert "MUR" in field.product
    assert field.date == "2021-01-03"
    assert len(server.asked) == 1


@pytest.mark.parametrize("stride", [1, 3, 7])
def test_bands_join_without_a_seam(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    monkeypatch.setattr(module, "BAND", 20)
    seen: list[Progress] = []
    field = load_sst(fetch(server, tmp_path, stride=stride, progress=seen.append))
    rows = np.arange(3640, 3691, stride) / 100
    columns = np.arange(-7300, -7259, stride) / 100
    np.testing.assert_allclose(field.latitude, rows)
    np.testing.assert_allclose(field.celsius, temperature(rows, columns), rtol=1e-12)
    bands = -(-len(rows) // max(1, 20 // len(columns)))
    assert len(server.asked) == bands > 1
    assert (seen[-1].round, seen[-1].rounds, seen[-1].unit) == (bands, bands, "band")


def test_what_is_in_the_cache_is_not_fetched_again(server: Any, tmp_path: Path) -> None:
    first = fetch(server, tmp_path)
    assert fetch(server, tmp_path) == first
    assert len(server.asked) == 1
    assert sorted(path.name for path in first.parent.iterdir()) == [first.name, f"{first.name}.sha256"]
    damaged = bytearray(first.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    first.write_bytes(damaged)
    fetch(server, tmp_path)
    assert len(server.asked) == 2


def test_an_interrupted_download_goes_on_where_it_was(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BAND", 500)

    def stop(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(server, tmp_path, progress=stop)
    assert len(server.asked) == 3
    damaged = sorted((tmp_path / "cache").glob("*.parts/*.nc"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-10])
    field = load_sst(fetch(server, tmp_path))
    np.testing.assert_allclose(field.celsius, temperature(field.latitude, field.longitude), rtol=1e-12)
    assert len(server.asked) == 3 + 1 + 2  # 5 bands: two finished, of which one is damaged


@pytest.mark.parametrize("trouble", ["breaks_off", "falls_short", "cut_short", "other_place", "no_netcdf", "busy"])
def test_what_may_pass_is_tried_again(server: Any, tmp_path: Path, trouble: str) -> None:
    server.trouble = [trouble, trouble]
    field = load_sst(fetch(server, tmp_path))
    np.testing.assert_allclose(field.celsius, temperature(field.latitude, field.longitude), rtol=1e-12)
    assert len(server.asked) == 3


def test_another_day_is_not_taken_for_the_one_that_was_asked_for(server: Any, tmp_path: Path) -> None:
    server.trouble = ["other_day"]
    with pytest.raises(InputError, match="no field of 2021-01-03: it answered with 2021-01-02"):
        fetch(server, tmp_path)
    assert not list((tmp_path / "cache").glob("*.nc"))


def test_bands_of_another_cut_are_not_joined(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(progress: Progress) -> None:
        if progress.round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "BAND", 500)
    with pytest.raises(KeyboardInterrupt):
        fetch(server, tmp_path, progress=stop)
    monkeypatch.setattr(module, "BAND", 300)
    field = load_sst(fetch(server, tmp_path))
    np.testing.assert_allclose(field.celsius, temperature(field.latitude, field.longitude), rtol=1e-12)


def test_two_at_once_get_the_same_file(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BAND", 300)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: fetch(server, tmp_path), range(2)))
    assert found[0] == found[1]
    assert len(server.asked) == 8, "each of the 8 bands once"


def test_a_refusal_is_told_in_the_servers_words(server: Any, tmp_path: Path) -> None:
    server.trouble = ["refuses"]
    with pytest.raises(InputError, match=r"refused the request \(404\): Not Found: .*time=\"2031\""):
        fetch(server, tmp_path)
    assert len(server.asked) == 1


def test_without_a_network_one_clear_error(server: Any, tmp_path: Path) -> None:
    server.trouble = ["busy"] * 10
    with pytest.raises(NetworkError, match=r"band 1 of 1 in 4 attempts: it answered 503: .*busy.*continues from there"):
        fetch(server, tmp_path)
    with pytest.raises(NetworkError, match="Is there a network"):
        download_mur(BOX, "2021-01-03", folder=tmp_path / "c", server="http://127.0.0.1:9", timeout=2)


def test_from_the_server_to_a_model_on_the_command_line(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    box = [str(side) for side in BOX]
    arguments = ["download", "--box", *box, "--date", "2021-01-03", "--stride", "4", "--server", server.address]
    found = CliRunner().invoke(app, [*arguments, "--out", "sea.nc", "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["shape"] == [13, 11]
    assert told["known"] == 13 * 10
    assert "MUR" in told["product"]
    fit = [
        "fit",
        "sea.nc",
        "--inputs",
        "lon",
        "lat",
        "--target",
        "sst",
        "--n-agents",
        "3",
        "--out",
        "m",
        "--tol",
        "1e-3",
    ]
    assert CliRunner().invoke(app, fit, catch_exceptions=False).exit_code == 0
    server.trouble = ["busy"] * 4
    refused = CliRunner().invoke(app, [*arguments[:-3], "5", *arguments[-2:]], catch_exceptions=False)
    assert refused.exit_code == 1
    assert refused.stderr.count("error: ") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"date": "yesterday"}, "like 2021-01-31"),
        ({"date": "1999-01-01"}, "begins on 2002-06-01"),
        ({"box": (-69, 36, -73, 40)}, "west < east"),
        ({"box": (-73.004, 36.001, -73.001, 36.004)}, "no grid point"),
        ({"stride": 0}, "at least 1"),
        ({"box": (170, 36, 190, 40)}, "date line"),
        ({"box": (-190, 36, -170, 40)}, "date line"),
        ({"box": (200, 36, 180, 40)}, "west < east"),
    ],
)
def test_bad_requests_are_refused_before_asking(server: Any, tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fetch(server, tmp_path, **options)
    assert not server.asked
