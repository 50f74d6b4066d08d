"""`.. options:: FAMILY`: a table of the options of a family, from their declarations in `fleetgp.options`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from house_docstrings import escaped
from sphinx.util.docutils import SphinxDirective

from fleetgp import options
from fleetgp.declarations import Option, options_in
from fleetgp.io import Reading

HEADER = ("Python", "command line", "fleet.toml", "default", "values", "what it does")


def _cells(option: Option) -> tuple[str, ...]:
    return (
        f"``{option.name}``",
        f"``{option.flag}``" if option.cli else "",
        f"``{option.name}``" if option.toml else "",
        escaped(option.default_in_words),
        escaped(option.kind.values),
        escaped(option.help),
    )


def table(family: type) -> Iterator[str]:
    """The lines of a table in reStructuredText."""
    yield from (".. list-table::", "   :header-rows: 1", "")
    for cells in (HEADER, *map(_cells, options_in(family).values())):
        for number, cell in enumerate(cells):
            yield f"   {'* -' if number == 0 else '  -'} {cell}".rstrip()
    yield ""


class Options(SphinxDirective):
    """The options of a family."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        lines = table({**vars(options), "Reading": Reading}[self.arguments[0]])
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("options", Options)
    return {"parallel_read_safe": True}
