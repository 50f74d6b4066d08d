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

from fleetgp.advice import verify as verified
from fleetgp.advice.verification import told as shown
from fleetgp.cli import options
from fleetgp.cli.answers import known_model
from fleetgp.cli.arguments import Given
from fleetgp.cli.info import calibration_facts, calibration_lines
from fleetgp.cli.options import DEVIATION, Cluster
from fleetgp.cli.output import bold, emit, plain_table, warn
from fleetgp.cli.reading import FILE_READING, ROWS
from fleetgp.data.times import time_unit_among, time_unit_of
from fleetgp.errors import InputError, unknown_name
from fleetgp.files import ResumableCache
from fleetgp.fleet import CrossValidation
from fleetgp.fleet.cross_validation import Split
from fleetgp.fleet.privacy import predictor_of
from fleetgp.io import read_observations
from fleetgp.io.formats import FIELDS, Reading
from fleetgp.io.sst import is_celsius
from fleetgp.io.tables import Observations
from fleetgp.metrics import LEVEL, Scores
from fleetgp.options import PredictionOptions
from fleetgp.storage.model import Model
from fleetgp.storage.saving import save_model
from fleetgp.storage.tensors import DESCRIPTION
from fleetgp.version import __version__

TRUTH = Annotated[
    Path | None,
    typer.Argument(help="Observations that the model has not seen: a table with its inputs and its target."),
]
FOLDS = Annotated[int | None, typer.Option(help="Hide the model's own rows in so many turns. (default: 5)", min=2)]
HIDDEN_TOGETHER = Annotated[
    str | None,
    typer.Option(help="What is hidden together: random (rows), agent, or block (gaps that nobody observes)."),
]
TRAIN = Annotated[
    bool, typer.Option("--train", help="Train anew for every fold. (default: the model's hyperparameters)")
]
SCORE_LEVEL = Annotated[float, typer.Option(help="Of the intervals whose coverage is told.")]
EACH_AGENT = Annotated[bool, typer.Option("--agents", help="Scores for each agent too.")]
ROW_AGENT = Annotated[str | None, typer.Option(help="The column that says whose the rows of the table are.")]
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
CALIBRATION_LEVEL = Annotated[float, typer.Option(help="The coverage that intervals shall have.")]
CELLS = Annotated[
    int | None, typer.Option(help="Cells of the fleet's box, for blocks. (default: 16 for each agent, at least 100)")
]
MAX_HELD_OUT = Annotated[int, typer.Option(help="Rows that an agent holds out at most, of each kind.")]
VERIFIED_METHODS = Annotated[
    list[str] | None,
    typer.Option(
        help="Prediction methods to check, for example: --method dec-rbcm dec-nearest (default: that of predict)"
    ),
]
HELD_OUT_SHARE = Annotated[float, typer.Option(help="The share of rows that is hidden, to see what intervals cover.")]
VERDICT_COLOURS = {"passed": "green", "failed": "red", "not applicable": "dim"}


@dataclass(frozen=True)
class Hiding:
    """How rows of the model are hidden."""

    folds: FOLDS = None
    split: HIDDEN_TOGETHER = None
    train: TRAIN = False

    @property
    def given(self) -> bool:
        return self != Hiding()


@dataclass(frozen=True)
class TruthReading:
    """How a table of observations is read, and what it says beside them."""

    reading: FILE_READING = field(default_factory=dict)
    agent_column: ROW_AGENT = None
    deviation: DEVIATION = None
    rows: ROWS = field(default_factory=dict)

    def observations(self, path: Path, model: Model) -> Observations:
        """Times are counted as the model counts them, and kelvin are converted for a model in degrees Celsius."""
        units = model.fleet.units
        celsius = path.suffix.lower() in FIELDS and is_celsius(units.get(model.target, ""))
        found = read_observations(
            path,
            inputs=model.inputs,
            target=model.target,
            agent=self.agent_column,
            deviation=self.deviation,
            reading=Reading(**self.reading, time_unit=time_unit_among(units), celsius=celsius),
            **self.rows,
        )
        for name in model.inputs:
            if time_unit_of(found.units.get(name)) and not time_unit_of(units.get(name)):
                raise InputError(f"{path}: column {name!r} has dates, but in the model it is no time: give numbers")
        return found


def score(
    *,
    model: options.MODEL,
    truth: TRUTH = None,
    hiding: Hiding,
    level: SCORE_LEVEL = LEVEL,
    agents: EACH_AGENT = False,
    reading: TruthReading,
    asking: options.Asking,
    output: options.Output,
) -> None:
    """Score a model: with a table of observations that it has not seen, or by cross-validation of its own rows.

    RMSE, MAE, CRPS and the interval score are in the target's units, NLPD and MSLL in nats a row: small is good. An
    MSLL below 0 is better than to say the mean of all data everywhere. The coverage shall be --level.

    [bold]Examples[/bold]

    [cyan]fleetgp score model/ truth.csv --method dec-nn-grbcm[/cyan]

    [cyan]fleetgp score model/ --folds 5 --split block --agents[/cyan]
    """
    if (truth is None) != hiding.given:
        raise InputError(
            "score: expected either a table of observations, or --folds and --split to hide rows of the model, got "
            + ("both" if hiding.given else "neither")
        )
    known = known_model(model, Cluster())
    asked = asking.chosen | {"method": predictor_of(known.fleet.private, asking.method).name, "level": level}
    if truth is not None:
        facts, title, found = _score_against_table(known, truth, reading, asking.agent, asked)
        parts, whole = dict(found.parts(known.agents)), found
    else:
        if reading != TruthReading() or asking.agent is not None:
            raise InputError("--agent, --agent-column and how to read are for a table of observations: leave them out")
        facts, title, validated = _cross_validate(known, model, hiding, asked, output.quiet)
        parts, whole = dict(validated.parts(known.agents)), validated.scores
    facts = {"model": str(model), **facts, "scores": {told: one.numbers for told, one in parts.items()}}
    alike = all(one.numbers == whole.numbers for one in whole.answers)
    hidden = ("answer of", *([] if agents else ["rows of"])) if alike or not agents else ()
    shown = _score_table({told: one for told, one in parts.items() if not told.startswith(hidden or " ")})
    same = ["Every agent gives the same answer."] if alike and len(whole.answers) > 1 else []
    emit(facts, title, shown, _coverage_line(whole), *same, as_json=output.as_json)


def _score_against_table(
    known: Model, truth: Path, reading: TruthReading, agent: str | None, asked: dict[str, Any]
) -> tuple[dict[str, Any], str, Scores]:
    """Against a table."""
    rows = reading.observations(truth, known)
    for note in rows.notes:
        warn(f"{truth}: {note}")
    if rows.dropped:
        warn(f"{truth}: {rows.dropped:,} rows with missing values were dropped")
    own = _own_rows(known, rows)
    if own:
        warn(f"{own:,} of {len(rows.inputs):,} rows are the model's own, which it has seen: use --folds to hide them")
    asker = None if agent is None else _agent_number(known, agent, "--agent")
    if reading.agent_column is None:
        found = known.fleet.score(rows.inputs, rows.observations, s=rows.deviations, agent=asker, **asked)
    else:
        found = known.fleet.score(_by_agent(known, rows), agent=asker, **asked)
    method = asked["method"]
    new = f", {own:,} of them the model's own" if own else " that the model has not seen"
    title = f"[bold]{method}: {found.rows:,} observations of {escape(known.target)}{new}[/bold]"
    return {"truth": str(truth), "method": method, "dropped": rows.dropped, "own_rows": own}, title, found


def _own_rows(model: Model, rows: Observations) -> int:
    """How many are rows of the model too, to the last bit; none where it keeps moments, and no rows."""
    if not model.fleet.data.in_memory:
        return 0
    seen = {row.tobytes() for own in model.fleet.data for row in np.column_stack([own.inputs, own.values])}
    return sum(row.tobytes() in seen for row in np.column_stack([rows.inputs, rows.observations]))


def _cross_validate(
    known: Model, folder: Path, hiding: Hiding, asked: dict[str, Any], quiet: bool
) -> tuple[dict[str, Any], str, CrossValidation]:
    """By hiding rows. Finished folds lie beside the model until all are done: the same command goes on from them."""
    split = options.one_of("--split", hiding.split or "random", get_args(Split))
    how = {"folds": hiding.folds, "split": split, "train": hiding.train, **asked}
    content, place = hashlib.sha256((folder / DESCRIPTION).read_bytes()).hexdigest(), folder.resolve()
    kept = ResumableCache(place.with_name(f".{place.name}.score"), {"version": __version__, "model": content, **how})
    found = known.fleet.cross_validate(**how, progress=not quiet, kept=kept)
    kept.clear()
    capped = [n for n, fold in enumerate(found.folds) if {fold.training, fold.prediction} - {"converged", "given"}]
    if capped:
        warn(f"not converged in {len(capped)} of {len(found.folds)} folds (first: fold {capped[0]})")
    if found.uninformed:
        warn(
            f"{found.uninformed:,} of {found.scores.rows:,} hidden rows are no better predicted than by the prior: "
            "they are far from all others"
        )
    facts = {"split": split, "method": found.method, "folds": len(found.folds), "trained": hiding.train}
    facts |= {"uninformed": found.uninformed, "theta": [fold.theta for fold in found.folds]}
    return facts, _validation_title(found, hiding.train), found


def _validation_title(found: CrossValidation, train: bool) -> str:
    how = {
        "random": "rows hidden at random",
        "agent": "all rows of agents hidden",
        "block": "blocks hidden that nobody observes",
    }
    theta = "trained anew for each" if train else "with the model's hyperparameters"
    return f"[bold]{found.method}: {how[found.split]}, {len(found.folds)} folds, {theta}[/bold]"


def _score_table(parts: Mapping[str, Scores]) -> Table:
    table = plain_table("", "", "rows", *(name.upper() if len(name) < 5 else name for name in SCORE_FORMATS))
    for told, one in parts.items():
        numbers = one.numbers
        cells = ["" if numbers[name] is None else format(numbers[name], how) for name, how in SCORE_FORMATS.items()]
        table.add_row(escape(told), f"{one.rows:,}", *cells)
    return table


def _coverage_line(found: Scores) -> str:
    """Whether intervals hold what they promise, within what so many rows can tell."""
    off, error = found.coverage - found.level, np.sqrt(found.level * (1.0 - found.level) / found.rows)
    much = "as they should" if abs(off) < 2.0 * error else "too few" if off < 0.0 else "more than promised"
    advice = ": fleetgp calibrate widens them" if much == "too few" else ""
    return f"{found.coverage:.1%} of the observations lie in their {100 * found.level:g} % intervals, {much}{advice}."


def _agent_number(model: Model, name: str, what: str) -> int:
    if name not in model.agents:
        raise unknown_name(f"agent ({what})", name, model.agents)
    return model.agents.index(name)


def _by_agent(model: Model, rows: Observations) -> list[tuple[Any, ...]]:
    """The rows of each agent of the model."""
    whose = np.array([_agent_number(model, label, "--agent-column") for label in rows.labels or ()])
    columns = [rows.inputs, rows.observations, *([] if rows.deviations is None else [rows.deviations])]
    return [tuple(column[whose == number] for column in columns) for number in range(len(model.agents))]


def calibrate(
    *,
    model: options.MODEL,
    method: options.METHOD = None,
    holdout: options.HOLDOUT = "both",
    level: CALIBRATION_LEVEL = 0.95,
    cells: CELLS = None,
    max_rows: MAX_HELD_OUT = 300,
    given: Annotated[dict[str, Any], Given(PredictionOptions, ("eta", "engine", "neighbours"))],
    as_json: options.Json = False,
) -> None:
    """Find the factor on the standard deviations with which intervals cover what they promise.

    Agents hide rows of theirs, which the fleet predicts from the rest by the method that will be used. The model keeps
    the factor, and predict and map have it in the deviations by this method. The inputs of hidden rows are sent, unless
    the model was fitted with --private rows.

    [bold]Example[/bold]

    [cyan]fleetgp calibrate model/ --method dec-rbcm --holdout both[/cyan]
    """
    known = known_model(model, Cluster())
    found = known.fleet.calibrate(method, holdout=holdout, level=level, cells=cells, max_rows=max_rows, **given)
    save_model(known, model, overwrite=True)
    told = f"The factors are in {bold(model)}."
    emit({"model": str(model), **calibration_facts(found)}, *calibration_lines(found), told, as_json=as_json)


def verify(
    *,
    model: options.MODEL,
    method: VERIFIED_METHODS = None,
    hold: HELD_OUT_SHARE = 0.1,
    seed: options.SEED = 0,
    as_json: options.Json = False,
) -> None:
    """Check a model on its own data: agents agree, methods equal their central twins, intervals cover enough.

    Ends with exit code 1 if a check has failed. Nothing is changed, and nothing is sent anywhere.

    [bold]Example[/bold]

    [cyan]fleetgp verify model/ --method dec-rbcm dec-nearest[/cyan]
    """
    known = known_model(model, Cluster())
    found = verified(known.fleet, hold=hold, seed=seed, methods=method)
    table = plain_table("", "check", "verdict", "measured", "at most", left=2)
    for check in found.checks:
        colour = VERDICT_COLOURS[check.verdict]
        table.add_row(check.name, f"[{colour}]{check.verdict}[/{colour}]", shown(check.measured), shown(check.limit))
    emit({"model": str(model), **found.facts}, table, *map(escape, found.sentences), as_json=as_json)
    if not found.passed:
        raise typer.Exit(1)
