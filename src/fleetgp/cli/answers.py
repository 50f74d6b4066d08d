"""What the commands that ask a model share: reading the model and the points, writing the answer, reporting it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.cli import options
from fleetgp.cli.info import noise_of
from fleetgp.cli.options import Cluster
from fleetgp.cli.output import Report, sent_facts, sent_line, warn
from fleetgp.data.times import Moment, time_unit_among, time_unit_of, times_of_numbers
from fleetgp.errors import InputError, WorkerLostError, unknown_name
from fleetgp.files import check_writable
from fleetgp.fleet.conditioned import describe_extrapolation
from fleetgp.fleet.privacy import predictor_of
from fleetgp.io.formats import FIELDS, Reading, Table, input_numbers
from fleetgp.io.tables import check_ending, read_columns, write_columns
from fleetgp.metrics import half_width
from fleetgp.network import Ledger
from fleetgp.storage.answers import Answers, ask
from fleetgp.storage.folder import load_model
from fleetgp.storage.model import Model
from fleetgp.units import counted

#: The columns of an answer, behind those of the points.
ADDED = ("mean", "std", "std_observed", "n_agents", "prior_only")
#: And the ends of intervals.
ENDS = ("low", "high")
#: What a report has of the answers as it is.
ANSWER_FACTS = ("method", "status", "rounds", "iterations", "agent", "jitter", "bytes", "sent", "drawn", "held")


def known_model(folder: Path, where: Cluster) -> Model:
    """Load a model; warn if its training did not converge, or if it has no work for a cluster."""
    model = load_model(folder, **where.backend)
    if where.backend and not model.fleet.data.in_memory:
        warn(f"{folder}: the model has no rows, and any agent answers from the moments alone: no cluster is used")
    if model.status in ("interrupted", "round limit", "time limit", "diverged"):
        warn(f"{folder}: the training of this model did not converge ({model.note or model.status})")
    return model


def agent_number(model: Model, name: str, what: str = "agent") -> int:
    """The number of an agent, by its name."""
    if name not in model.agents:
        raise unknown_name(what, name, model.agents)
    return model.agents.index(name)


def predictions(model: Model, queries: Array, asking: options.Asking, out: Path, quiet: bool) -> Answers:
    """Ask the model, here or on a cluster, which is left afterwards."""
    chosen, method = asking.chosen, predictor_of(asking.method).name
    with model.fleet:
        try:
            return ask(model, queries, method, asking.agent, chosen, out, quiet)
        except WorkerLostError as error:
            raise WorkerLostError(f"{error}; finished work is kept, and the same command continues from it") from error


def warn_of_outside(model: Model, points: Array, where: BoolArray, *what: str) -> None:
    """Warn of points far from all data. where: which points.  what: the message, if it is another one."""
    if message := describe_extrapolation(points, where, model.fleet.snapshot(), *what):
        warn(message)


def traffic_facts(ledger: Ledger) -> dict[str, Any]:
    """What agents sent, for programs."""
    return {"bytes": ledger.bytes, "sent": sent_facts(ledger.by_kind())}


def traffic_lines(model: Model, facts: Mapping[str, Any]) -> list[str]:
    """What agents sent, for people; nothing for a single agent."""
    return [sent_line(facts["sent"], facts["bytes"])] if len(model.agents) > 1 else []


def report_answers(model: Model, answers: Answers, facts: dict[str, Any], last: str) -> Report:
    """Return the report of a prediction. facts: to begin with.  last: the last line."""
    if answers.status != "converged":
        advice = "--consensus tree is exact, or try more --rounds"
        warn(f"{answers.method}: {answers.status}; the answer may be off: {advice}")
    if answers.jitter:
        warn(f"a covariance needed jitter, up to {answers.jitter:.1e}")
    several = len(model.agents) > 1
    part, points = float(answers.share.sum()), int(np.isfinite(answers.mean).sum())
    summary = (
        f"{answers.method}: {points:,} points, {answers.status}"
        + (f" after {answers.rounds:,} rounds" if answers.rounds else "")
        + (f" and {answers.iterations:,} iterations" if answers.iterations else "")
        + (f"; {part:.1f} of {counted(len(model.agents), 'agent')} took part in a point, on average" * several)
        + "."
    )
    facts |= {name: getattr(answers, name) for name in ANSWER_FACTS} | {
        "factors": list(answers.factors),
        "points": points,
        "agents": list(model.agents),
        "took_part": {name: float(share) for name, share in zip(model.agents, answers.share, strict=True)},
        "prior_only": int(answers.prior_only.sum()),
    }
    label = noise_of(model, answers.agent)
    about_std = (
        "std is the standard deviation of the field, std_observed that of an observation, "
        f"which includes {label} = {model.theta[label]:.3g}."
    )
    sample = f"Answered from a random sample only: {answers.drawn:,} of the {answers.held:,} observations in the files."
    if model.fleet.noise_model.known:
        about_std += " The known standard deviations of rows are not included."
    drawn, factors = [sample] if answers.held else [], factor_lines(*answers.factors)
    return Report(facts, [summary, *drawn, *traffic_lines(model, facts), about_std, *factors, last])


def factor_lines(low: float, high: float) -> list[str]:
    """The factors of a calibration on the standard deviations of an answer; nothing without one."""
    if (low, high) == (1.0, 1.0):
        return []
    return [f"Calibrated: standard deviations times {low:.3f}" + ("." if low == high else f" to {high:.3f}.")]


def check_answer_file(out: Path, points: Path) -> None:
    """Refuse a place for the answer that cannot be written, before any work is done."""
    check_ending(out)
    check_writable(out)
    if out.exists() and points.exists() and out.samefile(points):
        raise InputError(f"{out}: the answer would replace the points: choose another name")


@dataclass(frozen=True)
class When:
    """When points are about that have no column for the time.

    time: the input that is the time.  at_time: as it was typed; None for now.
    moment: returns the number of a point in time, and the units of the input; None stands for now.
    """

    time: str | None
    at_time: Moment | None
    moment: Callable[[Moment | None], tuple[float, str | None]]

    @classmethod
    def of(cls, model: Model, when: Mapping[str, Any]) -> When:
        """when: the options of `QueryOptions` that were typed."""
        snapshot = model.fleet.snapshot()
        units = None if snapshot.time is None else snapshot.units.get(snapshot.time)
        return cls(snapshot.time, when.get("at_time"), lambda at_time: (snapshot.moment(at_time), units))

    def column(self, table: Table) -> Any:
        """Return the column of the time that the points lack."""
        value, units = self.moment(self.at_time)
        rows = max((len(column) for column in table.columns.values()), default=0)
        unit = time_unit_of(units)
        return np.full(rows, value) if unit is None else times_of_numbers(np.full(rows, value), unit)

    def completed(self, table: Table, points: Path) -> Table:
        """Return the points with a column of the time."""
        if self.time is None or self.time in table.columns:
            if self.at_time is not None:
                self.moment(self.at_time)  # or one error that says why not
                raise InputError(f"--at-time: {points} has a column {self.time!r}: leave one of them out")
            return table
        return replace(table, columns={**table.columns, self.time: self.column(table)})


def read_points(
    points: Path, inputs: Sequence[str], out: Path, reading: Reading, units: Mapping[str, str], when: When
) -> tuple[Array, dict[str, Any]]:
    """Read the queries (T, D), and all columns of the file for the answer: from CSV to CSV as they are written.

    units: of the model's inputs, those that are times.  when: points may have no column for the time.
    """
    reading = replace(reading, time_unit=time_unit_among(units))
    as_written, is_field = out.suffix.lower() == ".csv", points.suffix.lower() in FIELDS
    needed = [name for name in inputs if name != when.time or (is_field and when.at_time is None)]
    table = read_columns(points, needed, text=lambda name: as_written and name not in inputs, reading=reading)
    table = when.completed(table, points)
    read = {name: input_numbers(table.columns[name], name, points, reading) for name in inputs}
    for name, (_, unit) in read.items():
        if unit and unit != units.get(name):
            raise InputError(f"{points}: column {name!r} has dates, but in the model it is no time: give numbers")
    queries = np.column_stack([values for values, _ in read.values()])
    if not len(queries):
        raise InputError(f"{points}: expected points, got a file without rows")
    if not np.isfinite(queries).all():
        bad = np.flatnonzero(~np.isfinite(queries).all(axis=1))
        raise InputError(
            f"{points}: {bad.size} of {len(queries)} rows have missing or infinite values "
            f"(first: row {bad[0] + 1}): remove them"
        )
    for note in table.notes:
        warn(f"{points}: {note}")
    others = {name: column for name, column in table.columns.items() if len(column) == len(queries)}
    left_out = [name for name in table.columns if name not in others]
    if left_out:
        warn(f"{points}: {', '.join(left_out)} have another length than the points: left out of the answer")
    refuse_clash(points, others, ADDED)
    return queries, others


def refuse_clash(points: Path, columns: Mapping[str, Any], added: Iterable[str]) -> None:
    """Refuse columns of the points that the answer would replace."""
    clash = [name for name in added if name in columns]
    if clash:
        raise InputError(f"{points}: the answer has a column {clash[0]!r} too: rename that of the points")


def write_answer(
    out: Path,
    others: dict[str, Any],
    mean: Array,
    std: Array,
    std_observed: Array,
    agents: IntArray,
    prior_only: BoolArray,
    level: float | None = None,
    more: Mapping[str, Array] | None = None,
) -> None:
    """Write the table of an answer: the columns of the points, `ADDED`, intervals of this level, and more columns."""
    out.parent.mkdir(parents=True, exist_ok=True)
    answer: dict[str, Any] = dict(zip(ADDED, (mean, std, std_observed, agents, prior_only), strict=True))
    if level is not None:
        half = half_width(level) * std_observed
        answer |= zip(ENDS, (mean - half, mean + half), strict=True)
    write_columns(out, {**others, **answer, **(more or {})})


def check_level(level: float | None, points: Path, columns: Mapping[str, Any]) -> None:
    """Refuse a level outside of (0, 1), and points that have columns of intervals."""
    if level is not None:
        half_width(level)
        refuse_clash(points, columns, ENDS)
