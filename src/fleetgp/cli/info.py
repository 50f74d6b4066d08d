"""fleetgp info: what is in a model, in words; and the reports of fit and calibrate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from fleetgp.cli import options
from fleetgp.cli.output import Report, bold, plain_table, sent_facts, sent_line, warn
from fleetgp.data.dataset import corners
from fleetgp.data.times import format_value, time_unit_of, times_of_numbers
from fleetgp.errors import listed
from fleetgp.prediction import Calibration
from fleetgp.storage import sections
from fleetgp.storage.folder import load_model
from fleetgp.storage.model import Model, contents, describe_coordinates, in_words, theta_units
from fleetgp.training import Fit
from fleetgp.training.reporting import about_approximation, about_sample
from fleetgp.units import counted, readable_bytes

#: Agents whose rows are listed one by one.
AGENTS_SHOWN = 12
#: What a report has of a training as it is.
FIT_FACTS = (
    "method", "status", "rounds", "disagreement", "jitter", "noise_floor", "at_bounds", "flat", "penalty",
    "engine", "approximation", "sample", "used", "outliers", "drawn", "held",
)  # fmt: skip


def info(*, model: options.MODEL) -> Report:
    """Show what is in a model folder: data, kernel, hyperparameters in words, training, calibration.

    [bold]Example[/bold]

    [cyan]fleetgp info model/[/cyan]
    """
    known = load_model(model)
    facts = contents(known, model)
    return Report(facts, _info_lines(known, facts))


def _info_lines(model: Model, facts: Mapping[str, Any]) -> list[str | Table]:
    unit = facts["units"].get(model.target, "")
    target = f"{model.target} ({unit})" if unit else model.target
    by, at = facts["written_by"] or "an older FleetGP", facts["written_at"]
    when = f", {at.replace('T', ' ').replace('+00:00', ' UTC')}" if at else ""
    seen = describe_coordinates(facts)
    return [
        f"[bold]{escape(target)} at ({escape(', '.join(model.inputs))})[/bold], in {bold(facts['model'])}",
        f"Written by {escape(by)}{escape(when)}; format {facts['format']}, {readable_bytes(facts['bytes'])} on disk.",
        *_data_lines(facts),
        f"Kernel {escape(facts['kernel'])}.",
        _theta_table(model),
        *([seen] if seen else []),
        *mean_lines(model),
        *(["Rows are private: what would send one is refused."] if facts["private"] else []),
        *_training_lines(facts),
        *([] if model.fleet.calibration is None else calibration_lines(model.fleet.calibration)),
        *([] if facts["calibration"] else ["Not calibrated: fleetgp calibrate checks what intervals hold."]),
    ]


def _data_lines(facts: Mapping[str, Any]) -> list[str]:
    rows = facts["agents"]
    total = f"{sum(rows.values()):,} observations of {counted(len(rows), 'agent')}"
    each = f": {listed([f'{name} {count:,}' for name, count in rows.items()], AGENTS_SHOWN)}" if len(rows) > 1 else ""
    held = " The folder has moments of them, and no rows."
    if facts["rows_in_folder"]:
        whose = "all agents" if len(rows) > 1 else "the agent"
        held = f" The folder holds the rows of {whose}: whoever has it can read them."
    units = facts["units"]
    box = ", ".join(
        f"{name} {format_value(one['low'], units.get(name))} to {format_value(one['high'], units.get(name))}"
        + (f" {one['unit']}" if one["unit"] and time_unit_of(units.get(name)) is None else "")
        for name, one in facts["inputs"].items()
    )
    turns = f", in a sequence of {facts['graphs']} graphs" if facts["graphs"] > 1 else ""
    links = (
        [f"{facts['links']:,} {'link' if facts['links'] == 1 else 'links'} between agents{turns}."]
        if len(rows) > 1
        else []
    )
    return [escape(f"{total}{each}.{held}"), escape(f"They cover {box}."), *_memory_lines(facts), *links]


def _memory_lines(facts: Mapping[str, Any]) -> list[str]:
    """Which rows the agents forget, and what has stayed of them."""
    old = facts["window"] if isinstance(facts["window"], str | None) else f"{facts['window']:g} in the unit of the time"
    rules = [
        *([] if old is None else [f"rows older than {old}"]),
        *([] if facts["max_rows"] is None else [f"the oldest beyond {facts['max_rows']:,} per agent"]),
    ]
    lines = [f"The agents forget {' and '.join(rules)}."] if rules else []
    if facts["kept_groups"]:
        kept = f"{counted(facts['kept_groups'], 'group')} of {counted(facts['kept_rows'], 'forgotten row')}"
        lines.append(f"The folder also holds {kept}.")
    return [escape(line) for line in lines]


def _theta_table(model: Model) -> Table:
    """The hyperparameters with their units, and in words."""
    fit, units, words = model.fleet.last_fit, theta_units(model), in_words(model)
    fixed, at_bounds = ((), ()) if fit is None else (fit.known.as_dict()["fixed"], fit.at_bounds)
    table = plain_table("", "hyperparameter", "value", "in words")
    table.columns[2].justify = "left"
    for name, value in model.theta.items():
        held = " (fixed)" if name in fixed else " (at its bound)" if name in at_bounds else ""
        table.add_row(escape(name), f"{value:.4g} {units[name]}".strip() + held, escape(words[name]))
    return table


def _training_lines(facts: Mapping[str, Any]) -> list[str]:
    training = facts["training"]
    if training is None:
        how = facts["note"] or "the hyperparameters were given, nothing was trained"
        return [f"Training: {escape(how)}."]
    several = len(facts["agents"]) > 1 and training["disagreement"] is not None
    apart = f"; the agents differ by {training['disagreement']:.0e}" if several else ""
    lines = [f"Training: {training['method']}, {training['status']} after {training['rounds']:,} rounds{apart}."]
    given = {what: names for what, names in training.get("known", {}).items() if names}
    lines += [escape(f"{what.capitalize()}: {', '.join(names)}.") for what, names in given.items()]
    lines += [escape(f"At a bound: {', '.join(training['at_bounds'])}.")] if training.get("at_bounds") else []
    compared = training.get("compared") or []
    lines += [f"Chosen from {escape(', '.join(one['kernel'] for one in compared))}."] if compared else []
    sent = training.get("sent", {})  # missing in older folders
    return lines + ([sent_line(sent)] if sent and len(facts["agents"]) > 1 else [])


def fit_report(model: Model, dropped: int, notes: Sequence[str], out: Path) -> Report:
    """The result of `fit`, with warnings. dropped: rows.  notes: about the data.  out: where the model is."""
    fit = model.fleet.last_fit
    assert fit is not None
    if fit.status == "time limit":  # other endings have been warned about
        warn(f"training ended by {fit.status} after {fit.rounds} rounds, not by convergence")
    if fit.jitter.any():
        warn(f"{int((fit.jitter > 0).sum())} agents' covariances needed jitter, up to {fit.jitter.max():.1e}")
    fleet = model.fleet
    facts = {
        "model": str(out),
        "agents": list(model.agents),
        "observations": fleet.data.counts,
        "dropped": dropped,
        "notes": list(notes),
        **{name: getattr(fit, name) for name in FIT_FACTS},
        "kernel": fleet.kernel.name,
        "compared": sections.compared_facts(fit.compared),
        "calibration": None if fleet.calibration is None else calibration_facts(fleet.calibration),
        "theta": model.theta,
        "mean": None if fit.mean is None else asdict(fit.mean),
        "coordinates": asdict(fit.coordinates),
        "at_noise_floor": bool(fit.at_floor.any()),
        **fit.known.as_dict(),
        "sent": sent_facts(fit.ledger.by_kind()),
    }
    return Report(facts, _fit_lines(model, fit, facts))


def _fit_lines(model: Model, fit: Fit, facts: Mapping[str, Any]) -> list[str | Table]:
    fleet, several, out = model.fleet, len(model.agents) > 1, facts["model"]
    place = escape(quote(out))
    dropped, points = facts["dropped"], sum(facts["observations"])
    how = "" if fit.moments is None else f" --method {fit.method}"  # which answers as it was trained
    everywhere = " --within inf" if how and not fleet.data.in_memory else ""
    drawn, at = fleet.dimension >= 2, _map_values(model)
    return [
        f"{points:,} observations of {counted(len(model.agents), 'agent')}"
        + (f" ({dropped} rows with missing values dropped)." if dropped else "."),
        *(f"{note[0].upper()}{note[1:]}." for note in facts["notes"]),
        *(about for about in (about_sample(fit), about_approximation(fit)) if about),
        f"{fit.method}: {fit.status} after {fit.rounds} rounds"
        + (f"; the agents differ by {fit.disagreement:.0e}." if several else "."),
        *kernel_lines(fit),
        _theta_table(model),
        *mean_lines(model),
        *outlier_lines(model),
        *([] if fleet.calibration is None else calibration_lines(fleet.calibration)),
        *([sent_line(facts["sent"])] if several else []),
        f"The model is in {bold(out)}. Next:",
        f"  [cyan]fleetgp predict {place} points.csv{how} --out answer.csv[/cyan]",
        *([f"  [cyan]fleetgp map {place} --grid 200x200{how}{everywhere}{at} --out map.nc[/cyan]"] * drawn),
    ]


def _map_values(model: Model) -> str:
    """The values that a map of a model of more than two inputs needs: in the middle of the data. The time is now."""
    others = [name for name in model.inputs if name != model.fleet.time][2:]
    if not others:
        return ""
    low, high = corners(model.fleet.data.summaries_along_arc(model.fleet.coordinates.longitude))
    middle = dict(zip(model.inputs, 0.5 * (low + high), strict=True))
    return " --at" + "".join(f" {escape(name)}={_shown(model, name, middle[name])}" for name in others)


def _shown(model: Model, name: str, value: float) -> str:
    """A value of an input: of a time the day."""
    unit = time_unit_of(model.fleet.units.get(name))
    return f"{value:.6g}" if unit is None else str(times_of_numbers(np.array(value), unit))[:10]


def calibration_facts(calibration: Calibration) -> dict[str, Any]:
    """For programs: what the folder has, without the headers of frames."""
    sent = {} if calibration.ledger is None else sent_facts(calibration.ledger.by_kind())
    return sections.calibration_facts(calibration) | {"sent": sent}


def calibration_lines(calibration: Calibration) -> list[str | Table]:
    """For people."""
    title = f"[bold]Calibrated for {calibration.told}, intervals of {100 * calibration.level:g}%[/bold]"
    table = plain_table("", "held out", "rows", "factor", "covered before", "with it")
    for knot in calibration.knots:
        cover = [f"{share:.1%}" for share in (knot.before, knot.after)]
        table.add_row(knot.holdout, f"{knot.rows:,}", f"{knot.factor:.3f}", *cover)
    sent = calibration.ledger  # one that is read from a folder has none
    return [title, table, *([sent_line(sent_facts(sent.by_kind()), sent.bytes)] if sent and sent.messages else [])]


def kernel_lines(fit: Fit) -> list[str | Table]:
    """A table and the rule; nothing where there was no choice."""
    if not fit.compared:
        return []
    rows = max(one.rows for one in fit.compared)
    title = f"[bold]Kernels, by the log predictive density of {rows:,} rows that the agents held out in blocks[/bold]"
    table = plain_table("", "kernel", "per row", "")
    for one in fit.compared:
        table.add_row(one.kernel, f"{one.density:.4f}", "chosen" if one.kernel == fit.kernel else "")
    return [title, table]


def mean_lines(model: Model) -> list[Table | str]:
    """The mean function with its standard errors; nothing where it is zero."""
    fit = model.fleet.last_fit
    if fit is None or fit.mean is None:
        return []
    mean, target = fit.mean, model.target
    rule = model.fleet.coordinates
    km = (rule.longitude, rule.latitude) if rule.name in ("kilometres", "sphere") else ()
    per = [f"{target} per {'km' if d in km else name}" for d, name in enumerate(model.inputs)]
    table = plain_table("", "mean function", "value", "standard error", "unit")
    for (name, value), error, unit in zip(mean.named(model.inputs).items(), mean.errors, [target, *per], strict=False):
        table.add_row(name, f"{value:.4g}", f"{error:.2g}", unit)
    place = ", ".join(f"{name} {at:.6g}" for name, at in zip(model.inputs, mean.at, strict=False))
    return [table, *([f"The constant is the mean at {place}."] if place else [])]


def noise_of(model: Model, agent: str) -> str:
    """The name of the noise of an agent's observations."""
    noise = model.fleet.noise_model
    if not noise.groups:
        return noise.names[0]
    return noise.names[int(noise.group(model.fleet.data[model.agents.index(agent)])[0])]


def outlier_lines(model: Model) -> list[str]:
    """How many rows are weighed down, and whose; nothing without --robust."""
    fit = model.fleet.last_fit
    if fit is None or not len(fit.outliers):
        return []
    total, rows = int(fit.outliers.sum()), sum(map(len, model.fleet.data))
    most = int(np.argmax(fit.outliers))
    whose = f", most of {model.agents[most]} ({fit.outliers[most]:,})" if total and len(model.agents) > 1 else ""
    return [f"{total:,} of {rows:,} rows are weighed down as outliers{whose}."]
