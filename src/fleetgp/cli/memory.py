"""fleetgp remove and forget: rows that leave an agent of a running fleet, or a model."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from fleetgp.cli.answers import known_model
from fleetgp.cli.arguments import option
from fleetgp.cli.options import Cluster, check_seconds
from fleetgp.cli.output import Report, plain_table, warn
from fleetgp.cli.running import ask_all, description_of, request
from fleetgp.errors import InputError, NetworkError
from fleetgp.storage.folder import save_model
from fleetgp.units import counted

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: Seconds between two looks at who still holds the rows.
POLL_PAUSE = 0.5
#: Seconds in which an agent answers: its disk may be slow.
PATIENCE = 30.0

PLACE = Annotated[Path, typer.Argument(help="A fleet.toml, or the folder of a model.", readable=False)]


def remove(
    place: PLACE,
    agent: Annotated[str, option("The agent whose rows they are, by name.")],
    sent: Annotated[str | None, option("Rows that were observed with this --request name.", "--request")] = None,
    where: Annotated[str | None, option('Rows that meet this condition, for example: "sst > 40".')] = None,
    between: Annotated[list[str] | None, option("Rows between two times, both included.")] = None,
    receipt: Annotated[str | None, option("The name of an earlier receipt, to show again.", "--receipt")] = None,
    wait: Annotated[float, option("Seconds to wait until all agents have confirmed.")] = 10.0,
) -> Report:
    """Take rows of one agent back, so that the fleet is as if it had never had them.

    The hyperparameters stay until the next training. The receipt shows what was removed, and which agents have
    confirmed that they hold nothing made from these rows. An agent that is away confirms when it is back; ask again
    with --receipt NAME.

    [bold]Examples[/bold]

    [cyan]fleetgp remove fleet.toml --agent boat3 --where "sst > 40"[/cyan]

    [cyan]fleetgp remove fleet.toml --agent boat3 --between 2021-01-05T10:00 2021-01-05T11:00 --wait 60[/cyan]

    [cyan]fleetgp remove model/ --agent boat3 --request dive-7[/cyan]
    """
    which = {"request": sent, "where": where, "between": _times(between)}
    given = sum(one is not None for one in (*which.values(), receipt))
    if given != 1:
        raise InputError(f"expected one of --request, --where, --between and --receipt, got {given or 'none'} of them")
    if place.is_dir():
        if receipt is not None:
            raise InputError("a model has no receipts: leave out --receipt")
        return _remove_from_model(place, agent, which)
    description = description_of(place)
    check_seconds(wait)
    description.id_of(agent)
    if receipt is not None:
        result = request(description, agent, "receipt", PATIENCE, name=receipt)
    else:
        result = _requested(description, agent, "remove", which)
    return _with_confirmations(place, description, agent, result, wait)


def forget(
    place: PLACE,
    before: Annotated[str, option("A date or a number; rows with an earlier time leave.")],
    agent: Annotated[str | None, option("The agent whose rows they are, by name. (default: all)")] = None,
) -> Report:
    """Drop old rows of one agent or of all. With keep = "summary" they stay as coarse groups.

    Each agent keeps its newest five rows. Rows that were sent in a group leave together, so that the difference of two
    summaries does not describe single rows. Rows that are too old but have to wait are shown as overdue.

    [bold]Example[/bold]

    [cyan]fleetgp forget fleet.toml --before 2021-01-05[/cyan]
    """
    if place.is_dir():
        return _forget_in_model(place, agent, before)
    description = description_of(place)
    names = description.members if agent is None else description.names_of([description.id_of(agent)])
    table = plain_table(f"Rows before {escape(before)}", "agent", "forgotten", "as groups", "overdue", "remaining")
    facts: dict[str, Any] = {}
    silent: dict[str, str] = {}
    for name in names:
        try:
            receipt = facts[name] = _requested(description, name, "forget", {"before": _number(before)})
        except NetworkError as error:
            silent[name] = str(error)
            table.add_row(name, "[red]no answer[/red]", "", "", "")
            continue
        columns = ("forgotten", "summarized", "overdue", "in_all")
        table.add_row(name, *(f"{receipt[column]:,}" for column in columns))
    failed = NetworkError(next(iter(silent.values()))) if len(silent) == len(names) else None
    notes = [f"{', '.join(silent)} did not answer: repeat the command when they can be reached"] if silent else []
    return Report({"before": before, "agents": facts, "silent": silent}, [table], notes, failed)


def _times(between: list[str] | None) -> list[Any] | None:
    if between is None:
        return None
    if len(between) != 2:
        raise InputError(f"--between: expected two times, got {len(between)}")
    return [_number(value) for value in between]


def _number(text: str) -> float | str:
    """A number where it is one; else a date, as it is written."""
    try:
        return float(text)
    except ValueError:
        return text


def _requested(description: Description, agent: str, verb: str, content: dict[str, Any]) -> dict[str, Any]:
    """The receipt. A lost answer does no harm: the request is repeated under its name, and counts once."""
    name = uuid.uuid4().hex
    for last in (False, True):
        try:
            result: dict[str, Any] = request(description, agent, verb, PATIENCE, name=name, **content)
            return result
        except NetworkError as error:
            if last or "cannot be reached" in str(error):
                raise
            warn(f"{error}; trying again")
    raise AssertionError("the last attempt returns or raises")


# ---- who has confirmed -----------------------------------------------------------------------------------------------


def _with_confirmations(
    file: Path, description: Description, agent: str, receipt: dict[str, Any], wait: float
) -> Report:
    """Wait until no agent holds anything of these rows; report who has confirmed, and when."""
    confirmed: dict[str, float] = {}
    deadline = time.monotonic() + wait
    # If nothing was removed, nobody holds anything of it.
    waiting = list(description.members) if receipt["removed"] or receipt.get("kept_rows") else []
    states: dict[str, dict[str, Any]] = {}
    while waiting:
        states = ask_all(description)
        try:
            own = request(description, agent, "receipt", PATIENCE, name=receipt["name"])
        except NetworkError:
            own = {"clean": False}
        for name in list(waiting):
            if own["clean"] and "agent" in states[name] and is_without(states[name]["holds"].get(agent, {}), own):
                confirmed[name] = time.time()
                waiting.remove(name)
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(POLL_PAUSE)
    why = {name: states[name].get("error", "it still holds groups or totals made from these rows") for name in waiting}
    facts = {"agent": agent, **receipt, "confirmed": confirmed, "not_confirmed": why}
    table = plain_table("These rows are gone from", "agent", "confirmed", left=2)
    for name in description.members if confirmed or waiting else ():
        when = confirmed.get(name)
        table.add_row(
            name,
            "[red]not yet[/red]" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when)),
        )
    lines: list[str | Table] = [*receipt_lines(agent, receipt), *([table] if confirmed or waiting else [])]
    notes = []
    if waiting:
        again = f"fleetgp remove {file} --agent {agent} --receipt {receipt['name']}"
        notes.append(f"{', '.join(waiting)} may still answer from these rows: `{again}` asks again")
    if receipt.get("copies"):
        notes.append(f"copies of a damaged file may still have these rows: {', '.join(receipt['copies'])}")
    return Report(facts, lines, notes)


def is_without(held: dict[str, Any], own: dict[str, Any]) -> bool:
    """Whether what an agent holds is of the rows that another one has now, and of no earlier ones.

    held: of the other agent.  own: what the other agent holds of itself, and the version of its data.

    >>> own = {"held": {"groups": 17, "totals": 3}, "data": 3}
    >>> is_without({"groups": 17, "totals": 3}, own), is_without({"groups": 16}, own), is_without({}, own)
    (True, False, True)
    """
    mine = own["held"]
    groups = "groups" not in held or held["groups"] >= mine.get("groups", np.inf)
    totals = held.get("totals") in (None, mine.get("totals", own["data"]))
    return groups and totals and set(held.get("agreements", [])) <= {own["data"]}


def receipt_lines(agent: str, receipt: dict[str, Any]) -> list[str]:
    """The receipt of a removal for people."""
    left = f", {receipt['in_all']:,} remain" if "in_all" in receipt else ""
    lines = [f"{escape(agent)}: {counted(receipt['removed'], 'row')} removed{left}. Receipt {receipt['name']}."]
    if receipt.get("groups"):
        wait = f"; {counted(receipt['waiting'], 'row')} of them wait to make new groups" if receipt["waiting"] else ""
        lines.append(f"Withdrawn from the other agents: {counted(receipt['groups'], 'group')}{wait}.")
    if receipt.get("kept_groups"):
        lines.append(
            f"Removed whole, because they may contain such rows: {counted(receipt['kept_groups'], 'kept group')}, "
            f"made of {counted(receipt['kept_rows'], 'forgotten row')}."
        )
    if receipt.get("ended"):
        lines.append(f"No longer valid: {', '.join(receipt['ended'])}.")
    return lines


# ---- models ----------------------------------------------------------------------------------------------------------


def _remove_from_model(folder: Path, agent: str, which: dict[str, Any]) -> Report:
    known = known_model(folder, Cluster())
    receipt = known.fleet.remove(agent, **which)
    save_model(known, folder, overwrite=True)
    return Report({"model": str(folder), **vars(receipt)}, [f"{escape(str(receipt))}."])


def _forget_in_model(folder: Path, agent: str | None, before: str) -> Report:
    if agent is not None:
        raise InputError("a model forgets rows of all agents: leave out --agent")
    known = known_model(folder, Cluster())
    receipts = known.fleet.forget(_number(before))
    save_model(known, folder, overwrite=True)
    lines = [f"{escape(str(one))}." for one in receipts] or [f"No agent has rows from before {escape(before)}."]
    return Report({"model": str(folder), "agents": [vars(one) for one in receipts]}, lines)
