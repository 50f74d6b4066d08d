"""What the commands print: results to stdout, progress and errors to stderr, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fleetgp.cli import discard_output
from fleetgp.network.ledger import FRAMING, Traffic
from fleetgp.units import readable_bytes

#: Messages, scalars and bytes of each kind of content, as they are in JSON.
Sent = Mapping[str, Mapping[str, int]]


class Terminal(Console):
    """Standard output. A closed pipe is an error for the caller; rich would exit with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """The terminal, without automatic highlighting."""
    return Terminal(highlight=False)


@dataclass(frozen=True)
class Report:
    """The result of a command. facts: for programs, as JSON.  lines: for people.

    notes: warnings for people, printed after the lines.  error: raised after all is printed.
    """

    facts: Mapping[str, Any]
    lines: Sequence[str | Table]
    notes: Sequence[str] = ()
    error: Exception | None = None


def print_report(report: Report, *, as_json: bool) -> None:
    """Print one JSON document, or text and tables."""
    if as_json:
        print_json(report.facts)
    else:
        print_lines(*report.lines)
        for note in report.notes:
            warn(note)
    if report.error is not None:
        raise report.error


def print_json(facts: Mapping[str, Any]) -> None:
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    with _unless_reader_closed():
        print(json.dumps(facts, indent=2, default=_plain, ensure_ascii=ascii_only), flush=True)


def print_lines(*lines: str | Table) -> None:
    """Print lines to standard output."""
    terminal = console()
    with _unless_reader_closed():
        for line in lines:
            terminal.print(line, soft_wrap=isinstance(line, str))


@contextmanager
def _unless_reader_closed() -> Iterator[None]:
    """A reader such as `head` that closes the pipe of a report is no error: the work is done."""
    try:
        yield
    except BrokenPipeError:
        discard_output()


def bold(path: object) -> str:
    """A path for the terminal, whatever is in its name."""
    return f"[bold]{escape(str(path))}[/bold]"


def warn(text: str) -> None:
    Console(stderr=True, highlight=False).print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True)


def print_error(text: str, shown: str = "") -> None:
    """One line, whatever the error says. shown: lines below it, as they are."""
    terminal, line = Console(stderr=True, highlight=False), " ".join(str(text).split())
    terminal.print(f"[red]error:[/red] {escape(line)}", soft_wrap=True)
    if shown:
        terminal.print(escape(shown), soft_wrap=True)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


def plain_table(title: str, *columns: str, left: int = 1) -> Table:
    """A table without frames; the first `left` columns are text."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=number == 0)
    return table


def sent_facts(kinds: Mapping[str, Traffic]) -> Sent:
    """kinds: those of a ledger (`Ledger.by_kind`). The headers of frames are no content.

    >>> sent_facts({"queries": Traffic(1, 4, 40), "framing": Traffic(1, 0, 36)})
    {'queries': {'messages': 1, 'scalars': 4, 'bytes': 40}}
    """
    return {kind: vars(traffic) for kind, traffic in kinds.items() if kind != FRAMING}


def sent_line(sent: Sent, size: int | None = None) -> str:
    """size: all bytes, with the headers.

    >>> sent_line({"queries": {"scalars": 4}, "predictions": {"scalars": 1200}}, 12_000)
    'Sent between agents, in numbers: queries 4, predictions 1,200; 12 kB in all.'
    """
    kinds = ", ".join(f"{kind} {one['scalars']:,}" for kind, one in sent.items() if one["scalars"]) or "nothing"
    return f"Sent between agents, in numbers: {kinds}" + ("." if size is None else f"; {readable_bytes(size)} in all.")
