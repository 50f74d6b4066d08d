"""fleetgp agent, up, down and status: the processes of a fleet."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fleetgp.cli.options import FILE, Json
from fleetgp.cli.output import bold, emit, plain_table, warn
from fleetgp.errors import FleetGPError, InputError, NetworkError
from fleetgp.units import readable_bytes

if TYPE_CHECKING:
    from fleetgp.agent.description import Description
    from fleetgp.operator.launch import Launched

#: Seconds that detached agents may take until all can be reached.
START_SECONDS = 60.0
#: Seconds that an agent may take to stop, and between two looks whether it has.
STOP_SECONDS, STOP_POLL = 30.0, 0.2


def description_of(file: Path) -> Description:
    try:
        from fleetgp.agent.description import read_description
    except ModuleNotFoundError as error:
        raise InputError(f'a fleet of processes needs {error.name}: pip install "fleetgp[fleet]"') from error
    return read_description(file)


def request(description: Description, agent: str, verb: str, seconds: float, **content: Any) -> Any:
    from fleetgp.operator.client import AgentClient

    with AgentClient(description, agent) as client:
        return client.request(verb, seconds, **content)


def unreachable(file: Path, errors: Iterable[str]) -> NetworkError:
    """The one error where no agent can be reached: why, if more is known than that nobody listens."""
    from fleetgp.operator.client import why_unreachable

    why = [error for error in errors if "cannot be reached" not in error or why_unreachable(error)]
    return NetworkError(why[0] if why else f"no agent of {file} can be reached: are they running?")


def notes_of_unreachable(errors: Mapping[str, str]) -> list[str]:
    """Why agents cannot be reached, where more is known than that nobody listens; each reason once."""
    from fleetgp.operator.client import why_unreachable

    agents: dict[str, list[str]] = {}
    for name, error in errors.items():
        agents.setdefault(why_unreachable(error), []).append(name)
    return [f"{', '.join(names)}: cannot be reached: {why}" for why, names in agents.items() if why]


def ask_all(description: Description) -> dict[str, dict[str, Any]]:
    """Every agent's status, or its error; all at once, since some may not answer."""
    from fleetgp.operator.client import AgentClient

    def one(name: str) -> dict[str, Any]:
        try:
            with AgentClient(description, name, reach=2.0) as client:
                state: dict[str, Any] = client.request("status", 5.0)
                return state
        except NetworkError as error:
            return {"error": str(error)}

    with ThreadPoolExecutor(min(32, len(description.names))) as pool:
        return dict(zip(description.names, pool.map(one, description.names), strict=True))


def agent(
    file: FILE,
    name: Annotated[str, typer.Option(help="Which of the file's agents this is.")],
    log: Annotated[Path | None, typer.Option(help="Write the log to a file. (default: stderr)")] = None,
) -> None:
    """Run one agent: find the neighbours, train with them, then answer, until it is stopped.

    It logs one JSON document a line. Ctrl-C, SIGTERM and `fleetgp down` end it; started again, it goes on from its last
    checkpoint and rejoins the others.

    [bold]Example[/bold]

    [cyan]fleetgp agent fleet.toml --name auv3[/cyan]
    """
    from fleetgp.agent.service import run_agent

    try:
        run_agent(description_of(file), name, log_file=log)
    except FleetGPError as error:
        if log is not None or isinstance(error, InputError):
            raise
        raise typer.Exit(1) from error  # the log has told it


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
    _check_startable(file, description)
    show = _LogLines(description)

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    launched = Launched(file, description, detach=detach, listener=show)
    try:
        if detach:
            launched.wait_until_reachable(START_SECONDS)
            report_started(file, {name: process.pid for name, process in launched.processes.items()}, description.state)
            return
        codes = launched.wait()
    except KeyboardInterrupt:
        show("up", {"event": "stopping all agents"})
        _stop_agents(launched)
        if detach:
            raise
        return
    except BaseException:
        launched.stop()
        raise
    failed = [name for name, code in codes.items() if code]
    if failed:
        raise NetworkError(f"{', '.join(failed)} failed: the log above says why")


def _check_startable(file: Path, description: Description) -> None:
    """One clear error where the agents cannot be started."""
    from fleetgp.operator.client import split_by, split_warning

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


def report_started(file: Path, pids: Mapping[str, int], state: Path) -> None:
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


def _stop_agents(launched: Launched) -> None:
    try:
        killed = launched.stop()
    except KeyboardInterrupt:  # once more: at once
        killed = launched.stop(0.0)
    if killed:
        warn(f"{', '.join(killed)} did not stop and had to be killed")


class _LogLines:
    """Agents' log lines for people: when, who, what."""

    def __init__(self, description: Description) -> None:
        self._width = max(len(name) for name in description.names)
        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.Lock()

    def __call__(self, name: str, told: dict[str, Any]) -> None:
        known = ("time", "level", "agent", "event")
        rest = "  ".join(f"{key} {_short_value(value)}" for key, value in told.items() if key not in known)
        colour = {"warning": "yellow", "error": "red"}.get(told.get("level", "info"), "default")
        line = f"[dim]{time.strftime('%H:%M:%S')}[/dim] [bold]{name:<{self._width}}[/bold] "
        with self._lock:
            self._console.print(f"{line}[{colour}]{escape(told['event'])}[/{colour}]  {escape(rest)}", soft_wrap=True)


def _short_value(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(_short_value(item) for item in value) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    deadline = time.monotonic() + STOP_SECONDS
    left = stopped
    while left and time.monotonic() < deadline:
        time.sleep(STOP_POLL)
        told = ask_all(description)
        left = [name for name in stopped if "agent" in told[name]]
    ended = [name for name in stopped if name not in left]
    text = f"Stopped: {', '.join(ended) or 'none'}."
    if silent:
        text += f" Not running, or not to be reached: {', '.join(silent)}."
    facts = {"stopped": ended, "still_running": left, "unreachable": list(silent)}
    emit(facts, text, *map(escape, notes_of_unreachable(silent)), as_json=as_json)
    if left:
        raise NetworkError(f"{', '.join(left)} did not stop within {STOP_SECONDS:g} s")


def status(file: FILE, as_json: Json = False) -> None:
    """Show every agent that can be reached: what it does, what it estimates, whom it hears, what it sent.

    [bold]Example[/bold]

    [cyan]fleetgp status fleet.toml[/cyan]
    """
    description = description_of(file)
    from fleetgp.operator.client import split_by, split_warning

    told = ask_all(description)
    cuts = split_by(description)
    facts = {"fleet": description.name, "digest": description.digest, "agents": told, "splitting_agents": cuts}
    emit(facts, *status_lines(description, told), as_json=as_json)
    if cuts and not as_json:
        warn(split_warning(cuts))
    if not any("agent" in state for state in told.values()):
        raise unreachable(file, [state["error"] for state in told.values()])


def status_lines(description: Description, told: dict[str, dict[str, Any]]) -> list[str | Table]:
    """told: every agent's status, or its error."""
    from fleetgp.operator.client import former_members

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
        notes += _agent_notes(name, state, description)
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


def _agent_notes(name: str, state: dict[str, Any], description: Description) -> list[str]:
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
