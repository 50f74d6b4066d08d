"""fleetgp fit: from measurements to a model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.cli import options
from fleetgp.cli.arguments import Family, default_of, option
from fleetgp.cli.info import fit_report
from fleetgp.cli.options import Cluster
from fleetgp.cli.output import Report
from fleetgp.data.dataset import Dataset, joined
from fleetgp.data.partition import BY
from fleetgp.data.times import time_input
from fleetgp.data.transforms import coordinate_rule, kernels_in_coordinates
from fleetgp.declarations import flag_of
from fleetgp.errors import InputError, NothingToLearnError, NumericalError, WorkerLostError, unknown_name
from fleetgp.fleet.backends import refuse_rows
from fleetgp.fleet.files import MEMORY, read_files, split_rows
from fleetgp.graph import GRAPHS, PLACES, Graph, graph_names
from fleetgp.io import read_edges, read_observations
from fleetgp.io.fields import describe_empty_cells
from fleetgp.io.formats import Reading
from fleetgp.io.survey import CHUNKED, size_of
from fleetgp.kernels.expression import as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.options import MemoryOptions, ModelOptions, RowOptions, TrainerOptions, default_kernel
from fleetgp.prediction.calibration import HOLDINGS
from fleetgp.progress import listening
from fleetgp.storage.folder import check_targets, load_model, save_models
from fleetgp.storage.model import Model
from fleetgp.training import TrainingOptions, training_method
from fleetgp.training.multi_output import Sharing
from fleetgp.training.options import PRESETS, preset_options

#: A file of more bytes is read in chunks, whatever its kind.
LARGE = 200_000_000


@dataclass(frozen=True)
class AgentData:
    """The agents' names and data, how many rows were left out, what else was done to the values, and units."""

    names: list[str]
    shards: Dataset | Sequence[tuple[Any, ...]]
    dropped: int
    notes: tuple[str, ...]
    units: Mapping[str, str]


@dataclass(frozen=True)
class Streaming:
    """How files are read that may be larger than memory."""

    sample: Annotated[
        int | None, option("Files: the rows of each agent, drawn at random, for methods that need rows.", min=1)
    ] = None
    memory: Annotated[
        float | None, option(f"Files: bytes of observations that may be loaded. (default: {MEMORY:.0e})")
    ] = None

    def chunked(self, files: Sequence[Path], n_agents: int | None, targets: Sequence[str]) -> bool:
        """Whether the files are read in chunks, or one clear error where they have to be and cannot."""
        if len(files) == 1 and self.sample is None and self.memory is None:
            file = files[0]
            large = file.suffix.lower() in CHUNKED and file.exists() and size_of(file)[0] > LARGE
            if n_agents is not None or not large:
                return False
        if n_agents is not None:
            raise InputError(
                "--n-agents splits the rows of one file, which is read as a whole: expected --agent-column, or a file "
                "for each agent"
            )
        if len(targets) > 1:
            raise InputError(
                f"several targets ({', '.join(targets)}) are read from one file as a whole: expected one file, or one "
                "target"
            )
        return True

    def read(self, files: Sequence[Path], how: dict[str, Any], seed: int, training: str, out: Path) -> AgentData:
        """The agents' data for a training whose model is written to `out`.

        how: the options of `read_observations`, and the backend of a fleet on a cluster.
        """
        if "backend" in how:
            refuse_rows(training_method(training))
        cache = reading_beside(out)
        limit = MEMORY if self.memory is None else self.memory
        try:
            data = read_files(files, **how, sample=self.sample, memory=limit, cache=cache, seed=seed)
        except InputError as error:
            resume = "; the same command continues from what was read" if cache.exists() else ""
            raise InputError(f"{error}{resume}") from error
        if joined(data.summaries).squares == 0.0:
            raise NothingToLearnError(f"the column {how['target']!r}")
        if how["agent"] is not None:
            check_column("", how["agent"], len(data), data.points)
        notes = (*data.notes, *describe_empty_cells(data.empty))
        return AgentData(list(data.names), data, data.dropped, notes, data.units)


def check_column(where: str, column: str | None, agents: int, rows: int) -> None:
    """Refuse a column that can hardly be the one that names the agents."""
    if agents > 20 and 2 * agents > rows:
        raise InputError(f"{where}the column {column!r} names {agents} agents in {rows} rows: is it the right one?")


def reading_beside(out: Path) -> Path:
    """The folder that caches what is known of finished files until the model is written."""
    return out.with_name(f".{out.name}.reading")


@dataclass(frozen=True)
class Split:
    """Which agent has which rows: a column names it, or the rows are split over a number of agents."""

    agent_column: Annotated[str | None, option("The column that names the agent of each row.")] = None
    n_agents: Annotated[
        int | None, option("Without such a column: how many agents, called 0, 1, ..., share the rows. (default: 1)")
    ] = None
    partition: Annotated[str | None, option(f"How to split: {', '.join(BY)}. (default: stripes)")] = None
    axis: Annotated[str | None, option("The input along which stripes follow. (default: the first)")] = None

    def check(self, inputs: list[str]) -> None:
        if self.agent_column is not None and self.n_agents is not None:
            raise InputError(
                "give either --agent-column (which names the agents) or --n-agents (how many to split over), not both"
            )
        if self.agent_column is not None and (self.partition is not None or self.axis is not None):
            raise InputError("--partition and --axis are for --n-agents: with --agent-column each agent has its rows")
        if self.axis is not None and self.partition not in (None, "stripes"):
            raise InputError(f"--axis is for stripes, but got --partition {self.partition}: leave one of them out")
        if self.axis is not None and self.axis not in inputs:
            raise unknown_name("--axis", self.axis, inputs)

    def read(self, file: Path, how: dict[str, Any], seed: int) -> AgentData:
        """One file as a whole. how: the options of `read_observations`."""
        data = read_observations(file, **how)
        names = [how["target"]] if isinstance(how["target"], str) else how["target"]
        for name, values in zip(names, data.observations.reshape(len(data.observations), -1).T, strict=True):
            if np.nanmax(values) == np.nanmin(values):
                raise NothingToLearnError(f"{file}: the column {name!r}")
        by = None if self.partition is None else options.one_of("--partition", self.partition, BY)
        names, shards = split_rows(data, how["inputs"], self.n_agents, by, self.axis, seed)
        if data.labels is not None:
            check_column(f"{file}: ", self.agent_column, len(names), len(data.labels))
        return AgentData(names, shards, data.dropped, data.notes, data.units)


def fit(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Observations: CSV, Parquet, NPZ, or any variable of NetCDF and Zarr. Several files are read in "
            "chunks.",
            readable=False,
        ),
    ],
    inputs: Annotated[list[str], option("The columns of the inputs, for example: --inputs lon lat")],
    target: Annotated[
        list[str],
        option("The column of the observations. Several targets share length-scales, and each gets its own model."),
    ],
    out: Annotated[Path, option("The folder for the model.")],
    split: Split,
    graph: Annotated[
        str, option(f"{', '.join(graph_names())}, or a file with two agents' names per line.")
    ] = default_of(fg.Fleet, "graph"),
    training: Annotated[str, option("The training method; see `fleetgp methods`.")] = default_of(
        fg.Fleet.train, "method"
    ),
    preset: Annotated[
        str | None, option("paper: the paper's kernel, constants, rounds and tolerance, for whatever is not given.")
    ] = None,
    model: Annotated[dict[str, Any], Family(ModelOptions)],
    policy: Annotated[dict[str, Any], Family(MemoryOptions)],
    deviation: options.DEVIATION = None,
    reading: Annotated[dict[str, Any], Family(Reading)],
    rows: options.ROWS,
    streaming: Streaming,
    start: Annotated[Path | None, option("Start at the hyperparameters of this model.", "--from")] = None,
    calibrate: Annotated[
        str | None, option("Calibrate predictions by the default method, holding out both, rows or blocks.")
    ] = None,
    constraints: options.Constraints,
    how: Annotated[dict[str, Any], Family(TrainerOptions)],
    where: Cluster,
    seed: Annotated[int, option(options.SEED)] = default_of(fg.Fleet, "seed"),
    overwrite: Annotated[bool, option("Replace a model of that name.", "--overwrite")] = False,
    quiet: options.Quiet = False,
) -> Report:
    """Train a fleet on a file and write the model to a folder.

    Each agent uses its own rows only; what it sends to its neighbours is in the result. Without --agent-column and
    --n-agents one agent has all rows, which is the most accurate where they may be pooled. A file of edges has two
    names per line. Each of several files belongs to one agent, unless --agent-column names the agents; dec-full-gp
    reads them in chunks.

    [bold]Examples[/bold]

    [cyan]fleetgp fit field.csv --inputs lon lat --target sst --out field/[/cyan]

    [cyan]fleetgp fit ctd.csv --inputs lon lat --target temperature salinity --agent-column boat --out sea/[/cyan]

    [cyan]fleetgp fit data/*.parquet --inputs lon lat --target sst --training dec-full-gp --kernel se --out big/[/cyan]

    [cyan]fleetgp fit week.csv --inputs lon lat day --target sst --window "3 days" --out now/[/cyan]
    """
    if preset is not None:
        how = preset_options(options.one_of("--preset", preset, PRESETS), training_method(training)) | how
        model = {"normalize": False, **model}
    settings, memory = ModelOptions(**model), vars(MemoryOptions(**policy))
    rule = coordinate_rule(settings.coordinates, inputs)

    def kernel_for(time: str | None) -> str:
        if settings.kernel is not None:
            return settings.kernel
        return default_kernel(training, preset=preset, inputs=inputs, time=time, rule=rule)

    time_input(inputs, {}, settings.time)
    kernels = as_kernels(kernel_for(settings.time), inputs)
    kernels_in_coordinates(rule, kernels, inputs, settings.mean)
    about_model = where.backend | {"coordinates": rule.name, "seed": seed}
    about_model |= {name: getattr(settings, name) for name in ("normalize", "mean", "robust", "private")}
    training_method(training).check_options(TrainingOptions(**how), flag_of)
    if calibrate is not None:
        options.one_of("--calibrate", calibrate, HOLDINGS)
    check_targets(out, target, overwrite)
    if out.exists():
        check_targets(interrupted_beside(out), target, overwrite=True)
    targets = Targets(tuple(target), kernels[0], tuple(inputs))

    def hyperparameters(names: Sequence[str]) -> dict[str, Any]:
        return {**constraints.known(names), "theta0": None if start is None else targets.start(start, names)}

    if settings.noise is None:  # else the names of hyperparameters depend on those of the agents
        how = how | hyperparameters(targets.names)
    split.check(inputs)
    _check_columns(inputs, target, split.agent_column, deviation)
    columns = {"inputs": inputs, "target": targets.column, "agent": split.agent_column, "deviation": deviation}
    reader = vars(RowOptions(**rows)) | {"reading": Reading(**reading)} | columns
    chunked = streaming.chunked(files, split.n_agents, target)
    if policy and (chunked or len(target) > 1):
        what = "several targets" if len(target) > 1 else "files that are read in chunks"
        raise InputError(
            f"{', '.join(map(flag_of, policy))}: expected one file and one target, got {what}: leave it out"
        )
    if chunked:
        data = streaming.read(files, reader | where.backend | {"progress": not quiet}, seed, training, out)
    else:
        data = split.read(files[0], reader, seed)
    groups = None if settings.noise is None else list(data.names)
    axis = time_input(inputs, data.units, settings.time)
    time = None if axis is None else inputs[axis]
    # Hyperparameters have the same names with every kernel that `kernel_for` returns.
    about_model |= {"kernel": kernel_for(time), "time": time}
    about_model |= memory if targets.single else {}
    fleet, models = targets.fleet(data, _graph(graph, data), **about_model, noise=groups)
    if policy:
        old = models[0].fleet.set_metadata(data.names, target[0], data.units).forget()
        data = replace(data, notes=(*data.notes, *map(str, old)))
    if groups is not None:
        how = how | hyperparameters(fleet.names)
    _train(fleet, models, training, how, out, quiet)
    save_models(models, out, overwrite=overwrite)
    shutil.rmtree(reading_beside(out), ignore_errors=True)
    if calibrate is not None:  # after the training is saved
        with fleet:
            for one in models:
                one.fleet.calibrate(holdout=calibrate)
        save_models(models, out, overwrite=True)
    places = [out] if targets.single else [out / name for name in target]
    reports = [fit_report(one, data.dropped, data.notes, place) for one, place in zip(models, places, strict=True)]
    return _joined(target, reports)


def _check_columns(inputs: list[str], targets: list[str], agent: str | None, deviation: str | None) -> None:
    """Refuse columns that are given twice."""
    if len({*inputs, *targets}) < len(inputs) + len(targets):
        raise InputError(f"--inputs and --target must be different columns, got {[*inputs, *targets]}")
    if deviation is not None and len(targets) > 1:
        raise InputError("--deviation is for one target, got several: fit them one by one")
    if deviation is not None and deviation in (*inputs, *targets, agent):
        raise InputError(f"--deviation: expected a column that is no input, target or agent, got {deviation}")


def _train(
    fleet: fg.Fleet | fg.Outputs, models: list[Model], training: str, how: dict[str, Any], out: Path, quiet: bool
) -> None:
    """Train the fleet; if that is interrupted, save the estimates."""
    with fleet, listening(not quiet) as listener:
        try:
            fleet.train(training, **how, progress=listener or False)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_save_unfinished(models, out)) from None
        except WorkerLostError as error:
            raise WorkerLostError(f"{error}; {_save_unfinished(models, out)}") from error
    if models[0].fleet.theta is None:
        raise NumericalError(f"{training} diverged, as the warning says: nothing was written")


def interrupted_beside(out: Path) -> Path:
    """The folder for the estimates of an interrupted training if there is a model already."""
    return out.with_name(f"{out.name}.interrupted")


def _save_unfinished(models: list[Model], out: Path) -> str:
    """Save the estimates of an interrupted training, never in the place of a model, and return a sentence about it."""
    occupied = out.exists() and any(out.iterdir())
    left = f"; {out} is as it was" if occupied else ""
    furthest = models[0].fleet.unfinished
    if furthest is None:
        return f"there are no estimates yet, and nothing was written{left}"
    note = f"interrupted after {furthest.round} rounds of {furthest.task}"
    place = interrupted_beside(out) if occupied else out
    save_models([replace(model, note=note) for model in models], place, overwrite=True)
    how = f"--from {place}" + ("" if occupied else " --overwrite")
    return f"{place} holds the estimates so far ({note}): {how} continues from them{left}"


def _graph(graph: str, data: AgentData) -> str | Graph:
    if graph == PLACES or graph in GRAPHS:
        return graph
    if not Path(graph).exists():
        raise InputError(f"unknown graph {graph!r}: choose one of {', '.join(graph_names())}, or give a file of edges")
    return read_edges(graph, data.names)


@dataclass(frozen=True)
class Targets:
    """The targets of a fit, and their kernel: the first one if there are several to choose from."""

    targets: tuple[str, ...]
    kernel: Kernel
    inputs: tuple[str, ...]

    @property
    def single(self) -> bool:
        return len(self.targets) == 1

    @property
    def column(self) -> str | tuple[str, ...]:
        """The column or columns to read."""
        return self.targets[0] if self.single else self.targets

    @property
    def _sharing(self) -> Sharing:
        return Sharing.of(self.kernel, len(self.inputs), len(self.targets))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters."""
        names = self.kernel.names(self.inputs)
        return names if self.single else self._sharing.names(names, self.targets)

    def fleet(self, data: AgentData, graph: object, **how: Any) -> tuple[fg.Fleet | fg.Outputs, list[Model]]:
        """The fleet to train, and its models."""
        fleet: fg.Fleet | fg.Outputs
        if self.single:
            fleet = fg.Fleet(data.shards, graph, inputs=self.inputs, **how)
            fleets = {self.targets[0]: fleet}
        else:
            assert not isinstance(data.shards, Dataset), "it was refused"
            fleet = fg.Outputs(data.shards, graph, targets=self.targets, inputs=self.inputs, **how)
            fleets = fleet.fleets
        for own in fleets.values():
            own.units = data.units
        return fleet, [Model(own, tuple(data.names), self.inputs, target) for target, own in fleets.items()]

    def start(self, folder: Path, names: Sequence[str]) -> Array:
        """The hyperparameters of another model, or of the models of these targets, by their names."""
        if self.single:
            return self._theta(folder, names)
        own = self.kernel.names(self.inputs)
        return self._sharing.joined([self._theta(folder / target, own) for target in self.targets])

    def _theta(self, folder: Path, names: Sequence[str]) -> Array:
        model = load_model(folder)
        if sorted(model.inputs) != sorted(self.inputs):
            raise InputError(
                f"--from {folder}: that model has the inputs {', '.join(model.inputs)}, not {', '.join(self.inputs)}"
            )
        theta = model.theta
        if missing := [name for name in names if name not in theta]:
            raise InputError(
                f"--from {folder}: that model, with the kernel {model.fleet.kernel.name!r}, has no "
                f"{', '.join(missing)}: give its kernel, or leave out --from"
            )
        return np.array([theta[name] for name in names])


def _joined(targets: Sequence[str], reports: Sequence[Report]) -> Report:
    """The report of one target as it is, of several by their names."""
    if len(reports) == 1:
        return reports[0]
    lines: list[str | Table] = []
    for target, one in zip(targets, reports, strict=True):
        lines += [f"[bold]{target}[/bold]", *one.lines, ""]
    return Report({"targets": {target: one.facts for target, one in zip(targets, reports, strict=True)}}, lines)
