"""fleetgp agent, up, down, status, watch and certs: the processes of a fleet, their page and their certificates."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fleetgp.cli.arguments import option
from fleetgp.cli.options import FILE, NO_OPEN, PORT
from fleetgp.cli.output import Report, bold, plain_table, print_lines, warn
from fleetgp.errors import FleetGPError, InputError, NetworkError, listed, shortened
from fleetgp.files import check_folder, whole
from fleetgp.units import counted, readable_bytes

if TYPE_CHECKING:
    from fleetgp.agent.description import Description
    from fleetgp.operator.launch import Launched
    from fleetgp.page.source import PageSource

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
    """The error where no agent can be reached, with the reason if one is known."""
    from fleetgp.operator.client import why_unreachable

    why = [error for error in errors if "cannot be reached" not in error or why_unreachable(error)]
    return NetworkError(why[0] if why else f"no agent of {file} can be reached: are they running?")


def notes_of_unreachable(errors: Mapping[str, str]) -> list[str]:
    """Known reasons why agents cannot be reached, each reason once."""
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

    names = description.members
    with ThreadPoolExecutor(min(32, len(names))) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def agent(
    file: FILE,
    name: Annotated[str, option("Which of the file's agents this is.")],
    log: Annotated[Path | None, option("Write the log to a file. (default: stderr)")] = None,
) -> None:
    """Run one agent: find the neighbours, train with them, then answer, until it is stopped.

    It logs one JSON document per line. Ctrl-C, SIGTERM and `fleetgp down` end it; started again, it continues from its
    last checkpoint and rejoins the others.

    [bold]Example[/bold]

    [cyan]fleetgp agent fleet.toml --name auv3[/cyan]
    """
    from fleetgp.agent.service import run_agent

    try:
        run_agent(description_of(file), name, log_file=log)
    except FleetGPError as error:
        if log is not None or isinstance(error, InputError):
            raise
        raise typer.Exit(1) from error  # the log has it


def up(
    file: FILE,
    detach: Annotated[bool, option("Return when all agents run; `fleetgp down` ends them.", "--detach")] = False,
    example: Annotated[bool, option("First write a fleet of five boats to try.", "--example")] = False,
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
    show = LogPrinter(description)
    _end_like_ctrl_c()
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
    """Refuse to start agents that run already, or whose files are missing."""
    from fleetgp.operator.client import split_by, split_warning

    cuts = split_by(description)
    if cuts:
        warn(split_warning(cuts))
    for name in description.described:
        data = description.data_of(description.id_of(name))
        if data is not None and not data.exists():
            warn(f"{data}: there is no such file: {name} starts without rows")
    states = ask_all(description)
    running = [name for name in description.described if "agent" in states[name]]
    if running:
        idle = [name for name in description.described if name not in running]
        start = f", `fleetgp agent {file} --name {shlex.quote(idle[0])}` starts {idle[0]} alone" if idle else ""
        raise InputError(f"{', '.join(running)} of this fleet run already: `fleetgp down {file}` ends them{start}")


def report_started(file: Path, pids: Mapping[str, int], state: Path) -> None:
    """Print what runs, and what to do next. pids: of the agents, by name.  state: where they log to."""
    agent, beside = shlex.quote(next(iter(pids))), file.parent / "points.csv"
    points = shlex.quote(str(beside)) if beside.exists() else "points.csv"
    print_lines(
        f"{len(pids)} agents run, and log to {bold(state)}. `fleetgp status {file}` shows them.",
        escape(f"Their processes: {', '.join(f'{name} {pid}' for name, pid in pids.items())}."),
        f"`fleetgp ask {file} --agent {agent} {points} --out answer.csv` asks, `fleetgp down {file}` ends them.",
    )


def _stop_agents(launched: Launched) -> None:
    try:
        killed = launched.stop()
    except KeyboardInterrupt:  # once more: at once
        killed = launched.stop(0.0)
    if killed:
        warn(f"{', '.join(killed)} did not stop and had to be killed")


class LogPrinter:
    """Prints agents' log lines for people: when, who, what."""

    def __init__(self, description: Description) -> None:
        self._width = max(len(name) for name in description.names)
        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.Lock()

    def __call__(self, name: str, entry: dict[str, Any]) -> None:
        known = ("time", "level", "agent", "event")
        rest = "  ".join(f"{key} {_short_value(value)}" for key, value in entry.items() if key not in known)
        colour = {"warning": "yellow", "error": "red"}.get(entry.get("level", "info"), "default")
        line = f"[dim]{time.strftime('%H:%M:%S')}[/dim] [bold]{name:<{self._width}}[/bold] "
        with self._lock:
            self._console.print(f"{line}[{colour}]{escape(entry['event'])}[/{colour}]  {escape(rest)}", soft_wrap=True)


def _short_value(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(_short_value(item) for item in value) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def down(file: FILE) -> Report:
    """Stop all agents of a file that can be reached.

    [bold]Example[/bold]

    [cyan]fleetgp down fleet.toml[/cyan]
    """
    description = description_of(file)
    stopped: list[str] = []
    silent: dict[str, str] = {}
    for name in description.members:
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
        states = ask_all(description)
        left = [name for name in stopped if "agent" in states[name]]
    ended = [name for name in stopped if name not in left]
    text = f"Stopped: {', '.join(ended) or 'none'}."
    if silent:
        text += f" Not running, or not to be reached: {', '.join(silent)}."
    facts = {"stopped": ended, "still_running": left, "unreachable": list(silent)}
    failed = NetworkError(f"{', '.join(left)} did not stop within {STOP_SECONDS:g} s") if left else None
    return Report(facts, [text, *map(escape, notes_of_unreachable(silent))], error=failed)


def status(file: FILE) -> Report:
    """Show every agent that can be reached: what it does, what it estimates, which neighbours are up, what it sent.

    [bold]Example[/bold]

    [cyan]fleetgp status fleet.toml[/cyan]
    """
    description = description_of(file)
    from fleetgp.operator.client import split_by, split_warning

    states = ask_all(description)
    description = refreshed(description, states)
    cuts = split_by(description)
    facts = {"fleet": description.name, "digest": description.digest, "agents": states, "splitting_agents": cuts}
    reached = any("agent" in state for state in states.values())
    error = None if reached else unreachable(file, [state["error"] for state in states.values()])
    return Report(facts, status_lines(description, states), [split_warning(cuts)] if cuts else [], error)


def refreshed(description: Description, states: Mapping[str, Mapping[str, Any]]) -> Description:
    """With the roster of the agents that answer, if theirs is newer, for this command and all later ones."""
    from fleetgp.operator.members import newest_of

    newer = [name for name, state in states.items() if state.get("roster", 0) > description.roster.version]
    return newest_of(description, newer) if newer else description


def status_lines(description: Description, states: dict[str, dict[str, Any]]) -> list[str | Table]:
    """states: every agent's status, or its error."""
    from fleetgp.operator.client import former_members

    former = former_members(states, [name for name, state in states.items() if "agent" in state])
    states = {name: state for name, state in states.items() if name not in former}
    table = plain_table(f"Fleet {description.name}", "agent", "phase", "neighbours up", "round", "rows", "sent", left=2)
    notes = []
    for name, state in states.items():
        if "agent" not in state:
            reached = "cannot be reached" not in state["error"]
            table.add_row(name, f"[red]{'no answer' if reached else 'unreachable'}[/red]", "", "", "", "")
            continue
        links = state["neighbours"]
        up = sum(how == "up" for how in links.values())
        colour = "green" if up == len(links) else "red"
        linked = f"[{colour}]{up} of {len(links)}[/{colour}]"
        sent = readable_bytes(state["bytes"])
        table.add_row(name, state["phase"], linked, str(state["round"]), f"{state['rows']:,}", sent)
        notes += [*_left_of(name, state), *_agent_notes(name, state, description)]
    errors = {name: state["error"] for name, state in states.items() if "agent" not in state}
    notes += [f"[red]{escape(note)}[/red]" for note in notes_of_unreachable(errors)]
    parts = {tuple(state["members"]) for state in states.values() if state.get("members")}
    if len(parts) > 1:
        notes.append("The fleet is in parts: " + "; ".join(", ".join(part) for part in sorted(parts)) + ".")
    if description.left:
        kept = [name for name in description.left if description.id_of(name) not in description.without_rows]
        still = f" The rows of {escape(listed(kept))} still count." if kept else ""
        notes.append(f"Left the fleet: {escape(', '.join(description.left))}.{still}")
    if former:
        notes.append(f"Not in the file of the running agents: {escape(', '.join(former))}. Use their fleet.toml.")
    model = [*_estimates(description, states), *_training(states)]
    return [table, *model, *_summaries(description, states), *_ages(states), *notes]


def _estimates(description: Description, states: dict[str, dict[str, Any]]) -> list[str]:
    """The hyperparameters, once for all agents that have the same four digits."""
    holders: dict[str, list[str]] = {}
    for name, state in states.items():
        if state.get("theta"):
            values = zip(description.parameters, state["theta"].values(), strict=True)
            holders.setdefault(", ".join(f"{label} {value:.4g}" for label, value in values), []).append(name)
    everybody = len(holders) == 1 and sum(map(len, holders.values())) == len(states)
    return [f"{'All agents' if everybody else ', '.join(who)}: {escape(theta)}." for theta, who in holders.items()]


def _training(states: dict[str, dict[str, Any]]) -> list[str]:
    """How old the model is, and whether the new rows fit it."""
    from fleetgp.training.drift import Drift, judge

    there = [state for state in states.values() if state.get("trained") and state.get("drift")]
    ages = [state["trained"]["seconds"] for state in there if state["trained"].get("seconds") is not None]
    lines = [f"The model was trained {_age(min(ages))} ago."] if ages else []
    parts = [Drift(*(state["drift"][name] for name in ("rows", "batches", "squares", "odds"))) for state in there]
    need = judge(parts, sum(state["rows"] for state in there))
    if need.new_rows:
        lines.append(f"{need.advice} Mean square of their innovations: {need.mean_square:.2f} (1 is expected).")
    return lines


def _ages(states: dict[str, dict[str, Any]]) -> list[str]:
    """How old each agent's part of the map is, where it is newest."""
    seconds: dict[str, float] = {}
    for state in states.values():
        for name, age in ((state.get("summary") or {}).get("seconds") or {}).items():
            seconds[name] = min(age, seconds.get(name, age))
    whose: dict[str, list[str]] = {}
    for name, age in sorted(seconds.items(), key=lambda one: one[1]):
        whose.setdefault(_age(age), []).append(name)
    if len(whose) < 2:
        return []
    return ["Groups made " + "; ".join(f"{age} ago: {escape(listed(who))}" for age, who in whose.items()) + "."]


def _summaries(description: Description, states: dict[str, dict[str, Any]]) -> list[str]:
    """What the agents hold of the whole fleet's rows for dec-summary, once for all that hold as much."""
    holders: dict[str, list[str]] = {}
    oldest: dict[str, float] = {}
    for name, state in states.items():
        held = state.get("summary")
        if held:
            known = [one for one in description.names if held["groups"].get(one)]
            whose = "all agents" if known == description.members else listed(known) or "nobody"
            size = readable_bytes(sum(held["bytes"].values()))
            text = f"a summary of the rows of {escape(whose)}: {sum(held['groups'].values()):,} groups, {size}"
            holders.setdefault(text, []).append(name)
            oldest[text] = max(oldest.get(text, 0.0), *held["seconds"].values(), 0.0)
    everybody = len(holders) == 1 and sum(map(len, holders.values())) == len(states)
    lines = []
    for text, who in holders.items():
        hold = "All agents hold" if everybody else f"{escape(listed(who))} {'holds' if len(who) == 1 else 'hold'}"
        lines.append(f"{hold} {text}, the oldest {_age(oldest[text])} old.")
    return lines


def _age(seconds: float) -> str:
    """Format an age roughly.

    >>> _age(50.0), _age(200.0), _age(7200.0), _age(400_000.0)
    ('less than a minute', '3 min', '2 h', '5 d')
    """
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return "less than a minute"


def _left_of(name: str, state: Mapping[str, Any]) -> list[str]:
    """What has left an agent, and what that needs on disk; nothing of one that has lost no rows."""
    parts = [f"{counted(state[what], 'row')} {what}" for what in ("forgotten", "removed") if state.get(what)]
    if not parts:
        return []
    kept = counted(state["kept_groups"], "group")
    groups = f" ({state['kept_rows']:,} kept in {kept})" if state["kept_groups"] else ""
    return [f"{escape(name)}: {', '.join(parts)}{groups}; its journal has {readable_bytes(state['journal_bytes'])}."]


def _agent_notes(name: str, state: dict[str, Any], description: Description) -> list[str]:
    """What does not fit into the table."""
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


def watch(
    file: FILE,
    port: PORT = None,
    host: Annotated[str, option("Where to listen. Beyond this machine viewers must type a token.")] = "127.0.0.1",
    share: Annotated[float, option("The part of the fleet's time and bytes that maps may cost, up to 1.")] = 0.05,
    no_open: NO_OPEN = False,
    save: Annotated[Path | None, option("When it ends, save the page as one HTML file.")] = None,
) -> None:
    """Show a running fleet in the browser: its map, who is there, what happens. Ctrl-C ends the page, not the fleet.

    [bold]The five example boats[/bold]

    [cyan]fleetgp up boats/fleet.toml --example --detach[/cyan]

    [cyan]fleetgp watch boats/fleet.toml[/cyan]
    """
    description = description_of(file)
    check_page()
    from fleetgp.page.watch import Watch

    if not 0.0 < share <= 1.0:
        raise InputError(f"expected --share above 0 and up to 1, got {share:g}")
    # Whoever may use the page acts as the operator: with certificates that is not everybody on this machine.
    show(Watch(description, share=share), host, port, guarded=description.secured, no_open=no_open, save=save)


def check_page() -> None:
    """Refuse to show a page without the extra."""
    try:
        import starlette
        import uvicorn
    except ModuleNotFoundError as error:
        raise InputError(f'the page needs {error.name}: pip install "fleetgp[page]"') from error
    del starlette, uvicorn


def show(
    source: PageSource,
    host: str,
    port: int | None,
    *,
    guarded: bool = False,
    no_open: bool = False,
    save: Path | None = None,
) -> None:
    """Serve a page until Ctrl-C."""
    from fleetgp.page.server import PageServer, saved_page

    if save is not None:
        check_folder(save.parent)
    with ExitStack() as stack:
        stack.callback(_leave)
        server = PageServer(source, host, port, guarded=guarded)
        stack.callback(server.close)
        _end_like_ctrl_c()
        source.start()
        stack.callback(source.close)
        server.start()
        token = [f"Viewers type this token: {bold(server.token)}"] if server.token else []
        print_lines(f"The page is at {bold(server.address)} (Ctrl-C ends it).", *token)
        if server.token and not guarded:
            warn("what the page shows crosses the network as it is: use it among people you trust, or over SSH")
        if not no_open and not server.token:
            webbrowser.open(server.address)
        try:
            server.wait()
        except KeyboardInterrupt:
            if save is not None:
                with whole(save) as partial:
                    partial.write_text(saved_page(source), encoding="utf-8")
                print_lines(f"The page is saved in {bold(save)}.")


def _leave() -> None:
    """End the process at once if a thread hangs in a session with a dead agent: Python would wait for it."""
    if sys.exc_info()[0] is None and any(thread.name.startswith("page") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _end_like_ctrl_c() -> None:
    """Have SIGTERM and SIGHUP end the command as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def certs(
    folder: Annotated[Path, typer.Argument(help="Where authority and certificates go; or a fleet.toml with \\[tls].")],
    agents: Annotated[list[str] | None, option("The agents' names, for example: --agents auv1 auv2 auv3")] = None,
    hosts: Annotated[
        list[str] | None, option("Where they can be reached: addresses or names. (default: this machine)")
    ] = None,
    days: Annotated[int, option("How long the certificates are valid.", min=1, max=36_500)] = 365,
) -> Report:
    """Make a fleet's authority, and a certificate for each agent and for the operator.

    The authority is made once and kept; its key signs further agents and stays where it is. An agent gets three files:
    authority.crt, NAME.crt and NAME.key. The operator, who asks the agents, gets authority.crt, operator.crt and
    operator.key. From a fleet.toml, names and hosts are read; its \\[tls] must name a folder.

    [bold]Examples[/bold]

    [cyan]fleetgp certs keys/ --agents auv1 auv2 auv3 --hosts 10.0.0.1 10.0.0.2 10.0.0.3[/cyan]

    [cyan]fleetgp certs fleet.toml[/cyan]
    """
    from fleetgp.agent.certificates import check_name, make_certificate
    from fleetgp.network.zenoh.session import OPERATOR

    if folder.suffix == ".toml":
        if agents or hosts:
            raise InputError("names and hosts come from the fleet.toml: leave out --agents and --hosts")
        folder, wanted = _tls_of(folder)
    elif agents:
        if len(set(agents)) < len(agents) or OPERATOR in agents:
            raise InputError(f"agents must have different names, none of them {OPERATOR!r}, got {shortened(agents)}")
        for name in agents:
            check_name(name)
        places = tuple(hosts) if hosts else ("127.0.0.1", "localhost")
        wanted = dict.fromkeys(agents, places)
    else:
        raise InputError("give --agents, or a fleet.toml in place of the folder")
    issued = {agent: make_certificate(folder, agent, hosts=places, days=days) for agent, places in wanted.items()}
    operator = make_certificate(folder, OPERATOR, hosts=("localhost",), days=days)
    certificates = {agent: str(own.certificate) for agent, own in {**issued, OPERATOR: operator}.items()}
    lines = [
        f"{len(issued)} certificates and the operator's, valid for {days} days, are in {bold(folder)}.",
        "Keep [bold]authority.key[/bold] off the agents; each gets authority.crt and its own two files.",
    ]
    return Report({"authority": str(operator.authority), "certificates": certificates}, lines)


def _tls_of(file: Path) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """The folder of a description's certificates, and the hosts of every agent."""
    description = description_of(file)
    folder = description.tls_folder
    if folder is None:
        raise InputError(f'{file}: it has no [tls] with a folder: add [tls] and folder = "keys"')
    hosts: dict[str, tuple[str, ...]] = {}
    for agent in (description.agents[id] for id in description.present):
        host = agent.endpoint.split("/", 1)[1].rsplit(":", 1)[0].strip("[]")
        hosts[agent.name] = (host,)
    return folder, hosts
