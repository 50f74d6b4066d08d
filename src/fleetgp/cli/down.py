"""fleetgp down: stop a fleet."""

from __future__ import annotations

import time

from rich.markup import escape

from fleetgp.cli.options import FILE, Json
from fleetgp.cli.output import emit
from fleetgp.cli.running import ask_all, description_of, notes_of_unreachable, request, unreachable
from fleetgp.errors import NetworkError

#: Seconds that an agent may take to stop, and between two looks whether it has.
PATIENCE, PAUSE = 30.0, 0.2


def down(file: FILE, as_json: Json = False) -> None:
    """Stop all agents of a file that can be reached.

    [bold]Example[/bold]

    [cyan]fleetgp down fleet.toml[/cyan]
    """
    description = description_of(file)
    stopped: list[str] = []
    silent: dict[str, str] = {}
    for name in description.names:
        try:
            request(description, name, "stop", 5.0)
            stopped.append(name)
        except NetworkError as error:
            silent[name] = str(error)
    if not stopped:
        raise unreachable(file, silent.values())
    deadline = time.monotonic() + PATIENCE
    left = stopped
    while left and time.monotonic() < deadline:
        time.sleep(PAUSE)
        told = ask_all(description)
        left = [name for name in stopped if "agent" in told[name]]
    ended = [name for name in stopped if name not in left]
    text = f"Stopped: {', '.join(ended) or 'none'}."
    if silent:
        text += f" Not running, or not to be reached: {', '.join(silent)}."
    facts = {"stopped": ended, "still_running": left, "unreachable": list(silent)}
    emit(facts, text, *map(escape, notes_of_unreachable(silent)), as_json=as_json)
    if left:
        raise NetworkError(f"{', '.join(left)} did not stop within {PATIENCE:g} s")
