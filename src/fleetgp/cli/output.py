"""What the commands say: results to stdout, progress and errors to stderr, or one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fleetgp.cli import discard_output


class Terminal(Console):
    """Standard output. Where nobody reads it any more, that is an error for the caller; rich would exit with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """The terminal; text is never cut into colours by chance."""
    return Terminal(highlight=False)


def emit(facts: Mapping[str, Any], *lines: str | Table, as_json: bool) -> None:
    """The result: as JSON for programs, or as text and tables for people."""
    with _whoever_reads():
        if as_json:
            print(json.dumps(facts, indent=2, default=_plain, ensure_ascii=False), flush=True)
            return
        terminal = console()
        for line in lines:
            terminal.print(line, soft_wrap=isinstance(line, str))


@contextmanager
def _whoever_reads() -> Iterator[None]:
    """The work is done: that a reader such as `head` wants no more of its report is no error."""
    try:
        yield
    except BrokenPipeError:
        discard_output()


def bold(path: object) -> str:
    """A path for the terminal, whatever is in its name."""
    return f"[bold]{escape(str(path))}[/bold]"


def warn(text: str) -> None:
    Console(stderr=True, highlight=False).print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True)


def complain(text: str, shown: str = "") -> None:
    """One line, whatever the error says; shown: lines below it, as they are."""
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


def count_of_agents(count: int) -> str:
    return f"{count:,} agents" if count != 1 else "1 agent"
