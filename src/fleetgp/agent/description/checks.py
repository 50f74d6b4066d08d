"""What no single field of a fleet.toml can tell: whether names, endpoints, methods and links fit together."""

from __future__ import annotations

import re

from fleetgp.agent.description.certificates import AUTHORITY, is_host
from fleetgp.agent.description.parts import KNOWN, MOST_STARTS, PREDICTORS, TRAINERS, FleetPart
from fleetgp.agent.description.toml_lines import Lines
from fleetgp.data.coordinates import coordinate_rule
from fleetgp.errors import GraphError, InputError, listed, shortened
from fleetgp.fleet.privacy import refuse_private
from fleetgp.gp.hyperparameters import check_theta
from fleetgp.graph import Graph
from fleetgp.network.zenoh.session import OPERATOR, is_local
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method
from fleetgp.training.known import Known

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
