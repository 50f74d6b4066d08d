"""fleetgp predict: answers of a model at the points of a file."""

from __future__ import annotations

from fleetgp.cli import options
from fleetgp.cli.answers import known_model, prediction_options, report_answers, warn_of_outside
from fleetgp.cli.output import bold
from fleetgp.cli.points import check_answer_file, read_points, write_answer
from fleetgp.storage.answers import ask


def predict(
    model: options.MODEL,
    points: options.POINTS,
    out: options.ANSWER_OUT,
    date: options.DATE = None,
    box: options.BOX = None,
    stride: options.STRIDE = None,
    sep: options.SEP = None,
    decimal: options.DECIMAL = None,
    encoding: options.ENCODING = None,
    method: options.METHOD = "dec-nn-grbcm",
    agent: options.ASKED = None,
    noisy: options.NOISY = False,
    eta: options.ETA = None,
    rounds: options.ROUNDS = None,
    tol: options.TOL = None,
    engine: options.ENGINE = "auto",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict at the points of a file, by any of the methods.

    The answer has the columns of the points, the mean, the standard deviation, and how many agents took part. The
    deviation is that of the field; --noisy gives that of an observation, which is the one to compare measurements with.

    [bold]Example[/bold]

    [cyan]fleetgp predict model/ points.csv --method dec-nn-grbcm --out answer.csv[/cyan]
    """
    known = known_model(model)
    check_answer_file(out, points)
    queries, others = read_points(
        points, known.inputs, out, options.reading_of(date, box, stride, sep, decimal, encoding)
    )
    chosen = prediction_options(method, noisy, eta=eta, rounds=rounds, tol=tol, engine=engine)
    answers = ask(known, queries, method, agent, chosen, out, quiet)
    write_answer(out, others, answers.mean, answers.variance, answers.participants)
    answers.kept.clear()
    warn_of_outside(known, queries, answers.uninformed)
    report_answers(known, answers, {"out": str(out)}, noisy, f"The answer is in {bold(out)}.", as_json)
