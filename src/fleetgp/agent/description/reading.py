"""fleet.toml, read: a description, or one error with the line that is wrong. Needs the extra "fleet"."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetgp.agent.description.certificates import NAMED
from fleetgp.agent.description.checks import Check
from fleetgp.agent.description.description import Description
from fleetgp.agent.description.parts import FleetPart
from fleetgp.agent.description.toml_lines import DEEPEST, Lines, keys_in, too_deep
from fleetgp.errors import InputError, shortened

#: A fleet.toml beyond these is refused before it is looked at more closely.
MAX_BYTES = 512 * 1024
MAX_AGENTS = 1000
#: Keys, tables and lists: twenty for each of the agents.
MAX_KEYS = 20 * MAX_AGENTS


def read_description(path: str | Path) -> Description:
    """A fleet.toml, or one error with the line that is wrong."""
    file = Path(path)
    text = _text(file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: expected TOML: {error}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected numbers that can be read, got one of thousands of digits") from error
    agents = values.get("agent")
    if isinstance(agents, list) and len(agents) > MAX_AGENTS:
        raise InputError(f"{path}: expected at most {MAX_AGENTS} agents, got {len(agents)}")
    lines = Lines(text)
    try:
        found = FleetPart.model_validate(values)
    except ValidationError as error:
        # A misspelt name makes two errors: it is unknown, and the right name is missing. The first one says more.
        first, *more = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        loc = tuple(part for part in first["loc"] if part not in ("list[float]", "list[list[float]]"))
        count = len({problem["loc"][:3] for problem in more} - {first["loc"][:3]})
        others = f" (and {count} more)" if count else ""
        raise InputError(f"{path}, line {lines.of(loc, first['input'])}: {_said(first, loc)}{others}") from error
    check = Check(found, lines, str(path))
    return Description(found, file.resolve().parent, check.graph())


def _text(file: Path) -> str:
    """The file's text, if it can be a description: none that would take a parser long."""
    if not file.is_file():
        wrong = "expected a file, got a folder, a pipe or a device" if file.exists() else "there is no such file"
        raise InputError(f"{file}: {wrong}")
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{file}: expected at most {MAX_BYTES // 1024} KiB, got more: is it a fleet description?")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: expected TOML, which is UTF-8: {error}") from error
    deep = too_deep(text)
    if deep:
        raise InputError(f"{file}, line {deep}: expected values and keys at most {DEEPEST} deep, got deeper ones")
    keys = keys_in(text)
    if keys > MAX_KEYS:
        raise InputError(f"{file}: expected at most {MAX_KEYS:,} keys, got {keys:,}: is it a fleet description?")
    return text


def _said(problem: Any, loc: tuple[str | int, ...]) -> str:
    """What is wrong with a field, in plain words."""
    name = ".".join(str(part) for part in loc if isinstance(part, str))
    kind, came = problem["type"], problem["input"]
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"{name} is unknown: is it misspelt?"
    if kind == "literal_error":
        return f"{name} must be {problem['ctx']['expected']}, got {shortened(came)}"
    if kind == "value_error":
        text, table = str(problem["ctx"]["error"]), name.rpartition(".")[:2]
        return "".join(table) + text if text.startswith(f"{loc[-1]} must") else f"{name}: {text}"
    if kind == "string_pattern_mismatch" and name.endswith("name"):
        return f"{name} must be {NAMED}, got {shortened(came)}"
    if kind == "string_pattern_mismatch":
        return f"{name} must be a path without NUL, got {shortened(came)}"
    text = problem["msg"].removeprefix("Input ").replace("String should", "should")
    return f"{name} {text}, got {shortened(came)}"
