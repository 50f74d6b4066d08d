"""fleetgp info: what is in a model folder, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from fleetgp.cli import options
from fleetgp.cli.calibrate import told_of
from fleetgp.cli.means import told_mean
from fleetgp.cli.output import bold, count_of_agents, emit, plain_table
from fleetgp.cli.sent import told_sent
from fleetgp.data.times import time_unit_of, told_value
from fleetgp.errors import listed
from fleetgp.storage.contents import contents, told_coordinates
from fleetgp.storage.loading import load_model
from fleetgp.storage.model import Model
from fleetgp.units import readable_bytes

#: Agents whose rows are told one by one.
MOST = 12


def info(*, model: options.MODEL, as_json: options.Json = False) -> None:
    """Say what is in a model folder: data, kernel, hyperparameters in words, training, calibration.

    [bold]Example[/bold]

    [cyan]fleetgp info model/[/cyan]
    """
    known = load_model(model)
    facts = contents(known, model)
    emit(facts, *_lines(known, facts), as_json=as_json)


def _lines(model: Model, facts: Mapping[str, Any]) -> list[str | Table]:
    unit = facts["units"].get(model.target, "")
    target = f"{model.target} ({unit})" if unit else model.target
    by, at = facts["written_by"] or "an older FleetGP", facts["written_at"]
    when = f", {at.replace('T', ' ').replace('+00:00', ' UTC')}" if at else ""
    seen = told_coordinates(facts)
    return [
        f"[bold]{escape(target)} at ({escape(', '.join(model.inputs))})[/bold], in {bold(facts['model'])}",
        f"Written by {escape(by)}{escape(when)}; format {facts['format']}, {readable_bytes(facts['bytes'])} on disk.",
        *_data(facts),
        f"Kernel {escape(facts['kernel'])}.",
        _theta(facts["theta"]),
        *([seen] if seen else []),
        *told_mean(model),
        *(["Rows are private: what would send one is refused."] if facts["private"] else []),
        *_training(facts),
        *([] if model.fleet.calibration is None else told_of(model.fleet.calibration)),
        *([] if facts["calibration"] else ["Not calibrated: fleetgp calibrate checks what intervals hold."]),
    ]


def _data(facts: Mapping[str, Any]) -> list[str]:
    rows = facts["agents"]
    total = f"{sum(rows.values()):,} observations of {count_of_agents(len(rows))}"
    each = f": {listed([f'{name} {count:,}' for name, count in rows.items()], MOST)}" if len(rows) > 1 else ""
    held = " The folder has moments of them, and no rows."
    if facts["rows_in_folder"]:
        whose = "all agents" if len(rows) > 1 else "the agent"
        held = f" The folder holds the rows of {whose}: whoever has it can read them."
    units = facts["units"]
    box = ", ".join(
        f"{name} {told_value(one['low'], units.get(name))} to {told_value(one['high'], units.get(name))}"
        + (f" {one['unit']}" if one["unit"] and time_unit_of(units.get(name)) is None else "")
        for name, one in facts["inputs"].items()
    )
    turns = f", in a sequence of {facts['graphs']} graphs" if facts["graphs"] > 1 else ""
    links = (
        [f"{facts['links']:,} {'link' if facts['links'] == 1 else 'links'} between agents{turns}."]
        if len(rows) > 1
        else []
    )
    return [escape(f"{total}{each}.{held}"), escape(f"They cover {box}."), *links]


def _theta(theta: Mapping[str, Mapping[str, Any]]) -> Table:
    table = plain_table("", "hyperparameter", "value", "in words")
    table.columns[2].justify = "left"
    for name, one in theta.items():
        table.add_row(escape(name), f"{one['value']:.4g} {one['unit']}".strip(), escape(one["meaning"]))
    return table


def _training(facts: Mapping[str, Any]) -> list[str]:
    found = facts["training"]
    if found is None:
        how = facts["note"] or "the hyperparameters were given, nothing was trained"
        return [f"Training: {escape(how)}."]
    several = len(facts["agents"]) > 1 and found["disagreement"] is not None
    apart = f"; the agents differ by {found['disagreement']:.0e}" if several else ""
    said = [f"Training: {found['method']}, {found['status']} after {found['rounds']:,} rounds{apart}."]
    given = {what: names for what, names in found.get("known", {}).items() if names}
    said += [escape(f"{what.capitalize()}: {', '.join(names)}.") for what, names in given.items()]
    said += [escape(f"At a bound: {', '.join(found['at_bounds'])}.")] if found.get("at_bounds") else []
    compared = found.get("compared") or []
    said += [f"Chosen from {escape(', '.join(one['kernel'] for one in compared))}."] if compared else []
    sent = found.get("sent", {})  # older folders do not tell
    return said + ([told_sent(sent)] if sent and len(facts["agents"]) > 1 else [])
