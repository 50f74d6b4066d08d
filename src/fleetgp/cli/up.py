"""fleetgp up: start a fleet on this machine, a process per agent."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fleetgp.cli.options import FILE
from fleetgp.cli.output import bold, emit, warn
from fleetgp.cli.running import ask_all, description_of
from fleetgp.errors import InputError, NetworkError

if TYPE_CHECKING:
    from fleetgp.agent.description import Description
    from fleetgp.operator.launch import Launched

#: Seconds that detached agents may take until all can be reached.
START = 60.0


def up(
    file: FILE,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all agents run; `fleetgp down` ends them.")
    ] = False,
    example: Annotated[bool, typer.Option("--example", help="First write a fleet of five boats to try.")] = False,
) -> None:
    """Start all agents of a file on this machine, each a process of its own. Ctrl-C stops them.

    [bold]From nothing to an answer[/bold]

    [cyan]fleetgp up boats/fleet.toml --example --detach[/cyan]

    [cyan]fleetgp ask boats/fleet.toml --agent boat3 boats/points.csv --out answer.csv[/cyan]
    """
    from fleetgp.operator.launch import Launched, write_example

    if example:
        write_example(file)
    description = description_of(file)
    _check(file, description)
    show = _Show(description)

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    launched = Launched(file, description, detach=detach, told=show)
    try:
        if detach:
            launched.wait_until_reachable(START)
            report(file, {name: process.pid for name, process in launched.processes.items()}, description.state)
            return
        codes = launched.wait()
    except KeyboardInterrupt:
        show("up", {"event": "stopping all agents"})
        _stop(launched)
        if detach:
            raise
        return
    except BaseException:
        launched.stop()
        raise
    failed = [name for name, code in codes.items() if code]
    if failed:
        raise NetworkError(f"{', '.join(failed)} failed: the log above says why")


def _check(file: Path, description: Description) -> None:
    """One clear error where the agents cannot be started."""
    from fleetgp.operator.resilience import split_by, split_warning

    cuts = split_by(description)
    if cuts:
        warn(split_warning(cuts))
    for number, one in enumerate(description.agents):
        if not description.data_of(number).exists():
            raise InputError(f"{description.data_of(number)}: there is no such file, which {one.name} needs")
    running = [name for name, told in ask_all(description).items() if "agent" in told]
    if running:
        idle = [name for name in description.names if name not in running]
        start = f", `fleetgp agent {file} --name {shlex.quote(idle[0])}` starts {idle[0]} alone" if idle else ""
        raise InputError(f"{', '.join(running)} of this fleet run already: `fleetgp down {file}` ends them{start}")


def report(file: Path, pids: Mapping[str, int], state: Path) -> None:
    """What runs, and what to do next. pids: of the agents, by name.  state: where they log to."""
    agent, beside = shlex.quote(next(iter(pids))), file.parent / "points.csv"
    points = shlex.quote(str(beside)) if beside.exists() else "points.csv"
    emit(
        {},
        f"{len(pids)} agents run, and log to {bold(state)}. `fleetgp status {file}` shows them.",
        escape(f"Their processes: {', '.join(f'{name} {pid}' for name, pid in pids.items())}."),
        f"`fleetgp ask {file} --agent {agent} {points} --out answer.csv` asks, `fleetgp down {file}` ends them.",
        as_json=False,
    )


def _stop(launched: Launched) -> None:
    try:
        killed = launched.stop()
    except KeyboardInterrupt:  # once more: at once
        killed = launched.stop(0.0)
    if killed:
        warn(f"{', '.join(killed)} did not stop and had to be killed")


class _Show:
    """Agents' log lines for people: when, who, what."""

    def __init__(self, description: Description) -> None:
        self._width = max(len(name) for name in description.names)
        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.Lock()

    def __call__(self, name: str, told: dict[str, Any]) -> None:
        known = ("time", "level", "agent", "event")
        rest = "  ".join(f"{key} {_short(value)}" for key, value in told.items() if key not in known)
        colour = {"warning": "yellow", "error": "red"}.get(told.get("level", "info"), "default")
        line = f"[dim]{time.strftime('%H:%M:%S')}[/dim] [bold]{name:<{self._width}}[/bold] "
        with self._lock:
            self._console.print(f"{line}[{colour}]{escape(told['event'])}[/{colour}]  {escape(rest)}", soft_wrap=True)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(_short(item) for item in value) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
