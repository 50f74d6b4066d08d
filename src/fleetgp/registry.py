"""Kernels, engines, rules and trainers by name: the package's own, and those that other packages add."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fleetgp.errors import FleetGPWarning, InputError, check_name, shortened

Item = TypeVar("Item")
#: Names that can be typed in a terminal, in a fleet.toml and in an expression.
NAME = re.compile(r"[A-Za-z][\w.\-]*")
#: The entry points of packages that add items, and whether they were loaded.
GROUP = "fleetgp"
_loaded = False


class Registry(Mapping[str, Item]):
    """Items by name. what: the noun for one of them, for messages.

    For a name that it does not have, it imports the modules that installed packages name as entry points of the group
    "fleetgp": so the command line and the processes of a fleet find what other packages add.

    >>> colours = Registry("colour", {"red": 1})
    >>> colours.add("blue", 2)
    >>> list(colours), colours["blue"], "green" in colours
    (['red', 'blue'], 2, False)
    >>> colours.add("red", 3)
    Traceback (most recent call last):
    fleetgp.errors.InputError: FleetGP has a colour 'red' itself: choose another name
    """

    def __init__(self, what: str, items: Mapping[str, Item] | None = None) -> None:
        self.what = what
        self._items = dict(items or {})
        self._ours = frozenset(self._items)

    def add(self, name: str, item: Item) -> None:
        """Add an item, or replace one that was added. Refuse FleetGP's own names, and those that cannot be typed."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(
                f"expected a name of letters, digits, '_', '-' and '.' for a {self.what}, got {shortened(name)}"
            )
        if name in self._ours:
            raise InputError(f"FleetGP has a {self.what} {name!r} itself: choose another name")
        self._items[name] = item

    def check(self, name: object) -> str:
        check_name(self.what, name, self)
        assert isinstance(name, str)
        return name

    def __getitem__(self, name: str) -> Item:
        if name not in self._items:
            load_plugins()
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Names(Sequence[str], Generic[Item]):
    """The current names of a registry. which: selects items."""

    def __init__(self, registry: Registry[Item], which: Callable[[Item], bool] = lambda _: True) -> None:
        self._registry, self._which = registry, which

    @property
    def _all(self) -> tuple[str, ...]:
        return tuple(name for name, item in self._registry.items() if self._which(item))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._registry and self._which(self._registry[name])

    def __getitem__(self, position: Any) -> Any:
        return self._all[position]

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


def load_plugins() -> None:
    """Import what installed packages add to FleetGP, once. Warn of a package that cannot be imported."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            warnings.warn(f"the entry point {point.value!r} cannot be loaded: {error}", FleetGPWarning, stacklevel=2)
