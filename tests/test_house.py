"""Rules over the source: private names stay private, and the type checker ignores nothing without a name."""

from __future__ import annotations

import ast
import re
from collections import namedtuple
from collections.abc import Iterator
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


#: Public, although they begin with an underscore: `_replace` and its like.
OF_NAMED_TUPLES = frozenset(dir(namedtuple("Row", ["value"])))


def private_names_of(tree: ast.Module) -> Iterator[str]:
    """Private functions, classes, fields and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value, set()):
            yield node.attr


def is_own(value: ast.expr, modules: set[str]) -> bool:
    """Whether it is the object itself, or a module of another project."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in {"self", "cls", *modules}


def test_private_attributes_are_touched_by_their_own_module_alone() -> None:
    found = []
    for path in FILES:
        tree = tree_of(path)
        own = OF_NAMED_TUPLES.union(private_names_of(tree))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
        modules = {name.asname or name.name for node in imports for name in node.names if "fleetgp" not in name.name}
        found += [
            f"{named(path, node.lineno)} {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr) and node.attr not in own
            if not is_own(node.value, modules)
        ]
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
