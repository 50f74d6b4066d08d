"""The configurations by name: `configurations` has all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.same.calls import Record, warning_names

#: By name. Each gets an empty folder.
CONFIGURATIONS: dict[str, Callable[[Path], Record]] = {}


def run(name: str) -> Record:
    """The record of one configuration, with the kinds of warnings that were given."""
    with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = CONFIGURATIONS[name](Path(folder))
    return {**record, "warnings": warning_names(caught)}


def add(name: str, function: Callable[..., Record], *given: Any, **options: Any) -> None:
    """Register what a function returns for these arguments."""
    add_in_folder(name, lambda _: function(*given, **options))


def add_in_folder(name: str, function: Callable[[Path], Record]) -> None:
    """Register a function that gets an empty folder."""
    if name in CONFIGURATIONS:
        raise ValueError(f"expected another name for each configuration, got {name!r} twice")
    CONFIGURATIONS[name] = function


def configuration(function: Callable[[Path], Record]) -> Callable[[Path], Record]:
    """Register a function under its name."""
    add_in_folder(function.__name__.replace("_", " "), function)
    return function
