"""A model to its folder: all of it, or nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError, shortened
from fleetgp.files import check_place
from fleetgp.fleet import Fleet
from fleetgp.graph import Topology
from fleetgp.storage.model import Model
from fleetgp.storage.sections import (
    AGENTS,
    DESCRIPTION,
    FILES,
    FORMAT,
    LEDGER,
    TRAINING,
    VERSION,
    VERSION_WITH_MEAN,
    VERSION_WITH_MOMENTS,
    VERSION_WITH_ROWS,
    agent_file,
    calibration_facts,
    compared_facts,
    mean_facts,
    save_arrays,
    save_moments,
    to_json,
)
from fleetgp.training import Fit
from fleetgp.validation import as_flag, as_path
from fleetgp.version import __version__


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
    """Write a folder with a model for each target, under its name: all of them, or nothing."""
    check_targets(folder, [model.target for model in models], overwrite)

    def write(place: Path) -> None:
        for model in models:
            _write(model, place / model.target)

    return _built(Path(folder), write)


def _built(folder: Path, write: Callable[[Path], None]) -> Path:
    """What is written beside the folder and takes its place when it is whole."""
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
    strange = sorted({entry.name for entry in target.iterdir()} - {*FILES, AGENTS})
    if strange:
        raise InputError(
            f"{target}: it holds other files too ({', '.join(strange)}): move them, or choose another name"
        )


def check_targets(folder: str | Path, targets: Sequence[str], overwrite: bool) -> None:
    """One clear error where models of several targets may not be written; what is replaced are such models alone."""
    place = Path(folder)
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
    fleet, fit = model.fleet, model.fleet.last_fit
    (folder / AGENTS).mkdir(parents=True)
    agents: list[dict[str, Any]] = []
    by_rows = not (not fleet.data.in_memory and fleet.moments is not None)
    if by_rows:
        for number, (own, name) in enumerate(zip(fleet.data, model.agents, strict=True)):
            arrays = {"inputs": own.inputs, "observations": own.values}
            arrays |= {} if own.noise_std is None else {"deviations": own.noise_std}
            digest = save_arrays(folder / agent_file(number), arrays)
            agents.append({"name": name, "observations": len(own), "sha256": digest})
    else:
        counts = fleet.data.counts
        agents += [{"name": name, "observations": n} for name, n in zip(model.agents, counts, strict=True)]
    facts: dict[str, Any] = {
        "format": FORMAT,
        "version": _version(model),
        "written_by": f"fleetgp {__version__}",
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": list(model.inputs),
        "target": model.target,
        "units": dict(fleet.units),
        "kernel": fleet.kernel.name,
        "normalize": fleet.normalize,
        "mean": fleet.mean,
        "coordinates": fleet.coordinates.name,
        "deviations": fleet.noise_model.known,
        "noise": fleet.noise if fleet.noise is None or isinstance(fleet.noise, str) else list(fleet.noise),
        "robust": fleet.robust,
        "private": fleet.private,
        "seed": fleet.seed,
        "hyperparameters": model.theta,
        "status": model.status,
        "note": model.note,
        "agents": agents,
        "graph": _graph_facts(fleet.graph, model.agents),
    }
    if fleet.moments is not None:  # in the place of rows, or beside them, so that answers have the same bits
        kept = save_moments(folder, fleet.moments, fleet.data.summaries)
        facts["beside" if by_rows else "moments"] = kept
    elif by_rows and (earlier := fleet.earlier_moments) is not None:  # rows came since: they are added again
        kept = save_moments(folder, earlier[0], fleet.data.summaries)
        facts["earlier"] = kept | {"rows": list(earlier[1])}
    if fit is not None:
        labelled = replace(fit.known, names=fleet.names) if fit.known.names else fit.known
        facts["training"] = _training_facts(replace(fit, known=labelled), folder)
    if (calibration := calibration_facts(fleet)) is not None:
        facts["calibration"] = calibration
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    # Edges and other lists of plain values in one line each; line breaks are never inside a JSON string.
    text = re.sub(r"\[\n[^\[\]{}]*\]", lambda result: re.sub(r"\n\s*", " ", result.group()), text)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def _version(model: Model) -> int:
    """The oldest that reads it right."""
    fleet = model.fleet
    if fleet.private is not None:  # an older one would send rows
        return VERSION
    if fleet.mean != "zero" or fleet.coordinates.name != "as-given" or fleet.noise_model.differs:
        return VERSION_WITH_MEAN
    by_moments = not fleet.data.in_memory and fleet.last_fit is not None and fleet.last_fit.moments is not None
    return VERSION_WITH_MOMENTS if by_moments else VERSION_WITH_ROWS


def _graph_facts(graph: Topology, names: Sequence[str]) -> list[list[list[str]]]:
    """The edges by name, one list for each graph of a period."""
    return [[[names[a], names[b]] for a, b in graph.at(t).edges.tolist()] for t in range(graph.period)]


def _training_facts(fit: Fit, folder: Path) -> dict[str, Any]:
    """How it was trained; the arrays and the ledger go into files of their own."""
    arrays = {"thetas": fit.thetas, "history": fit.history, "jitter": fit.jitter, "rho": fit.rho}
    (folder / LEDGER).write_text(json.dumps(fit.ledger.as_dict()) + "\n", encoding="utf-8")
    return {
        "method": fit.method,
        "status": fit.status,
        "rounds": fit.rounds,
        "disagreement": to_json(fit.disagreement),
        "residual": to_json(fit.residual),
        "nll": to_json(fit.nll),
        "noise_floor": fit.noise_floor,
        "known": fit.known.as_dict(),
        "at_bounds": list(fit.at_bounds),
        "penalty": to_json(fit.penalty),
        "engine": list(fit.engine),
        "sample": fit.sample.tolist(),
        "used": fit.used.tolist(),
        "outliers": fit.outliers.tolist(),
        "offset": fit.offset,
        "flat_numbers": list(fit.flat_numbers),
        "stopped_numbers": list(fit.stopped_numbers),
        "drawn": fit.drawn.tolist(),
        "held": fit.held.tolist(),
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
