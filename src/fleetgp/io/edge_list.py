"""A graph from a file of edges between named agents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fleetgp.errors import GraphError, InputError
from fleetgp.graph import Graph


def read_edges(path: str | Path, agents: Sequence[str]) -> Graph:
    """One edge a line, two names with a comma, a tab or blanks between them; # begins a comment.

    The file and the data must know the same agents.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "edges.txt")
    ...     written = path.write_text("ada bo\\nbo cy  # a weak link\\n")
    ...     read_edges(path, ["ada", "bo", "cy"])
    Graph(agents=3, edges=2)
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it cannot be read as a list of edges: {error}") from error
    index = {name: number for number, name in enumerate(agents)}
    edges = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        separator = r"\s*[,\t]\s*" if "," in content or "\t" in content else r"\s+"
        names = [name.strip("\"'") for name in re.split(separator, content)]
        if len(names) != 2:
            raise InputError(f"{path}, line {number}: expected two agents, got {content!r}")
        for name in names:
            if name not in index:
                raise GraphError(
                    f"{path}, line {number}: agent {name!r} is not in the data, which have {_some(agents)}"
                )
        if names[0] == names[1]:
            raise GraphError(f"{path}, line {number}: agent {names[0]!r} has an edge to itself: remove the line")
        edges.append((index[names[0]], index[names[1]]))
    linked = {agent for edge in edges for agent in edge}
    alone = [name for name, number in index.items() if number not in linked]
    if alone and len(agents) > 1:
        raise GraphError(f"{path}: no edge for {_some(alone)} of the data: every agent needs one")
    graph = Graph(len(agents), edges, connected=False)
    if len(graph.components) > 1:
        parts = "; ".join(_some([agents[i] for i in part]) for part in graph.components)
        raise GraphError(f"{path}: the graph is not connected: its parts are {parts}. Add edges between them")
    return graph


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
