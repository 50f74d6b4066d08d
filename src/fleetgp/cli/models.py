"""fleetgp fit: from measurements to a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

import fleetgp as fg
from fleetgp.cli.options import (
    BOX,
    DATE,
    DECIMAL,
    ENCODING,
    ENGINE,
    SEP,
    STRIDE,
    Json,
    Quiet,
    as_typed,
    fills_of,
    reading_of,
)  # fmt: skip
from fleetgp.cli.output import bold, count_of_agents, emit, plain_table, warn
from fleetgp.cli.variadic import VariadicCommand
from fleetgp.data import Shard, partition, partition_by_label
from fleetgp.data.partition import BY
from fleetgp.errors import InputError, NumericalError, unknown_name
from fleetgp.graph import GRAPHS, Graph
from fleetgp.io import Observations, read_edges, read_observations
from fleetgp.network import Traffic
from fleetgp.progress import listening
from fleetgp.storage.model import Model, check_target, load_model, save_model
from fleetgp.training import training_method


def fit(
    file: Annotated[
        Path, typer.Argument(help="Observations: CSV, Parquet, NPZ, or NetCDF (lon, lat, sst).", readable=False)
    ],
    inputs: Annotated[list[str], typer.Option(help="The columns of the inputs, for example: --inputs lon lat")],
    target: Annotated[str, typer.Option(help="The column of the observations.")],
    out: Annotated[Path, typer.Option(help="The folder for the model.")],
    agent: Annotated[str | None, typer.Option(help="The column that names the agent of each row.")] = None,
    agents: Annotated[
        int | None, typer.Option(help="Without such a column: how many agents, called 0, 1, ..., to split over.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--partition", help=f"How to split: {', '.join(BY)}. (default: stripes)")
    ] = None,
    axis: Annotated[str | None, typer.Option(help="The input along which stripes follow. (default: the first)")] = None,
    graph: Annotated[str, typer.Option(help=f"{', '.join(GRAPHS)}, or a file with two agents' names a line.")] = "path",
    training: Annotated[str, typer.Option(help="The training method; see `fleetgp methods`.")] = "dec-gapx-gp",
    kernel: Annotated[str, typer.Option(help="se, matern12, matern32 or matern52.")] = "se",
    missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")] = "refuse",
    fill: Annotated[
        list[str] | None, typer.Option(help="Values that stand for nothing: -9999, say; none if all values are real.")
    ] = None,
    date: DATE = None,
    box: BOX = None,
    stride: STRIDE = None,
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    normalize: Annotated[
        bool, typer.Option(help="Centre and scale the observations by the fleet's own mean and deviation.")
    ] = True,
    start: Annotated[Path | None, typer.Option("--from", help="Start at the hyperparameters of this model.")] = None,
    rounds: Annotated[int, typer.Option(help="Stop after this many rounds.")] = 2000,
    tol: Annotated[float, typer.Option(help="Stop when the agents agree and stand still to this.")] = 1e-5,
    rho: Annotated[float | None, typer.Option(help="The ADMM penalty. (default: from measured curvature)")] = None,
    kappa: Annotated[float | None, typer.Option(help="Stiffness of the steps of dec-apx-gp and dec-gapx-gp.")] = None,
    lipschitz: Annotated[float | None, typer.Option(help="Stiffness of the steps of apx-gp and gapx-gp.")] = None,
    nested: Annotated[
        str | None, typer.Option(help="Inner solver of c-gp and dec-c-gp: l-bfgs or gradient-descent.")
    ] = None,
    step: Annotated[float | None, typer.Option(help="Step size of --nested gradient-descent.")] = None,
    nested_iterations: Annotated[int | None, typer.Option(help="Inner iterations of c-gp and dec-c-gp.")] = None,
    noise_floor: Annotated[
        float, typer.Option(help="The smallest sigma_eps, in units of the observations' deviation; 0 for none.")
    ] = 1e-3,
    seed: Annotated[int, typer.Option(help="Draws samples, partitions and geometric graphs.")] = 0,
    engine: ENGINE = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model of that name.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a fleet on a file and write the model to a folder.

    Each agent uses its own rows only; what it tells its neighbours is in the result. Agents stand on a path, cycle, ...
    in the order in which they first come in the file. A file of edges has two names a line, with a comma or blanks
    between them, and no header; # begins a comment.

    [bold]Examples[/bold]

    [cyan]fleetgp fit observations.csv --inputs lon lat --target sst --agent boat --out model/[/cyan]

    [cyan]fleetgp fit soil.parquet --inputs x y --target moisture --agents 12 --partition kmeans --out soil/[/cyan]

    [cyan]fleetgp fit obs.csv --inputs lon lat --target sst --agent boat --graph links.txt --out model/[/cyan]
    """
    beside = out.with_name(f"{out.name}.interrupted")
    check_target(out, overwrite)
    if out.exists():
        check_target(beside, overwrite=True)
    if len(set(inputs)) < len(inputs) or target in inputs:
        raise InputError(f"--inputs and --target must be different columns, got {[*inputs, target]}")
    if missing not in ("refuse", "drop"):
        raise unknown_name("--missing", missing, ("refuse", "drop"))
    options: dict[str, Any] = {
        "rounds": rounds,
        "tol": tol,
        "rho": rho,
        "kappa": kappa,
        "lipschitz": lipschitz,
        "nested": nested,
        "step": step,
        "nested_iterations": nested_iterations,
        "noise_floor": noise_floor,
        "engine": engine,
    }
    fg.TrainingOptions(**options).check_for(training_method(training), as_typed)
    theta0 = None if start is None else _start(start, inputs)
    if (agent is None) == (agents is None):
        raise InputError("give either --agent (the column that names the agents) or --agents (how many to split over)")
    if agent is not None and (by is not None or axis is not None):
        raise InputError("--partition and --axis are for --agents: with --agent each agent has its own rows")
    if axis is not None and by not in (None, "stripes"):
        raise InputError(f"--axis is for stripes, but --partition {by} was asked for: leave one of them out")
    data = read_observations(
        file,
        inputs=inputs,
        target=target,
        agent=agent,
        missing=missing,  # type: ignore[arg-type]
        fill=fills_of(fill),
        reading=reading_of(date, box, stride, sep, decimal, encoding),
    )
    names, shards = _split(data, file, agent, agents or 0, by or "stripes", axis, inputs, seed)
    if np.ptp(data.observations) == 0.0:
        raise InputError(f"{file}: the column {target!r} has one value only: there is nothing to learn")
    fleet = fg.Fleet(shards, _graph(graph, names), normalize=normalize, kernel=kernel, seed=seed, inputs=inputs)
    with listening(not quiet) as shown:
        try:
            fleet.train(training, theta0=theta0, progress=shown or False, **options)
        except KeyboardInterrupt:
            model = Model(fleet, tuple(names), tuple(inputs), target)
            raise KeyboardInterrupt(_keep(model, out, beside)) from None
    model = Model(fleet, tuple(names), tuple(inputs), target)
    if fleet.theta is None:
        raise NumericalError(
            f"{training} diverged, and nothing was written: is {target!r} constant, or free of noise? "
            "Another training method, --from a model, or other units of the inputs may help"
        )
    save_model(model, out, overwrite=overwrite)
    _report_fit(model, data, out, as_json)


def _split(
    data: Observations,
    file: Path,
    agent: str | None,
    agents: int,
    by: str,
    axis: str | None,
    inputs: list[str],
    seed: int,
) -> tuple[list[str], list[Shard]]:
    """The agents' names and data: by the column that names them, or split over so many."""
    if data.labels is None:
        if axis is not None and axis not in inputs:
            raise unknown_name("--axis", axis, inputs)
        along = 0 if axis is None else inputs.index(axis)
        shards = partition(data.inputs, data.observations, agents=agents, by=by, axis=along, seed=seed)  # type: ignore[arg-type]
        return [str(number) for number in range(len(shards))], shards
    names, shards = partition_by_label(data.inputs, data.observations, data.labels)
    if len(names) > 20 and 2 * len(names) > len(data.labels):
        raise InputError(
            f"{file}: the column {agent!r} names {len(names)} agents in {len(data.labels)} rows: is it the right one?"
        )
    return names, shards


def _keep(model: Model, out: Path, beside: Path) -> str:
    """Save the estimates of a training that was interrupted, never in the place of a model; what became of them."""
    occupied = out.exists() and any(out.iterdir())
    left = f"; {out} is as it was" if occupied else ""
    furthest = model.fleet.unfinished
    if furthest is None:
        return f"there are no estimates yet, and nothing was written{left}"
    note = f"interrupted after {furthest.round} rounds of {furthest.task}"
    place = beside if occupied else out
    save_model(replace(model, note=note), place, overwrite=True)
    how = f"--from {place}" + ("" if occupied else " --overwrite")
    return f"{place} holds the estimates so far ({note}): {how} goes on from them{left}"


def _report_fit(model: Model, data: Observations, out: Path, as_json: bool) -> None:
    fleet, found = model.fleet, model.fleet.fit
    assert found is not None
    dropped = data.dropped
    if found.status != "converged":
        warn(f"training ended by {found.status} after {found.rounds} rounds, not by convergence")
    if found.jitter.any():
        warn(f"{int((found.jitter > 0).sum())} agents' covariances needed jitter, up to {found.jitter.max():.1e}")
    sent = {kind: traffic for kind, traffic in found.ledger.by_kind().items() if kind != "framing"}
    table = plain_table("", "hyperparameter", "value", "unit")
    units = [*model.inputs, model.target, model.target]
    for (name, value), unit in zip(model.theta.items(), units, strict=True):
        table.add_row(name, f"{value:.4g}", f"of {unit}")
    emit(
        {
            "model": str(out),
            "agents": list(model.agents),
            "observations": [len(y) for _, y in fleet.shards],
            "dropped": dropped,
            "notes": list(data.notes),
            "method": found.method,
            "status": found.status,
            "rounds": found.rounds,
            "disagreement": found.disagreement,
            "theta": model.theta,
            "jitter": found.jitter,
            "noise_floor": found.noise_floor,
            "at_noise_floor": bool(found.at_floor.any()),
            "engine": found.engine,
            "sent": {kind: vars(traffic) for kind, traffic in sent.items()},
        },
        f"{sum(len(y) for _, y in fleet.shards):,} observations of {count_of_agents(len(model.agents))}"
        + (f" ({dropped} rows with missing values dropped)." if dropped else "."),
        *(f"{note[0].upper()}{note[1:]}." for note in data.notes),
        f"{found.method}: {found.status} after {found.rounds} rounds; the agents differ by {found.disagreement:.0e}.",
        table,
        f"Sent between agents, in numbers: {_sent(sent)}.",
        f"The model is in {bold(out)}. Next:",
        f"  [cyan]fleetgp predict {escape(str(out))} points.csv --out answer.csv[/cyan]",
        *(
            [f"  [cyan]fleetgp map {escape(str(out))} --grid 200x200 --out map.nc[/cyan]"]
            if fleet.dimension == 2
            else []
        ),
        as_json=as_json,
    )


def _start(folder: Path, inputs: list[str]) -> list[float]:
    """Another model's hyperparameters, length-scales by the inputs' names."""
    model = load_model(folder)
    if sorted(model.inputs) != sorted(inputs):
        raise InputError(
            f"--from {folder}: that model has the inputs {', '.join(model.inputs)}, not {', '.join(inputs)}"
        )
    theta = model.theta
    return [*(theta[f"l_{name}"] for name in inputs), theta["sigma_f"], theta["sigma_eps"]]


def _graph(graph: str, names: list[str]) -> str | Graph:
    if graph in GRAPHS:
        return graph
    if not Path(graph).exists():
        raise InputError(f"unknown graph {graph!r}: choose one of {', '.join(GRAPHS)}, or give a file of edges")
    return read_edges(graph, names)


def _sent(kinds: dict[str, Traffic]) -> str:
    return ", ".join(f"{kind} {traffic.scalars:,}" for kind, traffic in kinds.items()) or "nothing"


def register(app: typer.Typer) -> None:
    app.command(cls=VariadicCommand)(fit)
