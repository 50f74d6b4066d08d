"""Medians of repeated runs, every competitor in the same process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np


def median(work: Callable[[], object], *, budget: float = 3.0, most: int = 30) -> float:
    """Seconds, the median of as many runs as fit the budget after one to warm up; one of one if it takes longer."""
    first = once(work)
    if first > budget:
        return first
    runs, spent = [], 0.0
    while len(runs) < 3 or (spent < budget and len(runs) < most):
        runs.append(once(work))
        spent += runs[-1]
    return statistics.median(runs)


def medians(works: dict[str, Callable[[], object]], *, budget: float = 3.0, most: int = 30) -> dict[str, float]:
    """Seconds of each, by turns, so that what else the machine does falls on all of them; see `median`."""
    for work in works.values():
        work()
    runs: list[dict[str, float]] = []
    spent = 0.0
    while len(runs) < 3 or (spent < budget * len(works) and len(runs) < most):
        runs.append({name: once(work) for name, work in works.items()})
        spent += sum(runs[-1].values())
    return {name: statistics.median(run[name] for run in runs) for name in works}


def once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seconds(value: float | None) -> str:
    if value is None or not np.isfinite(value):
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1.0 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


class Table:
    """Rows of text under a heading: printed, and kept for the report."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title, self.columns = title, columns
        self.rows: list[tuple[str, ...]] = []
        self.notes: list[str] = []

    def add(self, *cells: object) -> None:
        self.rows.append(tuple(str(cell) for cell in cells))
        print("   " + "  ".join(f"{cell:>12}" for cell in self.rows[-1]), flush=True)

    def start(self) -> None:
        print(f"\n{self.title}\n   " + "  ".join(f"{c:>12}" for c in self.columns), flush=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"   {text}", flush=True)

    def markdown(self) -> str:
        head = [f"| {' | '.join(self.columns)} |", "|" + " ---: |" * len(self.columns)]
        body = [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([f"## {self.title}", "", *head, *body, "", *(f"- {note}" for note in self.notes), ""])


class Tables:
    """Several tables of one section, under what is said of all of them."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.notes: list[str] = []
        self.tables: list[Table] = []

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"   {text}", flush=True)

    def markdown(self) -> str:
        parts = [table.markdown().replace("## ", "### ", 1) for table in self.tables]
        return "\n".join([f"## {self.title}", "", *(f"- {note}" for note in self.notes), "", *parts])
