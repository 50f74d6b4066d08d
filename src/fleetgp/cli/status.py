"""fleetgp status: a line per agent, for a terminal of 80 columns, and below what needs more words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from fleetgp.cli.options import FILE, Json
from fleetgp.cli.output import emit, plain_table, warn
from fleetgp.cli.running import ask_all, description_of, notes_of_unreachable, unreachable
from fleetgp.units import readable_bytes

if TYPE_CHECKING:
    from fleetgp.agent.description import Description


def status(file: FILE, as_json: Json = False) -> None:
    """Show every agent that can be reached: what it does, what it estimates, whom it hears, what it sent.

    [bold]Example[/bold]

    [cyan]fleetgp status fleet.toml[/cyan]
    """
    description = description_of(file)
    from fleetgp.operator.resilience import split_by, split_warning

    told = ask_all(description)
    cuts = split_by(description)
    facts = {"fleet": description.name, "digest": description.digest, "agents": told, "splitting_agents": cuts}
    emit(facts, *standing(description, told), as_json=as_json)
    if cuts and not as_json:
        warn(split_warning(cuts))
    if not any("agent" in state for state in told.values()):
        raise unreachable(file, [state["error"] for state in told.values()])


def standing(description: Description, told: dict[str, dict[str, Any]]) -> list[str | Table]:
    """told: every agent's status, or its error."""
    from fleetgp.operator.resilience import former_members

    former = former_members(told, [name for name, state in told.items() if "agent" in state])
    told = {name: state for name, state in told.items() if name not in former}
    table = plain_table(f"Fleet {description.name}", "agent", "phase", "neighbours up", "round", "rows", "sent", left=2)
    notes = []
    for name, state in told.items():
        if "agent" not in state:
            reached = "cannot be reached" not in state["error"]
            table.add_row(name, f"[red]{'no answer' if reached else 'unreachable'}[/red]", "", "", "", "")
            continue
        links = state["neighbours"]
        up = sum(how == "up" for how in links.values())
        colour = "green" if up == len(links) else "red"
        heard = f"[{colour}]{up} of {len(links)}[/{colour}]"
        sent = readable_bytes(state["bytes"])
        table.add_row(name, state["phase"], heard, str(state["round"]), f"{state['rows']:,}", sent)
        notes += _notes(name, state, description)
    errors = {name: state["error"] for name, state in told.items() if "agent" not in state}
    notes += [f"[red]{escape(note)}[/red]" for note in notes_of_unreachable(errors)]
    parts = {tuple(state["members"]) for state in told.values() if state.get("members")}
    if len(parts) > 1:
        notes.append("The fleet is in parts: " + "; ".join(", ".join(part) for part in sorted(parts)) + ".")
    if former:
        notes.append(f"Not in the file of the running agents: {escape(', '.join(former))}. Use their fleet.toml.")
    return [table, *_estimates(description, told), *notes]


def _estimates(description: Description, told: dict[str, dict[str, Any]]) -> list[str]:
    """The hyperparameters, once for all agents that have the same four digits."""
    holders: dict[str, list[str]] = {}
    for name, state in told.items():
        if state.get("theta"):
            values = zip(description.parameters, state["theta"].values(), strict=True)
            holders.setdefault(", ".join(f"{label} {value:.4g}" for label, value in values), []).append(name)
    everybody = len(holders) == 1 and sum(map(len, holders.values())) == len(told)
    return [f"{'All agents' if everybody else ', '.join(who)}: {escape(theta)}." for theta, who in holders.items()]


def _notes(name: str, state: dict[str, Any], description: Description) -> list[str]:
    """What a table has no room for."""
    notes = []
    if state["digest"] != description.digest:
        why = description.differences(state["digest"], "in this file")
        notes.append(f"[red]{name}, compared with this file: {escape(why)}.[/red]")
    if state["problem"]:
        notes.append(f"[red]{name}: {escape(state['problem'])}[/red]")
    away = [f"{other} is {escape(how)}" for other, how in state["neighbours"].items() if how != "up"]
    if away:
        notes.append(f"[red]{name}: {'; '.join(away)}[/red]")
    trained = state["trained"]
    if trained is not None and trained["status"] != "converged":
        notes.append(f"[yellow]{name}: its training ended by {trained['status']}, not by agreement.[/yellow]")
    return notes
