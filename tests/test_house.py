"""The rules of the house, over the source: small files and functions, private names kept private, nothing twice."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import fleetgp

SOURCE = Path(fleetgp.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
#: Lines of a file, and of a function from its `def` to its end.
LONGEST_FILE, LONGEST_FUNCTION = 300, 60
#: Lines of code that may not stand in two places.
BLOCK = 6


def named(path: Path, line: int) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{line}"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_there_is_a_house() -> None:
    assert len(FILES) > 100


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert [named(path, length) for path, length in lengths.items() if length > LONGEST_FILE] == []


def test_no_function_is_too_long() -> None:
    assert [
        f"{named(path, node.lineno)} {node.name} ({length} lines)"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ] == []


def package_of(module: str) -> str:
    """fleetgp.gp.dense.engine -> fleetgp.gp."""
    return ".".join(module.split(".")[:2])


def test_private_names_stay_in_their_package() -> None:
    found = []
    for path in FILES:
        own = package_of(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module and package_of(node.module) != own:
                private = [name.name for name in node.names if re.match(r"_(?!_)", name.name)]
                private += [part for part in node.module.split(".") if re.match(r"_(?!_)", part)]
                if private and node.module.startswith("fleetgp"):
                    found.append(f"{named(path, node.lineno)} {', '.join(private)} of {node.module}")
    assert found == []


def test_what_the_type_checker_ignores_is_named() -> None:
    """mypy, which is strict, says itself where nothing has to be ignored."""
    blanket = re.compile(r"#\s*type:\s*ignore(?!\[[a-z-]+)")
    assert [
        named(path, number)
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if blanket.search(line)
    ] == []


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, tokens) of the lines that do something: no imports, comments, docstrings, signatures, lone brackets."""
    ignored: set[int] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            ignored.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            ignored.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            ignored.update(range(node.lineno, node.body[0].lineno))
    lines: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.string.strip() and token.type != tokenize.COMMENT and token.start[0] not in ignored:
            lines[token.start[0]].append(token.string)
    for number, tokens in lines.items():
        if any(re.search(r"\w", token) for token in tokens):
            yield number, " ".join(tokens)


def test_nothing_stands_twice() -> None:
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in FILES:
        lines = list(code_lines(path))
        for start in range(len(lines) - BLOCK + 1):
            window = lines[start : start + BLOCK]
            places[tuple(text for _, text in window)].append(named(path, window[0][0]))
    assert [" = ".join(found) for found in places.values() if len(found) > 1] == []
