"""What `fleetgp fit` tells of a model that it has made: for programs, and for people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from fleetgp.cli.calibrate import calibration_facts, told_of
from fleetgp.cli.files import Taken
from fleetgp.cli.kernels import told_of_kernels
from fleetgp.cli.means import told_mean, told_units
from fleetgp.cli.noises import told_outliers
from fleetgp.cli.output import bold, count_of_agents, plain_table, warn
from fleetgp.cli.sent import Sent, sent_facts, told_sent
from fleetgp.cli.targets import Told
from fleetgp.data.coordinates import summaries_along_arc
from fleetgp.data.streamed import Streamed, corners, counts_of
from fleetgp.data.times import time_unit_of, times_of_numbers
from fleetgp.storage.contents import without_bend
from fleetgp.storage.model import Model
from fleetgp.storage.sections import compared_facts
from fleetgp.training import Fit
from fleetgp.training.fit import about_approximation, about_sample


def told_of_fit(model: Model, data: Taken, out: Path) -> Told:
    """out: where the model is. Warns of what did not go as it should."""
    found = model.fleet.fit
    assert found is not None
    if found.status == "time limit":  # others have warned already
        warn(f"training ended by {found.status} after {found.rounds} rounds, not by convergence")
    if found.jitter.any():
        warn(f"{int((found.jitter > 0).sum())} agents' covariances needed jitter, up to {found.jitter.max():.1e}")
    sent = sent_facts(found.ledger.by_kind())
    return _facts(model, found, data, out, sent), _lines(model, found, data, out, sent)


def _facts(model: Model, found: Fit, data: Taken, out: Path, sent: Sent) -> dict[str, Any]:
    fleet = model.fleet
    return {
        "model": str(out),
        "agents": list(model.agents),
        "observations": counts_of(fleet.data),
        "dropped": data.dropped,
        "notes": list(data.notes),
        "method": found.method,
        "kernel": fleet.kernel.name,
        "compared": compared_facts(found.compared),
        "calibration": None if fleet.calibration is None else calibration_facts(fleet.calibration),
        "status": found.status,
        "rounds": found.rounds,
        "disagreement": found.disagreement,
        "theta": model.theta,
        "mean": None if found.mean is None else asdict(found.mean),
        "coordinates": asdict(found.coordinates),
        "jitter": found.jitter,
        "noise_floor": found.noise_floor,
        "at_noise_floor": bool(found.at_floor.any()),
        "at_bounds": found.at_bounds,
        "flat": found.flat,
        "penalty": found.penalty,
        **found.known.as_dict(),
        "engine": found.engine,
        "approximation": found.approximation,
        "sample": found.sample,
        "used": found.used,
        "outliers": found.outliers,
        "drawn": found.drawn,
        "held": found.held,
        "sent": sent,
    }


def _lines(model: Model, found: Fit, data: Taken, out: Path, sent: Sent) -> list[str | Table]:
    fleet, several = model.fleet, len(model.agents) > 1
    place = escape(quote(str(out)))
    dropped, points = data.dropped, sum(counts_of(fleet.data))
    how = "" if found.moments is None else f" --method {found.method}"  # which answers as it was trained
    everywhere = " --within inf" if how and isinstance(fleet.data, Streamed) else ""
    drawn = fleet.dimension >= 2
    return [
        f"{points:,} observations of {count_of_agents(len(model.agents))}"
        + (f" ({dropped} rows with missing values dropped)." if dropped else "."),
        *(f"{note[0].upper()}{note[1:]}." for note in data.notes),
        *(about for about in (about_sample(found), about_approximation(found)) if about),
        f"{found.method}: {found.status} after {found.rounds} rounds"
        + (f"; the agents differ by {found.disagreement:.0e}." if several else "."),
        *told_of_kernels(found),
        _table(model, found),
        *told_mean(model),
        *told_outliers(model),
        *([] if fleet.calibration is None else told_of(fleet.calibration)),
        *([told_sent(sent)] if several else []),
        f"The model is in {bold(out)}. Next:",
        f"  [cyan]fleetgp predict {place} points.csv{how} --out answer.csv[/cyan]",
        *([f"  [cyan]fleetgp map {place} --grid 200x200{how}{everywhere}{_at(model)} --out map.nc[/cyan]"] * drawn),
    ]


def _at(model: Model) -> str:
    """The values that a map of a model of more than two inputs needs: those in the middle of the data."""
    if len(model.inputs) == 2:
        return ""
    low, high = corners(summaries_along_arc(model.fleet.data, model.fleet.coordinates))
    middle = zip(model.inputs[2:], 0.5 * (low + high)[2:], strict=True)
    return " --at" + "".join(f" {escape(name)}={_shown(model, name, value)}" for name, value in middle)


def _shown(model: Model, name: str, value: float) -> str:
    """A value of an input: of a time the day."""
    unit = time_unit_of(model.fleet.units.get(name))
    return f"{value:.6g}" if unit is None else str(times_of_numbers(np.array(value), unit))[:10]


def _table(model: Model, found: Fit) -> Table:
    """The hyperparameters."""
    table = plain_table("", "hyperparameter", "value", "unit")
    units = told_units(model.fleet, model.inputs, model.target)
    fixed, straight = found.known.as_dict()["fixed"], without_bend(model)
    for (name, value), unit in zip(model.theta.items(), units, strict=True):
        held = "fixed" if name in fixed else "at its bound" if name in found.at_bounds else ""
        bend = f"no bend along {straight[name]}" if name in straight else ""
        table.add_row(name, f"{value:.4g}", ", ".join(filter(None, [f"of {unit}" if unit else "", held, bend])))
    return table
