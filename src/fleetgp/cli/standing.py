"""How a fleet stands, for a terminal of 80 columns: one line an agent, and below what needs more words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from fleetgp.cli.output import plain_table
from fleetgp.units import readable_bytes

if TYPE_CHECKING:
    from fleetgp.agent.description import Description


def standing(description: Description, told: dict[str, dict[str, Any]]) -> list[str | Table]:
    """told: every agent's status, or its error."""
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
        notes += _notes(name, state, description.digest)
    parts = {tuple(state["members"]) for state in told.values() if state.get("members")}
    if len(parts) > 1:
        notes.append("The fleet is in parts: " + "; ".join(", ".join(part) for part in sorted(parts)) + ".")
    return [table, *_estimates(description, told), *notes]


def names_of(description: Description) -> list[str]:
    """The hyperparameters' names, length-scales under the inputs' names."""
    return [*(f"l_{name}" for name in description.inputs), "sigma_f", "sigma_eps"]


def _estimates(description: Description, told: dict[str, dict[str, Any]]) -> list[str]:
    """The hyperparameters, once for all agents that have the same four digits."""
    holders: dict[str, list[str]] = {}
    for name, state in told.items():
        if state.get("theta"):
            values = zip(names_of(description), state["theta"].values(), strict=True)
            holders.setdefault(", ".join(f"{label} {value:.4g}" for label, value in values), []).append(name)
    everybody = len(holders) == 1 and sum(map(len, holders.values())) == len(told)
    return [f"{'All agents' if everybody else ', '.join(names)}: {escape(theta)}." for theta, names in holders.items()]


def _notes(name: str, state: dict[str, Any], digest: str) -> list[str]:
    """What a table has no room for."""
    notes = []
    if state["digest"] != digest:
        notes.append(f"[red]{name} holds another fleet description than this file.[/red]")
    if state["problem"]:
        notes.append(f"[red]{name}: {escape(state['problem'])}[/red]")
    away = [f"{other} is {escape(how)}" for other, how in state["neighbours"].items() if how != "up"]
    if away:
        notes.append(f"[red]{name}: {'; '.join(away)}[/red]")
    trained = state["trained"]
    if trained is not None and trained["status"] != "converged":
        notes.append(f"[yellow]{name}: its training ended by {trained['status']}, not by agreement.[/yellow]")
    return notes
