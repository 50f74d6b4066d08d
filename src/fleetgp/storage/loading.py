"""A model from its folder. Whatever is in it, nothing runs, and sizes are checked before anything is read."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fleetgp.consensus import Status
from fleetgp.consensus.agreements import check_mean
from fleetgp.data.dataset import Dataset
from fleetgp.errors import FleetGPError, FleetGPWarning, InputError, unknown_name
from fleetgp.fleet import Fleet
from fleetgp.fleet.backends import BackendName
from fleetgp.fleet.shards import noise_model_of
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import as_kernel
from fleetgp.model.hyperparameters import check_theta
from fleetgp.network import Ledger
from fleetgp.storage.model import Model
from fleetgp.storage.sections import (
    DESCRIPTION,
    FORMAT,
    LEDGER,
    LONGEST_DESCRIPTION,
    LONGEST_LEDGER,
    TRAINING,
    VERSION,
    Shape,
    agent_file,
    from_json,
    load_arrays,
    load_moments,
    read_calibration,
    read_compared,
    read_coordinates,
    read_inside,
    read_mean,
    read_scaling,
    typed,
)
from fleetgp.training import Fit, training_method
from fleetgp.training.constraints import ParameterConstraints
from fleetgp.training.fit import Start
from fleetgp.validation import as_path
from fleetgp.version import __version__

#: What reading a damaged description may raise.
DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)


def load_model(
    folder: str | Path, *, backend: BackendName = "in-process", workers: int | None = None, address: str | None = None
) -> Model:
    """Read the folder; the original files are not needed. Whatever is in it, nothing runs, and sizes are checked.

    backend, workers, address: as of a `Fleet`. A model without rows (dec-full-gp of files) has nothing for workers to
    do, since any agent answers from the moments of all data: it is answered in this process in any case.

    >>> load_model("nowhere")
    Traceback (most recent call last):
    fleetgp.errors.InputError: nowhere: there is no model.json: expected a folder written by `fleetgp fit`

    `save_model` has an example of both.
    """
    source = as_path(folder, "folder")
    if not (source / DESCRIPTION).is_file():
        raise InputError(f"{folder}: there is no {DESCRIPTION}: expected a folder written by `fleetgp fit`")
    try:
        facts = json.loads(read_inside(source, DESCRIPTION, LONGEST_DESCRIPTION))
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise InputError(f"{folder}: {DESCRIPTION} does not describe a FleetGP model")
        if not isinstance(facts["version"], int):
            raise InputError(
                f"{folder}: {DESCRIPTION}: expected a whole number as version, got {facts['version']!r:.60}"
            )
        if facts["version"] > VERSION:
            raise InputError(newer(folder, facts))
        return _read(facts, source, {"backend": backend, "workers": workers, "address": address})
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


def newer(folder: str | Path, facts: Mapping[str, Any]) -> str:
    """What is said of a folder that this FleetGP cannot read, since a newer one wrote it."""
    writer = facts.get("written_by")
    known = isinstance(writer, str) and re.fullmatch(r"fleetgp [\w.+!-]{1,40}", writer)
    wanted = f'"fleetgp>={str(writer).removeprefix("fleetgp ")}"' if known else "--upgrade fleetgp"
    return (
        f"{folder}: expected a model in a format up to {VERSION}, which this FleetGP ({__version__}) reads, got format "
        f"{facts['version']}, written by {writer if known else 'a newer one'}: pip install {wanted}"
    )


def _read(facts: Mapping[str, Any], folder: Path, where: Mapping[str, Any]) -> Model:
    names = tuple(typed(agent, "name", str) for agent in facts["agents"])
    inputs = tuple(typed({"input": name}, "input", str) for name in facts["inputs"])
    shards: Sequence[tuple[Any, ...]] | Dataset = () if "moments" in facts else _read_shards(facts, folder, len(inputs))
    moments = None
    if "moments" in facts or "beside" in facts or "earlier" in facts:
        method, kept = training_method(typed(facts["training"], "method", str)).name, facts.get("moments")
        remembered, moments = load_moments(
            folder, kept or facts.get("beside") or facts["earlier"], names, len(inputs), method
        )
        shards = shards or remembered
    given, noise, robust = facts["hyperparameters"], facts.get("noise"), facts.get("robust", False)  # older have none
    differing = noise_model_of(noise, len(names), known=bool(facts.get("deviations")), robust=robust)
    kernel = with_noise(as_kernel(typed(facts, "kernel", str), inputs), differing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # of the data, which was told when the model was made
        fleet = Fleet(
            shards,
            _read_graph(facts["graph"], names),
            theta=[given[label] for label in kernel.names(inputs)],
            normalize=typed(facts, "normalize", bool),
            mean=check_mean(facts.get("mean", "zero")),  # older folders have neither
            coordinates=facts.get("coordinates", "as-given"),
            kernel=kernel,
            noise=noise,
            robust=robust,
            private=facts.get("private"),
            seed=typed(facts, "seed", int),
            inputs=inputs,
            **(where if "moments" not in facts else {}),
        )
    if "training" in facts:
        rows = [int(count) for count in facts["earlier"]["rows"]] if "earlier" in facts else None
        fleet.adopt(replace(_read_fit(facts["training"], folder, fleet), moments=moments), rows)
    if "calibration" in facts:
        fleet.calibration = read_calibration(facts["calibration"], fleet)
    fleet.units = {
        typed({"name": name}, "name", str): typed({"units": own}, "units", str)
        for name, own in facts.get("units", {}).items()  # older folders have none
    }
    return Model(fleet, names, inputs, typed(facts, "target", str), typed(facts, "note", str))


def _read_shards(facts: Mapping[str, Any], folder: Path, dimension: int) -> list[tuple[Any, ...]]:
    shards = []
    for number, agent in enumerate(facts["agents"]):
        count = typed(agent, "observations", int)
        shapes: dict[str, Shape] = {"inputs": (count, dimension), "observations": (count,)}
        shapes |= {"deviations": (count,)} if facts.get("deviations") else {}
        arrays = load_arrays(folder, agent_file(number), agent["sha256"], shapes)
        shards.append(tuple(arrays[name] for name in shapes))
    return shards


def _read_graph(periods: Sequence[Sequence[Sequence[str]]], names: Sequence[str]) -> Topology:
    index = {name: number for number, name in enumerate(names)}
    graphs = [Graph(len(names), [(index[a], index[b]) for a, b in edges], connected=False) for edges in periods]
    return graphs[0] if len(graphs) == 1 else GraphSequence(graphs)


def _read_known(facts: Mapping[str, Any], fleet: Fleet) -> ParameterConstraints:
    try:
        return ParameterConstraints.of(fleet.names, **facts)
    except InputError as error:
        raise ValueError(f"known: {error}") from error


def _read_fit(facts: Mapping[str, Any], folder: Path, fleet: Fleet) -> Fit:
    agents, width = fleet.agents, len(fleet.names)
    shapes: dict[str, Shape] = {
        "thetas": (agents, width),
        "history": (None, agents, width),
        "jitter": (agents,),
        "rho": (None,),
    }
    arrays = load_arrays(folder, TRAINING, facts["sha256"], shapes)
    for theta in arrays["thetas"] if facts["status"] != "diverged" else ():
        check_theta(theta, fleet.names, f"{folder}: training.safetensors: thetas")
    if facts["status"] not in get_args(Status):
        raise unknown_name("status", facts["status"], get_args(Status))
    return Fit(
        method=training_method(typed(facts, "method", str)).name,
        thetas=arrays["thetas"],
        history=arrays["history"],
        rounds=int(facts["rounds"]),
        status=facts["status"],
        residual=from_json(facts["residual"]),
        nll=from_json(facts["nll"]),
        jitter=arrays["jitter"],
        rho=arrays["rho"],
        starts=tuple(
            replace(Start(**start), theta0=np.array(start["theta0"]), nll=from_json(start["nll"]))
            for start in facts["starts"]
        ),
        scaling=read_scaling(facts["scaling"], fleet.dimension),
        mean=read_mean(facts.get("mean"), fleet.dimension),
        coordinates=read_coordinates(
            facts.get("coordinates"), fleet.inputs or [""] * fleet.dimension, fleet.coordinates.name
        ),
        engine=tuple(facts["engine"]),
        ledger=Ledger.from_dict(json.loads(read_inside(folder, LEDGER, LONGEST_LEDGER)), agents),
        noise_floor=float(facts.get("noise_floor", 0.0)),  # older folders have none
        known=_read_known(facts.get("known", {}), fleet),  # nor this
        approximation=np.array([from_json(value) for value in facts.get("approximation", [0.0] * agents)]),
        sample=np.array(facts.get("sample", []), dtype=np.int64),
        used=np.array(facts.get("used", []), dtype=np.int64),
        drawn=np.array(facts.get("drawn", []), dtype=np.int64),
        kernel=fleet.kernel.name,
        compared=read_compared(facts.get("compared", [])),
        held=np.array(facts.get("held", []), dtype=np.int64),
        noises=fleet.kernel.noise_count,
        offset=float(facts.get("offset", 0.0)),
        flat_numbers=tuple(facts.get("flat_numbers", [])),
        stopped_numbers=tuple(facts.get("stopped_numbers", [])),
        outliers=np.array(facts.get("outliers", []), dtype=np.int64),
    )
