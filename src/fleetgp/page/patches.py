"""What has changed between two pictures, as a JSON merge patch (RFC 7396), which a browser applies in a few lines."""

from __future__ import annotations

from typing import Any


def changes(before: Any, after: Any) -> Any:
    """The patch that makes `after` of `before`. Values that are None count as not there; lists are told whole.

    >>> changes({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "d": 4}})
    {'b': {'d': 4}, 'a': None}
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = {}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif before[key] != value:
            patch[key] = changes(before[key], value)
    patch.update({key: None for key in before if key not in after})
    return patch


def applied(state: Any, patch: Any) -> Any:
    """What a patch makes of a state.

    >>> applied({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 4}, "a": None})
    {'b': {'c': 2, 'd': 4}}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result
