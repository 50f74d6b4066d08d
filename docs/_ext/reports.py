"""Pages that are HTML already (the reports of the reproduction) are copied beside those that link to them, and opened.

Sphinx would offer them as downloads, under names that nobody can read.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes


def _opened(app: Any, doctree: nodes.document) -> None:
    for node in list(doctree.findall(addnodes.download_reference)):
        target = str(node["reftarget"])
        if target.endswith(".html"):
            node.replace_self(nodes.reference("", "", *node.children, refuri=target))


def _copied(app: Any, error: Exception | None) -> None:
    source = Path(app.srcdir)
    for report in () if error else source.glob("reproduction/*/report.html"):
        place = Path(app.outdir) / report.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(report, place)


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", _opened)
    app.connect("build-finished", _copied)
    return {"parallel_read_safe": True}
