"""fleetgp score, calibrate and verify: commands that check how good a model is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

import fleetgp as fg
from fleetgp.advice import verify as verify_fleet
from fleetgp.advice.verify import two_digits
from fleetgp.cli import options
from fleetgp.cli.answers import agent_number, known_model
from fleetgp.cli.arguments import Family, default_of, option
from fleetgp.cli.info import calibration_facts, calibration_lines
from fleetgp.cli.options import DEVIATION, FILE_READING, JOINT, ROWS, Cluster
from fleetgp.cli.output import Report, bold, plain_table, warn
from fleetgp.data.times import time_unit_among, time_unit_of
from fleetgp.errors import InputError
from fleetgp.files import ResumableCache
from fleetgp.fleet import CrossValidation
from fleetgp.fleet.cross_validation import Split
from fleetgp.fleet.privacy import predictor_of
from fleetgp.io import read_observations
from fleetgp.io.fields import is_celsius
from fleetgp.io.formats import FIELDS, Reading
from fleetgp.io.tables import ObservationTable
from fleetgp.metrics import Scores
from fleetgp.options import PredictionOptions
from fleetgp.storage.folder import save_model
from fleetgp.storage.model import Model
from fleetgp.storage.sections import DESCRIPTION
from fleetgp.version import __version__

#: Columns of the table, and how their numbers are written.
SCORE_FORMATS = {
    "rmse": ".3g",
    "mae": ".3g",
    "nlpd": ".3f",
    "msll": ".3f",
    "crps": ".3g",
    "interval_score": ".3g",
    "coverage": ".1%",
}
#: What cross-validation hides, in words.
HIDDEN = {
    "random": "rows hidden at random",
    "agent": "all rows of agents hidden",
    "block": "blocks hidden that nobody observes",
}
VERDICT_COLOURS = {"passed": "green", "failed": "red", "not applicable": "dim"}


@dataclass(frozen=True)
class Hiding:
    """How rows of the model are hidden."""

    folds: Annotated[
        int | None, option("How many parts of the model's own rows to hide in turn. (default: 5)", min=2)
    ] = None
    split: Annotated[
        str | None, option("What is hidden together: random (rows), agent, or block (gaps that nobody observes).")
    ] = None
    train: Annotated[bool, option("Train again for every fold. (default: the model's hyperparameters)", "--train")] = (
        False
    )

    @property
    def given(self) -> bool:
        return self != Hiding()


@dataclass(frozen=True)
class TruthReading:
    """How a table of observations is read."""

    reading: FILE_READING = field(default_factory=dict)
    agent_column: Annotated[str | None, option("The column that names the agent of each row of the table.")] = None
    deviation: DEVIATION = None
    rows: ROWS = field(default_factory=dict)

    def observations(self, path: Path, model: Model) -> ObservationTable:
        """Read them with the model's unit of time, and in degrees Celsius if the model is."""
        units = model.fleet.units
        celsius = path.suffix.lower() in FIELDS and is_celsius(units.get(model.target, ""))
        rows = read_observations(
            path,
            inputs=model.inputs,
            target=model.target,
            agent=self.agent_column,
            deviation=self.deviation,
            reading=Reading(**self.reading, time_unit=time_unit_among(units), celsius=celsius),
            **self.rows,
        )
        for name in model.inputs:
            if time_unit_of(rows.units.get(name)) and not time_unit_of(units.get(name)):
                raise InputError(f"{path}: column {name!r} has dates, but in the model it is no time: give numbers")
        return rows


def score(
    *,
    model: options.MODEL,
    truth: Annotated[
        Path | None,
        typer.Argument(help="Observations that the model has not seen: a table with its inputs and its target."),
    ] = None,
    hiding: Hiding,
    level: Annotated[float, option("The level of the intervals whose coverage is reported.")] = default_of(
        fg.Fleet.score, "level"
    ),
    each_agent: Annotated[bool, option("Print the scores of each agent too.", "--each-agent")] = False,
    reading: TruthReading,
    asking: options.Asking,
    quiet: options.Quiet = False,
) -> Report:
    """Score a model: with a table of observations that it has not seen, or by cross-validation of its own rows.

    RMSE, MAE, CRPS and the interval score are in the target's units, NLPD and MSLL in nats per row; smaller is better.
    An MSLL below 0 is better than predicting the mean of all data everywhere. The coverage should equal --level.

    [bold]Examples[/bold]

    [cyan]fleetgp score model/ truth.csv --method dec-nearest[/cyan]

    [cyan]fleetgp score model/ --folds 5 --split block --each-agent[/cyan]
    """
    if (truth is None) != hiding.given:
        raise InputError(
            "score: expected either a table of observations, or --folds and --split to hide rows of the model, got "
            + ("both" if hiding.given else "neither")
        )
    known = known_model(model, Cluster())
    how = asking.chosen | {"method": predictor_of(asking.method).name, "level": level}
    if truth is not None:
        facts, title, whole = _score_against_table(known, truth, reading, asking.agent, how)
        parts = dict(whole.parts(known.agents))
    else:
        if reading != TruthReading() or asking.agent is not None:
            raise InputError("--agent, --agent-column and how to read are for a table of observations: leave them out")
        facts, title, validated = _cross_validate(known, model, hiding, how, quiet)
        parts, whole = dict(validated.parts(known.agents)), validated.scores
    facts = {"model": str(model), **facts, "scores": {label: one.numbers for label, one in parts.items()}}
    alike = all(one.numbers == whole.numbers for one in whole.answers)
    hidden = ("answer of", *([] if each_agent else ["rows of"])) if alike or not each_agent else ()
    table = _score_table({label: one for label, one in parts.items() if not label.startswith(hidden or " ")})
    same = ["Every agent gives the same answer."] if alike and len(whole.answers) > 1 else []
    return Report(facts, [title, table, _coverage_line(whole), *same])


def _score_against_table(
    known: Model, truth: Path, reading: TruthReading, agent: str | None, how: dict[str, Any]
) -> tuple[dict[str, Any], str, Scores]:
    """Return facts, a title and the scores."""
    rows = reading.observations(truth, known)
    for note in rows.notes:
        warn(f"{truth}: {note}")
    if rows.dropped:
        warn(f"{truth}: {rows.dropped:,} rows with missing values were dropped")
    own = _own_rows(known, rows)
    if own:
        warn(f"{own:,} of {len(rows.inputs):,} rows are the model's own, which it has seen: use --folds to hide them")
    asker = None if agent is None else agent_number(known, agent, "agent (--agent)")
    if reading.agent_column is None:
        scores = known.fleet.score(rows.inputs, rows.observations, s=rows.deviations, agent=asker, **how)
    else:
        scores = known.fleet.score(_by_agent(known, rows), agent=asker, **how)
    method = how["method"]
    new = f", {own:,} of them the model's own" if own else " that the model has not seen"
    title = f"[bold]{method}: {scores.rows:,} observations of {escape(known.target)}{new}[/bold]"
    return {"truth": str(truth), "method": method, "dropped": rows.dropped, "own_rows": own}, title, scores


def _own_rows(model: Model, rows: ObservationTable) -> int:
    """Count the rows that the model has too, to the last bit; 0 for a model without rows."""
    if not model.fleet.data.in_memory:
        return 0
    seen = {row.tobytes() for own in model.fleet.data for row in np.column_stack([own.inputs, own.values])}
    return sum(row.tobytes() in seen for row in np.column_stack([rows.inputs, rows.observations]))


def _cross_validate(
    known: Model, folder: Path, hiding: Hiding, how: dict[str, Any], quiet: bool
) -> tuple[dict[str, Any], str, CrossValidation]:
    """Return facts, a title and the scores. Finished folds are kept beside the model until all are done."""
    split = options.one_of("--split", hiding.split or "random", get_args(Split))
    how = {"folds": hiding.folds, "split": split, "train": hiding.train, **how}
    content, place = hashlib.sha256((folder / DESCRIPTION).read_bytes()).hexdigest(), folder.resolve()
    kept = ResumableCache(place.with_name(f".{place.name}.score"), {"version": __version__, "model": content, **how})
    result = known.fleet.cross_validate(**how, progress=not quiet, kept=kept)
    kept.clear()
    capped = [n for n, fold in enumerate(result.folds) if {fold.training, fold.prediction} - {"converged", "given"}]
    if capped:
        warn(f"not converged in {len(capped)} of {len(result.folds)} folds (first: fold {capped[0]})")
    if result.prior_only:
        warn(
            f"{result.prior_only:,} of {result.scores.rows:,} hidden rows are no better predicted than by the prior: "
            "they are far from all others"
        )
    facts = {"split": split, "method": result.method, "folds": len(result.folds), "trained": hiding.train}
    facts |= {"prior_only": result.prior_only, "theta": [fold.theta for fold in result.folds]}
    theta = "trained again for each" if hiding.train else "with the model's hyperparameters"
    title = f"[bold]{result.method}: {HIDDEN[result.split]}, {len(result.folds)} folds, {theta}[/bold]"
    return facts, title, result


def _score_table(parts: Mapping[str, Scores]) -> Table:
    table = plain_table("", "", "rows", *(name.upper() if len(name) < 5 else name for name in SCORE_FORMATS))
    for label, one in parts.items():
        numbers = one.numbers
        cells = ["" if numbers[name] is None else format(numbers[name], how) for name, how in SCORE_FORMATS.items()]
        table.add_row(escape(label), f"{one.rows:,}", *cells)
    return table


def _coverage_line(scores: Scores) -> str:
    """Compare the coverage of the intervals with their level, within two standard errors."""
    off, error = scores.coverage - scores.level, np.sqrt(scores.level * (1.0 - scores.level) / scores.rows)
    verdict = "as they should" if abs(off) < 2.0 * error else "too few" if off < 0.0 else "more than promised"
    advice = ": fleetgp calibrate widens them" if verdict == "too few" else ""
    share, level = f"{scores.coverage:.1%}", f"{100 * scores.level:g}%"
    return f"{share} of the observations lie in their {level} intervals, {verdict}{advice}."


def _by_agent(model: Model, rows: ObservationTable) -> list[tuple[Any, ...]]:
    """The rows of each agent of the model."""
    whose = np.array([agent_number(model, label, "agent (--agent-column)") for label in rows.labels or ()])
    columns = [rows.inputs, rows.observations, *([] if rows.deviations is None else [rows.deviations])]
    return [tuple(column[whose == number] for column in columns) for number in range(len(model.agents))]


def calibrate(
    *,
    model: options.MODEL,
    method: options.METHOD = None,
    holdout: Annotated[
        str,
        option("What agents hide: rows (among the data), blocks (gaps that nobody observes) or both."),
    ] = default_of(fg.Fleet.calibrate, "holdout"),
    level: Annotated[float, option("The coverage that intervals should have.")] = default_of(
        fg.Fleet.calibrate, "level"
    ),
    cells: Annotated[
        int | None, option("Cells of the fleet's box, for blocks. (default: 16 per agent, at least 100)")
    ] = None,
    max_rows: Annotated[int, option("Rows that an agent holds out at most, of each kind.")] = default_of(
        fg.Fleet.calibrate, "max_rows"
    ),
    given: Annotated[dict[str, Any], Family(PredictionOptions, JOINT)],
) -> Report:
    """Find the factor on the standard deviations with which intervals have their nominal coverage.

    Agents hide some of their rows, which the fleet predicts from the rest by the method that will be used. The model
    keeps the factor, and predict and map apply it to the standard deviations of this method. The inputs of hidden rows
    are sent, unless the model was fitted with --private rows.

    [bold]Example[/bold]

    [cyan]fleetgp calibrate model/ --method dec-rbcm --holdout both[/cyan]
    """
    known = known_model(model, Cluster())
    calibration = known.fleet.calibrate(method, holdout=holdout, level=level, cells=cells, max_rows=max_rows, **given)
    save_model(known, model, overwrite=True)
    facts, lines = {"model": str(model), **calibration_facts(calibration)}, calibration_lines(calibration)
    return Report(facts, [*lines, f"The factors are in {bold(model)}."])


def verify(
    *,
    model: options.MODEL,
    method: Annotated[
        list[str] | None,
        option("Prediction methods to check, for example: --method dec-rbcm dec-nearest (default: that of predict)"),
    ] = None,
    hold: Annotated[float, option("The share of rows to hide, for the coverage of intervals.")] = default_of(
        verify_fleet, "hold"
    ),
    seed: Annotated[int, option(options.SEED)] = default_of(verify_fleet, "seed"),
) -> Report:
    """Check a model on its own data: agents agree, methods equal their central counterparts, intervals cover enough.

    Ends with exit code 1 if a check has failed. Nothing is changed, and nothing is sent anywhere.

    [bold]Example[/bold]

    [cyan]fleetgp verify model/ --method dec-rbcm dec-nearest[/cyan]
    """
    known = known_model(model, Cluster())
    result = verify_fleet(known.fleet, hold=hold, seed=seed, methods=method)
    table = plain_table("", "check", "verdict", "measured", "at most", left=2)
    for check in result.checks:
        colour = VERDICT_COLOURS[check.verdict]
        table.add_row(
            check.name, f"[{colour}]{check.verdict}[/{colour}]", two_digits(check.measured), two_digits(check.limit)
        )
    failed = None if result.passed else typer.Exit(1)
    return Report({"model": str(model), **result.facts}, [table, *map(escape, result.sentences)], error=failed)
