"""fleetgp join and leave: who the members of a running fleet are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape

from fleetgp.cli.arguments import option
from fleetgp.cli.options import FILE
from fleetgp.cli.output import Report, bold
from fleetgp.cli.running import description_of
from fleetgp.errors import InputError, listed

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

VIA = Annotated[str | None, option("Only this agent gets the roster; it passes it on. (default: all that are reached)")]


def join(
    file: FILE,
    name: Annotated[str, option("The agent that joins, or a member that gets more links.")],
    endpoint: Annotated[str | None, option("Where it can be reached, for example tls/10.0.0.6:7447.")] = None,
    neighbours: Annotated[list[str] | None, option("The members that it has links to, by name.")] = None,
    data: Annotated[str | None, option("Its data file, relative to its own fleet.toml. (default: none)")] = None,
    out: Annotated[Path | None, option("The folder for its machine. (default: its name, beside the file)")] = None,
    via: VIA = None,
) -> Report:
    """Admit an agent to a running fleet. No file of another agent changes.

    This sends the next roster, signed with the operator's key, to all agents that can be reached; they pass it on. A
    new agent gets a folder with its fleet.toml, the roster and, if the authority's key is here, its certificate. An
    agent that has left is admitted again in the same way.

    [bold]Example[/bold]

    [cyan]fleetgp join fleet.toml --name boat6 --endpoint tls/10.0.0.6:7447 --neighbours boat2 boat5[/cyan]
    """
    description = _newest(file, via)
    from fleetgp.operator.members import with_member, write_folder

    before = description.members
    changed = with_member(description, name, endpoint, neighbours or [])
    folder = out or file.parent / name
    new = name not in before or out is not None  # a member that gets more links has its folder
    notes = write_folder(file, changed, name, data, folder) if new else []
    lines = [f"{bold(name)} is a member of the fleet {escape(changed.name)} (roster version {changed.roster.version})."]
    facts: dict[str, Any] = {"agent": name, "roster": changed.roster.version, "members": changed.members}
    if new:
        lines.append(
            f"Copy {bold(folder)} to its machine and run `fleetgp agent fleet.toml --name {escape(name)}` there."
        )
        facts["folder"] = str(folder)
    reached, more = _handed(changed, [via] if via else before)
    return Report({**facts, "reached": reached}, [*lines, *notes, *more])


def leave(
    file: FILE,
    name: Annotated[str, option("The agent that leaves for good.")],
    keep_rows: Annotated[
        bool, option("Its groups and totals at the other agents count until the next training.", "--keep-rows")
    ] = False,
    via: VIA = None,
) -> Report:
    """Remove an agent from a running fleet for good. Its rows no longer count, and nobody waits for it.

    The agent's process ends when it receives the new roster. Its files stay. `fleetgp join` admits it again.

    [bold]Example[/bold]

    [cyan]fleetgp leave fleet.toml --name boat6[/cyan]
    """
    description = _newest(file, via)
    from fleetgp.operator.members import without_member

    changed = without_member(description, name, keep_rows=keep_rows)
    kept = "its groups and totals at the other agents count until the next training"
    rows = kept if keep_rows else "its rows no longer count"
    version = f"roster version {changed.roster.version}"
    lines = [f"{bold(name)} has left the fleet {escape(changed.name)} ({version}): {rows}."]
    reached, more = _handed(changed, [via] if via else [*changed.members, name])
    facts = {"agent": name, "roster": changed.roster.version, "members": changed.members, "kept": keep_rows}
    return Report({**facts, "reached": reached}, [*lines, *more])


def _newest(file: Path, via: str | None) -> Description:
    """The description, with the newest roster that the agents hold: another operator may have changed it."""
    description = description_of(file)
    from fleetgp.operator.members import newest_of

    if via is not None and via not in description.members:
        raise InputError(f"--via {via}: expected a member of this fleet: choose of {listed(description.members)}")
    return newest_of(description, [via] if via else description.members)


def _handed(description: Description, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Who has the roster now, and sentences about it."""
    from fleetgp.operator.members import hand_over

    why = hand_over(description, names)
    reached = [name for name in names if not why[name]]
    if reached:
        return reached, [f"{escape(listed(reached))} received it; they pass it on to the others."]
    return [], [
        "No agent could be reached: repeat the command when one can. A new agent also brings the roster itself."
    ]
