"""The code blocks of README.md and of the site's pages, as a reader would type them.

`python -m tests.docs.pages FOLDER` writes the Python of each page to a file, for the type checker (`make types`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<language>[^`\s]*).*")
#: Before a block that is not run, with the reason.
NOT_RUN = re.compile(r"\s*<!-- not run: (?P<why>.+) -->\s*")


@dataclass(frozen=True)
class Block:
    """line: of its first line in the page, from 1.  not_run: why, or nothing."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """README.md, and all Markdown of docs/."""
    return [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, without the indentation of their fences."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at, reason = 0, ""
    while at < len(lines):
        opening = FENCE.fullmatch(lines[at])
        if opening is None:
            mark = NOT_RUN.fullmatch(lines[at])
            reason = mark["why"] if mark else reason if not lines[at].strip() else ""
            at += 1
            continue
        start, closing = at + 1, opening["indent"] + opening["fence"]
        at = next((n for n in range(start, len(lines)) if lines[n].rstrip() == closing), len(lines))
        text = "\n".join(line.removeprefix(opening["indent"]) for line in lines[start:at])
        yield Block(page, start + 1, opening["language"], text + "\n", reason)
        at, reason = at + 1, ""


def python_of(page: Path) -> str:
    """All Python of a page, each line where it stands there, so that what is wrong is found in the page."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


def write_python(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages():
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_").lower()
        if code := python_of(page):
            (folder / f"{name}.py").write_text(code, encoding="utf-8")


if __name__ == "__main__":
    write_python(Path(sys.argv[1]))
