"""fleetgp fit, predict and map: from measurements to a model, answers and a map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

import fleetgp as fg
from fleetgp.answers import Answers, ask
from fleetgp.cli.output import bold, emit, plain_table, saying_warnings, warn
from fleetgp.cli.points import check_answer_file, read_points, write_answer
from fleetgp.cli.variadic import VariadicCommand
from fleetgp.data import partition, partition_by_label, read_edges, read_observations
from fleetgp.data.partition import BY
from fleetgp.errors import InputError, NumericalError, unknown_name
from fleetgp.files import check_writable
from fleetgp.graph import GRAPHS, Graph
from fleetgp.model import Model, check_target, load_model, save_model
from fleetgp.network import Traffic
from fleetgp.progress import listening
from fleetgp.training import training_method
from fleetgp.units import readable_bytes

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
MODEL = Annotated[Path, typer.Argument(help="The folder that `fleetgp fit` wrote.", readable=False)]
METHOD = Annotated[str, typer.Option(help="How the agents combine their answers; see `fleetgp methods`.")]
ROUNDS = Annotated[int, typer.Option(help="Stop averaging after this many rounds.")]
TOL = Annotated[float, typer.Option(help="Average until the agents differ by less, relatively.")]
ETA = Annotated[float, typer.Option(help="With dec-nn-: the share of the variance an agent must explain to take part.")]
NOISY = Annotated[bool, typer.Option("--noisy", help="The deviation of an observation, not of the field.")]
ASKED = Annotated[str | None, typer.Option(help="Whose answer to write: an agent's name. (default: the first)")]
ENGINE = Annotated[str, typer.Option(help="auto, dense or moments.")]


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
    by: Annotated[str, typer.Option("--partition", help=f"How to split: {', '.join(BY)}.")] = "stripes",
    axis: Annotated[str | None, typer.Option(help="The input along which stripes follow. (default: the first)")] = None,
    graph: Annotated[str, typer.Option(help=f"{', '.join(GRAPHS)}, or a file with two agents' names a line.")] = "path",
    training: Annotated[str, typer.Option(help="The training method; see `fleetgp methods`.")] = "dec-gapx-gp",
    kernel: Annotated[str, typer.Option(help="se, matern12, matern32 or matern52.")] = "se",
    missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")] = "refuse",
    normalize: Annotated[
        bool, typer.Option(help="Centre and scale the observations by the fleet's own mean and deviation.")
    ] = True,
    start: Annotated[Path | None, typer.Option("--from", help="Start at the hyperparameters of this model.")] = None,
    rounds: Annotated[int, typer.Option(help="Stop after this many rounds.")] = 2000,
    tol: Annotated[float, typer.Option(help="Stop when the agents agree and stand still to this.")] = 1e-5,
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
    check_target(out, overwrite)
    if len(set(inputs)) < len(inputs) or target in inputs:
        raise InputError(f"--inputs and --target must be different columns, but {[*inputs, target]} came")
    if missing not in ("refuse", "drop"):
        raise unknown_name("--missing", missing, ("refuse", "drop"))
    training_method(training)
    theta0 = None if start is None else _start(start, inputs)
    data = read_observations(file, inputs=inputs, target=target, agent=agent, missing=missing)  # type: ignore[arg-type]
    if (agent is None) == (agents is None):
        raise InputError("give either --agent (the column that names the agents) or --agents (how many to split over)")
    if data.labels is not None:
        names, shards = partition_by_label(data.inputs, data.observations, data.labels)
        if len(names) > 20 and 2 * len(names) > len(data.labels):
            raise InputError(
                f"{file}: the column {agent!r} names {len(names)} agents in {len(data.labels)} rows: is it the right "
                "one?"
            )
    else:
        if axis is not None and axis not in inputs:
            raise unknown_name("--axis", axis, inputs)
        along = 0 if axis is None else inputs.index(axis)
        shards = partition(data.inputs, data.observations, agents=agents or 0, by=by, axis=along, seed=seed)  # type: ignore[arg-type]
        names = [str(number) for number in range(len(shards))]
    if np.ptp(data.observations) == 0.0:
        raise InputError(f"{file}: the column {target!r} has one value only: there is nothing to learn")
    fleet = fg.Fleet(shards, _graph(graph, names), normalize=normalize, kernel=kernel, seed=seed)
    note = ""
    with saying_warnings(), listening(not quiet) as shown:
        try:
            fleet.train(
                training,
                theta0=theta0,
                rounds=rounds,
                tol=tol,
                noise_floor=noise_floor,
                engine=engine,
                progress=shown or False,
            )
        except KeyboardInterrupt:
            furthest = fleet.unfinished
            if furthest is None or out.exists():  # nothing worth more than what is there
                raise
            note = f"interrupted after {furthest.round} rounds of {furthest.task}"
    model = Model(fleet, tuple(names), tuple(inputs), target, note)
    if fleet.theta is None:
        raise NumericalError(
            f"{training} diverged, and nothing was written: is {target!r} constant, or free of noise? "
            "Another training method, --from a model, or other units of the inputs may help"
        )
    save_model(model, out, overwrite=overwrite)
    if note:
        warn(f"{note}: {out} holds the estimates so far; --from {out} --overwrite goes on from them")
        raise KeyboardInterrupt
    _report_fit(model, data.dropped, out, as_json)


def _report_fit(model: Model, dropped: int, out: Path, as_json: bool) -> None:
    fleet, found = model.fleet, model.fleet.fit
    assert found is not None
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
        f"{sum(len(y) for _, y in fleet.shards):,} observations of {_agents(len(model.agents))}"
        + (f" ({dropped} rows with missing values dropped)." if dropped else "."),
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


def predict(
    model: MODEL,
    points: Annotated[Path, typer.Argument(help="Where to predict: a table with the model's inputs.", readable=False)],
    out: Annotated[Path, typer.Option(help="The answer: .csv, .parquet or .npz.")],
    method: METHOD = "dec-nn-grbcm",
    agent: ASKED = None,
    noisy: NOISY = False,
    eta: ETA = 1e-3,
    rounds: ROUNDS = 20_000,
    tol: TOL = 1e-6,
    engine: ENGINE = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict at the points of a file, by any of the methods.

    The answer has the columns of the points, the mean, the standard deviation, and how many agents took part.

    [bold]Example[/bold]

    [cyan]fleetgp predict model/ points.csv --method dec-nn-grbcm --out answer.csv[/cyan]
    """
    known = load_model(model)
    _warn_of_model(known, model)
    check_answer_file(out, points)
    queries, others = read_points(points, known.inputs)
    options = {"eta": eta, "rounds": rounds, "tol": tol, "engine": engine, "noisy": noisy}
    answers = ask(known, queries, method, agent, options, out, quiet)
    write_answer(out, others, answers.mean, answers.variance, answers.participants)
    answers.kept.clear()
    _report_answers(known, answers, {"out": str(out)}, f"The answer is in {bold(out)}.", as_json)


def map_(
    model: MODEL,
    out: Annotated[Path, typer.Option(help="The map: a NetCDF file; a PNG of the same name goes beside it.")],
    grid: Annotated[str, typer.Option(help="Points along the two inputs.")] = "200x200",
    box: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(help="Lowest first and second input, then the highest. (default: where the data are)"),
    ] = None,
    units: Annotated[str, typer.Option(help="Of the target, for the labels: for example degC.")] = "",
    method: METHOD = "dec-nn-grbcm",
    agent: ASKED = None,
    noisy: NOISY = False,
    eta: ETA = 1e-3,
    rounds: ROUNDS = 20_000,
    tol: TOL = 1e-6,
    engine: ENGINE = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw a map: mean and standard deviation on a grid, as NetCDF and PNG.

    [bold]Example[/bold]

    [cyan]fleetgp map model/ --grid 200x200 --out map.nc[/cyan]
    """
    from fleetgp.maps import axes_of, check_names, save_map

    known = load_model(model)
    _warn_of_model(known, model)
    if known.fleet.dimension != 2:
        raise InputError(f"a map needs two inputs, but the model has {len(known.inputs)}: {', '.join(known.inputs)}")
    if out.suffix.lower() != ".nc":
        raise InputError(f"{out}: a name that ends in .nc was expected")
    check_writable(out)
    check_writable(out.with_suffix(".png"))
    check_names(known)
    first, second = axes_of(known.fleet.shards, grid, box)
    queries = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
    options = {"eta": eta, "rounds": rounds, "tol": tol, "engine": engine, "noisy": noisy}
    answers = ask(known, queries, method, agent, options, out, quiet)
    picture = save_map(out, known, (first, second), answers, units)
    answers.kept.clear()
    told = f"The map is in {bold(out)}, its picture in {bold(picture)}."
    _report_answers(known, answers, {"out": str(out), "picture": str(picture)}, told, as_json)


def _report_answers(model: Model, answers: Answers, facts: dict[str, Any], told: str, as_json: bool) -> None:
    if answers.status != "converged":
        warn(f"{answers.method}: {answers.status}; the answer may be off: dec-nn-grbcm converges, or try more --rounds")
    if answers.jitter:
        warn(f"a covariance needed jitter, up to {answers.jitter:.1e}")
    part = float(answers.share.sum())
    said = (
        f"{answers.method}: {len(answers.mean):,} points, {answers.status}"
        + (f" after at most {answers.rounds:,} rounds" if answers.rounds else "")
        + (f" and {answers.iterations:,} iterations" if answers.iterations else "")
        + f"; {part:.1f} of {_agents(len(model.agents))} took part in a point, on average."
    )
    facts |= {
        "method": answers.method,
        "points": len(answers.mean),
        "status": answers.status,
        "rounds": answers.rounds,
        "iterations": answers.iterations,
        "agent": answers.agent,
        "agents": list(model.agents),
        "took_part": {name: float(share) for name, share in zip(model.agents, answers.share, strict=True)},
        "jitter": answers.jitter,
        "bytes": answers.bytes,
    }
    emit(facts, said, f"Sent between agents: {readable_bytes(answers.bytes)}.", told, as_json=as_json)


def _warn_of_model(model: Model, folder: Path) -> None:
    if model.status in ("interrupted", "round limit", "diverged"):
        warn(f"{folder}: the training of this model did not converge ({model.note or model.status})")


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


def _agents(count: int) -> str:
    return f"{count:,} agents" if count != 1 else "1 agent"


def _sent(kinds: dict[str, Traffic]) -> str:
    return ", ".join(f"{kind} {traffic.scalars:,}" for kind, traffic in kinds.items()) or "nothing"


def register(app: typer.Typer) -> None:
    app.command(cls=VariadicCommand)(fit)
    app.command()(predict)
    app.command("map")(map_)
