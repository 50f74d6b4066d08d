"""Every code block of README.md and of the pages runs: page by page, in one namespace and one empty folder each."""

from __future__ import annotations

import shlex
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run
from tests.docs.pages import ROOT, Block, blocks, pages

#: What shell blocks may begin with besides fleetgp: it installs, or is run by CI itself.
OTHERS = ("pip", "make", "python", "#")
#: Commands that start, watch or end processes: their blocks say why they are not run.
OF_PROCESSES = ("up", "down", "agent", "ask", "observe", "retrain", "status", "certs", "watch")
#: Blocks that nobody runs: as few as possible.
MOST_NOT_RUN = 6


def commands(block: Block) -> list[list[str]]:
    """The commands of a shell block, each split as a shell would, without comments.

    >>> commands(Block(ROOT / "README.md", 1, "sh", "fleetgp fit a.csv \\\\\\n  --inputs lon lat  # two\\n"))
    [['fleetgp', 'fit', 'a.csv', '--inputs', 'lon', 'lat']]
    """
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def run_shell(block: Block) -> None:
    for words in commands(block):
        if words and words[0] == "fleetgp":
            spread = [part for word in words[1:] for part in sorted(glob(word)) or [word]]
            assert spread[0] not in OF_PROCESSES, f"{block}: fleetgp {spread[0]} needs processes: say why it is not run"
            run(*spread)
        else:
            assert not words or words[0] in OTHERS, f"{block}: expected fleetgp, or one of {OTHERS}, got {words[0]}"


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")
    exec(code, namespace)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "page", [page for page in pages() if any(blocks(page))], ids=lambda p: str(p.relative_to(ROOT))
)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.not_run:
            continue
        if block.language == "python":
            run_python(block, namespace)
        elif block.language == "sh":
            run_shell(block)


def test_few_blocks_are_not_run() -> None:
    left = [f"{block}: {block.not_run}" for page in pages() for block in blocks(page) if block.not_run]
    assert len(left) <= MOST_NOT_RUN, left


def test_blocks_are_found(tmp_path: Path) -> None:
    """Inside of other blocks, set in, and with a reason not to run them."""
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n:::{tab-item} A\n```python\nx = 1\n```\n:::\n\n- item\n  ```sh\n  fleetgp methods\n  ```\n"
        "\n<!-- not run: why -->\n\n```sh\nfleetgp down\n```\n\n````\n```python\nno\n```\n````\n",
        encoding="utf-8",
    )
    found = [(block.line, block.language, block.text, block.not_run) for block in blocks(page)]
    assert found == [
        (5, "python", "x = 1\n", ""),
        (11, "sh", "fleetgp methods\n", ""),
        (17, "sh", "fleetgp down\n", "why"),
        (21, "", "```python\nno\n```\n", ""),
    ]


def test_what_fails_is_told_with_its_place(tmp_path: Path) -> None:
    block = Block(tmp_path / "page.md", 7, "python", "x = 1\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_python(block, {})
    assert caught.traceback[-1].lineno == 7  # counted from 0
