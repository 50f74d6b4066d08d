"""fleetgp fit: from measurements to a model."""

from __future__ import annotations

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
from fleetgp.cli.means import Seen, told_mean, told_units
from fleetgp.cli.output import bold, count_of_agents, plain_table, warn
from fleetgp.cli.targets import TARGETS, Several, Told, check_places, named_columns, place_of, report, save, told
from fleetgp.data import partition, partition_by_label
from fleetgp.data.partition import BY
from fleetgp.data.streamed import Streamed, counts_of
from fleetgp.errors import InputError, NumericalError, WorkerLostError, unknown_name
from fleetgp.graph import GRAPH_NAMES, Graph
from fleetgp.io import read_edges, read_observations
from fleetgp.network import Traffic
from fleetgp.prediction import Holding
from fleetgp.progress import listening
from fleetgp.storage.calibrations import compared_facts
from fleetgp.storage.model import Model
from fleetgp.training import training_method
from fleetgp.training.fit import about_sample


def fit(
    *,
    files: options.OBSERVATIONS,
    inputs: options.INPUTS,
    target: TARGETS,
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

    [cyan]fleetgp fit soil.parquet --inputs x y --target moisture ph --agents 12 --partition kmeans --out soil/[/cyan]

    [cyan]fleetgp fit data/*.parquet --inputs lon lat --target sst --training dec-full-gp --kernel se --out big/[/cyan]
    """
    chosen, made = how.chosen, where.backend | seen.checked(inputs, kernel) | {"kernel": kernel, "seed": seed}
    _check(out, overwrite, inputs, target, calibrate)
    fg.TrainingOptions(**chosen).refuse_foreign(training_method(training), options.as_typed)
    outputs = Several.of(target, kernel, inputs)
    chosen |= how.known(outputs.names) | {"theta0": None if start is None else outputs.start(start)}
    (split := Split(agent, agents, by, axis, seed)).check(inputs)
    what: dict[str, Any] = {"inputs": inputs, "target": outputs.column, "agent": agent}
    what |= {"missing": options.missing_of(missing), "fill": options.fills_of(fill), "reading": reading.reading}
    chunked, shown = outputs.allowed(streaming.chunked(files, agents)), where.backend | {"progress": not output.quiet}
    data = streaming.read(files, what | shown, seed, training, out) if chunked else split.read(files[0], what)
    fleet, models = outputs.made(data, _graph(graph, data), **made)
    _train(fleet, models, training, chosen, out, output.quiet)
    _save(fleet, models, out, overwrite, calibrate)
    report({model.target: _told(model, data, place_of(model, models, out)) for model in models}, output.as_json)


def _check(out: Path, overwrite: bool, inputs: list[str], targets: list[str], hold: str | None) -> None:
    """One clear error for what can be known before anything is read."""
    if hold is not None:
        Holding(hold)
    check_places(out, targets, overwrite)
    if out.exists():
        check_places(_beside(out), targets, overwrite=True)
    if len({*inputs, *targets}) < len(inputs) + len(targets):
        raise InputError(f"--inputs and --target must be different columns, got {[*inputs, *targets]}")


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
        observed, every = data.observations, np.arange(len(data.observations))
        for name, values in zip(*named_columns(what["target"], observed), strict=True):
            if np.nanmax(values) == np.nanmin(values):
                raise InputError(f"{file}: the column {name!r} has one value only: there is nothing to learn")
        if data.labels is None:
            by = options.one_of("--partition", self.by or "stripes", BY)
            along = 0 if self.axis is None else what["inputs"].index(self.axis)
            agents = 1 if self.agents is None else self.agents
            parts = partition(data.inputs, every, agents=agents, by=by, axis=along, seed=self.seed)
            names = [str(number) for number in range(len(parts))]
        else:
            names, parts = partition_by_label(data.inputs, every, data.labels)
            check_column(f"{file}: ", self.column, len(names), len(data.labels))
        shards = [(x, observed[rows.astype(int)]) for x, rows in parts]
        return Taken(names, shards, data.dropped, data.notes)


def _train(
    fleet: fg.Fleet | fg.Outputs, models: list[Model], training: str, chosen: dict[str, Any], out: Path, quiet: bool
) -> None:
    """Train the models' fleet. What an interruption leaves is saved."""
    with fleet, listening(not quiet) as shown:
        try:
            fleet.train(training, **chosen, progress=shown or False)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_keep(models, out)) from None
        except WorkerLostError as error:
            raise WorkerLostError(f"{error}; {_keep(models, out)}") from error
    if models[0].fleet.theta is None:
        raise NumericalError(f"{training} diverged, as the warning says: nothing was written")


def _save(fleet: fg.Fleet | fg.Outputs, models: list[Model], out: Path, overwrite: bool, hold: str | None) -> None:
    """Save the models, then calibrate them, if that is wanted: whatever becomes of this, the training is safe."""
    save(models, out, overwrite)
    forget_reading(out)
    if hold is not None:
        with fleet:
            for model in models:
                model.fleet.calibrate(hold=hold)
        save(models, out, overwrite=True)


def _beside(out: Path) -> Path:
    """Where the estimates of an interrupted training go if there is a model already."""
    return out.with_name(f"{out.name}.interrupted")


def _keep(models: list[Model], out: Path) -> str:
    """Save the estimates of a training that was interrupted, never in the place of a model; what became of them."""
    occupied = out.exists() and any(out.iterdir())
    left = f"; {out} is as it was" if occupied else ""
    furthest = models[0].fleet.unfinished
    if furthest is None:
        return f"there are no estimates yet, and nothing was written{left}"
    note = f"interrupted after {furthest.round} rounds of {furthest.task}"
    place = _beside(out) if occupied else out
    save([replace(model, note=note) for model in models], place, overwrite=True)
    how = f"--from {place}" + ("" if occupied else " --overwrite")
    return f"{place} holds the estimates so far ({note}): {how} goes on from them{left}"


def _told(model: Model, data: Taken, out: Path) -> Told:
    """A model, for programs and for people."""
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
    units = told_units(fleet, model.inputs, model.target)
    known = found.known.as_dict()
    for (name, value), unit in zip(model.theta.items(), units, strict=True):
        held = "fixed" if name in known["fixed"] else "at its bound" if name in found.at_bounds else ""
        table.add_row(name, f"{value:.4g}", ", ".join(filter(None, [f"of {unit}" if unit else "", held])))
    return told(
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
            "drawn": found.drawn,
            "held": found.held,
            "sent": {kind: vars(traffic) for kind, traffic in sent.items()},
        },
        f"{sum(counts):,} observations of {count_of_agents(len(model.agents))}"
        + (f" ({dropped} rows with missing values dropped)." if dropped else "."),
        *(f"{note[0].upper()}{note[1:]}." for note in data.notes),
        *([about] if (about := about_sample(found)) else []),
        f"{found.method}: {found.status} after {found.rounds} rounds"
        + (f"; the agents differ by {found.disagreement:.0e}." if len(model.agents) > 1 else "."),
        *told_of_kernels(found),
        table,
        *told_mean(model),
        *([] if fleet.calibration is None else told_of(fleet.calibration)),
        *([f"Sent between agents, in numbers: {_sent(sent)}."] if len(model.agents) > 1 else []),
        f"The model is in {bold(out)}. Next:",
        f"  [cyan]fleetgp predict {escape(str(out))} points.csv{how} --out answer.csv[/cyan]",
        *(
            [f"  [cyan]fleetgp map {escape(str(out))} --grid 200x200{how}{everywhere} --out map.nc[/cyan]"]
            if fleet.dimension == 2
            else []
        ),
    )


def _graph(graph: str, data: Taken) -> str | Graph:
    if graph in GRAPH_NAMES:
        return graph
    if not Path(graph).exists():
        raise InputError(f"unknown graph {graph!r}: choose one of {', '.join(GRAPH_NAMES)}, or give a file of edges")
    return read_edges(graph, data.names)


def _sent(kinds: dict[str, Traffic]) -> str:
    return ", ".join(f"{kind} {traffic.scalars:,}" for kind, traffic in kinds.items()) or "nothing"
