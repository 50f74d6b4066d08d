"""fleetgp predict and map: answers of a model, and a map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fleetgp.cli.options import (
    ASKED,
    BOX,
    DATE,
    DECIMAL,
    ENCODING,
    ENGINE,
    ETA,
    METHOD,
    MODEL,
    NOISY,
    ROUNDS,
    SEP,
    STRIDE,
    TOL,
    Json,
    Quiet,
    four_sides,
    reading_of,
)  # fmt: skip
from fleetgp.cli.output import bold, count_of_agents, emit, warn
from fleetgp.cli.points import check_answer_file, read_points, write_answer
from fleetgp.cli.variadic import VariadicCommand
from fleetgp.errors import InputError
from fleetgp.files import check_writable
from fleetgp.fleet.outside import told_of_outside
from fleetgp.prediction import prediction_method
from fleetgp.prediction.options import refuse_foreign
from fleetgp.storage.answers import Answers, ask
from fleetgp.storage.model import Model, load_model
from fleetgp.units import readable_bytes


def predict(
    model: MODEL,
    points: Annotated[Path, typer.Argument(help="Where to predict: a table with the model's inputs.", readable=False)],
    out: Annotated[Path, typer.Option(help="The answer: .csv, .parquet or .npz.")],
    date: DATE = None,
    box: BOX = None,
    stride: STRIDE = None,
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    method: METHOD = "dec-nn-grbcm",
    agent: ASKED = None,
    noisy: NOISY = False,
    eta: ETA = None,
    rounds: ROUNDS = None,
    tol: TOL = None,
    engine: ENGINE = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict at the points of a file, by any of the methods.

    The answer has the columns of the points, the mean, the standard deviation, and how many agents took part. The
    deviation is that of the field; --noisy gives that of an observation, which is the one to compare measurements with.

    [bold]Example[/bold]

    [cyan]fleetgp predict model/ points.csv --method dec-nn-grbcm --out answer.csv[/cyan]
    """
    known = load_model(model)
    _warn_of_model(known, model)
    check_answer_file(out, points)
    queries, others = read_points(points, known.inputs, out, reading_of(date, box, stride, sep, decimal, encoding))
    options = _options(method, noisy, eta=eta, rounds=rounds, tol=tol, engine=engine)
    answers = ask(known, queries, method, agent, options, out, quiet)
    write_answer(out, others, answers.mean, answers.variance, answers.participants)
    answers.kept.clear()
    outside = told_of_outside(queries, answers.uninformed, known.fleet.shards, known.inputs)
    if outside:
        warn(outside)
    _report_answers(known, answers, {"out": str(out)}, noisy, f"The answer is in {bold(out)}.", as_json)


def map_(
    model: MODEL,
    out: Annotated[Path, typer.Option(help="The map: a NetCDF file; a PNG of the same name goes beside it.")],
    grid: Annotated[str, typer.Option(help="Points along the two inputs.")] = "200x200",
    box: Annotated[
        list[float] | None,
        typer.Option(help="Lowest first and second input, then the highest. (default: where the data are)"),
    ] = None,
    within: Annotated[
        float, typer.Option(help="Leave out cells farther than so many length-scales from all observations; inf: none.")
    ] = 0.5,
    units: Annotated[str, typer.Option(help="Of the target, for the labels: for example degC.")] = "",
    method: METHOD = "dec-nn-grbcm",
    agent: ASKED = None,
    noisy: NOISY = False,
    eta: ETA = None,
    rounds: ROUNDS = None,
    tol: TOL = None,
    engine: ENGINE = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw a map: mean and standard deviation on a grid, as NetCDF and PNG.

    Cells farther than half a length-scale from all observations are left out: --within 0.2 leaves out more, land, say,
    that the model would paint over; --within inf nothing. Of the others, those that are no better known than the prior
    are hatched in the picture too. The file's variable coverage tells them apart.

    [bold]Examples[/bold]

    [cyan]fleetgp map model/ --grid 200x200 --out map.nc[/cyan]

    [cyan]fleetgp map model/ --grid 200x200 --within 0.2 --out map.nc[/cyan]
    """
    from fleetgp.storage.maps import axes_of, cells_within, check_names, on_all_cells, save_map

    known = load_model(model)
    _warn_of_model(known, model)
    if known.fleet.dimension != 2:
        raise InputError(f"a map needs two inputs, but the model has {len(known.inputs)}: {', '.join(known.inputs)}")
    if out.suffix.lower() != ".nc":
        raise InputError(f"{out}: a name that ends in .nc was expected")
    check_writable(out)
    check_writable(out.with_suffix(".png"))
    check_names(known)
    first, second = axes_of(known.fleet.shards, grid, four_sides(box))
    cells = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
    chosen = cells_within(known, cells, within)
    options = _options(method, noisy, eta=eta, rounds=rounds, tol=tol, engine=engine)
    answers, coverage = on_all_cells(ask(known, cells[chosen], method, agent, options, out, quiet), chosen)
    picture = save_map(out, known, (first, second), answers, coverage, units)
    answers.kept.clear()
    shards, inputs = known.fleet.shards, known.inputs
    left = f"cells are farther than {within:g} length-scales from all observations: left out, --within inf has them too"
    for told in (
        told_of_outside(cells, ~chosen, shards, inputs, left),
        told_of_outside(
            cells,
            answers.uninformed,
            shards,
            inputs,
            "cells are no better known than the prior: hatched in the picture",
        ),
    ):
        if told:
            warn(told)
    facts = {"out": str(out), "picture": str(picture), "left_out": int((~chosen).sum())}
    told = f"The map is in {bold(out)}, its picture in {bold(picture)}."
    _report_answers(known, answers, facts, noisy, told, as_json)


def _report_answers(
    model: Model, answers: Answers, facts: dict[str, Any], noisy: bool, told: str, as_json: bool
) -> None:
    if answers.status != "converged":
        warn(f"{answers.method}: {answers.status}; the answer may be off: dec-nn-grbcm converges, or try more --rounds")
    if answers.jitter:
        warn(f"a covariance needed jitter, up to {answers.jitter:.1e}")
    part, points = float(answers.share.sum()), int(np.isfinite(answers.mean).sum())
    said = (
        f"{answers.method}: {points:,} points, {answers.status}"
        + (f" after at most {answers.rounds:,} rounds" if answers.rounds else "")
        + (f" and {answers.iterations:,} iterations" if answers.iterations else "")
        + f"; {part:.1f} of {count_of_agents(len(model.agents))} took part in a point, on average."
    )
    facts |= {
        "method": answers.method,
        "points": points,
        "status": answers.status,
        "rounds": answers.rounds,
        "iterations": answers.iterations,
        "agent": answers.agent,
        "agents": list(model.agents),
        "took_part": {name: float(share) for name, share in zip(model.agents, answers.share, strict=True)},
        "jitter": answers.jitter,
        "bytes": answers.bytes,
        "uninformed": int(answers.uninformed.sum()),
        "standard_deviation_of": "observation" if noisy else "field",
    }
    noise = f"sigma_eps = {model.theta['sigma_eps']:.3g}"
    deviation = (
        f"The standard deviation is that of an observation ({noise} is in it)."
        if noisy
        else f"The standard deviation is that of the field; --noisy gives that of an observation (with {noise})."
    )
    emit(facts, said, f"Sent between agents: {readable_bytes(answers.bytes)}.", deviation, told, as_json=as_json)


def _options(method: str, noisy: bool, **given: Any) -> dict[str, Any]:
    """The options as `ask` takes them; one clear error, with their names as typed, for those of other methods."""
    refuse_foreign(prediction_method(method), given, prefix="--")
    return {"noisy": noisy, **given}


def _warn_of_model(model: Model, folder: Path) -> None:
    if model.status in ("interrupted", "round limit", "diverged"):
        warn(f"{folder}: the training of this model did not converge ({model.note or model.status})")


def register(app: typer.Typer) -> None:
    app.command(cls=VariadicCommand)(predict)
    app.command("map", cls=VariadicCommand)(map_)
