"""The paper's experiments, small: the pages hold what they should."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fleetgp as fg
from reproduction import communication, prediction, training
from reproduction.cells import Work
from reproduction.paper import PREDICTORS, TRAINERS
from reproduction.report import grouped
from tests.conftest import interrupted_after

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT.parent / "shared" / "data" / "g1sst_nw_atlantic_1km.nc"


class Here:
    """Cells in this process: what their own processes add is tested with the cells."""

    def results(self, work: Work, tasks: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]]]:
        yield from ((number, work(task)) for number, task in enumerate(tasks))

    def close(self) -> None:
        """Nothing was opened."""


def check_page(folder: Path, *, rows: int, figures: int) -> str:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "http" not in re.sub(r"base64,[^\"]*", "", page), "nothing from elsewhere"
    assert page.count("data:image/png;base64,") == figures
    pictures = sorted((folder / "figures").glob("*.png"))
    assert len(pictures) == len(list((folder / "figures").glob("*.pdf"))) == figures
    for picture in pictures:
        with Image.open(picture) as image:
            assert image.size[0] == 1440, "column width at 200 dots per inch"
            assert len(image.convert("RGB").resize((240, 160)).getcolors(40_000) or []) > 30, picture
    with (folder / "results.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == rows
    facts = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(facts["results"]) == rows
    assert facts["environment"]["numpy"] == np.__version__
    assert "seed" in facts["settings"]
    on_page = re.findall(r'<td class="text"><b>([^<]*)</b></td>', page)
    assert on_page == [finding["verdict"] for finding in facts["findings"]]
    assert on_page
    assert str(folder) not in page
    return page


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")  # the pages have their own words for them
def test_training_small(tmp_path: Path) -> None:
    plan = training.Plan((60,), (2, 3), 1, 1, seed=1)
    cells = training.cells(plan)
    training.reproduce(plan, tmp_path, place=Here())
    page = check_page(tmp_path, rows=len(cells), figures=4)
    for method in (*TRAINERS, *training.OURS):
        assert f">{method}<" in page
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]
    assert {row["method"] for row in rows} == {*TRAINERS, *training.OURS}
    for row in rows:
        if row["block"] == "paper" and row["method"].startswith("dec-"):
            assert row["rounds"] == 100
        if row["block"] != "paper":
            assert row["status"] == "converged"
    by_name = {(row["method"], row["agents"], row["seed"]): row["theta"] for row in rows if row["block"] != "default"}
    for agents, (ours, server) in product((2, 3), training.OURS.items()):
        theirs = by_name[server, 1 if server == "full-gp" else agents, 1]
        np.testing.assert_allclose(by_name[ours, agents, 1], theirs, rtol=1e-3, err_msg=ours)
    field = fg.synthetic_field(60, seed=1)
    expected = fg.Fleet(
        fg.partition(field.inputs, field.observations, agents=2), seed=1, kernel="se", normalize=False
    ).train("gapx-gp", theta0=fg.PAPER_THETA0, rho=500, lipschitz=5000, tol=1e-3, rounds=200)
    (same,) = [r for r in rows if (r["block"], r["agents"], r["method"], r["seed"]) == ("paper", 2, "gapx-gp", 1)]
    np.testing.assert_allclose(same["theta"], expected.theta, rtol=1e-9)
    assert same["rounds"] == expected.rounds


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)])
def test_prediction_small(tmp_path: Path, real: bool) -> None:
    if real and not REAL.exists():
        pytest.skip("the sea-surface temperature file is not here")
    plan = prediction.Plan(str(REAL) if real else "", 200, (2, 4), 1, 10)
    prediction.reproduce(plan, tmp_path, place=Here())
    methods = len(PREDICTORS) + 1 + len(prediction.OURS)  # dec-npae-star on two graphs
    page = check_page(tmp_path, rows=methods * 2, figures=3)
    assert ("g1sst_nw_atlantic_1km" in page) == real
    assert ("not sea-surface temperature" in page) == (not real)
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]
    for row in rows:
        if row["method"] in ("dec-poe", "dec-rbcm", "dec-grbcm"):
            assert row["status"] == "converged"
            assert row["off_central"] < 1e-3
        assert row["participants"] <= row["agents"]
        assert np.isfinite([row["rmse"], row["nlpd"], row["nlpd_noisy"]]).all()
    by_way = {(row["method"], row["graph"], row["agents"], row["replication"]): row for row in rows}
    for agents, replication in product((2, 4), (0,)):
        ours, exact = (by_way[*way, agents, replication] for way in (("dec-full-gp", "tree"), ("full-gp", "server")))
        assert ours["off_central"] < 1e-6
        assert (ours["rmse"], ours["nlpd"]) == pytest.approx((exact["rmse"], exact["nlpd"]), rel=1e-4)
        tree, averaged = (by_way["dec-nn-grbcm", graph, agents, replication] for graph in ("tree", "path"))
        assert tree["rmse"] == pytest.approx(averaged["rmse"], rel=1e-3)
        assert tree["bytes"] < averaged["bytes"]
    assert "dec-full-gp is the exact GP of all data" in page
    assert [v for claim, v in verdicts(tmp_path).items() if "equal their server methods" in claim] == ["agrees"]


@pytest.mark.filterwarnings("ignore:.*no better known:fleetgp.errors.FleetGPWarning")  # at such length-scales
def test_a_refusal_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Length-scales of a two-hundredth of the box: no moments that can be sent hold them."""
    plan = prediction.Plan("", 300, (2,), 1, 20)
    (cell,) = prediction.cells(plan, [0.005, 0.005, 4.0, 0.5])
    monkeypatch.setattr(prediction, "WAYS", (("full-gp", "path"), ("dec-full-gp", prediction.TREE)))
    exact, refused = rows = prediction.run(cell.task)["rows"]
    assert exact["status"] == "converged"
    assert refused["status"] == "refused"
    assert "predict with dec-summary" in refused["why"]
    found = grouped(rows, *prediction.GROUPS)
    ((_, *of_exact), (method, graph, *of_refused)) = prediction.accuracy_table(found, 2)[1]
    assert (method, graph, of_refused[0]) == ("dec-full-gp", "tree", "refused")
    assert len(of_refused) + 1 == len(of_exact)
    assert prediction.about_tree(found)[1:] == [f"dec-full-gp refused 1 time: {refused['why']}"]


def test_draws_do_not_test_on_what_was_seen() -> None:
    plan = {"sst": "", "seed": 0, "observations": 500, "queries": 50}
    inputs, observations, queries, truth, noisy = prediction.draw_replication(plan, 3)
    assert not {tuple(x) for x in inputs} & {tuple(x) for x in queries}
    assert np.std(noisy - truth) == pytest.approx(0.5, rel=0.3)
    assert abs(np.mean(observations) - 290.0) < 8.0
    assert not np.array_equal(prediction.draw_replication(plan, 4)[0], inputs)


def verdicts(folder: Path) -> dict[str, str]:
    findings = json.loads((folder / "results.json").read_text(encoding="utf-8"))["findings"]
    return {finding["claim"]: finding["verdict"] for finding in findings}


@pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")  # as many rounds as in the paper
def test_communication_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "ROUNDS", rounds := 10)
    plan = communication.Plan(60, 5, 2)
    cells = communication.cells(plan)
    rows = [communication.run(cell.task) for cell in cells if "npae" not in cell.name]
    by_name = {(row["method"], row["graph"]): row for row in rows}
    edges = {"path": 4, "cycle": 5, "star": 4, "complete": 10}
    for graph, count in edges.items():
        for method in ("dec-c-gp", "dec-apx-gp", "dec-gapx-gp"):
            assert by_name[method, graph]["counted"] == by_name[method, graph]["formula"] == rounds * 4 * 2 * count
        for method in ("dec-poe", "dec-bcm", "dec-grbcm"):
            assert by_name[method, graph]["counted"] == by_name[method, graph]["formula"] > 0
    communication.write_page(
        plan, rows + [communication.run(c.task) for c in cells if "dec-npae-path" in c.name], tmp_path
    )
    check_page(tmp_path, rows=len(rows) + 1, figures=1)
    told = verdicts(tmp_path)
    assert [told[claim] for claim in told if "training sends s" in claim or "send 2 chi" in claim] == ["agrees"] * 2


@pytest.mark.usefixtures("uncompiled")
def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    code, errors = interrupted_after(
        1, "reproduce", "communication", "--quick", "--out", str(tmp_path / "out"), "--workers", "1"
    )
    assert code == 130, errors
    assert "Traceback" not in errors
    assert len(list((tmp_path / "out").glob("cells/*/*.json"))) == 1
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    "command",
    [["-m", "reproduction", "everything"], ["-c", "from fleetgp.cli import main; main()", "reproduce", "everything"]],
    ids=["in the repository", "elsewhere"],
)
def test_the_experiments_are_found(command: list[str], tmp_path: Path) -> None:
    elsewhere = command[0] == "-c"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path if elsewhere else ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "unknown experiment 'everything'" in done.stderr
