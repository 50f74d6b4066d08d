"""The paper's experiments, small: the cells are right, kept and resumed, and the pages hold what they should."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fleetgp as fg
from fleetgp.experiments import communication, paper, prediction, prediction_report, training
from fleetgp.experiments.cells import Cell, run_cells
from fleetgp.experiments.reproduce import reproduce_prediction, reproduce_training
from fleetgp.progress import Progress
from fleetgp.storage.kept import Kept
from tests.conftest import interrupted_after

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "paper.tex"
REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "g1sst_nw_atlantic_1km.nc"


# ---- the paper's numbers -----------------------------------------------------------------------------------


def latex_rows(label: str, lines: int) -> list[tuple[int, list[str]]]:
    """(M, cells) of a table of the paper's source."""
    text = SOURCE.read_text()
    end = text.index(f"\\label{{{label}}}")
    body = text[text.rindex("\\begin{table", 0, end) : end]
    agents, found = 0, []
    for line in body.split("\\\\"):
        start = re.search(rf"\\multirow\{{{lines}\}}\{{\*\}}\{{(\d+)\}}", line)
        agents = int(start.group(1)) if start else agents
        plain = re.sub(r"\\citep\{[^}]*\}|\\phantom\{0\}|\\textbf|\\multirow\{\d\}\{\*\}|[{}]", "", line)
        cells = [cell.strip().split("\n")[-1].strip() for cell in plain.split("&")]
        if agents and len(cells) >= 5:
            found.append((agents, cells))
    return found


def number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper's source is not here")
def test_the_training_table_is_the_papers() -> None:
    seen = 0
    for agents, cells in latex_rows("tab:gp_training_sim", 8):
        method = cells[1].lower()
        if method not in fg.TRAINING_METHODS:
            continue
        for size, seconds, rounds in ((8_100, cells[2], cells[3]), (32_400, cells[4], cells[5])):
            row = paper.trained(method, size, agents)
            assert (row.seconds, row.rounds) == (number(seconds), number(rounds)), (agents, method, size)
            seen += 1
    assert seen == 64


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper's source is not here")
def test_the_nearest_neighbour_table_is_the_papers() -> None:
    seen, taking = 0, ""
    for agents, cells in latex_rows("tab:gp_prediction_sim", 6):
        method = cells[1].lower()
        if method not in fg.PREDICTION_METHODS:
            continue
        taking = cells[2] or taking
        row = paper.nearest(method, agents)
        assert row is not None
        assert (row.seconds, row.rounds) == (number(cells[3]), number(cells[4])), (agents, method)
        assert taking == f"{row.participants[0]}$\\pm${row.participants[1]}"
        seen += 1
    assert seen == 24


# ---- cells -------------------------------------------------------------------------------------------------


def work(task: dict[str, Any]) -> dict[str, Any]:
    if task.get("fail"):
        raise ValueError("no")
    with Path(task["log"]).open("a") as log:
        log.write(f"{task['n']}\n")
    return {"square": task["n"] ** 2, "threads": os.environ["OPENBLAS_NUM_THREADS"]}


def test_cells_are_kept_as_they_finish_and_not_done_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cells = [Cell(str(n), {"n": n, "log": str(log)}, effort=n) for n in range(4)]
    kept = Kept(tmp_path / "cells", {})
    seen: list[Progress] = []
    found = run_cells(cells[:2], work, kept, workers=1, listener=seen.append)
    assert {name: piece["square"] for name, piece in found.items()} == {"0": 0, "1": 1}
    assert found["1"]["threads"] == "1"
    assert log.read_text() == "1\n0\n", "the longest first"
    found = run_cells(cells, work, kept, workers=2, listener=seen.append)
    assert {name: piece["square"] for name, piece in found.items()} == {"0": 0, "1": 1, "2": 4, "3": 9}
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3"]
    assert (seen[-1].round, seen[-1].rounds) == (4, 4)


def test_a_cell_that_fails_loses_only_itself(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    kept = Kept(tmp_path / "cells", {})
    cells = [Cell("good", {"n": 2, "log": log}, 2.0), Cell("bad", {"n": 3, "log": log, "fail": True}, 1.0)]
    with pytest.raises(ValueError, match="no"):
        run_cells(cells, work, kept, workers=1)
    assert kept.get("good")["square"] == 4
    assert kept.get("bad") is None


# ---- the experiments ---------------------------------------------------------------------------------------


def check_page(folder: Path, *, rows: int, figures: int) -> str:
    page = (folder / "report.html").read_text()
    assert "http" not in re.sub(r"base64,[^\"]*", "", page), "nothing from elsewhere"
    assert page.count("data:image/png;base64,") == figures
    pictures = sorted((folder / "figures").glob("*.png"))
    assert len(pictures) == len(list((folder / "figures").glob("*.pdf"))) == figures
    for picture in pictures:
        with Image.open(picture) as image:
            assert image.size[0] == 1440, "column width at 200 dots per inch"
            assert len(image.convert("RGB").resize((240, 160)).getcolors(40_000) or []) > 30, picture
    with (folder / "results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == rows
    facts = json.loads((folder / "results.json").read_text())
    assert len(facts["results"]) == rows
    assert facts["environment"]["numpy"] == np.__version__
    assert "seed" in facts["settings"]
    on_page = re.findall(r'<td class="text"><b>([^<]*)</b></td>', page)
    assert on_page == [finding["verdict"] for finding in facts["findings"]]
    assert on_page
    assert str(folder) not in page
    return page


def test_training_small(tmp_path: Path) -> None:
    plan = training.TrainingPlan((200,), (2, 4), 2, 1)
    cells = training.cells(plan)
    reproduce_training(plan, tmp_path, workers=1)
    page = check_page(tmp_path, rows=len(cells), figures=4)
    for method in fg.TRAINING_METHODS:
        assert f">{method}<" in page
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {row["method"] for row in rows} == set(fg.TRAINING_METHODS)
    for row in rows:
        if row["block"] == "paper" and row["method"].startswith("dec-"):
            assert row["rounds"] == 100
        if row["block"] == "default":
            assert row["status"] == "converged"
    field = fg.synthetic_field(200, seed=1)
    expected = fg.Fleet(fg.partition(field.inputs, field.observations, agents=2), seed=1).train(
        "gapx-gp", theta0=fg.PAPER_THETA0, rho=500, lipschitz=5000, tol=1e-3, rounds=200
    )
    (same,) = [r for r in rows if (r["block"], r["agents"], r["method"], r["seed"]) == ("paper", 2, "gapx-gp", 1)]
    np.testing.assert_allclose(same["theta"], expected.theta, rtol=1e-9)
    assert same["rounds"] == expected.rounds


def test_the_papers_exclusions_and_what_is_scaled() -> None:
    names = {cell.name for cell in training.cells(training.TrainingPlan(replications=1, default_replications=1))}
    paper_cells = {name.removesuffix("-0") for name in names if name.startswith("paper")}
    assert "paper-8100-4-c-gp" in paper_cells
    for left_out in ("paper-32400-10-c-gp", "paper-32400-40-dec-c-gp", "paper-32400-4-dec-gapx-gp"):
        assert left_out not in paper_cells
    assert training.faithful("dec-apx-gp", 8_100, 10)["kappa"] == 5000.0
    assert training.faithful("dec-apx-gp", 8_100, 10)["rounds"] == 100
    assert training.faithful("apx-gp", 32_400, 4)["lipschitz"] == 20_000.0


def test_the_papers_constants_are_unstable_for_large_agents() -> None:
    """The reason for scaling: at the optimum the curvature in log sigma_eps is 2 N_i, and 2 (L + rho) is 11,000."""
    from fleetgp.gp.expert import Expert
    from fleetgp.gp.kernels import as_kernel

    field = fg.synthetic_field(8_100, seed=0)
    expert = Expert(field.inputs, field.observations, as_kernel("se"), 0)
    at, step = np.log(fg.PAPER_THETA), np.array([0.0, 0.0, 0.0, 1e-4])
    slope = expert.evaluate(at + step).gradient - expert.evaluate(at - step).gradient
    assert slope[3] / 2e-4 == pytest.approx(2 * 8_100, rel=0.05)
    assert slope[3] / 2e-4 > 2 * (training.STIFFNESS + training.RHO)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)])
def test_prediction_small(tmp_path: Path, real: bool) -> None:
    if real and not REAL.exists():
        pytest.skip("the sea-surface temperature file is not here")
    plan = prediction.PredictionPlan(str(REAL) if real else "", 300, (2, 10), 2, 20)
    reproduce_prediction(plan, tmp_path, workers=1)
    methods = len(fg.PREDICTION_METHODS) + 1  # dec-npae-star on two graphs
    page = check_page(tmp_path, rows=methods * 2 * 2, figures=3)
    assert ("g1sst_nw_atlantic_1km" in page) == real
    assert ("not sea-surface temperature" in page) == (not real)
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    for row in rows:
        if row["method"] in ("dec-poe", "dec-rbcm", "dec-grbcm"):
            assert row["status"] == "converged"
            assert row["off_central"] < 1e-3
        assert row["participants"] <= row["agents"]
        assert np.isfinite([row["rmse"], row["nlpd"], row["nlpd_noisy"]]).all()
    assert [v for claim, v in verdicts(tmp_path).items() if "equal their server methods" in claim] == ["agrees"]


def test_draws_do_not_test_on_what_was_seen() -> None:
    plan = {"sst": "", "seed": 0, "observations": 500, "queries": 50}
    inputs, observations, queries, truth, noisy = prediction.drawn(plan, 3)
    assert not {tuple(x) for x in inputs} & {tuple(x) for x in queries}
    assert np.std(noisy - truth) == pytest.approx(0.5, rel=0.3)
    assert abs(np.mean(observations) - 290.0) < 8.0
    assert not np.array_equal(prediction.drawn(plan, 4)[0], inputs)


def verdicts(folder: Path) -> dict[str, str]:
    findings = json.loads((folder / "results.json").read_text())["findings"]
    return {finding["claim"]: finding["verdict"] for finding in findings}


@pytest.mark.parametrize(("off", "agrees"), [(5e-4, True), (2e-3, False)])
def test_a_verdict_on_equality_follows_the_numbers(off: float, agrees: bool) -> None:
    """One of ten is off, by less or more than the 1e-3 that count as equal."""
    plan = prediction.PredictionPlan("", 300, (2, 10), 1, 20)
    rows = {(f"dec-{rule}", "path", m): [{"off_central": 0.0}] for rule in communication.SUMMANDS for m in plan.fleets}
    rows["dec-rbcm", "path", 10] = [{"off_central": off}]
    assert prediction_report._decentralized_equals(plan, rows).agrees is agrees


@pytest.mark.parametrize(("counted", "agrees"), [(100, True), (103, False)])
def test_a_verdict_on_traffic_follows_the_numbers(counted: int, agrees: bool) -> None:
    def row(method: str, kind: str, graph: str, counted: int = 100) -> dict[str, Any]:
        scalars = {"stopping": 10}
        return {"method": method, "kind": kind, "graph": graph, "counted": counted, "formula": 100, "scalars": scalars}

    rows = [row("dec-apx-gp", "training", graph) for graph in communication.GRAPHS]
    rows += [row("dec-apx-gp", "training", "path", counted), row("apx-gp", "training", "server", 200)]
    rows += [row("dec-poe", "prediction", "path"), row("dec-npae", "prediction", "path", 30)]
    found = communication.findings(rows)
    assert (found[0].agrees, found[2].agrees) == (agrees, True)


def test_communication_small(tmp_path: Path) -> None:
    plan = communication.CommunicationPlan(120, 5, 3)
    cells = communication.cells(plan)
    rows = [communication.run(cell.task) for cell in cells if "npae" not in cell.name]
    by_name = {(row["method"], row["graph"]): row for row in rows}
    edges = {"path": 4, "cycle": 5, "star": 4, "complete": 10}
    for graph, count in edges.items():
        for method in ("dec-c-gp", "dec-apx-gp", "dec-gapx-gp"):
            assert by_name[method, graph]["counted"] == by_name[method, graph]["formula"] == 50 * 4 * 2 * count
        for method in ("dec-poe", "dec-bcm", "dec-grbcm"):
            assert by_name[method, graph]["counted"] == by_name[method, graph]["formula"] > 0
    communication.write(plan, rows + [communication.run(c.task) for c in cells if "dec-npae-path" in c.name], tmp_path)
    check_page(tmp_path, rows=len(rows) + 1, figures=1)
    told = verdicts(tmp_path)
    assert [told[claim] for claim in told if "training sends s" in claim or "send 2 chi" in claim] == ["agrees"] * 2


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    code, errors = interrupted_after(
        1, "reproduce", "communication", "--quick", "--out", str(tmp_path / "out"), "--workers", "1"
    )
    assert code == 130, errors
    assert "Traceback" not in errors
    assert len(list((tmp_path / "out").glob("cells/*/*.json"))) == 1
    assert not (tmp_path / "out" / "report.html").exists()
