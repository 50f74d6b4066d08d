"""The fleet's description, fleet.toml: its tables, how it is read and checked, and what agents make of it.

It is the same for all agents of a fleet, together with the roster that it holds. Needs the extra "fleet".
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    create_model,
    model_validator,
)

from fleetgp.agent.certificates import AUTHORITY, NAME, NAMED, Credentials, is_host
from fleetgp.agent.roster import Member, Rank, Roster, SignedRoster, rank_of
from fleetgp.agent.toml_lines import DEEPEST, Lines, keys_in, too_deep
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.transforms import CoordinatesName, coordinate_rule, kernels_in_coordinates
from fleetgp.declarations import Option, options_in
from fleetgp.errors import GraphError, InputError, listed, shortened
from fleetgp.files import read_private
from fleetgp.fleet.privacy import PREDICTOR, refuse_private, refuse_small_groups
from fleetgp.graph import Graph
from fleetgp.io.tables import Missing
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import Kernels, as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import check_theta
from fleetgp.model.noise import NoiseModel
from fleetgp.network.zenoh.links import LONGEST_ROSTER
from fleetgp.network.zenoh.session import OPERATOR, is_local
from fleetgp.options import ModelOptions, RowOptions, TrainerOptions, default_kernel
from fleetgp.prediction import DECENTRALIZED_METHODS, PredictionMethod, PredictionOptions, prediction_method
from fleetgp.training import DECENTRALIZED_TRAINERS, TrainingMethod, TrainingOptions, training_method
from fleetgp.training.constraints import ParameterConstraints
from fleetgp.validation import check_whole

#: The methods that need no server.
TRAINERS = DECENTRALIZED_TRAINERS
PREDICTORS = DECENTRALIZED_METHODS
#: The tables of [training] about hyperparameters, by their names.
KNOWN = ("bounds", "priors", "fixed")
#: No training has more starts.
MOST_STARTS = 100

Port = Annotated[int, Field(ge=1, le=65535)]
#: Seconds: nobody waits longer for anything.
LONGEST_WAIT = 86_400.0
Seconds = Annotated[float, Field(ge=0.1, le=LONGEST_WAIT, allow_inf_nan=False)]
#: No count in the file is larger.
MOST = 10**9
Count = Annotated[int, Field(ge=1, le=MOST)]
Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(pattern=NAME, max_length=64)]


def _single(target: object) -> object:
    """One target: a running fleet has one model."""
    if isinstance(target, list):
        raise ValueError(
            f"expected one column, got {len(target)}: a running fleet has one target. Fit several together by "
            "`fleetgp fit --target a b`, or describe a fleet for each"
        )
    return target


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AgentTable(_Table):
    """One agent. From data on all but neighbours concerns it alone: the others need not have the same.

    data: None: it has no file, and gets its rows by `fleetgp observe`.
    show_rows: those who may ask for its status may also see its rows.
    """

    name: Name
    endpoint: str
    data: Place | None = None
    neighbours: list[str] = []
    missing: Missing = RowOptions.missing
    fill: list[float] | None = None
    watch: bool = False
    metrics: Port | None = None
    show_rows: bool = False


def _options(family: type) -> dict[str, Any]:
    """The fields of a table that are the options of a family."""
    return {
        name: (Annotated[Any, PlainValidator(partial(_checked, one))], one.default)
        for name, one in options_in(family).items()
        if one.toml
    }


def _checked(option: Option, value: object) -> Any:
    """Check the value of an option; of a count also that it is no larger than `MOST`."""
    checked = option.check(value)
    if option.kind.type is int:
        check_whole(option.name, value, least=1, most=MOST)
    return checked


#: When a fleet trains again: when its new rows say that theta no longer fits, or when there are so many.
NEEDED: Final = "when-needed"
Again = Annotated[int, Field(ge=0, le=MOST)] | Literal["when-needed"]


class TrainingTable(_Table):
    """How the fleet is trained, and when again. It also has the `TrainerOptions` of methods without a central node.

    The options are for all methods that this fleet will train with: each takes those that it has.

    bounds, priors, fixed: by the names of hyperparameters, as `Fleet.train` has them; in a bound 0 and inf are open.
    calibrate: after a training, for the method of [prediction]: see `Fleet.calibrate`.
    retrain_on_membership_change: when agents leave or come.
    again_after: when the new rows say that theta no longer fits, or when there are this many; 0: on command.
    """

    method: str = "dec-fact-gp"
    theta0: list[float] | list[list[float]] | None = None
    bounds: dict[str, list[float]] = {}
    priors: dict[str, list[float]] = {}
    fixed: dict[str, float] = {}
    calibrate: Literal["no", "rows", "blocks", "both"] = "no"
    retrain_on_membership_change: bool = True
    again_after: Again = NEEDED


class PredictionTable(_Table):
    """How questions are answered. It also has the `PredictionOptions`, for all methods: each takes those it has."""

    method: str = PREDICTOR
    if TYPE_CHECKING:
        consensus: str = PredictionOptions.consensus
        engine: str = PredictionOptions.engine
        n_neighbours: int = PredictionOptions.n_neighbours
        min_rows: int = PredictionOptions.min_rows


if not TYPE_CHECKING:
    TrainingTable = create_model("TrainingTable", __base__=TrainingTable, **_options(TrainerOptions))
    PredictionTable = create_model("PredictionTable", __base__=PredictionTable, **_options(PredictionOptions))


class TimeoutsTable(_Table):
    """Seconds. connect: to find the others at the start.  round: for a round, the longest local computation included.
    lease: after which a silent link is dead.  ask: in which an asker gets an answer or an error.
    """

    connect: Seconds = 30.0
    round: Seconds = 30.0
    lease: Seconds = 5.0
    ask: Seconds = 60.0


class TlsTable(_Table):
    """The folder that `fleetgp certs` made, or the three files, in which {name} stands for the agent's name."""

    folder: Place | None = None
    authority: Place | None = None
    certificate: Place | None = None
    key: Place | None = None


class FleetFile(_Table):
    """The whole file. deviation: the column of the known standard deviations of the target.

    time, noise, robust, private: as of a `Fleet`.
    now: what questions without a time are about: the clock, or the newest row of the agent that is asked.
    """

    name: Name
    inputs: Annotated[list[str], Field(min_length=1)]
    target: Annotated[str, BeforeValidator(_single)]
    time: str | None = ModelOptions.time
    now: Literal["clock", "data"] = "clock"
    kernel: str
    normalize: bool = ModelOptions.normalize
    mean: MeanName = ModelOptions.mean
    coordinates: CoordinatesName = ModelOptions.coordinates
    deviation: str | None = None
    noise: Literal["agents"] | None = None
    robust: bool = False
    private: Literal["rows"] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    state: Place = "state"
    checkpoint_rounds: Count = 10
    training: TrainingTable = TrainingTable()
    prediction: PredictionTable = PredictionTable()
    timeouts: TimeoutsTable = TimeoutsTable()
    tls: TlsTable | None = None
    agent: Annotated[list[AgentTable], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _choose_kernel(cls, file: object) -> object:
        """The default kernel where the file names none."""
        if not isinstance(file, dict) or "kernel" in file:
            return file
        parts = [part for part in (file.get("training"), file.get("prediction")) if isinstance(part, dict)]
        inputs, time = file.get("inputs"), file.get("time")
        about: dict[str, Any] = {}
        if isinstance(inputs, list) and all(isinstance(name, str) for name in inputs):
            about = {"inputs": inputs, "time": time if time in inputs else None}
            with suppress(InputError):  # `Check` says what is wrong, and in which line
                about["rule"] = coordinate_rule(file.get("coordinates", ModelOptions.coordinates), inputs)
        return {**file, "kernel": default_kernel(*(part.get("method") for part in parts), **about)}

    @property
    def predictor(self) -> str:
        """The method of [prediction]."""
        return self.prediction.method

    @property
    def noise_model(self) -> NoiseModel:
        names = tuple(agent.name for agent in self.agent) if self.noise else ()
        return NoiseModel(known=self.deviation is not None, robust=self.robust, groups=names)

    @property
    def kernels(self) -> Kernels:
        """The one, or those to choose from, or one clear error."""
        rule = coordinate_rule(self.coordinates, self.inputs)
        plain = as_kernels(self.kernel, self.inputs)
        seen = kernels_in_coordinates(rule, plain, self.inputs, self.mean)
        return tuple(with_noise(one, self.noise_model) for one in seen)


#: Raised when agents of an older FleetGP cannot work with newer ones any more. It is part of the digest, so that they
#: refuse each other. 2: an agenda's record is JSON. 3: agendas and sums travel along a tree, in frames of version 2.
#: 4: a model has its kernel and its calibration with it. 5: an item says that its last training failed. 6: an item
#: says how well theta predicts new rows, and a model when it was trained.
PROTOCOL = 6
#: The version of keys and hellos. Agents of different ones do not see each other at all, so it should not change: an
#: agent with another description or another protocol should be noticed, refused and named.
LANGUAGE = 1
#: The sections of the file with settings that agents must have in common, and settings too long for a message.
SECTIONS, LONG = ("training", "prediction", "timeouts"), ("agents", "edges")


#: The roster that `fleetgp join` and `fleetgp leave` keep in the folder `state`, and each agent in its own.
ROSTER = "roster.json"


class Description:
    """A fleet as its file and the roster describe it, checked.

    agents, names: by id, those that have left included.  graph: in which these have no links.
    signed: the roster; None for that of version 0, which is in the file.
    """

    def __init__(self, source: Source, signed: SignedRoster | None = None) -> None:
        file = source.file if signed is None else with_members(source.file, signed.roster)
        self._source, self._file, self.signed, self.folder = source, file, signed, source.folder
        self.roster = roster_of(file) if signed is None else signed.roster
        self.graph = Check(file, source, self.roster).graph()
        self.name, self.agents = file.name, tuple(file.agent)
        self.names = self.roster.names
        standings = [member.standing for member in self.roster.members]
        self.present = tuple(id for id, standing in enumerate(standings) if standing == "present")
        self.without_rows = frozenset(id for id, standing in enumerate(standings) if standing == "left")
        self.inputs, self.target, self.time, self.now = tuple(file.inputs), file.target, file.time, file.now
        self.kernels, self.normalize, self.seed = file.kernels, file.normalize, file.seed
        self.noise_model, self.deviation = file.noise_model, file.deviation
        self.mean, self.coordinates = file.mean, coordinate_rule(file.coordinates, self.inputs)
        self.checkpoint_rounds = file.checkpoint_rounds
        self.training, self.timeouts, self.private = file.training, file.timeouts, file.private
        self.prediction = file.prediction.model_copy(update={"method": file.predictor})

    @property
    def dimension(self) -> int:
        return len(self.inputs)

    @property
    def model_dimension(self) -> int:
        """How many coordinates a place has in the model: on the sphere one more than inputs."""
        return self.dimension + (self.coordinates.name == "sphere")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the hyperparameters: those of all kernels that it may choose from."""
        return self.kernels[0].names(self.inputs)

    def names_of(self, agents: Iterable[int]) -> list[str]:
        return [self.names[agent] for agent in agents]

    @property
    def members(self) -> list[str]:
        """The names of the agents that have not left."""
        return self.names_of(self.present)

    @property
    def members_graph(self) -> Graph:
        """The links between the members, numbered in their order."""
        position = {member: number for number, member in enumerate(self.present)}
        return Graph(len(position), [(position[a], position[b]) for a, b in self.graph.edges.tolist()])

    @property
    def left(self) -> list[str]:
        """The names of the agents that have left."""
        return [name for name in self.names if name not in self.members]

    @property
    def described(self) -> list[str]:
        """The names of the members that this copy of the file has a table of, with their own settings."""
        tables = {agent.name for agent in self._source.file.agent}
        return [name for name in self.members if name in tables]

    def counts(self, name: str) -> bool:
        """Whether an agent's rows count: as long as it has not left without them."""
        return self.id_of(name) not in self.without_rows

    def with_roster(self, signed: SignedRoster) -> Description:
        """The same fleet with another roster, which was checked; or one error where they do not fit together."""
        return Description(self._source, signed)

    def newest(self, path: Path) -> Description:
        """With the roster in a file, if it is newer."""
        stored = self._source.stored(path)
        return self if stored is None or stored.roster.rank <= self.roster.rank else self.with_roster(stored)

    def rank_in(self, digest: str) -> Rank | None:
        """The rank of the roster that another agent holds; None if it cannot be compared."""
        return rank_of(digest[-MARK:]) if len(digest) == len(self.digest) else None

    def kernel_of(self, name: str) -> Kernel:
        """The one that a model was trained with; of none, or one of another name, the first."""
        return next((kernel for kernel in self.kernels if kernel.name == name), self.kernels[0])

    def refuse_private(self, method: TrainingMethod | PredictionMethod) -> None:
        """One clear error for a method that would reveal rows where these are private. Rows come one by one here, so
        that moments are refused however many there are.
        """
        refuse_private(method, self.private, self.kernels[0], self.prediction.engine, rows=0)
        if isinstance(method, PredictionMethod):
            refuse_small_groups(method, self.private, self.prediction.min_rows)

    @property
    def state(self) -> Path:
        return self.folder / self._file.state

    @property
    def secured(self) -> bool:
        return self._file.tls is not None

    @property
    def run(self) -> int:
        """The number in the keys of all messages. It is the same for all fleets and versions: see `LANGUAGE`."""
        return LANGUAGE

    @property
    def digest(self) -> str:
        """A number for all that the agents must have in common: everything but files, folders and ports of one's own.

        64 bits of SHA-256, then 12 bits for each setting, by which `differences` names those that differ, and at last
        the version and the hash of the roster.
        """
        return _hex(self._common, 16) + "".join(_hex(value, 3) for _, value in self._settings) + self.roster.mark

    def differences(self, digest: str, place: str = "here") -> str:
        """Name the settings in which another description, of which this is the digest, differs, for a message.

        place: what to call this description.
        """
        own, settings = self.digest, self._settings
        if len(digest) != len(own):
            return "it holds another fleet description, or is of another version of FleetGP"
        parts = range(16, len(own) - MARK, 3)
        mine, (its, _) = self.roster.version, rank_of(digest[-MARK:])
        expected = LONG if mine != its else ()  # another roster has other agents
        differ = [
            name if name in LONG else f"{name} ({'not set' if value is None else shortened(value)} {place})"
            for (name, value), at in zip(settings, parts, strict=True)
            if own[at : at + 3] != digest[at : at + 3] and name not in expected
        ]
        if mine != its:
            versions = f"it holds version {its} of the roster, and {place} is version {mine}"
            return versions + (f"; and it has different {', '.join(differ)}" if differ else "")
        return f"it holds another fleet description: different {', '.join(differ) or 'settings'}"

    @property
    def _settings(self) -> list[tuple[str, Any]]:
        """Every setting that the agents must have in common, by its name, in an order that is the same everywhere."""
        settings: dict[str, Any] = {}
        for name, value in self._common.items():
            if name in SECTIONS:
                settings |= {f"[{name}] {key}": one for key, one in value.items()}
            else:
                settings[name] = value
        return sorted(settings.items())

    @property
    def _common(self) -> dict[str, Any]:
        common = self._file.model_dump(exclude={"agent", "tls", "state", "checkpoint_rounds"})
        standings = [member.standing for member in self.roster.members]
        common["agents"] = [(own.name, own.endpoint, how) for own, how in zip(self.agents, standings, strict=True)]
        common["edges"] = self.graph.edges.tolist()
        common["secured"] = self.secured
        common["protocol"] = PROTOCOL
        return common

    @property
    def model(self) -> str:
        """What a checkpoint's numbers mean: with another, they are of no use."""
        other = "" if self.mean == "zero" else f", mean {self.mean}"
        if self.coordinates.name != "as-given":
            other += f", coordinates {self.coordinates.name}"
        noises = {"deviation": self.deviation, "noise": self._file.noise, "robust": self._file.robust or None}
        other += "".join(f", {name} {value}" for name, value in noises.items() if value is not None)
        return f"{self.name}: {self.target} over {', '.join(self.inputs)}, kernel {self._file.kernel}{other}"

    def id_of(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"there is no agent {shortened(name)} in this fleet: choose one of {listed(self.names)}")
        return self.names.index(name)

    def check_member(self, name: str) -> None:
        """One clear error for an agent that has left."""
        if self.id_of(name) not in self.present:
            raise InputError(
                f"{name} has left the fleet {self.name!r}, by version {self.roster.version} of the roster: "
                "`fleetgp join` admits it again"
            )

    def credentials(self, name: str) -> Credentials | None:
        """The TLS files of an agent, or of the operator; None for a fleet on this machine that has none."""
        tls = self._file.tls
        if tls is None:
            return None
        if tls.folder is not None:
            return Credentials.of(self.folder / tls.folder, name)
        files = (tls.authority, tls.certificate, tls.key)
        return Credentials(*(self.folder / str(file).replace("{name}", name) for file in files)).checked()

    @property
    def tls_folder(self) -> Path | None:
        tls = self._file.tls
        return None if tls is None or tls.folder is None else self.folder / tls.folder

    @property
    def authority(self) -> Path | None:
        """The certificate that the operator's is signed by; None for a fleet that has none."""
        return self._source.authority

    def data_of(self, agent: int) -> Path | None:
        """The file with an agent's rows; None if it has none."""
        data = self.agents[agent].data
        return None if data is None else self.folder / data

    def starts(self) -> Array | None:
        theta0 = self.training.theta0
        return None if theta0 is None else np.log(np.atleast_2d(np.array(theta0, dtype=float)))

    def training_options(self, starts: Array | None) -> TrainingOptions:
        apart = {"method", "theta0", *KNOWN, "calibrate", "retrain_on_membership_change", "again_after"}
        given = self.training.model_dump(exclude=apart)
        known = ParameterConstraints.of(self.parameters, **self.training.model_dump(include=set(KNOWN)))
        model: dict[str, Any] = {"normalize": self.normalize, "mean": self.mean, "coordinates": self.coordinates}
        return TrainingOptions(starts=starts, seed=self.seed, known=known, **model, **given)

    def prediction_options(self) -> PredictionOptions:
        return PredictionOptions(seed=self.seed, **self.prediction.model_dump(exclude={"method"}))


#: Characters at the end of a digest that are about the roster.
MARK = 24


def _hex(facts: Any, digits: int) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:digits]


#: The trainer and predictor whose model is that of all data, at every agent.
WHOLE = "dec-full-gp"

_ENDPOINT = re.compile(r"(tcp|tls|quic)/(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True)
class Source:
    """A fleet.toml whose fields are right one by one. lines: where they stand.  path: what to call it in errors."""

    file: FleetFile
    lines: Lines
    path: str
    folder: Path

    @property
    def authority(self) -> Path | None:
        """The certificate that the operator's is signed by; None for a fleet that has none."""
        tls = self.file.tls
        if tls is None:
            return None
        return self.folder / str(tls.authority) if tls.folder is None else self.folder / tls.folder / f"{AUTHORITY}.crt"

    def stored(self, path: Path) -> SignedRoster | None:
        """A roster on disk, whose signature is checked again; None if there is no file."""
        data = read_private(path, LONGEST_ROSTER) if path.parent.is_dir() else None
        if data is None:
            return None
        try:
            signed = SignedRoster.decode(data)
            signed.check(self.file.name, self.authority)
        except InputError as error:
            raise InputError(f"{path}: {error}: move it away; agents that hold a roster send it again") from error
        return signed


def roster_of(file: FleetFile) -> Roster:
    """The roster of version 0."""
    members = (Member(agent.name, agent.endpoint, tuple(agent.neighbours)) for agent in file.agent)
    return Roster(file.name, 0, "", tuple(members))


def with_members(file: FleetFile, roster: Roster) -> FleetFile:
    """The file with the agents of a roster; what concerns an agent alone stays as it is in the file."""
    if roster.fleet != file.name:
        raise InputError(f"expected a roster of the fleet {file.name!r}, got one of {shortened(roster.fleet)}")
    tables = {agent.name: agent for agent in file.agent}
    agents = []
    for member in roster.members:
        own = tables.pop(member.name, None) or AgentTable(name=member.name, endpoint=member.endpoint)
        changes = {"endpoint": member.endpoint, "neighbours": list(member.neighbours)}
        agents.append(own.model_copy(update=changes))
    if tables:
        raise InputError(
            f"{listed(tables)} of this fleet.toml is not in the roster of version {roster.version}: use `fleetgp join` "
            "to add an agent"
        )
    return file.model_copy(update={"agent": agents})


class Check:
    """A description whose fields are right one by one, checked as a whole: an InputError names the line.

    file: with the agents of the roster.
    """

    def __init__(self, file: FleetFile, source: Source, roster: Roster) -> None:
        self.file, self.lines, self.path = file, source.lines, source.path
        if roster.version:
            self.path += f" with the roster of version {roster.version}"
        rows = {agent.name: row for row, agent in enumerate(source.file.agent)}
        self._rows = [rows.get(agent.name) for agent in file.agent]
        self._present = [member.standing == "present" for member in roster.members]
        for check in (self.names, self.endpoints, self.columns, self.kernel, self.methods, self.known, self.tls):
            check()

    def fail(self, message: str, *path: str | int, value: object = None) -> InputError:
        return InputError(f"{self._place(path, value)}: {message}")

    def _place(self, path: tuple[str | int, ...], value: object = None) -> str:
        """The line in the file; of an agent that only the roster has, the file alone."""
        if path[0] == "agent" and isinstance(path[1], int):
            row = self._rows[path[1]]
            if row is None:
                return self.path
            path = ("agent", row, *path[2:])
        return f"{self.path}, line {self.lines.of(path, value)}"

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
            if not self._present[number]:  # another one may have its endpoint
                continue
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
        if self.file.time is not None and self.file.time not in self.file.inputs:
            said = f"time: expected one of the inputs ({listed(self.file.inputs)}), got {shortened(self.file.time)}"
            raise self.fail(said, "time")
        if self.file.time is None and "now" in self.file.model_fields_set:
            raise self.fail(
                'now: expected the time as well (time = "day", say): without one nothing is about now', "now"
            )
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
        try:
            refuse_small_groups(prediction_method(file.predictor), file.private, file.prediction.min_rows)
        except InputError as error:
            raise self.fail(str(error), "prediction", "min_rows") from error
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
                ParameterConstraints.of(labels, **{table: given[table] for table in tables})
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
        parts = [part for part in graph.components if self._present[part[0]]]
        if not parts:
            raise self.fail("expected a fleet of at least one agent, got one that all have left", "agent")
        if len(parts) > 1:
            names = listed(self.file.agent[member].name for member in parts[1])
            raise GraphError(
                f"{self._place(('agent', int(parts[1][0])))}: {names} cannot be reached from "
                f"{self.file.agent[parts[0][0]].name!r}: give them neighbours"
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
        described = FleetFile.model_validate(values)
    except ValidationError as error:
        # A misspelt name makes two errors: it is unknown, and the right name is missing. The first one says more.
        first, *more = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        loc = tuple(part for part in first["loc"] if part not in ("list[float]", "list[list[float]]"))
        count = len({problem["loc"][:3] for problem in more} - {first["loc"][:3]})
        others = f" (and {count} more)" if count else ""
        raise InputError(f"{path}, line {lines.of(loc, first['input'])}: {_said(first, loc)}{others}") from error
    source = Source(described, lines, str(path), file.resolve().parent)
    return Description(source, source.stored(source.folder / described.state / ROSTER))


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
