"""A trained fleet as a folder: JSON for people, safetensors for numbers, nothing that runs. Needs the extra "data".

model.json               what it is: agents, graph, hyperparameters, how it was trained
training.safetensors     every agent's estimate, and how it came there
ledger.json              what was sent in training, by edge and kind of content
agents/0000.safetensors  inputs and observations of one agent, a file each
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import FleetGPError, InputError
from fleetgp.files import check_folder
from fleetgp.fleet import Fleet
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.hyperparameters import names as hyperparameter_names
from fleetgp.network import Ledger
from fleetgp.training import Fit
from fleetgp.training.fit import Start
from fleetgp.training.normalize import Scaling

FORMAT = "fleetgp-model"
#: Raised when an older FleetGP could not read the folder any more.
VERSION = 1
DESCRIPTION = "model.json"
FILES = (DESCRIPTION, "training.safetensors", "ledger.json")


@dataclass(frozen=True)
class Model:
    """A fleet with the names that people know it by. note: what else is to be told of how it came about."""

    fleet: Fleet
    agents: tuple[str, ...]
    inputs: tuple[str, ...]
    target: str
    note: str = ""

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
        labels = [*(f"l_{name}" for name in self.inputs), *hyperparameter_names(0)]
        return dict(zip(labels, self.fleet.theta.tolist(), strict=True))


def save_model(model: Model, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write the folder: all of it, or nothing. An existing model is replaced on request only."""
    target = Path(folder).resolve()  # of a link, the folder it leads to
    check_target(target, overwrite)
    if len(set(model.agents)) < len(model.agents) or len(set(model.inputs)) < len(model.inputs):
        raise InputError("a model's agents, and its inputs, must have different names")
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
    check_folder(target.resolve().parent)
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target}: a model is a folder, but this is a file: choose another name")
    known = (target / DESCRIPTION).is_file()
    if any(target.iterdir()) and not (overwrite and known):
        hint = "choose another name, or overwrite it" if known else "it holds no model: choose another name"
        raise InputError(f"{target}: the folder exists: {hint}")
    strange = sorted({entry.name for entry in target.iterdir()} - {*FILES, "agents"})
    if strange:
        raise InputError(
            f"{target}: it holds other files too ({', '.join(strange)}): move them, or choose another name"
        )


def load_model(folder: str | Path) -> Model:
    """Read the folder; the original files are not needed."""
    source = Path(folder)
    if not (source / DESCRIPTION).is_file():
        raise InputError(f"{folder}: there is no {DESCRIPTION}: a folder written by `fleetgp fit` was expected")
    try:
        facts = json.loads((source / DESCRIPTION).read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise InputError(f"{folder}: {DESCRIPTION} does not describe a FleetGP model")
        if facts["version"] > VERSION:
            raise InputError(
                f"{folder}: the model has version {facts['version']}, this FleetGP reads up to {VERSION}: upgrade it"
            )
        return _read(facts, source)
    except FleetGPError:
        raise
    except PermissionError as error:
        raise InputError(f"{error.filename}: it may not be read") from error
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{folder}: the model is damaged: {type(error).__name__}: {error}") from error


# ---- writing -------------------------------------------------------------------------------------------


def _write(model: Model, folder: Path) -> None:
    from fleetgp import __version__

    fleet, fit = model.fleet, model.fleet.fit
    (folder / "agents").mkdir(parents=True)
    agents = []
    for number, ((inputs, observations), name) in enumerate(zip(fleet.shards, model.agents, strict=True)):
        digest = _save_arrays(folder / _agent_file(number), {"inputs": inputs, "observations": observations})
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
            "disagreement": _told(fit.disagreement),
            "residual": _told(fit.residual),
            "nll": _told(fit.nll),
            "noise_floor": fit.noise_floor,
            "engine": list(fit.engine),
            "scaling": asdict(fit.scaling),
            "starts": [
                {**asdict(start), "theta0": start.theta0.tolist(), "nll": _told(start.nll)} for start in fit.starts
            ],
            "sent": {kind: asdict(traffic) for kind, traffic in fit.ledger.by_kind().items()},
            "sha256": _save_arrays(folder / "training.safetensors", arrays),
        }
        (folder / "ledger.json").write_text(json.dumps(fit.ledger.as_dict()) + "\n")
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    # Edges and other lists of plain values in one line each; line breaks are never inside a JSON string.
    text = re.sub(r"\[\n[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found.group()), text)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def _told(value: float) -> float | None:
    """A number as JSON has it: none for infinity."""
    return float(value) if np.isfinite(value) else None


def _heard(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _agent_file(number: int) -> str:
    return f"agents/{number:04d}.safetensors"


def _graph_facts(graph: Topology, names: Sequence[str]) -> list[list[list[str]]]:
    """The edges by name, one list for each graph of a period."""
    return [[[names[a], names[b]] for a, b in graph.at(t).edges.tolist()] for t in range(graph.period)]


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise InputError('a model folder needs safetensors: install the extra "data"') from error
    return safetensors.numpy


def _save_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    data: bytes = _safetensors().save(
        {name: np.ascontiguousarray(array, dtype=float) for name, array in arrays.items()}
    )
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


# ---- reading -------------------------------------------------------------------------------------------


def _read(facts: Mapping[str, Any], folder: Path) -> Model:
    names = tuple(str(agent["name"]) for agent in facts["agents"])
    shards = []
    for number, agent in enumerate(facts["agents"]):
        arrays = _load_arrays(folder / _agent_file(number), agent["sha256"])
        shards.append((arrays["inputs"], arrays["observations"]))
    fleet = Fleet(
        shards,
        _read_graph(facts["graph"], names),
        theta=list(facts["hyperparameters"].values()),
        normalize=bool(facts["normalize"]),
        kernel=facts["kernel"],
        seed=int(facts["seed"]),
    )
    if len(facts["inputs"]) != fleet.dimension:
        raise InputError(f"{folder}: {len(facts['inputs'])} inputs are named, but the data have {fleet.dimension}")
    if "training" in facts:
        fleet.fit = _read_fit(facts["training"], folder)
        fleet.theta = fleet.fit.theta if fleet.fit.status != "diverged" else fleet.theta
    return Model(fleet, names, tuple(facts["inputs"]), str(facts["target"]), str(facts["note"]))


def _read_graph(periods: Sequence[Sequence[Sequence[str]]], names: Sequence[str]) -> Topology:
    index = {name: number for number, name in enumerate(names)}
    graphs = [Graph(len(names), [(index[a], index[b]) for a, b in edges], connected=False) for edges in periods]
    return graphs[0] if len(graphs) == 1 else GraphSequence(graphs)


def _read_fit(facts: Mapping[str, Any], folder: Path) -> Fit:
    arrays = _load_arrays(folder / "training.safetensors", facts["sha256"])
    return Fit(
        method=facts["method"],
        thetas=arrays["thetas"],
        history=arrays["history"],
        rounds=int(facts["rounds"]),
        status=facts["status"],
        residual=_heard(facts["residual"]),
        nll=_heard(facts["nll"]),
        jitter=arrays["jitter"],
        rho=arrays["rho"],
        starts=tuple(
            replace(Start(**start), theta0=np.array(start["theta0"]), nll=_heard(start["nll"]))
            for start in facts["starts"]
        ),
        scaling=Scaling(float(facts["scaling"]["offset"]), float(facts["scaling"]["scale"])),
        engine=tuple(facts["engine"]),
        ledger=Ledger.from_dict(json.loads((folder / "ledger.json").read_text())),
        noise_floor=float(facts.get("noise_floor", 0.0)),  # older folders have none
    )


def _load_arrays(path: Path, digest: str) -> dict[str, Array]:
    library = _safetensors()
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"{path}: the file is not the one that was written (its SHA-256 differs)")
    arrays: dict[str, Array] = library.load(data)
    return arrays
