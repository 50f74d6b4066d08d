"""Our docstrings as reStructuredText.

They are plain text: a line, paragraphs, `name: what it is` for arguments, maths and examples set in. So nothing in them
is markup but backticks: stars, bars and underscores stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

#: The head of what is said of one argument, or of several: "rounds, tol: stop when ..".
NAME = r"\*{0,2}[A-Za-z_]\w*(?: \([\w, -]+\))?"
NAMES = re.compile(rf"({NAME}(?:, {NAME})*): (?=\S)")
#: One of several names, with what is said in brackets of which methods have it.
ONE = re.compile(r"([\w*]+)((?: \([^)]*\))?)(?:, )?")
CODE = re.compile(r"`+([^`]+)`+")
#: An annotation as it is evaluated -> as it is written in the source.
ARRAY = re.compile(
    r"~?(?:numpy\.)?ndarray\[tuple\[~?(?:typing\.)?Any, \.\.\.\], ~?(?:numpy\.)?dtype\[~?(?:numpy\.)?(\w+)\]\]"
)
KINDS = {"float64": "Array", "int64": "IntArray", "bool": "BoolArray"}
MARKUP = re.compile(r"([\\*|_])")


def escaped(text: str) -> str:
    """Prose in which only `code` is markup.

    >>> escaped("k_i*' of `fit.mean`, |x|")
    "k\\\\_i\\\\*' of ``fit.mean``, \\\\|x\\\\|"
    """
    parts = CODE.split(text)
    return "".join(f"``{part}``" if odd % 2 else MARKUP.sub(r"\\\1", part) for odd, part in enumerate(parts))


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _arguments(lines: list[str]) -> Iterator[str]:
    """`name: text`, with its further lines set in, as a definition list."""
    text: list[str] = []
    for line in [*lines, ""]:
        begins = _depth(line) == 0 and NAMES.match(line)
        if text and (begins or not line):
            yield f"   {escaped(' '.join(text))}"
            yield ""
        if begins:
            yield ", ".join(f"``{name}``{methods}" for name, methods in ONE.findall(begins[1]))
            text = [line[begins.end() :]]
        else:
            text.append(line.strip())


def _paragraph(lines: list[str]) -> Iterator[str]:
    if lines[0].lstrip().startswith(">>>"):
        yield from lines
    elif _depth(lines[0]) > 0:
        yield "::"
        yield ""
        yield from (f"   {line}" for line in lines)
    elif NAMES.match(lines[0]):
        ends = next((n for n, line in enumerate(lines) if not _depth(line) and not NAMES.match(line)), len(lines))
        yield from _arguments(lines[:ends])
        yield from map(escaped, lines[ends:])
    else:
        begins = next((n for n, line in enumerate(lines) if n and NAMES.match(line)), len(lines))
        yield from map(escaped, lines[:begins])
        if begins < len(lines):
            yield ""
            yield from _paragraph(lines[begins:])
    yield ""


def as_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring, without their common indentation, as reStructuredText.

    >>> as_rst(["One line.", "", "rounds, tol: until tol, or", "    so many rounds."])
    ['One line.', '', '``rounds``, ``tol``', '   until tol, or so many rounds.', '', '']
    """
    found: list[str] = []
    for blank, paragraph in groupby(lines, lambda line: not line.strip()):
        if not blank:
            found += _paragraph(list(paragraph))
    return found


def _process(app: Any, what: str, name: str, obj: object, flags: object, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def shortened(annotated: str) -> str:
    """A signature in which arrays have short names.

    >>> shortened("(X: ~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]])")
    '(X: Array)'
    """
    return ARRAY.sub(lambda found: KINDS.get(found[1], "ndarray"), annotated)


def _sign(app: Any, what: str, name: str, obj: object, flags: object, given: str, returned: str) -> tuple[str, str]:
    return given and shortened(given), returned and shortened(returned)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True}
