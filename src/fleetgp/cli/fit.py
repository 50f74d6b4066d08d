"""fleetgp fit: from measurements to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

import fleetgp as fg
from fleetgp.cli import options
from fleetgp.cli.calibrate import calibration_facts, told_of
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.files import InFiles, Taken, check_column, forget_reading
from fleetgp.cli.kernels import told_of_kernels
from fleetgp.cli.means import Seen, told_inputs, told_mean
from fleetgp.cli.noises import Noisy, told_outliers
from fleetgp.cli.output import bold, count_of_agents, emit, plain_table, warn
from fleetgp.data import partition, partition_by_label
from fleetgp.data.partition import BY
from fleetgp.data.streamed import Streamed, counts_of
from fleetgp.errors import InputError, NumericalError, WorkerLostError, unknown_name
from fleetgp.gp.choices import as_kernels
from fleetgp.gp.kernels import OBSERVED, PURE
from fleetgp.graph import GRAPH_NAMES, Graph
from fleetgp.io import read_edges, read_observations
from fleetgp.network import Traffic
from fleetgp.prediction.calibration import HOLDINGS
from fleetgp.progress import listening
from fleetgp.storage.calibrations import compared_facts
from fleetgp.storage.loading import load_model
from fleetgp.storage.model import Model
from fleetgp.storage.saving import check_target, save_model
from fleetgp.training import training_method
from fleetgp.training.fit import about_sample


def fit(
    *,
    files: options.OBSERVATIONS,
    inputs: options.INPUTS,
    target: options.TARGET,
    out: options.MODEL_OUT,
    agent: options.AGENT_COLUMN = None,
    agents: options.AGENTS = None,
    by: options.PARTITION = None,
    axis: options.AXIS = None,
    graph: options.GRAPH = "path",
    training: options.TRAINING = "dec-fact-gp",
    kernel: options.KERNEL = "matern32",
    missing: options.MISSING = "refuse",
    fill: options.FILL = None,
    reading: options.FileReading,
    streaming: InFiles,
    seen: Seen,
    noisy: Noisy,
    start: options.START = None,
    calibrate: options.CALIBRATE = None,
    how: options.Training,
    where: Cluster,
    seed: options.SEED = 0,
    overwrite: options.OVERWRITE = False,
    output: options.Output,
) -> None:
    """Train a fleet on a file and write the model to a folder.

    Each agent uses its own rows only; what it tells its neighbours is in the result. Without --agent and --agents one
    agent has all rows, which is the most accurate where they may be pooled. Agents stand on a path, cycle, ...
    in the order in which they first come in the file. A file of edges has two names a line, with a comma or blanks
    between them, and no header; # begins a comment. Of several files each is an agent's, unless --agent says whose
    rows are whose; they may be larger than memory for dec-full-gp, which reads them in chunks.

    [bold]Examples[/bold]

    [cyan]fleetgp fit field.csv --inputs lon lat --target sst --out field/[/cyan]

    [cyan]fleetgp fit observations.csv --inputs lon lat --target sst --agent boat --out model/[/cyan]

    [cyan]fleetgp fit obs.csv --inputs lon lat --target sst --agent boat --graph links.txt --out model/[/cyan]

    [cyan]fleetgp fit obs.csv --inputs lon lat --target sst --agent boat --noise agents --robust --out model/[/cyan]

    [cyan]fleetgp fit data/*.parquet --inputs lon lat --target sst --training dec-full-gp --kernel se --out big/[/cyan]
    """
    chosen, made = how.chosen, where.backend | seen.checked(inputs) | {"kernel": kernel, "seed": seed}
    _check(out, overwrite, inputs, target, calibrate)
    fg.TrainingOptions(**chosen).refuse_foreign(training_method(training), options.as_typed)
    if noisy.noise is None:  # else the names of its hyperparameters are not known before the agents'
        chosen |= _begun(how, start, inputs, as_kernels(kernel, inputs)[0].names(inputs))
    (split := Split(agent, agents, by, axis, seed)).check(inputs)
    what: dict[str, Any] = {"inputs": inputs, "target": target, "agent": agent, "missing": options.missing_of(missing)}
    what |= {"fill": options.fills_of(fill), "reading": reading.reading}
    chunked, told = streaming.chunked(files, agents), where.backend | {"progress": not output.quiet}
    noisy.check([*inputs, target, *([agent] if agent else [])], chunked=chunked)
    whole = what | {"deviation": noisy.deviation}
    data = streaming.read(files, what | told, seed, training, out) if chunked else split.read(files[0], whole)
    fleet = fg.Fleet(data.shards, _graph(graph, data), inputs=inputs, **made, **noisy.made(data.names))
    if noisy.noise is not None:
        chosen |= _begun(how, start, inputs, fleet.names)
    model = Model(fleet, tuple(data.names), tuple(inputs), target)
    _train(model, training, chosen, out, output.quiet)
    _save(model, out, overwrite, calibrate)
    _report(model, data, out, output.as_json)


def _check(out: Path, overwrite: bool, inputs: list[str], target: str, hold: str | None) -> None:
    """One clear error for what can be known before anything is read."""
    if hold is not None:
        options.one_of("--calibrate", hold, HOLDINGS)
    check_target(out, overwrite)
    if out.exists():
        check_target(_beside(out), overwrite=True)
    if len(set(inputs)) < len(inputs) or target in inputs:
        raise InputError(f"--inputs and --target must be different columns, got {[*inputs, target]}")


@dataclass(frozen=True)
class Split:
    """Who has which rows: those that name an agent in a column, or all of them split over so many agents."""

    column: str | None
    agents: int | None
    by: str | None
    axis: str | None
    seed: int

    def check(self, inputs: list[str]) -> None:
        if self.column is not None and self.agents is not None:
            raise InputError(
                "give either --agent (the column that names the agents) or --agents (how many to split over), not both"
            )
        if self.column is not None and (self.by is not None or self.axis is not None):
            raise InputError("--partition and --axis are for --agents: with --agent each agent has its own rows")
        if self.axis is not None and self.by not in (None, "stripes"):
            raise InputError(f"--axis is for stripes, but --partition {self.by} was asked for: leave one of them out")
        if self.axis is not None and self.axis not in inputs:
            raise unknown_name("--axis", self.axis, inputs)

    def read(self, file: Path, what: dict[str, Any]) -> Taken:
        """One file as a whole. what: the options of `read_observations`."""
        data = read_observations(file, **what)
        if np.ptp(data.observations) == 0.0:
            raise InputError(f"{file}: the column {what['target']!r} has one value only: there is nothing to learn")
        if data.labels is None:
            by = options.one_of("--partition", self.by or "stripes", BY)
            along = 0 if self.axis is None else what["inputs"].index(self.axis)
            agents = 1 if self.agents is None else self.agents
            rows = data.inputs, data.observations, data.deviations
            parts = partition(*rows, agents=agents, by=by, axis=along, seed=self.seed)
            return Taken([str(number) for number in range(len(parts))], parts, data.dropped, data.notes)
        names, parts = partition_by_label(data.inputs, data.observations, data.labels, data.deviations)
        check_column(f"{file}: ", self.column, len(names), len(data.labels))
        return Taken(names, parts, data.dropped, data.notes)


def _train(model: Model, training: str, chosen: dict[str, Any], out: Path, quiet: bool) -> None:
    """Train the model's fleet. What an interruption leaves is saved."""
    with model.fleet, listening(not quiet) as shown:
        try:
            model.fleet.train(training, **chosen, progress=shown or False)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_keep(model, out)) from None
        except WorkerLostError as error:
            raise WorkerLostError(f"{error}; {_keep(model, out)}") from error
    if model.fleet.theta is None:
        raise NumericalError(f"{training} diverged, as the warning says: nothing was written")


def _save(model: Model, out: Path, overwrite: bool, hold: str | None) -> None:
    """Save the model, then calibrate it, if that is wanted: whatever becomes of this, the training is safe."""
    save_model(model, out, overwrite=overwrite)
    forget_reading(out)
    if hold is not None:
        with model.fleet:
            model.fleet.calibrate(hold=hold)
        save_model(model, out, overwrite=True)


def _beside(out: Path) -> Path:
    """Where the estimates of an interrupted training go if there is a model already."""
    return out.with_name(f"{out.name}.interrupted")


def _keep(model: Model, out: Path) -> str:
    """Save the estimates of a training that was interrupted, never in the place of a model; what became of them."""
    occupied = out.exists() and any(out.iterdir())
    left = f"; {out} is as it was" if occupied else ""
    furthest = model.fleet.unfinished
    if furthest is None:
        return f"there are no estimates yet, and nothing was written{left}"
    note = f"interrupted after {furthest.round} rounds of {furthest.task}"
    place = _beside(out) if occupied else out
    save_model(replace(model, note=note), place, overwrite=True)
    how = f"--from {place}" + ("" if occupied else " --overwrite")
    return f"{place} holds the estimates so far ({note}): {how} goes on from them{left}"


def _report(model: Model, data: Taken, out: Path, as_json: bool) -> None:
    fleet, found = model.fleet, model.fleet.fit
    assert found is not None
    dropped, counts = data.dropped, counts_of(fleet.shards)
    by_moments = isinstance(fleet.shards, Streamed) and found.moments is not None
    how, everywhere = (f" --method {found.method}", " --within inf") if by_moments else ("", "")
    if found.status != "converged":
        warn(f"training ended by {found.status} after {found.rounds} rounds, not by convergence")
    if found.jitter.any():
        warn(f"{int((found.jitter > 0).sum())} agents' covariances needed jitter, up to {found.jitter.max():.1e}")
    sent = {kind: traffic for kind, traffic in found.ledger.by_kind().items() if kind != "framing"}
    table = plain_table("", "hyperparameter", "value", "unit")
    units = _units(model)
    known = found.known.as_dict()
    for (name, value), unit in zip(model.theta.items(), units, strict=True):
        held = "fixed" if name in known["fixed"] else "at its bound" if name in found.at_bounds else ""
        table.add_row(name, f"{value:.4g}", ", ".join(filter(None, [unit, held])))
    emit(
        {
            "model": str(out),
            "agents": list(model.agents),
            "observations": counts,
            "dropped": dropped,
            "notes": list(data.notes),
            "method": found.method,
            "kernel": fleet.kernel.name,
            "compared": compared_facts(found.compared),
            "calibration": None if fleet.calibration is None else calibration_facts(fleet.calibration),
            "status": found.status,
            "rounds": found.rounds,
            "disagreement": found.disagreement,
            "theta": model.theta,
            "mean": None if found.mean is None else asdict(found.mean),
            "coordinates": asdict(found.coordinates),
            "jitter": found.jitter,
            "noise_floor": found.noise_floor,
            "at_noise_floor": bool(found.at_floor.any()),
            "at_bounds": found.at_bounds,
            "penalty": found.penalty,
            **known,
            "engine": found.engine,
            "approximation": found.approximation,
            "sample": found.sample,
            "used": found.used,
            "outliers": found.outliers,
            "drawn": found.drawn,
            "held": found.held,
            "sent": {kind: vars(traffic) for kind, traffic in sent.items()},
        },
        f"{sum(counts):,} observations of {count_of_agents(len(model.agents))}"
        + (f" ({dropped} rows with missing values dropped)." if dropped else "."),
        *(f"{note[0].upper()}{note[1:]}." for note in data.notes),
        *([told] if (told := about_sample(found)) else []),
        f"{found.method}: {found.status} after {found.rounds} rounds"
        + (f"; the agents differ by {found.disagreement:.0e}." if len(model.agents) > 1 else "."),
        *told_of_kernels(found),
        table,
        *told_mean(model),
        *told_outliers(model),
        *([] if fleet.calibration is None else told_of(fleet.calibration)),
        *([f"Sent between agents, in numbers: {_sent(sent)}."] if len(model.agents) > 1 else []),
        f"The model is in {bold(out)}. Next:",
        f"  [cyan]fleetgp predict {escape(str(out))} points.csv{how} --out answer.csv[/cyan]",
        *(
            [f"  [cyan]fleetgp map {escape(str(out))} --grid 200x200{how}{everywhere} --out map.nc[/cyan]"]
            if fleet.dimension == 2
            else []
        ),
        as_json=as_json,
    )


def _units(model: Model) -> list[str]:
    """What the hyperparameters are measured in."""
    fleet = model.fleet
    inputs = told_inputs(fleet.coordinates, model.inputs)
    told = {OBSERVED: f"of {model.target}", PURE: ""} | {d: f"of {name}" for d, name in enumerate(inputs)}
    return [told[unit] for unit in fleet.kernel.units(fleet.dimension).tolist()]


def _begun(how: options.Training, start: Path | None, inputs: list[str], names: Sequence[str]) -> dict[str, Any]:
    """What is said of the hyperparameters by their names, and where they start."""
    return {**how.known(names), "theta0": None if start is None else _start(start, inputs, names)}


def _start(folder: Path, inputs: list[str], names: Sequence[str]) -> list[float]:
    """Another model's hyperparameters, by their names."""
    model = load_model(folder)
    if sorted(model.inputs) != sorted(inputs):
        raise InputError(
            f"--from {folder}: that model has the inputs {', '.join(model.inputs)}, not {', '.join(inputs)}"
        )
    theta = model.theta
    if missing := [name for name in names if name not in theta]:
        raise InputError(
            f"--from {folder}: that model, with the kernel {model.fleet.kernel.name!r}, has no {', '.join(missing)}: "
            "give its kernel, or leave out --from"
        )
    return [theta[name] for name in names]


def _graph(graph: str, data: Taken) -> str | Graph:
    if graph in GRAPH_NAMES:
        return graph
    if not Path(graph).exists():
        raise InputError(f"unknown graph {graph!r}: choose one of {', '.join(GRAPH_NAMES)}, or give a file of edges")
    return read_edges(graph, data.names)


def _sent(kinds: dict[str, Traffic]) -> str:
    return ", ".join(f"{kind} {traffic.scalars:,}" for kind, traffic in kinds.items()) or "nothing"
