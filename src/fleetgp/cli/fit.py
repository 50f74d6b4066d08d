"""fleetgp fit: from measurements to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.cli import options
from fleetgp.cli.calibrate import CALIBRATE
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.files import InFiles, Taken, check_column, forget_reading
from fleetgp.cli.fitted import told_of_fit
from fleetgp.cli.kernels import KERNEL
from fleetgp.cli.means import Seen
from fleetgp.cli.noises import Noisy
from fleetgp.cli.reading import ObservedReading
from fleetgp.cli.targets import TARGETS, Several, check_places, named_columns, place_of, report, save
from fleetgp.data.partition import BY
from fleetgp.defaults import default_kernel
from fleetgp.errors import InputError, NothingToLearnError, NumericalError, WorkerLostError, unknown_name
from fleetgp.fleet.files import Splitting
from fleetgp.fleet.privacy import check_private_rows
from fleetgp.graph import GRAPH_NAMES, Graph
from fleetgp.io import read_edges, read_observations
from fleetgp.prediction.calibration import HOLDINGS
from fleetgp.progress import listening
from fleetgp.storage.model import Model
from fleetgp.training import TrainingOptions, training_method


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
    kernel: KERNEL = None,
    reading: ObservedReading,
    streaming: InFiles,
    seen: Seen,
    noisy: Noisy,
    start: options.START = None,
    calibrate: CALIBRATE = None,
    private: options.PRIVATE_ROWS = None,
    how: options.Training,
    where: Cluster,
    seed: options.SEED = 0,
    overwrite: options.OVERWRITE = False,
    output: options.Output,
) -> None:
    """Train a fleet on a file and write the model to a folder.

    Each agent uses its own rows only; what it tells its neighbours is in the result. Without --agent and --agents one
    agent has all rows, which is the most accurate where they may be pooled. A file of edges has two names a line. Of
    several files each is an agent's, unless --agent says whose rows are whose; dec-full-gp reads them in chunks.

    [bold]Examples[/bold]

    [cyan]fleetgp fit field.csv --inputs lon lat --target sst --out field/[/cyan]

    [cyan]fleetgp fit ctd.csv --inputs lon lat --target temperature salinity --agent boat --out sea/[/cyan]

    [cyan]fleetgp fit data/*.parquet --inputs lon lat --target sst --training dec-full-gp --kernel se --out big/[/cyan]
    """
    kernel = default_kernel(training) if kernel is None else kernel
    chosen, made = how.chosen, where.backend | seen.checked(inputs, kernel) | {"kernel": kernel, "seed": seed}
    made |= {"private": check_private_rows(private)}
    _check(out, overwrite, inputs, target, calibrate, TrainingOptions(**chosen), training)
    outputs = Several.of(target, kernel, inputs)
    if noisy.noise is None:  # else names of hyperparameters are not known before the agents'
        chosen |= _begun(how, start, outputs, outputs.names)
    (split := Split(agent, agents, by, axis, seed)).check(inputs)
    what = reading.what | {"inputs": inputs, "target": outputs.column, "agent": agent}
    noisy.check([*inputs, *target, *([agent] if agent else [])], several=len(target) > 1)
    if outputs.allowed(streaming.chunked(files, agents)):
        noisy.refuse_chunks()
        data = streaming.read(files, what | where.backend | {"progress": not output.quiet}, seed, training, out)
    else:
        data = split.read(files[0], what | {"deviation": noisy.deviation})
    fleet, models = outputs.made(data, _graph(graph, data), **made, **noisy.made(data.names))
    if noisy.noise is not None:
        chosen |= _begun(how, start, outputs, fleet.names)
    _train(fleet, models, training, chosen, out, output.quiet)
    _save(fleet, models, out, overwrite, calibrate)
    report({one.target: told_of_fit(one, data, place_of(one, models, out)) for one in models}, output.as_json)


def _check(
    out: Path,
    overwrite: bool,
    inputs: list[str],
    targets: list[str],
    hold: str | None,
    chosen: TrainingOptions,
    training: str,
) -> None:
    """One clear error for what can be known before anything is read."""
    chosen.refuse_foreign(training_method(training), options.as_typed)
    if hold is not None:
        options.one_of("--calibrate", hold, HOLDINGS)
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
        for name, values in zip(*named_columns(what["target"], data.observations), strict=True):
            if np.nanmax(values) == np.nanmin(values):
                raise NothingToLearnError(f"{file}: the column {name!r}")
        by = None if self.by is None else options.one_of("--partition", self.by, BY)
        names, shards = Splitting(self.agents, by, self.axis, self.seed).split(data, what["inputs"])
        if data.labels is not None:
            check_column(f"{file}: ", self.column, len(names), len(data.labels))
        return Taken(names, shards, data.dropped, data.notes, data.units)


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


def _begun(how: options.Training, start: Path | None, outputs: Several, names: Sequence[str]) -> dict[str, Any]:
    """What is said of the hyperparameters by their names, and where they start."""
    return {**how.known(names), "theta0": None if start is None else outputs.start(start, names)}


def _graph(graph: str, data: Taken) -> str | Graph:
    if graph in GRAPH_NAMES:
        return graph
    if not Path(graph).exists():
        raise InputError(f"unknown graph {graph!r}: choose one of {', '.join(GRAPH_NAMES)}, or give a file of edges")
    return read_edges(graph, data.names)
