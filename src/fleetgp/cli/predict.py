"""fleetgp predict, map, sample and suggest: commands that ask a model at points."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.cli import options
from fleetgp.cli.answers import (
    When,
    agent_number,
    check_answer_file,
    check_level,
    known_model,
    predictions,
    read_points,
    refuse_clash,
    report_answers,
    traffic_facts,
    traffic_lines,
    warn_of_outside,
    write_answer,
)
from fleetgp.cli.arguments import default_of, option
from fleetgp.cli.options import FILE_READING, JOINT, Cluster, JointAsking
from fleetgp.cli.output import Report, bold, plain_table, warn
from fleetgp.data.times import format_time, format_value
from fleetgp.declarations import four_sides, values_by_name
from fleetgp.errors import InputError
from fleetgp.files import check_writable, whole
from fleetgp.io.fields import read_mask, xarray
from fleetgp.io.formats import Reading
from fleetgp.io.tables import write_columns
from fleetgp.prediction.suggestion import CRITERIA
from fleetgp.storage.model import Model

#: Columns of a suggestion behind those of the candidates.
SUGGESTION_COLUMNS = ("agent", "gain")


def predict(
    model: options.MODEL,
    points: options.POINTS,
    out: options.ANSWER_OUT,
    reading: FILE_READING,
    when: options.WHEN,
    asking: options.Asking,
    where: Cluster,
    level: options.LEVEL = None,
    gradient: Annotated[bool, option("Add the gradient of the mean with respect to the inputs.", "--gradient")] = False,
    quiet: options.Quiet = False,
) -> Report:
    """Predict at the points of a file, by any of the methods.

    The answer has the columns of the points, and mean, std (the standard deviation of the field), std_observed (the
    standard deviation of an observation, to compare measurements with), n_agents (how many took part), and prior_only
    (True where the answer is no better than the prior). With --level 0.95 it also has low and high, between which 95%
    of observations should lie. With --gradient it also has the gradient of the mean, as d_mean/d_lon.

    [bold]Examples[/bold]

    [cyan]fleetgp predict model/ points.csv --method dec-nearest --out answer.csv[/cyan]

    [cyan]fleetgp predict model/ points.csv --level 0.95 --out answer.csv[/cyan]

    [cyan]fleetgp predict model/ points.csv --cluster --workers 8 --out answer.csv[/cyan]
    """
    known = known_model(model, where)
    check_answer_file(out, points)
    about = When.of(known, when)
    queries, others = read_points(points, known.inputs, out, Reading(**reading), known.fleet.units, about)
    check_level(level, points, others)
    gradients = _gradients(known, queries, asking) if gradient else {}
    refuse_clash(points, others, gradients)
    answers = predictions(known, queries, asking, out, quiet)
    columns = (answers.mean, answers.std, answers.std_observed, answers.participants, answers.prior_only)
    write_answer(out, others, *columns, level, gradients)
    answers.kept.clear()
    warn_of_outside(known, queries, answers.prior_only)
    return report_answers(known, answers, {"out": str(out)}, f"The answer is in {bold(out)}.")


def _gradients(model: Model, queries: Array, asking: options.Asking) -> dict[str, Array]:
    """Columns with the derivatives of the mean by each input."""
    if asking.given.get("consensus") == "average":
        raise InputError("--gradient is exact, and averages over neighbours are not: leave out --consensus average")
    given = {name: value for name, value in asking.given.items() if name in JOINT}
    result = model.fleet.gradient(queries, **JointAsking(asking.method, given).chosen)
    if result.kinks.any():
        count = int(result.kinks.any(axis=1).sum())
        warn(f"at {count:,} points the mean has a kink, where data are: the gradient there is the mean of both sides")
    return {f"d_mean/d_{name}": result.gradient[:, d] for d, name in enumerate(model.inputs)}


def map_(
    *,
    model: options.MODEL,
    out: Annotated[Path, option("The map: a NetCDF file, and a PNG of the same name beside it; or a PNG or PDF.")],
    grid: Annotated[str, option("Points along the two inputs.")] = "200x200",
    box: Annotated[
        list[float] | None, option("Lowest first and second input, then the highest. (default: where the data are)")
    ] = None,
    at: Annotated[list[str] | None, option("The values of other inputs, for example: --at depth=5")] = None,
    when: options.WHEN,
    within: Annotated[
        float,
        option("Leave out cells farther than this many length-scales from all observations; inf: none."),
    ] = default_of(fg.Fleet.map, "within"),
    mask: Annotated[
        Path | None,
        option("Where to draw the map: a NetCDF field over both inputs, 0 or missing elsewhere.", readable=False),
    ] = None,
    units: Annotated[str, option("The units of the target, for the labels: for example degC.")] = "",
    asking: options.Asking,
    where: Cluster,
    quiet: options.Quiet = False,
) -> Report:
    """Draw a map: mean and standard deviation on a grid, as NetCDF and PNG; --out map.png and map.pdf: a picture alone.

    Cells farther than half a length-scale from all observations are left out: --within 0.2 leaves out more, --within
    inf nothing. --mask leaves out land, say. Cells that are no better known than the prior are hatched in the picture
    too; the variable cell_status in the file distinguishes them. A model of more than two inputs needs a value for each
    other one; that of the time is --at-time, by default the newest row.

    [bold]Examples[/bold]

    [cyan]fleetgp map model/ --grid 200x200 --out map.nc[/cyan]

    [cyan]fleetgp map model/ --at-time 2021-01-05 --at depth=5 --mask land.nc --out map.nc[/cyan]
    """
    from fleetgp.fleet.maps import (
        MASKED,
        PRIOR,
        cells_in_mask,
        check_names,
        check_within,
        chosen_cells,
        grid_of,
        on_all_cells,
    )
    from fleetgp.storage.answers import save_map

    counts, sides, values = (
        _grid_counts(grid),
        four_sides("--box", box) if box else None,
        values_by_name("--at", at or ()) or None,
    )
    check_within(within, "--within")
    known = known_model(model, where)
    _check_map_file(out)
    source = known.fleet.snapshot()
    cells = grid_of(source, counts, sides, values, when.get("at_time"))
    check_names(cells, known.target)
    kept = cells_in_mask(cells, None if mask is None else read_mask(mask, [cells.names[d] for d in cells.along]))
    chosen, status = chosen_cells(source, cells, within, kept.reshape(cells.shape).T)
    answers = predictions(known, cells.cells[chosen], asking, out, quiet)
    picture = save_map(out, known, cells, answers, chosen, status, units)
    answers.kept.clear()
    far = np.asarray(kept & ~chosen)
    left = f"cells are farther than {within:g} length-scales from all observations: left out, --within inf has them too"
    warn_of_outside(known, cells.cells, far, left)
    unknown = "cells are no better known than the prior: hatched in the picture"
    warn_of_outside(known, cells.cells, on_all_cells(status, chosen, answers.prior_only) == PRIOR, unknown)
    masked = int((status == MASKED).sum())
    facts = {"out": str(out), "picture": str(picture), "left_out": int(far.sum()), "masked": masked}
    time = known.fleet.time
    about = format_time(cells.fixed[time], known.fleet.units.get(time)) if time in cells.fixed else None
    facts |= {} if about is None else {"map_time": about}
    of = "" if about is None else f" of {about}"
    beside = "" if out == picture else f", its picture in {bold(picture)}"
    hidden = f" The mask leaves out {masked:,} of {len(status):,} cells." if masked else ""
    return report_answers(known, answers, facts, f"The map{of} is in {bold(out)}{beside}.{hidden}")


def _grid_counts(grid: str) -> tuple[int, int]:
    """--grid as two numbers.

    >>> _grid_counts("200x100")
    (200, 100)
    """
    from fleetgp.fleet.maps import check_counts

    match = re.fullmatch(r"(\d{1,18})\s*[xX×]\s*(\d{1,18})", grid.strip())
    first, second = map(int, match.groups()) if match else (0, 0)
    if min(first, second) < 2:
        raise InputError(f"--grid must be like 200x100, two points or more along each input, got {grid!r}")
    return check_counts((first, second), f"--grid {grid.strip()}")


def _check_map_file(out: Path) -> None:
    """Refuse a map that cannot be written."""
    if out.suffix.lower() not in (".nc", ".png", ".pdf"):
        raise InputError(f"{out}: expected a name that ends in .nc (or .png or .pdf, for the picture alone)")
    check_writable(out)
    if out.suffix.lower() == ".nc":
        check_writable(out.with_suffix(".png"))


def sample(
    *,
    model: options.MODEL,
    points: options.POINTS,
    out: Annotated[Path, option("The draws: .csv, .parquet or .npz, with a column each, or .nc.")],
    reading: FILE_READING,
    when: options.WHEN,
    joint: JointAsking,
    n: Annotated[int, option("How many draws.", min=1, max=100_000)] = 10,
    seed: Annotated[int, option("The seed of the draws.", min=0)] = default_of(fg.Fleet.sample, "seed"),
    observed: Annotated[bool, option("Draw observations, with noise, instead of the field.", "--observed")] = False,
) -> Report:
    """Draw whole fields from the joint posterior, at the points of a file.

    Each draw is a field that the data allow. A quantity that depends on several places together, such as a mean over an
    area or the place of a maximum, has the distribution of its values over the draws.

    [bold]Examples[/bold]

    [cyan]fleetgp sample model/ points.csv --n 20 --seed 0 --out draws.csv[/cyan]

    [cyan]fleetgp sample model/ points.csv --n 1000 --method dec-nearest --out draws.nc[/cyan]
    """
    known = known_model(model, Cluster())
    table = out.suffix.lower() != ".nc"
    if table:
        check_answer_file(out, points)
    else:
        check_writable(out)
        xarray()  # or one error that says what is missing
        if out.exists() and points.exists() and out.samefile(points):
            raise InputError(f"{out}: the draws would replace the points: choose another name")
    about = When.of(known, when)
    queries, columns = read_points(points, known.inputs, out, Reading(**reading), known.fleet.units, about)
    names = [f"draw_{k + 1}" for k in range(n)]
    refuse_clash(points, columns, names)
    posterior = known.fleet.joint(queries, observed=observed, **joint.chosen)
    draws = posterior.sample(n, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    if table:
        write_columns(out, {**columns, **dict(zip(names, draws, strict=True))})
    else:
        with whole(out) as partial:
            _draws_dataset(known, queries, draws).to_netcdf(partial)
    if posterior.jitter:
        warn(f"a covariance needed jitter, up to {posterior.jitter:.1e}")
    facts = {
        "out": str(out),
        "method": posterior.method,
        "points": len(queries),
        "draws": n,
        "seed": seed,
        "of": "observation" if observed else "field",
        "jitter": posterior.jitter,
        "rounds": posterior.rounds,
        **traffic_facts(posterior.ledger),
    }
    summary = f"{posterior.method}: {n:,} draws at {len(queries):,} points."
    return Report(facts, [summary, *traffic_lines(known, facts), f"The draws are in {bold(out)}."])


def _draws_dataset(model: Model, queries: Array, draws: Array) -> Any:
    """Draws and points, with the inputs along the points."""
    inputs = {name: ("point", queries[:, d]) for d, name in enumerate(model.inputs)}
    label = {"long_name": f"draws of {model.target}"}
    return xarray().Dataset(
        {model.target: (("draw", "point"), draws, label)}, coords={"draw": np.arange(1, len(draws) + 1), **inputs}
    )


def suggest(
    *,
    model: options.MODEL,
    candidates: Annotated[
        Path, typer.Argument(help="Candidate places: a table with the model's inputs.", readable=False)
    ],
    out: options.ANSWER_OUT,
    reading: FILE_READING,
    when: options.WHEN,
    joint: JointAsking,
    n: Annotated[int, option("How many places; with --all, for each agent.", min=1)] = default_of(
        fg.Fleet.suggest, "n"
    ),
    criterion: Annotated[
        str,
        option("variance (where least is known) or mutual-information (what is most informative)."),
    ] = default_of(fg.Fleet.suggest, "criterion"),
    agent: Annotated[str | None, option("The agent that should go there, by name. (default: the first)")] = None,
    everyone: Annotated[bool, option("Places for all agents, no place twice.", "--all")] = False,
) -> Report:
    """Suggest where to measure next, among the candidates in a file.

    Each place is chosen as if those before it were measured, so that places spread. The result has the rows of the
    chosen candidates in their order, the agent of each, and its gain: with variance the variance of the field there, in
    squared units of the target; with mutual-information nats.

    [bold]Examples[/bold]

    [cyan]fleetgp suggest model/ candidates.csv --n 5 --agent boat1 --out next.csv[/cyan]

    [cyan]fleetgp suggest model/ candidates.csv --n 2 --criterion mutual-information --all --out next.csv[/cyan]
    """
    if everyone and agent is not None:
        raise InputError("--all is for every agent, and --agent for one: give one of them")
    options.one_of("--criterion", criterion, CRITERIA)
    known = known_model(model, Cluster())
    check_answer_file(out, candidates)
    about = When.of(known, when)
    places, columns = read_points(candidates, known.inputs, out, Reading(**reading), known.fleet.units, about)
    refuse_clash(candidates, columns, SUGGESTION_COLUMNS)
    whose = None if everyone else agent_number(known, agent or known.agents[0])
    result = known.fleet.suggest(whose, places, n, criterion=criterion, **joint.chosen)
    names = np.array(known.agents)[result.agents]
    rows = {name: np.asarray(column)[result.indices] for name, column in columns.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_columns(out, {**rows, **dict(zip(SUGGESTION_COLUMNS, (names, result.gains), strict=True))})
    table = plain_table("", "agent", *known.inputs, "gain")
    for name, place, gain in zip(names, result.places, result.gains, strict=True):
        shown = (format_value(value, known.fleet.units.get(n)) for n, value in zip(known.inputs, place, strict=True))
        table.add_row(str(name), *shown, f"{gain:.3g}")
    facts = {
        "out": str(out),
        "method": result.method,
        "criterion": result.criterion,
        "agents": names.tolist(),
        "places": result.places.tolist(),
        "candidates": result.indices.tolist(),
        "gains": result.gains.tolist(),
        **traffic_facts(result.ledger),
    }
    return Report(facts, [table, *traffic_lines(known, facts), f"The places are in {bold(out)}."])
