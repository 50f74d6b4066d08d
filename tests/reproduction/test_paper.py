"""The transcribed numbers are those of the paper's source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fleetgp as fg
from reproduction import paper

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "paper.tex"


def latex_rows(label: str, lines: int) -> list[tuple[int, list[str]]]:
    """(M, cells) of a table of the paper's source."""
    text = SOURCE.read_text(encoding="utf-8")
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
        if method not in paper.TRAINERS:
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
