r"""Formulas as MathML, which browsers draw by themselves: no script and no font from the network.

docutils has the converter. It knows `\begin{aligned}`, and wants braces: \frac{1}{2}, not \frac12.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
#: What the converter would read as one number: \frac12 becomes 12.
BARE = re.compile(r"\\[td]?frac\s*\d")


def converted(node: nodes.Node, tex: str, *, block: bool) -> str:
    try:
        if BARE.search(tex):
            raise MathError(r"expected \frac{1}{2}, with braces")
        return str(tex2mathml(tex, as_block=block))
    except MathError as error:
        LOGGER.warning("formula %r: %s", tex, error, location=node)
        return ""


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(converted(node, node.astext(), block=False))
    raise nodes.SkipNode


def display(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{converted(node, node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True}
