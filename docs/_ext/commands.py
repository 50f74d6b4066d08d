"""`.. commands::`: every command of `fleetgp`, from the application itself: usage, help, options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import typer
from docutils import nodes
from house_docstrings import escaped
from sphinx.util.docutils import SphinxDirective

from fleetgp.cli.app import app as application

EXAMPLE = re.compile(r"\[cyan\](.*?)\[/cyan\]", re.DOTALL)
TAG = re.compile(r"\[/?[a-z ]+\]")


def _text(told: str) -> Iterator[str]:
    """Rich markup as reStructuredText: examples are in cyan, and the headings above them bold."""
    parts = [part.strip() for part in told.split("\n\n") if part.strip()]
    for shown, group in groupby(parts, lambda part: bool(EXAMPLE.fullmatch(part))):
        if shown:
            yield from (".. code-block:: sh", "")
            yield from (f"   {' '.join(match[1].split())}" for part in group if (match := EXAMPLE.fullmatch(part)))
            yield ""
        else:
            for part in group:
                if not re.fullmatch(r"\[bold\]Examples?\[/bold\]", part):
                    yield from (escaped(TAG.sub("", " ".join(part.split()))), "")


def _options(command: Any, context: Any) -> Iterator[str]:
    """Options by their panels, each a definition."""
    shown = [each for each in command.params if not each.hidden]
    panels: dict[str, list[Any]] = {}
    for each in shown:
        ordinary = "Arguments" if each.param_type_name == "argument" else "Options"
        panels.setdefault(each.rich_help_panel or ordinary, []).append(each)
    for panel, members in panels.items():
        yield from (f".. rubric:: {panel}", "")
        for each in members:
            names, told = each.get_help_record(context)
            yield f"``{names}``"
            yield f"   {escaped(TAG.sub('', ' '.join(told.split()))) or '..'}"
            yield ""


def described(name: str, command: Any, parent: Any) -> Iterator[str]:
    context = type(parent)(command, info_name=name, parent=parent)
    title = f"fleetgp {name}"
    yield from (title, "-" * len(title), "")
    yield from _text(command.help or "")
    yield from _options(command, context)


class Commands(SphinxDirective):
    """A section for each command."""

    def run(self) -> list[nodes.Node]:
        group: Any = typer.main.get_command(application)
        parent = group.make_context("fleetgp", [], resilient_parsing=True)
        commands = {name: group.get_command(parent, name) for name in group.list_commands(parent)}
        lines = [line for name, each in commands.items() for line in described(name, each, parent)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
