"""Options that belong together: the user types them one by one, the command gets them as one value.

A parameter whose type is a dataclass stands for its fields, in its place. Typer reads a command's signature; `grouped`
gives it one with the fields in it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer should see it.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int = 1
    ...     height: int = 1
    >>> @grouped
    ... def draw(name: str, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> list(inspect.signature(draw).parameters)
    ['name', 'width', 'height']
    >>> draw(name="box", width=2, height=3)
    box 6
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            options = get_type_hints(hints[name], include_extras=True)
            parameters += [
                _typed(option.name, _default(option), options[option.name]) for option in fields(hints[name])
            ]
        else:
            parameters.append(_typed(name, parameter.default, hints[name]))

    @wraps(command)
    def run(**given: Any) -> None:
        values = {
            name: group(**{option.name: given.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **values)

    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _typed(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(option: Field[Any]) -> object:
    return inspect.Parameter.empty if option.default is MISSING else option.default
