"""fleetgp fit: from measurements to a model."""

from __future__ import annotations

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
from fleetgp.cli.arguments import Given
from fleetgp.cli.info import Report, fit_report
from fleetgp.cli.options import Cluster
from fleetgp.cli.output import emit
from fleetgp.cli.reading import READING, ROWS, AgentData, Streaming, check_column, forget_reading
from fleetgp.data.dataset import Dataset
from fleetgp.data.partition import BY
from fleetgp.data.transforms import coordinate_rule, seen_by
from fleetgp.declarations import flag_of
from fleetgp.errors import InputError, NothingToLearnError, NumericalError, WorkerLostError, unknown_name
from fleetgp.fleet.files import Splitting
from fleetgp.graph import GRAPH_NAMES, Graph
from fleetgp.io import read_edges, read_observations
from fleetgp.io.formats import Reading
from fleetgp.kernels.expression import as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.options import ModelOptions, RowOptions, TrainerOptions, default_kernel
from fleetgp.prediction.calibration import HOLDINGS
from fleetgp.progress import listening
from fleetgp.storage.loading import load_model
from fleetgp.storage.model import Model
from fleetgp.storage.saving import check_target, check_targets, save_model, save_models
from fleetgp.training import TrainingOptions, training_method
from fleetgp.training.multi_output import Sharing
from fleetgp.training.options import PRESETS, preset_options

TARGETS = Annotated[
    list[str],
    typer.Option(
        "--target",
        help="The column of the observations; of several, which share length-scales, each gets a model of its own.",
    ),
]
CALIBRATE = Annotated[
    str | None, typer.Option(help="Calibrate predictions by the default method, holding out both, rows or blocks.")
]


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
    preset: options.PRESET = None,
    model: Annotated[dict[str, Any], Given(ModelOptions)],
    deviation: options.DEVIATION = None,
    reading: READING,
    rows: ROWS,
    streaming: Streaming,
    start: options.START = None,
    calibrate: CALIBRATE = None,
    constraints: options.Constraints,
    how: Annotated[dict[str, Any], Given(TrainerOptions)],
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
    if preset is not None:
        how = preset_options(options.one_of("--preset", preset, PRESETS), training_method(training)) | how
        model = {"normalize": False, **model}
    kernel, chosen = model.get("kernel", default_kernel(training, preset=preset)), dict(how)
    made = where.backend | _view(model, inputs, kernel) | {"kernel": kernel, "seed": seed}
    made |= {"private": model.get("private")}
    noisy = NoiseOptions(deviation, model.get("noise"), model.get("robust", False))
    _check(out, overwrite, inputs, target, calibrate, TrainingOptions(**chosen), training)
    outputs = Targets.of(target, kernel, inputs)
    if noisy.noise is None:  # else names of hyperparameters are not known before the agents'
        chosen |= _begun(constraints, start, outputs, outputs.names)
    (split := Split(agent, agents, by, axis, seed)).check(inputs)
    what = (
        vars(RowOptions(**rows))
        | {"reading": Reading(**reading)}
        | {"inputs": inputs, "target": outputs.column, "agent": agent}
    )
    noisy.check([*inputs, *target, *([agent] if agent else [])], several=len(target) > 1)
    if outputs.allowed(streaming.chunked(files, agents)):
        noisy.refuse_chunks()
        data = streaming.read(files, what | where.backend | {"progress": not output.quiet}, seed, training, out)
    else:
        data = split.read(files[0], what | {"deviation": noisy.deviation})
    fleet, models = outputs.made(data, _graph(graph, data), **made, **noisy.made(data.names))
    if noisy.noise is not None:
        chosen |= _begun(constraints, start, outputs, fleet.names)
    _train(fleet, models, training, chosen, out, output.quiet)
    _save(fleet, models, out, overwrite, calibrate)
    emit_by_target({one.target: fit_report(one, data, place_of(one, models, out)) for one in models}, output.as_json)


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
    chosen.refuse_foreign(training_method(training), flag_of)
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

    def read(self, file: Path, what: dict[str, Any]) -> AgentData:
        """One file as a whole. what: the options of `read_observations`."""
        data = read_observations(file, **what)
        for name, values in zip(*named_columns(what["target"], data.observations), strict=True):
            if np.nanmax(values) == np.nanmin(values):
                raise NothingToLearnError(f"{file}: the column {name!r}")
        by = None if self.by is None else options.one_of("--partition", self.by, BY)
        names, shards = Splitting(self.agents, by, self.axis, self.seed).split(data, what["inputs"])
        if data.labels is not None:
            check_column(f"{file}: ", self.column, len(names), len(data.labels))
        return AgentData(names, shards, data.dropped, data.notes, data.units)


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
                model.fleet.calibrate(holdout=hold)
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


def _begun(
    constraints: options.Constraints, start: Path | None, outputs: Targets, names: Sequence[str]
) -> dict[str, Any]:
    """What is said of the hyperparameters by their names, and where they start."""
    return {**constraints.known(names), "theta0": None if start is None else outputs.start(start, names)}


def _graph(graph: str, data: AgentData) -> str | Graph:
    if graph in GRAPH_NAMES:
        return graph
    if not Path(graph).exists():
        raise InputError(f"unknown graph {graph!r}: choose one of {', '.join(GRAPH_NAMES)}, or give a file of edges")
    return read_edges(graph, data.names)


@dataclass(frozen=True)
class Targets:
    """The targets of a fit, and the kernel that they have; the first one of those to choose from."""

    targets: tuple[str, ...]
    kernel: Kernel
    inputs: tuple[str, ...]

    @classmethod
    def of(cls, targets: Sequence[str], kernel: str, inputs: Sequence[str]) -> Targets:
        return cls(tuple(targets), as_kernels(kernel, inputs)[0], tuple(inputs))

    @property
    def single(self) -> bool:
        return len(self.targets) == 1

    @property
    def column(self) -> str | tuple[str, ...]:
        """What to read."""
        return self.targets[0] if self.single else self.targets

    @property
    def _sharing(self) -> Sharing:
        return Sharing.of(self.kernel, len(self.inputs), len(self.targets))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the hyperparameters."""
        names = self.kernel.names(self.inputs)
        return names if self.single else self._sharing.names(names, self.targets)

    def allowed(self, chunked: bool) -> bool:
        """Whether files are read in chunks, or one clear error."""
        if chunked and not self.single:
            raise InputError(
                f"several targets ({', '.join(self.targets)}) are read from one file as a whole: expected one file, or "
                "one target"
            )
        return chunked

    def made(self, data: AgentData, graph: object, **made: Any) -> tuple[fg.Fleet | fg.Outputs, list[Model]]:
        """What is to be trained, and the models of it."""
        fleet: fg.Fleet | fg.Outputs
        if self.single:
            fleet = fg.Fleet(data.shards, graph, inputs=self.inputs, **made)
            fleets = {self.targets[0]: fleet}
        else:
            assert not isinstance(data.shards, Dataset), "it was refused"
            fleet = fg.Outputs(data.shards, graph, targets=self.targets, inputs=self.inputs, **made)
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


def named_columns(target: str | Sequence[str], observations: Array) -> tuple[Sequence[str], Array]:
    """The targets' names and their observations, (K, N)."""
    return ([target], observations[None]) if isinstance(target, str) else (target, observations.T)


def check_places(out: Path, targets: Sequence[str], overwrite: bool) -> None:
    """One clear error where models of these targets may not be written."""
    if len(targets) == 1:
        check_target(out, overwrite)
    else:
        check_targets(out, targets, overwrite)


def save(models: Sequence[Model], out: Path, overwrite: bool) -> None:
    """A model in the folder, or several in folders of their own in it."""
    if len(models) == 1:
        save_model(models[0], out, overwrite=overwrite)
    else:
        save_models(models, out, overwrite=overwrite)


def place_of(model: Model, models: Sequence[Model], out: Path) -> Path:
    """Where a model is."""
    return out if len(models) == 1 else out / model.target


def emit_by_target(results: Mapping[str, Report], as_json: bool) -> None:
    """The result of one target as it is; of several by their names."""
    if len(results) == 1:
        ((facts, lines),) = results.values()
        emit(facts, *lines, as_json=as_json)
        return
    every: list[str | Table] = []
    for target, (_, lines) in results.items():
        every += [f"[bold]{target}[/bold]", *lines, ""]
    emit({"targets": {target: facts for target, (facts, _) in results.items()}}, *every, as_json=as_json)


def _view(model: dict[str, Any], inputs: Sequence[str], kernel: str) -> dict[str, Any]:
    """How a fleet sees the data, or one clear error before anything is read. model: what was typed."""
    options_ = ModelOptions(**model)
    rule = coordinate_rule(options_.coordinates, inputs)
    seen_by(rule, as_kernels(kernel, inputs), inputs, options_.mean)
    return {"normalize": options_.normalize, "mean": options_.mean, "coordinates": rule.name}


@dataclass(frozen=True)
class NoiseOptions:
    """What is said of the noise."""

    deviation: str | None
    noise: str | None
    robust: bool

    @property
    def given(self) -> bool:
        return self.deviation is not None or self.noise is not None or self.robust

    def check(self, columns: Sequence[str], *, several: bool) -> None:
        """One clear error before anything is read. columns: all others.  several: targets."""
        if several and self.given:
            raise InputError("--deviation, --noise and --robust are for one target, got several: fit them one by one")
        if self.deviation in columns:
            raise InputError(f"--deviation: expected a column that is no input, target or agent, got {self.deviation}")

    def refuse_chunks(self) -> None:
        """One clear error for files that are read in chunks."""
        if self.given:
            raise InputError(
                "--deviation, --noise and --robust are for one file that is read as a whole, got files that are read "
                "in chunks: join them, or leave these out"
            )

    def made(self, names: Sequence[str]) -> dict[str, Any]:
        """As a fleet takes it. names: the agents'."""
        if not self.given:
            return {}
        return {"noise": None if self.noise is None else list(names), "robust": self.robust}
