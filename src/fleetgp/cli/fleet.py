"""fleetgp certs, agent, up, down: a fleet with a process per agent, started and stopped."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fleetgp.cli.options import Json
from fleetgp.cli.output import bold, emit, warn
from fleetgp.cli.talking import FILE, ask_all, description_of, request
from fleetgp.cli.variadic import VariadicCommand
from fleetgp.errors import FleetGPError, InputError, NetworkError, shortened

if TYPE_CHECKING:
    from fleetgp.agent.description import Description


def certs(
    folder: Annotated[Path, typer.Argument(help="Where authority and certificates go; or a fleet.toml with \\[tls].")],
    agents: Annotated[
        list[str] | None, typer.Option(help="The agents' names, for example: --agents auv1 auv2 auv3")
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option(help="Where they can be reached: addresses or names. (default: this machine)")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.", min=1, max=36_500)] = 365,
    as_json: Json = False,
) -> None:
    """Make a fleet's authority, and a certificate for each agent and for the operator.

    The authority is made once and kept; its key signs further agents and stays where it is. An agent gets three files:
    authority.crt, NAME.crt and NAME.key. Whoever asks the agents gets authority.crt, operator.crt and operator.key.
    From a fleet.toml, names and hosts are read; its \\[tls] must name a folder.

    [bold]Examples[/bold]

    [cyan]fleetgp certs keys/ --agents auv1 auv2 auv3 --hosts 10.0.0.1 10.0.0.2 10.0.0.3[/cyan]

    [cyan]fleetgp certs fleet.toml[/cyan]
    """
    from fleetgp.agent.description.certificates import check_name, make_certificate
    from fleetgp.network.zenoh.session import OPERATOR

    if folder.suffix == ".toml":
        if agents or hosts:
            raise InputError("names and hosts come from the fleet.toml: leave out --agents and --hosts")
        folder, wanted = _of_file(folder)
    elif agents:
        if len(set(agents)) < len(agents) or OPERATOR in agents:
            raise InputError(f"agents must have different names, none of them {OPERATOR!r}, got {shortened(agents)}")
        for name in agents:
            check_name(name)
        places = tuple(hosts) if hosts else ("127.0.0.1", "localhost")
        wanted = dict.fromkeys(agents, places)
    else:
        raise InputError("give --agents, or a fleet.toml in place of the folder")
    made = {agent: make_certificate(folder, agent, hosts=places, days=days) for agent, places in wanted.items()}
    operator = make_certificate(folder, OPERATOR, hosts=("localhost",), days=days)
    emit(
        {
            "authority": str(operator.authority),
            "certificates": {agent: str(own.certificate) for agent, own in {**made, OPERATOR: operator}.items()},
        },
        f"{len(made)} certificates and the operator's, valid for {days} days, are in {bold(folder)}.",
        "Keep [bold]authority.key[/bold] off the agents; each gets authority.crt and its own two files.",
        as_json=as_json,
    )


def _of_file(file: Path) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """The folder of a description's certificates, and every agent's hosts."""
    description = description_of(file)
    folder = description.tls_folder
    if folder is None:
        raise InputError(f'{file}: it has no [tls] with a folder: add [tls] and folder = "keys"')
    hosts: dict[str, tuple[str, ...]] = {}
    for agent in description.agents:
        host = agent.endpoint.split("/", 1)[1].rsplit(":", 1)[0].strip("[]")
        hosts[agent.name] = (host,)
    return folder, hosts


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
    from fleetgp.agent.process import run_agent

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
    from fleetgp.operator.example import write_example
    from fleetgp.operator.launch import Launched
    from fleetgp.operator.resilience import split_by, split_warning

    if example:
        write_example(file)
    description = description_of(file)
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
    show = _Show(description)

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    launched = Launched(file, description, detach=detach, told=show)
    try:
        if detach:
            launched.wait_until_reachable(60.0)
            count = len(description.names)
            points = file.parent / "points.csv" if example else "points.csv"
            emit({}, f"{count} agents run, and log to {bold(description.state)}. `fleetgp status {file}` shows them.",
                 f"`fleetgp ask {file} --agent {shlex.quote(description.names[0])} {points} --out answer.csv` asks, "
                 f"`fleetgp down {file}` ends them.", as_json=False)  # fmt: skip
            return
        codes = launched.wait()
    except KeyboardInterrupt:
        show("up", {"event": "stopping all agents"})
        try:
            killed = launched.stop()
        except KeyboardInterrupt:  # once more: at once
            killed = launched.stop(0.0)
        if killed:
            warn(f"{', '.join(killed)} did not stop and had to be killed")
        if detach:
            raise
        return
    except BaseException:
        launched.stop()
        raise
    failed = [name for name, code in codes.items() if code]
    if failed:
        raise NetworkError(f"{', '.join(failed)} ended badly")


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


def down(file: FILE, as_json: Json = False) -> None:
    """Stop all agents of a file that can be reached.

    [bold]Example[/bold]

    [cyan]fleetgp down fleet.toml[/cyan]
    """
    description = description_of(file)
    stopped, silent = [], []
    for name in description.names:
        try:
            request(description, name, "stop", 5.0)
            stopped.append(name)
        except NetworkError:
            silent.append(name)
    if not stopped:
        raise NetworkError(f"no agent of {file} can be reached: are they running?")
    deadline = time.monotonic() + 30.0
    left = stopped
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        told = ask_all(description)
        left = [name for name in stopped if "agent" in told[name]]
    ended = [name for name in stopped if name not in left]
    text = f"Stopped: {', '.join(ended) or 'none'}."
    if silent:
        text += f" Not running, or not to be reached: {', '.join(silent)}."
    emit({"stopped": ended, "still_running": left, "unreachable": silent}, text, as_json=as_json)
    if left:
        raise NetworkError(f"{', '.join(left)} did not stop within 30 s")


def register(app: typer.Typer) -> None:
    app.command(cls=VariadicCommand)(certs)
    for command in (agent, up, down):
        app.command()(command)
