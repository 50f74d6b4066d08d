"""A trained fleet as a folder: JSON for people, safetensors for numbers, nothing that runs. Needs the extra "data".

model.json               what it is: agents, graph, hyperparameters, how it was trained
training.safetensors     every agent's estimate, and how it came there
ledger.json              what was sent in training, by edge and kind of content
agents/0000.safetensors  inputs and observations of one agent, a file each
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fleetgp.consensus import Status
from fleetgp.consensus.scaling import Scaling
from fleetgp.errors import FleetGPError, FleetGPWarning, InputError, unknown_name
from fleetgp.files import check_place
from fleetgp.fleet import Fleet
from fleetgp.given import as_names
from fleetgp.gp.hyperparameters import check_theta
from fleetgp.gp.hyperparameters import names as hyperparameter_names
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.network import Ledger
from fleetgp.storage.json_values import heard, told, typed
from fleetgp.storage.tensors import Shape, load_arrays, read_inside, save_arrays
from fleetgp.training import Fit
from fleetgp.training.fit import Start

FORMAT = "fleetgp-model"
#: Raised when an older FleetGP could not read the folder any more.
VERSION = 1
DESCRIPTION = "model.json"
#: Longer texts are not read: no fleet has a description, or a ledger, of this many bytes.
LONGEST_DESCRIPTION, LONGEST_LEDGER = 1 << 26, 1 << 28
#: What reading a damaged description may raise.
DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
FILES = (DESCRIPTION, "training.safetensors", "ledger.json")


@dataclass(frozen=True)
class Model:
    """A fleet with the names that people know it by. note: what else is to be told of how it came about.

    The fleet learns the inputs' names, so that it takes data frames by them; if it has names, they must be these.
    """

    fleet: Fleet
    agents: tuple[str, ...]
    inputs: tuple[str, ...]
    target: str
    note: str = ""

    def __post_init__(self) -> None:
        for name, expected in (("agents", self.fleet.agents), ("inputs", self.fleet.dimension)):
            given = getattr(self, name)
            names = as_names(given, name)
            if len(names) != expected:
                raise InputError(f"{name}: expected {expected} names, as many as the fleet has, got {len(names)}")
            object.__setattr__(self, name, names)
        if not isinstance(self.target, str):
            raise InputError(f"target: expected a name, got {self.target!r}")
        if self.fleet.inputs not in (None, self.inputs):
            raise InputError(
                f"inputs: expected {', '.join(self.fleet.inputs or ())}, as the fleet has them, "
                f"got {', '.join(self.inputs)}: name them in the fleet's order"
            )
        self.fleet.inputs = self.inputs

    @property
    def status(self) -> str:
        """How training ended; "interrupted" where it did not, "given" where there was none."""
        if self.fleet.fit is not None:
            return self.fleet.fit.status
        return "interrupted" if self.note.startswith("interrupted") else "given"

    @property
    def theta(self) -> dict[str, float]:
        """The hyperparameters by name, length-scales under the inputs' names."""
        if self.fleet.theta is None:
            raise InputError("the fleet has no hyperparameters yet: train it, or give theta")
        return dict(zip(theta_labels(self.inputs), self.fleet.theta.tolist(), strict=True))


def theta_labels(inputs: Sequence[str]) -> list[str]:
    """The hyperparameters' names, length-scales under the inputs' names."""
    return list(hyperparameter_names(inputs))


def save_model(model: Model, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write the folder: all of it, or nothing. An existing model is replaced on request only."""
    target = Path(folder).resolve()  # of a link, the folder it leads to
    check_target(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    retired = building / "retired"  # inside what is cleared away in any case
    try:
        _write(model, building / "model")
        if target.exists():
            target.rename(retired)
        (building / "model").rename(target)
    finally:
        if retired.exists() and not target.exists():
            retired.rename(target)
        shutil.rmtree(building, ignore_errors=True)
    return target


def check_target(folder: str | Path, overwrite: bool) -> None:
    """One clear error where a model may not be written, before any work is done for it."""
    target = Path(folder)
    real = target.resolve()
    check_place(real.parent, f".{real.name}.{os.getpid()}", target)  # as the folder is called while it is built
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target}: a model is a folder, but this is a file: choose another name")
    known = (target / DESCRIPTION).is_file()
    if any(target.iterdir()) and not (overwrite and known):
        hint = (
            "choose another name, or overwrite it (overwrite=True, on the command line --overwrite)"
            if known
            else "it holds no model: choose another name"
        )
        raise InputError(f"{target}: the folder exists: {hint}")
    strange = sorted({entry.name for entry in target.iterdir()} - {*FILES, "agents"})
    if strange:
        raise InputError(
            f"{target}: it holds other files too ({', '.join(strange)}): move them, or choose another name"
        )


def load_model(folder: str | Path) -> Model:
    """Read the folder; the original files are not needed. Whatever is in it, nothing runs, and sizes are checked."""
    source = Path(folder)
    if not (source / DESCRIPTION).is_file():
        raise InputError(f"{folder}: there is no {DESCRIPTION}: a folder written by `fleetgp fit` was expected")
    try:
        facts = json.loads(read_inside(source, DESCRIPTION, LONGEST_DESCRIPTION))
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise InputError(f"{folder}: {DESCRIPTION} does not describe a FleetGP model")
        if not isinstance(facts["version"], int):
            raise InputError(
                f"{folder}: {DESCRIPTION}: expected a whole number as version, got {facts['version']!r:.60}"
            )
        if facts["version"] > VERSION:
            raise InputError(
                f"{folder}: the model has version {facts['version']}, this FleetGP reads up to {VERSION}: upgrade it"
            )
        return _read(facts, source)
    except FleetGPError:
        raise
    except PermissionError as error:
        raise InputError(f"{error.filename}: it may not be read") from error
    except MemoryError as error:
        raise InputError(f"{folder}: the model does not fit into the memory of this machine") from error
    except RecursionError as error:
        raise InputError(f"{folder}: the model is damaged: {DESCRIPTION} is nested too deeply") from error
    except DAMAGE as error:
        raise InputError(f"{folder}: the model is damaged: {type(error).__name__}: {error!s:.200}") from error


# ---- writing -------------------------------------------------------------------------------------------


def _write(model: Model, folder: Path) -> None:
    from fleetgp.version import __version__

    fleet, fit = model.fleet, model.fleet.fit
    (folder / "agents").mkdir(parents=True)
    agents = []
    for number, ((inputs, observations), name) in enumerate(zip(fleet.shards, model.agents, strict=True)):
        digest = save_arrays(folder / _agent_file(number), {"inputs": inputs, "observations": observations})
        agents.append({"name": name, "observations": len(observations), "sha256": digest})
    facts: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"fleetgp {__version__}",
        "inputs": list(model.inputs),
        "target": model.target,
        "kernel": fleet.kernel.name,
        "normalize": fleet.normalize,
        "seed": fleet.seed,
        "hyperparameters": model.theta,
        "status": model.status,
        "note": model.note,
        "agents": agents,
        "graph": _graph_facts(fleet.graph, model.agents),
    }
    if fit is not None:
        arrays = {"thetas": fit.thetas, "history": fit.history, "jitter": fit.jitter, "rho": fit.rho}
        facts["training"] = {
            "method": fit.method,
            "status": fit.status,
            "rounds": fit.rounds,
            "disagreement": told(fit.disagreement),
            "residual": told(fit.residual),
            "nll": told(fit.nll),
            "noise_floor": fit.noise_floor,
            "engine": list(fit.engine),
            "scaling": asdict(fit.scaling),
            "starts": [
                {**asdict(start), "theta0": start.theta0.tolist(), "nll": told(start.nll)} for start in fit.starts
            ],
            "sent": {kind: asdict(traffic) for kind, traffic in fit.ledger.by_kind().items()},
            "sha256": save_arrays(folder / "training.safetensors", arrays),
        }
        (folder / "ledger.json").write_text(json.dumps(fit.ledger.as_dict()) + "\n")
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    # Edges and other lists of plain values in one line each; line breaks are never inside a JSON string.
    text = re.sub(r"\[\n[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found.group()), text)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def _agent_file(number: int) -> str:
    return f"agents/{number:04d}.safetensors"


def _graph_facts(graph: Topology, names: Sequence[str]) -> list[list[list[str]]]:
    """The edges by name, one list for each graph of a period."""
    return [[[names[a], names[b]] for a, b in graph.at(t).edges.tolist()] for t in range(graph.period)]


# ---- reading -------------------------------------------------------------------------------------------


def _read(facts: Mapping[str, Any], folder: Path) -> Model:
    names = tuple(typed(agent, "name", str) for agent in facts["agents"])
    inputs = tuple(typed({"input": name}, "input", str) for name in facts["inputs"])
    shards = []
    for number, agent in enumerate(facts["agents"]):
        count = typed(agent, "observations", int)
        shapes = {"inputs": (count, len(inputs)), "observations": (count,)}
        arrays = load_arrays(folder, _agent_file(number), agent["sha256"], shapes)
        shards.append((arrays["inputs"], arrays["observations"]))
    given = facts["hyperparameters"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # of the data, which was told when the model was made
        fleet = Fleet(
            shards,
            _read_graph(facts["graph"], names),
            theta=[given[label] for label in theta_labels(inputs)],
            normalize=typed(facts, "normalize", bool),
            kernel=typed(facts, "kernel", str),
            seed=typed(facts, "seed", int),
            inputs=inputs,
        )
    if "training" in facts:
        fleet.fit = _read_fit(facts["training"], folder, fleet)
        fleet.theta = fleet.fit.theta if fleet.fit.status != "diverged" else fleet.theta
    return Model(fleet, names, inputs, typed(facts, "target", str), typed(facts, "note", str))


def _read_graph(periods: Sequence[Sequence[Sequence[str]]], names: Sequence[str]) -> Topology:
    index = {name: number for number, name in enumerate(names)}
    graphs = [Graph(len(names), [(index[a], index[b]) for a, b in edges], connected=False) for edges in periods]
    return graphs[0] if len(graphs) == 1 else GraphSequence(graphs)


def _read_fit(facts: Mapping[str, Any], folder: Path, fleet: Fleet) -> Fit:
    agents, width = fleet.agents, fleet.dimension + 2
    shapes: dict[str, Shape] = {
        "thetas": (agents, width),
        "history": (None, agents, width),
        "jitter": (agents,),
        "rho": (None,),
    }
    arrays = load_arrays(folder, "training.safetensors", facts["sha256"], shapes)
    for theta in arrays["thetas"] if facts["status"] != "diverged" else ():
        check_theta(theta, fleet.dimension, f"{folder}: training.safetensors: thetas")
    offset, scale = (float(facts["scaling"][name]) for name in ("offset", "scale"))
    if not (np.isfinite([offset, scale]).all() and scale > 0.0):
        raise ValueError(f"scaling: expected a number and a positive number, got {offset} and {scale}")
    if facts["status"] not in get_args(Status):
        raise unknown_name("status", facts["status"], get_args(Status))
    return Fit(
        method=facts["method"],
        thetas=arrays["thetas"],
        history=arrays["history"],
        rounds=int(facts["rounds"]),
        status=facts["status"],
        residual=heard(facts["residual"]),
        nll=heard(facts["nll"]),
        jitter=arrays["jitter"],
        rho=arrays["rho"],
        starts=tuple(
            replace(Start(**start), theta0=np.array(start["theta0"]), nll=heard(start["nll"]))
            for start in facts["starts"]
        ),
        scaling=Scaling(offset, scale),
        engine=tuple(facts["engine"]),
        ledger=Ledger.from_dict(json.loads(read_inside(folder, "ledger.json", LONGEST_LEDGER))),
        noise_floor=float(facts.get("noise_floor", 0.0)),  # older folders have none
    )
