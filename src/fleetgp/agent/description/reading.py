"""fleet.toml, read: a description, or one error with the line that is wrong. Needs the extra "fleet".

Where in a TOML file a value stands: the standard parser does not tell.

What no single field of a fleet.toml can tell: whether names, endpoints, methods and links fit together.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetgp.agent.certificates import AUTHORITY, NAMED, is_host
from fleetgp.agent.description.description import KNOWN, MOST_STARTS, PREDICTORS, TRAINERS, Description, FleetPart
from fleetgp.data.transforms import coordinate_rule
from fleetgp.errors import GraphError, InputError, listed, shortened
from fleetgp.fleet.privacy import refuse_private
from fleetgp.graph import Graph
from fleetgp.model.hyperparameters import check_theta
from fleetgp.network.zenoh.session import OPERATOR, is_local
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method
from fleetgp.training.constraints import Known

TomlPath = tuple[str | int, ...]

_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_HEADER = re.compile(r"\s*(\[\[?)([^\]]+)\]")
# Strings (also those that never end: each is passed over once), comments, and what makes nesting.
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?|\#[^\n]*+|[\[\]{}.,=\n]''',
    re.DOTALL,
)
#: Tables in tables, and names in a dotted key. A description has at most three.
DEEPEST = 20


class Lines:
    """The lines of a well-formed TOML file, by path: keys, and positions in arrays.

    >>> lines = Lines('name = "bay"\\n\\n[[agent]]\\nname = "a"\\nneighbours = [\\n  "b",\\n  "q",\\n]\\n')
    >>> lines.of(("name",)), lines.of(("agent", 0, "name")), lines.of(("agent", 0, "neighbours", 1), "q")
    (1, 4, 7)
    >>> lines.of(("agent", 0, "data"))  # not there: the line of what should have it
    3
    """

    def __init__(self, text: str) -> None:
        self._text = text.splitlines()
        self._lines: dict[TomlPath, int] = {}
        self._ends: dict[TomlPath, int] = {}
        counts: dict[TomlPath, int] = {}
        table: TomlPath = ()
        number = 0
        while number < len(self._text):
            line = self._text[number]
            header, key = _HEADER.match(line), _KEY.match(line)
            end = number
            if key is None and header is not None:
                table = self._table(_names(header.group(2)), header.group(1) == "[[", counts)
                self._lines.setdefault(table, number)
            elif key is not None:
                end = self._statement_end(number, key.end())
                path = (*table, *_names(key.group(1)))
                for length in range(1, len(path) + 1):
                    self._lines.setdefault(path[:length], number)
                self._ends[path] = end
            number = end + 1

    def of(self, path: TomlPath, value: object = None) -> int:
        """The line of a path, counted from 1, or of the nearest that contains it.

        value: within a statement of several lines, where this string stands.
        """
        for length in range(len(path), 0, -1):
            found = path[:length]
            if found in self._lines:
                first = self._lines[found]
                quoted = (f'"{value}"', f"'{value}'") if isinstance(value, str) else ()
                for line in range(first, self._ends.get(found, first) + 1):
                    if any(text in self._text[line] for text in quoted):
                        return line + 1
                return first + 1
        return 1

    def _table(self, names: TomlPath, array: bool, counts: dict[TomlPath, int]) -> TomlPath:
        path: TomlPath = ()
        for depth, name in enumerate(names):
            path = (*path, name)
            last = depth == len(names) - 1
            if array and last:
                counts[path] = counts.get(path, -1) + 1
            if path in counts:
                path = (*path, counts[path])
        return path

    def _statement_end(self, number: int, column: int) -> int:
        """The line on which the value that begins here ends."""
        depth, quote = 0, ""
        while True:
            line = self._text[number]
            while column < len(line):
                if quote:
                    if line[column] == "\\" and quote[0] == '"':
                        column += 2
                        continue
                    if line.startswith(quote, column):
                        column += len(quote)
                        quote = ""
                        continue
                elif line[column] == "#":
                    break
                elif line[column] in "\"'":
                    quote = line[column] * (3 if line.startswith(line[column] * 3, column) else 1)
                    column += len(quote)
                    continue
                else:
                    depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(line[column], 0)
                column += 1
            if (depth <= 0 and len(quote) != 3) or number + 1 >= len(self._text):
                return number
            number, column = number + 1, 0


def keys_in(text: str) -> int:
    """How many values, tables and lists a TOML text has, at most.

    >>> keys_in("a = 1\\n[b]\\nc.d = 'e = f' # g = h")
    3
    """
    return sum(found.group() in "=[" for found in _TOKEN.finditer(text))


def too_deep(text: str) -> int:
    """The line on which values are nested, or keys dotted, too deep for the standard parser; 0 if there is none.

    >>> too_deep("a = 1\\nb = " + 30 * "[" + 30 * "]"), too_deep("a = 1\\n" + 30 * "b." + "b = 1")
    (2, 2)
    >>> too_deep("a = '" + 30 * "[" + "' # " + 30 * "{")
    0
    """
    line, depth, dots = 1, 0, 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token == ".":
            dots += 1
        elif token[0] not in "\"'#":
            dots = 0
            depth = max(0, depth + (token in "[{") - (token in "]}"))
        if depth > DEEPEST or dots > DEEPEST:
            return line
        line += token.count("\n")
    return 0


def _names(dotted: str) -> TomlPath:
    return tuple(part.strip("\"' \t") for part in re.findall(r""""[^"]*"|'[^']*'|[\w-]+""", dotted))


#: The method that knows data by their moments.
WHOLE = "dec-full-gp"

_ENDPOINT = re.compile(r"(tcp|tls|quic)/(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})", re.ASCII)


class Check:
    """A description whose fields are right one by one, checked as a whole: an InputError names the line."""

    def __init__(self, file: FleetPart, lines: Lines, path: str) -> None:
        self.file, self.lines, self.path = file, lines, path
        for check in (self.names, self.endpoints, self.columns, self.kernel, self.methods, self.known, self.tls):
            check()

    def fail(self, message: str, *path: str | int, value: object = None) -> InputError:
        return InputError(f"{self.path}, line {self.lines.of(path, value)}: {message}")

    def names(self) -> None:
        seen: set[str] = set()
        for number, agent in enumerate(self.file.agent):
            if agent.name in seen:
                raise self.fail(f"there are two agents called {agent.name!r}", "agent", number, "name")
            if agent.name in (AUTHORITY, OPERATOR):
                raise self.fail(f"an agent cannot be called {agent.name!r}", "agent", number, "name")
            if len(agent.name.encode()) > 64:
                raise self.fail(f"{agent.name!r} is longer than 64 bytes", "agent", number, "name")
            seen.add(agent.name)
        for number, agent in enumerate(self.file.agent):
            for place, other in enumerate(agent.neighbours):
                where = ("agent", number, "neighbours", place)
                if other == agent.name:
                    raise self.fail(f"{agent.name!r} cannot be its own neighbour", *where, value=other)
                if other not in seen:
                    known = listed(sorted(seen - {agent.name}))
                    said = f"neighbour {shortened(other)} is no agent of this fleet: {known}"
                    raise self.fail(said, *where, value=other)

    def endpoints(self) -> None:
        seen: dict[str, str] = {}
        ports: dict[int, str] = {}
        for number, agent in enumerate(self.file.agent):
            where = ("agent", number, "endpoint")
            matched = _ENDPOINT.fullmatch(agent.endpoint)
            if matched is None or not is_host(matched[2].strip("[]")) or not 1 <= int(matched[3]) <= 65535:
                example = "tls/10.0.0.3:7447" if self.file.tls else "tcp/127.0.0.1:7447"
                raise self.fail(f"expected an endpoint like {example!r}, got {shortened(agent.endpoint)}", *where)
            if agent.endpoint in seen:
                raise self.fail(f"{agent.name!r} has the endpoint of {seen[agent.endpoint]!r}", *where)
            seen[agent.endpoint] = agent.name
            if agent.metrics is not None:
                same = ports.setdefault(agent.metrics, agent.name)
                if same != agent.name and is_local(agent.endpoint):
                    raise self.fail(f"{agent.name!r} has the metrics port of {same!r}", "agent", number, "metrics")
            if self.file.tls is None and matched.group(1) != "tcp":
                raise self.fail(f"{agent.endpoint!r} needs certificates: add a table [tls]", *where)
            if self.file.tls is None and not is_local(agent.endpoint):
                raise self.fail(
                    f"{agent.endpoint!r} is outside of this machine, where agents need certificates: `fleetgp certs`, "
                    "a table [tls], and tls/ endpoints",
                    *where,
                )
            if self.file.tls is not None and matched.group(1) == "tcp":
                raise self.fail(f"with a table [tls], {agent.endpoint!r} must begin with tls/ or quic/", *where)

    def columns(self) -> None:
        named = [*self.file.inputs, self.file.target]
        if len(set(named)) < len(named):
            raise self.fail(f"inputs and target must be different columns, got {shortened(named)}", "inputs")
        if self.file.deviation in named:
            raise self.fail(f"expected a column of its own, got {shortened(self.file.deviation)}", "deviation")
        try:
            coordinate_rule(self.file.coordinates, self.file.inputs)
        except InputError as error:
            raise self.fail(str(error), "coordinates") from error

    def kernel(self) -> None:
        try:
            kernels = self.file.kernels
        except InputError as error:
            raise self.fail(str(error), "kernel") from error
        for part in ("training", "prediction"):
            if kernels[0].noise_model.differs and getattr(self.file, part).method == WHOLE:
                said = f"{WHOLE} needs one noise for all observations: leave out deviation, noise and robust"
                raise self.fail(said, part, "method")

    def methods(self) -> None:
        for part, known in (("training", TRAINERS), ("prediction", PREDICTORS)):
            method = getattr(self.file, part).method
            if method not in known:
                said = f"{part}.method must be one of {', '.join(known)}, got {shortened(method)}"
                raise self.fail(said, part, "method")
        self.private()
        theta0, kernel = self.file.training.theta0, self.file.kernels[0]
        if theta0 is not None:
            rows = theta0 if theta0 and isinstance(theta0[0], list) else [theta0]
            if len(rows) > MOST_STARTS:
                raise self.fail(f"expected at most {MOST_STARTS} starts, got {len(rows)}", "training", "theta0")
            for row in rows:
                try:
                    check_theta(row, kernel.names(self.file.inputs), "training.theta0")
                except InputError as error:
                    raise self.fail(str(error), "training", "theta0") from error

    def private(self) -> None:
        """What would reveal rows where these are private."""
        file = self.file
        for part, row in (
            ("training", training_method(file.training.method)),
            ("prediction", prediction_method(file.predictor)),
        ):
            try:
                refuse_private(row, file.private, file.kernels[0], file.prediction.engine, rows=0)
            except InputError as error:
                raise self.fail(f"{part}.method: {error}", part, "method") from error
        if file.private and file.coordinates == "sphere" and file.training.calibrate != "no":
            said = 'calibrate is refused by private="rows" on the sphere: use coordinates = "kilometres"'
            raise self.fail(f"training.{said}", "training", "calibrate")
        for number, agent in enumerate(file.agent):
            if file.private and agent.show_rows:
                said = f'{agent.name!r} has show_rows, and the fleet has private = "rows": leave one of them out'
                raise self.fail(said, "agent", number, "show_rows")

    def known(self) -> None:
        """The one table that is wrong by itself, or all of them where they do not fit together."""
        labels = self.file.kernels[0].names(self.file.inputs)
        given = self.file.training.model_dump(include=set(KNOWN))
        for tables in (*((table,) for table in KNOWN), KNOWN):
            try:
                Known.of(labels, **{table: given[table] for table in tables})
            except InputError as error:
                raise self.fail(f"training: {error}", "training", tables[0]) from error

    def tls(self) -> None:
        tls = self.file.tls
        if tls is not None:
            files = (tls.authority, tls.certificate, tls.key)
            if (tls.folder is None) == (None in files) or (tls.folder is not None and any(files)):
                raise self.fail("[tls] needs either folder, or all of authority, certificate and key", "tls")

    def graph(self) -> Graph:
        """An edge that one end lists is an edge."""
        position = {agent.name: number for number, agent in enumerate(self.file.agent)}
        edges = [
            (number, position[other]) for number, agent in enumerate(self.file.agent) for other in agent.neighbours
        ]
        graph = Graph(len(position), edges, connected=False)
        if len(graph.components) > 1:
            apart = graph.components[1]
            names = listed(self.file.agent[member].name for member in apart)
            raise GraphError(
                f"{self.path}, line {self.lines.of(('agent', apart[0]))}: {names} cannot be reached from "
                f"{self.file.agent[0].name!r}: give them neighbours"
            )
        return graph


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
