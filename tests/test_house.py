"""Rules over the source: private names stay private, and the type checker ignores nothing without a name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import fleetgp

SOURCE = Path(fleetgp.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def named(path: Path, line: int) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{line}"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_there_is_a_house() -> None:
    assert len(FILES) > 100


def package_of(module: str) -> str:
    """fleetgp.engines.dense.engine -> fleetgp.engines."""
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
