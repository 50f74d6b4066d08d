"""Every public name has types, and a docstring with a runnable example."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

import fleetgp as fg

#: Modules whose public names count, beside those of the package itself.
MODULES = ("data", "io", "metrics", "plot")
#: What one part of the library asks of another, and no user: a docstring is enough.
INNER = {"about", "adopt", "at_centre", "cancel", "check", "exchange_parts", "flood_parts"}
INNER |= {"incoming_of", "keep_unfinished", "known_of", "observed", "refuse_foreign", "same"}
INNER |= {"send", "swap", "take", "wait_for", "wake"}  # of a network of one's own: docs/extending.md has the example
#: Whose examples show a class that is not made itself.
SHOWN_BY = {"fleetgp.Network": fg.InProcess}
#: Names that need an extra are no part of __all__, for `import *`.
MORE = ("FleetGPRegressor",)


def exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in [*module.__all__, *(MORE if module is fg else ())]:
        yield f"{module.__name__}.{name}", getattr(module, name)


def public_names() -> dict[str, Any]:
    """Functions and classes by their full names."""
    modules = [fg, *(importlib.import_module(f"fleetgp.{name}") for name in MODULES)]
    found = {name: thing for module in modules for name, thing in exported(module)}
    return {name: thing for name, thing in found.items() if inspect.isfunction(thing) or inspect.isclass(thing)}


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that this library defines, those of base classes too."""
    for name, member in inspect.getmembers_static(kind):
        definer = next(base for base in kind.__mro__ if name in base.__dict__)
        if not name.startswith("_") and definer.__module__.startswith("fleetgp"):
            yield name, member


def function_of(member: Any) -> Any:
    return member.__func__ if isinstance(member, classmethod | staticmethod) else member


def has_example(doc: str | None) -> bool:
    return bool(doctest.DocTestParser().get_examples(doc or ""))


NAMES = public_names()
ERRORS = {name for name, thing in NAMES.items() if inspect.isclass(thing) and issubclass(thing, Exception)}
CLASSES = sorted(name for name, thing in NAMES.items() if inspect.isclass(thing))


def test_there_are_names() -> None:
    assert len(NAMES) > 60
    assert {"fleetgp.Fleet", "fleetgp.io.read_observations", "fleetgp.metrics.rmse", "fleetgp.plot.field"} <= set(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    doc = NAMES[name].__doc__
    assert doc
    if name in SHOWN_BY:
        doc += SHOWN_BY[name].__doc__ or ""
    assert doc.strip().splitlines()[0].endswith((".", ":")), "one line first"
    assert has_example(doc) or name in ERRORS


@pytest.mark.parametrize("name", CLASSES)
def test_its_methods_have_docstrings_and_examples_and_its_properties_a_line(name: str) -> None:
    told, classes = [], [*NAMES[name].__mro__, *([SHOWN_BY[name]] if name in SHOWN_BY else [])]
    examples = " ".join(each.__doc__ or "" for each in classes if each.__module__.startswith("fleetgp"))
    for member_name, member in own_members(NAMES[name]):
        if isinstance(member, property | cached_property):
            doc = member.fget.__doc__ if isinstance(member, property) else member.__doc__
            told += [] if doc else [f"{member_name}: no docstring"]
        elif inspect.isfunction(function_of(member)):
            doc = inspect.getdoc(function_of(member))
            told += [] if doc else [f"{member_name}: no docstring"]
            # An example of a class shows its methods: those that it names need none of their own.
            shown = f".{member_name}(" in examples or member_name in INNER
            told += [] if shown or has_example(doc) or not doc else [f"{member_name}: no example"]
    assert told == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_has_types(name: str) -> None:
    thing = NAMES[name]
    functions = [(name, thing)] if inspect.isfunction(thing) else []
    if inspect.isclass(thing):
        members = own_members(thing)
        functions = [(member, function_of(m)) for member, m in members if inspect.isfunction(function_of(m))]
    untyped = []
    for member, function in functions:
        signature = inspect.signature(function)
        given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
        missing = any(p.annotation is p.empty for p in given) or signature.return_annotation is signature.empty
        untyped += [member] if missing else []
    assert untyped == []
