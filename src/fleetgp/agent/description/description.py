"""fleet.toml: the description of a fleet that all its agents share. Needs the extra "fleet"."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from fleetgp.agent.description.certificates import AUTHORITY, NAMED, Credentials, is_host
from fleetgp.agent.description.parts import FleetPart
from fleetgp.agent.description.toml_lines import DEEPEST, Lines, too_deep
from fleetgp.arrays import Array
from fleetgp.errors import GraphError, InputError, listed, shortened
from fleetgp.gp.hyperparameters import check_theta
from fleetgp.graph import Graph
from fleetgp.network.zenoh.session import OPERATOR, is_local
from fleetgp.prediction import PREDICTION_METHODS, PredictionOptions
from fleetgp.training import TRAINING_METHODS, TrainingOptions

#: Raised when agents of an older FleetGP could not work with newer ones any more.
PROTOCOL = 1
#: The methods that need no server.
TRAINERS = tuple(name for name in TRAINING_METHODS if name.startswith("dec-"))
PREDICTORS = tuple(name for name in PREDICTION_METHODS if name.startswith("dec-"))

#: A fleet.toml beyond these is refused before it is looked at more closely.
MAX_BYTES = 512 * 1024
MAX_AGENTS = 1000
#: No training has more starts.
MOST_STARTS = 100

_ENDPOINT = re.compile(r"(tcp|tls|quic)/(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})", re.ASCII)


class Description:
    """A fleet as its file describes it, checked."""

    def __init__(self, file: FleetPart, folder: Path, graph: Graph) -> None:
        self._file, self.folder, self.graph = file, folder, graph
        self.name, self.agents = file.name, tuple(file.agent)
        self.names = tuple(agent.name for agent in file.agent)
        self.inputs, self.target = tuple(file.inputs), file.target
        self.kernel, self.normalize, self.seed = file.kernel, file.normalize, file.seed
        self.checkpoint_rounds = file.checkpoint_rounds
        self.training, self.prediction, self.timeouts = file.training, file.prediction, file.timeouts

    @property
    def dimension(self) -> int:
        return len(self.inputs)

    @property
    def state(self) -> Path:
        return self.folder / self._file.state

    @property
    def secured(self) -> bool:
        return self._file.tls is not None

    @property
    def run(self) -> int:
        """The number that all messages carry: whoever speaks otherwise is not understood."""
        return PROTOCOL

    @property
    def digest(self) -> str:
        """SHA-256 of all that the agents must have in common: everything but files, folders and ports of one's own."""
        common = self._file.model_dump(exclude={"agent", "tls", "state", "checkpoint_rounds"})
        common["agents"] = [(agent.name, agent.endpoint) for agent in self.agents]
        common["edges"] = self.graph.edges.tolist()
        common["secured"] = self.secured
        common["protocol"] = PROTOCOL
        return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()

    @property
    def model(self) -> str:
        """What a checkpoint's numbers mean: with another, they are of no use."""
        return f"{self.name}: {self.target} over {', '.join(self.inputs)}, kernel {self.kernel}"

    def id_of(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"there is no agent {shortened(name)} in this fleet: choose one of {listed(self.names)}")
        return self.names.index(name)

    def credentials(self, name: str) -> Credentials | None:
        """The TLS files of an agent, or of the operator; None for a fleet on this machine that has none."""
        tls = self._file.tls
        if tls is None:
            return None
        if tls.folder is not None:
            return Credentials.of(self.folder / tls.folder, name)
        files = (tls.authority, tls.certificate, tls.key)
        found = [self.folder / str(file).replace("{name}", name) for file in files]
        for path in found:
            if not path.is_file():
                raise InputError(f"{path}: there is no such file; `fleetgp certs` makes it")
        return Credentials(*found)

    @property
    def tls_folder(self) -> Path | None:
        tls = self._file.tls
        return None if tls is None or tls.folder is None else self.folder / tls.folder

    def data_of(self, agent: int) -> Path:
        return self.folder / self.agents[agent].data

    def starts(self) -> Array | None:
        """theta0 of the file, (S, P) in logarithms, or None."""
        theta0 = self.training.theta0
        return None if theta0 is None else np.log(np.atleast_2d(np.array(theta0, dtype=float)))

    def training_options(self, starts: Array | None) -> TrainingOptions:
        """The file's options, for whichever method trains."""
        given = self.training.model_dump(exclude={"method", "theta0", "again_with_members", "again_after"})
        return TrainingOptions(starts=starts, seed=self.seed, normalize=self.normalize, **given)

    def prediction_options(self) -> PredictionOptions:
        part = self.prediction
        return PredictionOptions(part.rounds, part.tol, part.eta, self.seed, part.engine)


def read_description(path: str | Path) -> Description:
    """A fleet.toml, or one error with the line that is wrong."""
    file = Path(path)
    text = _text(file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: it is no TOML: {error}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected numbers that can be read, got one of thousands of digits") from error
    agents = values.get("agent")
    if isinstance(agents, list) and len(agents) > MAX_AGENTS:
        raise InputError(f"{path}: expected at most {MAX_AGENTS} agents, got {len(agents)}")
    lines = Lines(text)
    try:
        found = FleetPart.model_validate(values)
    except ValidationError as error:
        # What is misspelt is unknown, and misses: the first says more.
        first, *more = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        loc = tuple(part for part in first["loc"] if part not in ("list[float]", "list[list[float]]"))
        count = len({problem["loc"][:3] for problem in more} - {first["loc"][:3]})
        others = f" (and {count} more)" if count else ""
        raise InputError(f"{path}, line {lines.of(loc, first['input'])}: {_said(first, loc)}{others}") from error
    check = _Check(found, lines, str(path))
    return Description(found, file.resolve().parent, check.graph())


def _text(file: Path) -> str:
    """The file's text, if it can be a description: none that would take a parser long."""
    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{file}: expected at most {MAX_BYTES // 1024} KiB, got more: is it a fleet description?")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: it is no TOML, which is UTF-8: {error}") from error
    deep = too_deep(text)
    if deep:
        raise InputError(f"{file}, line {deep}: expected values and keys at most {DEEPEST} deep, got deeper ones")
    return text


def _said(problem: Any, loc: tuple[str | int, ...]) -> str:
    """What is wrong, in our words."""
    name = ".".join(str(part) for part in loc if isinstance(part, str))
    kind, came = problem["type"], problem["input"]
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"{name} is unknown: is it misspelt?"
    if kind == "literal_error":
        return f"{name} must be {problem['ctx']['expected']}, got {shortened(came)}"
    if kind == "string_pattern_mismatch" and name.endswith("name"):
        return f"{name} must be {NAMED}, got {shortened(came)}"
    if kind == "string_pattern_mismatch":
        return f"{name} must be a path without NUL, got {shortened(came)}"
    text = problem["msg"].removeprefix("Input ").replace("String should", "should")
    return f"{name} {text}, got {shortened(came)}"


class _Check:
    """What no single field can tell."""

    def __init__(self, file: FleetPart, lines: Lines, path: str) -> None:
        self.file, self.lines, self.path = file, lines, path
        for check in (self.names, self.endpoints, self.columns, self.methods, self.tls):
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

    def methods(self) -> None:
        for part, known in (("training", TRAINERS), ("prediction", PREDICTORS)):
            method = getattr(self.file, part).method
            if method not in known:
                said = f"{part}.method must be one of {', '.join(known)}, got {shortened(method)}"
                raise self.fail(said, part, "method")
        theta0 = self.file.training.theta0
        if theta0 is not None:
            rows = theta0 if theta0 and isinstance(theta0[0], list) else [theta0]
            if len(rows) > MOST_STARTS:
                raise self.fail(f"expected at most {MOST_STARTS} starts, got {len(rows)}", "training", "theta0")
            for row in rows:
                try:
                    check_theta(row, len(self.file.inputs), "training.theta0")
                except InputError as error:
                    raise self.fail(str(error), "training", "theta0") from error

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
