"""fleetgp predict: answers of a model at the points of a file."""

from __future__ import annotations

from fleetgp.cli import options
from fleetgp.cli.answers import asked, known_model, report_answers, warn_of_outside
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold
from fleetgp.cli.points import check_answer_file, read_points, write_answer
from fleetgp.cli.reading import FileReading


def predict(
    model: options.MODEL,
    points: options.POINTS,
    out: options.ANSWER_OUT,
    reading: FileReading,
    asking: options.Asking,
    where: Cluster,
    output: options.Output,
) -> None:
    """Predict at the points of a file, by any of the methods.

    The answer has the columns of the points, and mean, std (the standard deviation of the field), std_observed (that of
    an observation, the one to compare measurements with), and agents (how many took part).

    [bold]Examples[/bold]

    [cyan]fleetgp predict model/ points.csv --method dec-nn-grbcm --out answer.csv[/cyan]

    [cyan]fleetgp predict model/ points.csv --cluster --workers 8 --out answer.csv[/cyan]
    """
    known = known_model(model, where)
    check_answer_file(out, points)
    queries, others = read_points(points, known.inputs, out, reading.reading, known.fleet.units)
    answers = asked(known, queries, asking, out, output.quiet)
    write_answer(out, others, answers.mean, answers.std, answers.std_observed, answers.participants)
    answers.kept.clear()
    warn_of_outside(known, queries, answers.uninformed)
    report_answers(known, answers, {"out": str(out)}, f"The answer is in {bold(out)}.", output.as_json)
