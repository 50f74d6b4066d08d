"""A model in its folder. Writing: all of it, or nothing. Reading: nothing runs, and sizes are checked first."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.agreements import check_mean
from fleetgp.data.dataset import Dataset
from fleetgp.errors import FleetGPError, FleetGPWarning, InputError, shortened, unknown_name
from fleetgp.files import check_place
from fleetgp.fleet import Fleet
from fleetgp.fleet.backends import BackendName
from fleetgp.fleet.forgetting import Requests
from fleetgp.fleet.shards import noise_model_of
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import as_kernel
from fleetgp.model.hyperparameters import check_theta
from fleetgp.network import Ledger
from fleetgp.options import MemoryOptions
from fleetgp.prediction.kept import KeptGroups
from fleetgp.storage.model import Model, settings_of
from fleetgp.storage.sections import (
    AGENTS,
    DESCRIPTION,
    FILES,
    FORMAT,
    LEDGER,
    LONGEST_DESCRIPTION,
    LONGEST_LEDGER,
    TRAINING,
    VERSION,
    VERSION_WITH_MEAN,
    VERSION_WITH_MOMENTS,
    VERSION_WITH_PRIVATE_ROWS,
    VERSION_WITH_ROWS,
    Shape,
    agent_file,
    calibration_facts,
    compared_facts,
    from_json,
    group_numbers,
    load_arrays,
    load_moments,
    mean_facts,
    read_calibration,
    read_compared,
    read_coordinates,
    read_groups,
    read_inside,
    read_mean,
    read_scaling,
    save_arrays,
    save_moments,
    to_json,
    typed,
)
from fleetgp.training import Fit, training_method
from fleetgp.training.constraints import ParameterConstraints
from fleetgp.training.fit import Start
from fleetgp.validation import as_flag, as_path
from fleetgp.version import __version__

#: What reading a damaged description may raise.
DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
#: The arrays of whole numbers that a training has, one number per agent or none.
COUNTS = ("sample", "used", "outliers", "drawn", "held")


# ---- writing ----


def save_model(model: Model | Fleet, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write the folder: all of it, or nothing. An existing model is replaced on request only.

    model: or a fleet that has its names from its data, as those of `Fleet.from_frame` and other readers have.

    >>> import tempfile
    >>> from fleetgp import Fleet, Model, load_model, save_model
    >>> fleet = Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = save_model(Model(fleet, ["ada"], ["lon"], "sst"), f"{folder}/model")
    ...     again = load_model(place)
    >>> again.agents, again.inputs, again.target, again.status
    (('ada',), ('lon',), 'sst', 'given')
    """
    if isinstance(model, Fleet):
        model = Model.of(model)
    if not isinstance(model, Model):
        raise InputError(f"model: expected a Model, got {shortened(model)}: fg.Model(fleet, agents, inputs, target)")
    place = as_path(folder, "folder")
    check_target(place.resolve(), as_flag(overwrite, "overwrite"))
    return _built(place, lambda place: _write(model, place))


def save_models(models: Sequence[Model], folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write one model to the folder, or several to folders in it, each under its target: all of them, or nothing."""
    check_targets(folder, [model.target for model in models], overwrite)

    def write(place: Path) -> None:
        for model in models:
            _write(model, place if len(models) == 1 else place / model.target)

    return _built(Path(folder), write)


def _built(folder: Path, write: Callable[[Path], None]) -> Path:
    """Write beside the folder, and move the result into its place when it is complete."""
    target = folder.resolve()  # of a link, the folder it leads to
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    retired = building / "retired"  # inside what is cleared away in any case
    try:
        write(building / "model")
        if target.exists():
            target.rename(retired)
        (building / "model").rename(target)
    finally:
        if retired.exists() and not target.exists():
            retired.rename(target)
        shutil.rmtree(building, ignore_errors=True)
    return target


def check_target(folder: str | Path, overwrite: bool) -> None:
    """Refuse a folder in which a model may not be written, before any work is done."""
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
    strange = sorted({entry.name for entry in target.iterdir()} - {*FILES, AGENTS})
    if strange:
        raise InputError(
            f"{target}: it holds other files too ({', '.join(strange)}): move them, or choose another name"
        )


def check_targets(folder: str | Path, targets: Sequence[str], overwrite: bool) -> None:
    """Refuse a folder in which the models of these targets may not be written; only such models are replaced."""
    place = Path(folder)
    if len(targets) == 1:
        check_target(place, overwrite)
        return
    for name in targets:
        if Path(name).name != name or name in (AGENTS, *FILES):
            raise InputError(f"expected targets whose names can be those of folders, got {name!r}: rename the column")
    if not place.is_dir() or (place / DESCRIPTION).exists():
        check_target(place, overwrite=False)
        return
    for entry in sorted(place.iterdir()):
        if not (entry / DESCRIPTION).is_file():
            raise InputError(f"{place}: it holds other things than models ({entry.name}): choose another name")
        check_target(entry, overwrite)


def _write(model: Model, folder: Path) -> None:
    fleet, fit, names = model.fleet, model.fleet.last_fit, model.agents
    graphs = [fleet.graph.at(t) for t in range(fleet.graph.period)]
    (folder / AGENTS).mkdir(parents=True)
    agents: list[dict[str, Any]] = []
    by_rows = fleet.data.in_memory or fleet.moments is None
    if by_rows:
        for number, (own, name) in enumerate(zip(fleet.data, model.agents, strict=True)):
            arrays = {"inputs": own.inputs, "observations": own.values}
            arrays |= {} if own.noise_std is None else {"deviations": own.noise_std}
            if groups := fleet.sent_groups.get(number):
                arrays["groups"] = group_numbers(groups, len(own))
            known: dict[str, Any] = {"groups": len(groups)} if groups else {}
            if len(forgotten := fleet.kept_groups[number]):
                arrays["kept"], known["kept"] = forgotten.packed, [sorted(some) for some in forgotten.requests]
            if number in fleet.requests and len(own):
                texts, numbers = np.unique(fleet.requests[number].astype(str), return_inverse=True)
                arrays["requests"], known["requests"] = numbers.ravel().astype(float), texts.tolist()
            digest = save_arrays(folder / agent_file(number), arrays)
            agents.append({"name": name, "observations": len(own), **known, "sha256": digest})
    else:
        counts = fleet.data.counts
        agents += [{"name": name, "observations": n} for name, n in zip(model.agents, counts, strict=True)]
    facts: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION if any({"groups", "kept", "requests"} & {*one} for one in agents) else _version(model),
        "written_by": f"fleetgp {__version__}",
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": list(model.inputs),
        "target": model.target,
        "units": dict(fleet.units),
        **settings_of(fleet),
        "seed": fleet.seed,
        "hyperparameters": model.theta,
        "status": model.status,
        "note": model.note,
        "agents": agents,
        "graph": [[[names[a], names[b]] for a, b in graph.edges.tolist()] for graph in graphs],
    }
    if fleet.memory != MemoryOptions():
        facts["memory"] = asdict(fleet.memory)
    if fleet.moments is not None:  # in the place of rows, or beside them, so that answers have the same bits
        kept = save_moments(folder, fleet.moments, fleet.data.summaries)
        facts["beside" if by_rows else "moments"] = kept
    elif by_rows and (earlier := fleet.earlier_moments) is not None:  # rows came since: they are added again
        kept = save_moments(folder, earlier[0], fleet.data.summaries)
        facts["earlier"] = kept | {"rows": list(earlier[1])}
    if fit is not None:
        labelled = replace(fit.known, names=fleet.names) if fit.known.names else fit.known
        facts["training"] = _training_facts(replace(fit, known=labelled), folder)
        if by_rows and fleet.trained_rows != tuple(fleet.data.counts):
            facts["training"]["of_rows"] = list(fleet.trained_rows)
    if fleet.calibration is not None:
        facts["calibration"] = calibration_facts(fleet.calibration)
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    # Edges and other lists of plain values in one line each; line breaks are never inside a JSON string.
    text = re.sub(r"\[\n[^\[\]{}]*\]", lambda result: re.sub(r"\n\s*", " ", result.group()), text)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def _version(model: Model) -> int:
    """The oldest version that reads the model correctly, if no groups were sent: an older one would make others."""
    fleet = model.fleet
    if fleet.memory != MemoryOptions():  # an older one would forget nothing
        return VERSION
    if fleet.private is not None:  # an older one would send rows
        return VERSION_WITH_PRIVATE_ROWS
    if fleet.mean != "zero" or fleet.coordinates.name != "as-given" or fleet.noise_model.differs:
        return VERSION_WITH_MEAN
    by_moments = not fleet.data.in_memory and fleet.last_fit is not None and fleet.last_fit.moments is not None
    return VERSION_WITH_MOMENTS if by_moments else VERSION_WITH_ROWS


def _training_facts(fit: Fit, folder: Path) -> dict[str, Any]:
    """How it was trained; the arrays and the ledger go into files of their own."""
    arrays = {"thetas": fit.thetas, "history": fit.history, "jitter": fit.jitter, "rho": fit.rho}
    (folder / LEDGER).write_text(json.dumps(fit.ledger.as_dict()) + "\n", encoding="utf-8")
    return {
        **{name: getattr(fit, name) for name in ("method", "status", "rounds", "noise_floor", "offset")},
        **{name: to_json(getattr(fit, name)) for name in ("disagreement", "residual", "nll", "penalty")},
        "known": fit.known.as_dict(),
        **{name: list(getattr(fit, name)) for name in ("at_bounds", "engine", "flat_numbers", "stopped_numbers")},
        **{name: getattr(fit, name).tolist() for name in COUNTS},
        "approximation": [to_json(value) for value in fit.approximation.tolist()],
        "scaling": asdict(fit.scaling),
        "mean": None if fit.mean is None else mean_facts(fit.mean),
        "coordinates": asdict(fit.coordinates),
        "starts": [
            {**asdict(start), "theta0": start.theta0.tolist(), "nll": to_json(start.nll)} for start in fit.starts
        ],
        "compared": compared_facts(fit.compared),
        "sent": {kind: asdict(traffic) for kind, traffic in fit.ledger.by_kind().items()},
        "sha256": save_arrays(folder / TRAINING, arrays),
    }


# ---- reading ----


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
            raise _newer(folder, facts)
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


def _newer(folder: str | Path, facts: Mapping[str, Any]) -> InputError:
    """The error of a folder that a newer FleetGP wrote, in a format that this one cannot read."""
    writer = facts.get("written_by")
    known = isinstance(writer, str) and re.fullmatch(r"fleetgp [\w.+!-]{1,40}", writer)
    wanted = f'"fleetgp>={str(writer).removeprefix("fleetgp ")}"' if known else "--upgrade fleetgp"
    return InputError(
        f"{folder}: expected a model in a format up to {VERSION}, which this FleetGP ({__version__}) reads, got format "
        f"{facts['version']}, written by {writer if known else 'a newer one'}: pip install {wanted}"
    )


def _read(facts: Mapping[str, Any], folder: Path, where: Mapping[str, Any]) -> Model:
    names = tuple(typed(agent, "name", str) for agent in facts["agents"])
    inputs = tuple(typed({"input": name}, "input", str) for name in facts["inputs"])
    shards: Sequence[tuple[Any, ...]] | Dataset = ()
    more: list[_More] = []
    if "moments" not in facts:
        shards, more = _read_shards(facts, folder, len(inputs))
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
            time=facts.get("time"),
            seed=typed(facts, "seed", int),
            inputs=inputs,
            **facts.get("memory", {}),
            **(where if "moments" not in facts else {}),
        )
    fleet.sent_groups.update({number: own.sent for number, own in enumerate(more) if own.sent})
    fleet.requests.update({number: own.requests for number, own in enumerate(more) if own.requests is not None})
    fleet.kept_groups = tuple(own.kept for own in more) or fleet.kept_groups
    if "training" in facts:
        counts = facts["earlier"]["rows"] if "earlier" in facts else facts["training"].get("of_rows")
        rows = None if counts is None else [int(count) for count in counts]
        stored = fleet.theta
        fleet.adopt(replace(_read_fit(facts["training"], folder, fleet), moments=moments), rows)
        if stored is not None and fleet.theta is not None and not np.allclose(fleet.theta, stored, rtol=1e-9, atol=0.0):
            fleet.theta = stored  # which was set after the training
    if "calibration" in facts:
        fleet.calibration = read_calibration(facts["calibration"], fleet)
    fleet.units = {
        typed({"name": name}, "name", str): typed({"units": own}, "units", str)
        for name, own in facts.get("units", {}).items()  # older folders have none
    }
    return Model(fleet, names, inputs, typed(facts, "target", str), typed(facts, "note", str))


@dataclass(frozen=True)
class _More:
    """What an agent has besides its data; older folders have none of it.

    sent: groups of rows.  kept: groups of forgotten rows.  requests: of each row; None where none had a name.
    """

    sent: tuple[IntArray, ...]
    kept: KeptGroups
    requests: Requests | None


def _read_shards(facts: Mapping[str, Any], folder: Path, dimension: int) -> tuple[list[tuple[Any, ...]], list[_More]]:
    """The agents' data, and what they have besides."""
    shards, more = [], []
    for number, agent in enumerate(facts["agents"]):
        count = typed(agent, "observations", int)
        shapes: dict[str, Shape] = {"inputs": (count, dimension), "observations": (count,)}
        shapes |= {"deviations": (count,)} if facts.get("deviations") else {}
        others: dict[str, Shape] = {"groups": (count,)} if agent.get("groups") else {}
        others |= {"kept": (len(agent["kept"]), KeptGroups.width(dimension))} if agent.get("kept") else {}
        others |= {"requests": (count,)} if agent.get("requests") else {}
        arrays = load_arrays(folder, agent_file(number), agent["sha256"], shapes | others)
        shards.append(tuple(arrays[name] for name in shapes))
        sent = read_groups(arrays["groups"]) if "groups" in arrays else ()
        kept, requests = KeptGroups.none(dimension), None
        if "kept" in arrays:
            kept = KeptGroups.unpacked(arrays["kept"], dimension, [_texts(some) for some in agent["kept"]])
        if "requests" in arrays:
            requests = np.array(_texts(agent["requests"]), dtype=object)[arrays["requests"].astype(np.int64)]
        more.append(_More(sent, kept, requests))
    return shards, more


def _texts(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ValueError(f"requests: expected a list of names, got {shortened(given)}")
    return given


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
    counts: dict[str, Any] = {name: np.array(facts.get(name, []), dtype=np.int64) for name in COUNTS}
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
        kernel=fleet.kernel.name,
        compared=read_compared(facts.get("compared", [])),
        noises=fleet.kernel.noise_count,
        offset=float(facts.get("offset", 0.0)),
        flat_numbers=tuple(facts.get("flat_numbers", [])),
        stopped_numbers=tuple(facts.get("stopped_numbers", [])),
        **counts,
    )
