"""fleetgp predict: answers of a model at the points of a file."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetgp.arrays import Array
from fleetgp.cli import options
from fleetgp.cli.answers import asked, known_model, report_answers, warn_of_outside
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold, warn
from fleetgp.cli.points import check_answer_file, check_level, read_points, refuse_clash, write_answer
from fleetgp.cli.reading import FileReading
from fleetgp.cli.together import Together
from fleetgp.errors import InputError
from fleetgp.storage.model import Model

GRADIENT = Annotated[bool, typer.Option("--gradient", help="Also the slopes of the mean along the inputs.")]


def predict(
    model: options.MODEL,
    points: options.POINTS,
    out: options.ANSWER_OUT,
    reading: FileReading,
    asking: options.Asking,
    where: Cluster,
    output: options.Output,
    level: options.LEVEL = None,
    gradient: GRADIENT = False,
) -> None:
    """Predict at the points of a file, by any of the methods.

    The answer has the columns of the points, and mean, std (the standard deviation of the field), std_observed (that of
    an observation, the one to compare measurements with), agents (how many took part), and uninformed (True where the
    answer is no better than the prior). With --level 0.95 it also has low and high, between which 95 % of observations
    shall lie.
    With --gradient it also has the slopes of the mean along the inputs, as d_mean/d_lon.

    [bold]Examples[/bold]

    [cyan]fleetgp predict model/ points.csv --method dec-nn-grbcm --out answer.csv[/cyan]

    [cyan]fleetgp predict model/ points.csv --level 0.95 --out answer.csv[/cyan]

    [cyan]fleetgp predict model/ points.csv --cluster --workers 8 --out answer.csv[/cyan]
    """
    known = known_model(model, where)
    check_answer_file(out, points)
    queries, others = read_points(points, known.inputs, out, reading.reading, known.fleet.units)
    check_level(level, points, others)
    slopes = _slopes(known, queries, asking) if gradient else {}
    refuse_clash(points, others, slopes)
    answers = asked(known, queries, asking, out, output.quiet)
    found = (answers.mean, answers.std, answers.std_observed, answers.participants, answers.uninformed)
    write_answer(out, others, *found, level, slopes)
    answers.kept.clear()
    warn_of_outside(known, queries, answers.uninformed)
    report_answers(known, answers, {"out": str(out)}, f"The answer is in {bold(out)}.", output.as_json)


def _slopes(model: Model, queries: Array, asking: options.Asking) -> dict[str, Array]:
    """Columns with the derivatives of the mean by each input."""
    if asking.consensus == "average":
        raise InputError("--gradient is exact, and averages over neighbours are not: leave out --consensus average")
    how = Together(asking.method, asking.eta, asking.engine, asking.neighbours)
    found = model.fleet.gradient(queries, **how.chosen)
    if found.kinks.any():
        where = int(found.kinks.any(axis=1).sum())
        warn(f"at {where:,} points the mean has a kink, where data are: slopes there are the mean of both sides")
    return {f"d_mean/d_{name}": found.gradient[:, d] for d, name in enumerate(model.inputs)}
