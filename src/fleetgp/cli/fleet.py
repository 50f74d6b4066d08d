"""fleetgp certs, agent, up, down, status, ask, observe, retrain: a fleet with a process per agent."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from fleetgp.cli.models import NOISY, Json, Quiet
from fleetgp.cli.output import bold, emit, plain_table, warn
from fleetgp.cli.points import check_answer_file, read_points, write_answer
from fleetgp.cli.variadic import VariadicCommand
from fleetgp.data import read_observations
from fleetgp.errors import InputError, NetworkError
from fleetgp.progress import Progress, listening
from fleetgp.units import readable_bytes, readable_seconds

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: Points that are asked for at once.
BLOCK = 2000

FILE = Annotated[Path, typer.Argument(help="The fleet's description, fleet.toml.", readable=False)]
AGENT = Annotated[str, typer.Option("--agent", help="Whom to talk to: an agent's name.")]
SECONDS = Annotated[float | None, typer.Option(help="Give up after this long. (default: timeouts.ask of the file)")]


def certs(
    folder: Annotated[Path, typer.Argument(help="Where authority and certificates go; or a fleet.toml with [tls].")],
    agents: Annotated[
        list[str] | None, typer.Option(help="The agents' names, for example: --agents auv1 auv2 auv3")
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option(help="Where they can be reached: addresses or names. (default: this machine)")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.", min=1)] = 365,
    as_json: Json = False,
) -> None:
    """Make a fleet's authority, and a certificate for each agent and for the operator.

    The authority is made once and kept; its key signs further agents and stays where it is. An agent gets three files:
    authority.crt, NAME.crt and NAME.key. Whoever asks the agents gets authority.crt, operator.crt and operator.key.
    From a fleet.toml, names and hosts are read; its [tls] must name a folder.

    [bold]Examples[/bold]

    [cyan]fleetgp certs keys/ --agents auv1 auv2 auv3 --hosts 10.0.0.1 10.0.0.2 10.0.0.3[/cyan]

    [cyan]fleetgp certs fleet.toml[/cyan]
    """
    from fleetgp.agent.certificates import make_certificate
    from fleetgp.network.links import OPERATOR

    if folder.suffix == ".toml":
        if agents or hosts:
            raise InputError("names and hosts come from the fleet.toml: leave out --agents and --hosts")
        folder, wanted = _of_file(folder)
    elif agents:
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
    description = _description(file)
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

    run_agent(_description(file), name, log_file=log)


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
    from fleetgp.agent.example import write_example
    from fleetgp.agent.launch import Launched

    if example:
        write_example(file)
    description = _description(file)
    for number, one in enumerate(description.agents):
        if not description.data_of(number).exists():
            raise InputError(f"{description.data_of(number)}: there is no such file, which {one.name} needs")
    running = [name for name, told in _ask_all(description).items() if "agent" in told]
    if running:
        raise InputError(f"{', '.join(running)} of this fleet run already: `fleetgp down {file}` ends them")
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
            emit({}, f"{count} agents run, and log to {bold(description.state)}. `fleetgp status {file}` shows them.",
                 f"`fleetgp ask {file} --agent {description.names[0]} points.csv --out answer.csv` asks, "
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
    description = _description(file)
    stopped, silent = [], []
    for name in description.names:
        try:
            _request(description, name, "stop", 5.0)
            stopped.append(name)
        except NetworkError:
            silent.append(name)
    if not stopped:
        raise NetworkError(f"no agent of {file} can be reached: are they running?")
    deadline = time.monotonic() + 30.0
    left = stopped
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        told = _ask_all(description)
        left = [name for name in stopped if "agent" in told[name]]
    ended = [name for name in stopped if name not in left]
    text = f"Stopped: {', '.join(ended) or 'none'}."
    if silent:
        text += f" Not running, or not to be reached: {', '.join(silent)}."
    emit({"stopped": ended, "still_running": left, "unreachable": silent}, text, as_json=as_json)
    if left:
        raise NetworkError(f"{', '.join(left)} did not stop within 30 s")


def status(file: FILE, as_json: Json = False) -> None:
    """Show every agent that can be reached: what it does, what it estimates, whom it hears, what it sent.

    [bold]Example[/bold]

    [cyan]fleetgp status fleet.toml[/cyan]
    """
    description = _description(file)
    told = _ask_all(description)
    labels = ", ".join([*(f"l_{name}" for name in description.inputs), "sigma_f", "sigma_eps"])
    title = f"Fleet {description.name}; theta is {labels}"
    table = plain_table(title, "agent", "phase", "neighbours", "round", "theta", "rows", "sent", left=3)
    notes = []
    for name, state in told.items():
        if "agent" not in state:
            table.add_row(name, "[red]unreachable[/red]", "", "", "", "", "")
            continue
        heard = [
            f"[green]{other}[/green]" if standing == "up" else f"[red]{other} {standing.split(':')[0]}[/red]"
            for other, standing in state["neighbours"].items()
        ]
        theta = " ".join(f"{value:.4g}" for value in state["theta"].values())
        sent = readable_bytes(state["bytes"])
        rows = f"{state['rows']:,}"
        table.add_row(name, state["phase"], ", ".join(heard), str(state["round"]), theta, rows, sent)
        notes += _notes(name, state, description.digest)
    parts = {tuple(state["members"]) for state in told.values() if state.get("members")}
    if len(parts) > 1:
        notes.append("The fleet is in parts: " + "; ".join(", ".join(part) for part in sorted(parts)) + ".")
    emit({"fleet": description.name, "digest": description.digest, "agents": told}, table, *notes, as_json=as_json)
    if not any("agent" in state for state in told.values()):
        raise NetworkError(f"no agent of {file} can be reached: are they running?")


def _notes(name: str, state: dict[str, Any], digest: str) -> list[str]:
    """What a table has no room for."""
    notes = []
    if state["digest"] != digest:
        notes.append(f"[red]{name} holds another fleet description than this file.[/red]")
    if state["problem"]:
        notes.append(f"[red]{name}: {escape(state['problem'])}[/red]")
    notes += [
        f"[red]{name}: {other} is {escape(standing)}[/red]"
        for other, standing in state["neighbours"].items()
        if ":" in standing
    ]
    trained = state["trained"]
    if trained is not None and trained["status"] != "converged":
        notes.append(f"[yellow]{name}: its training ended by {trained['status']}, not by agreement.[/yellow]")
    return notes


def ask(
    file: FILE,
    points: Annotated[Path, typer.Argument(help="Points with the columns of the inputs.", readable=False)],
    agent: AGENT,
    out: Annotated[Path, typer.Option(help="Where the answer goes: CSV, Parquet or NPZ.")],
    method: Annotated[
        str | None, typer.Option(help="How the agents combine their answers. (default: that of the file)")
    ] = None,
    noisy: NOISY = False,
    seconds: SECONDS = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one agent: the fleet computes the answer together.

    The answer has the columns of the points, the mean, the standard deviation, and how many agents took part.

    [bold]Example[/bold]

    [cyan]fleetgp ask fleet.toml --agent auv3 points.csv --out answer.csv[/cyan]
    """
    from fleetgp.agent.client import AgentClient

    description = _description(file)
    check_answer_file(out, points)
    queries, others = read_points(points, description.inputs)
    limit = description.timeouts.ask if seconds is None else seconds
    deadline = time.monotonic() + limit
    blocks: list[dict[str, Any]] = []
    with AgentClient(description, agent) as client, listening(not quiet) as listener:
        for start in range(0, max(1, len(queries)), BLOCK):
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise NetworkError(f"no answer within {limit:g} s: {len(blocks) * BLOCK} of {len(queries)} points came")
            if listener is not None:
                listener(Progress(agent, start, len(queries), "", unit="point"))
            block = queries[start : start + BLOCK].tolist()
            content = {"method": method, "noisy": noisy, "seconds": left}
            blocks.append(client.request("ask", left + 2.0, queries=block, **content))
        if listener is not None:
            listener(Progress(agent, len(queries), len(queries), "", unit="point"))
    mean, variance, participants = (
        np.concatenate([np.asarray(block[name], dtype=float) for block in blocks])
        for name in ("mean", "variance", "participants")
    )
    write_answer(out, others, mean, variance, participants.astype(int))
    _report(blocks, description, agent, out, as_json)


def _report(blocks: list[dict[str, Any]], description: Description, agent: str, out: Path, as_json: bool) -> None:
    statuses = ("converged", "round limit", "diverged")
    last, points = blocks[-1], sum(len(block["mean"]) for block in blocks)
    said = {name: sum(block["said"].get(name, 0) for block in blocks) for name in description.names}
    models = {tuple(block["theta"]) for block in blocks}
    worst = max((block["status"] for block in blocks), key=statuses.index)
    missing = sorted({name for block in blocks for name in block["missing"]}, key=description.names.index)
    facts = {
        "out": str(out),
        "agent": agent,
        "points": points,
        "method": last["method"],
        "status": worst,
        "rounds": max(block["rounds"] for block in blocks),
        "members": last["members"],
        "missing": missing,
        "models": len(models),
        "took_part": {name: count / max(1, points) for name, count in said.items()},
        "jitter": max(block["jitter"] for block in blocks),
        "bytes": sum(block["bytes"] for block in blocks),
        "theta": last["theta"],
        "trained": last["trained"],
    }
    table = plain_table("Who took part", "agent", "of the points")
    for name, count in said.items():
        table.add_row(name, "[red]not there[/red]" if name in missing else f"{count / max(1, points):.0%}")
    if worst != "converged":
        warn(f"the answer is not final: {worst}")
    if len(models) > 1:
        warn(f"the fleet trained in between: the answer comes from {len(models)} models, the last of which is told")
    ends = {block["trained"]["status"] for block in blocks} - {"converged"}
    if ends:
        warn(f"the training of the model ended by {', '.join(sorted(ends))}, not by agreement")
    if missing:
        warn(f"{', '.join(missing)} took no part: not running, or cut off")
    asked = f"{points:,} points by {last['method']}, asked of {agent}: {worst} after {facts['rounds']} rounds"
    emit(facts, f"{asked}.", table, f"The answer is in {bold(out)}.", as_json=as_json)


def observe(
    file: FILE,
    rows: Annotated[Path, typer.Argument(help="New rows, with the inputs' and the target's columns.", readable=False)],
    agent: AGENT,
    as_json: Json = False,
) -> None:
    """Give an agent new observations. They count at once in predictions, and in the next training.

    [bold]Example[/bold]

    [cyan]fleetgp observe fleet.toml --agent auv3 new.csv[/cyan]
    """
    description = _description(file)
    found = read_observations(rows, inputs=description.inputs, target=description.target)
    values = np.column_stack([found.inputs, found.observations]).tolist()
    told = _request(description, agent, "observe", 30.0, rows=values)
    emit({"agent": agent, **told}, f"{agent} has {told['rows']} new rows, {told['in_all']} in all.", as_json=as_json)


def retrain(
    file: FILE,
    agent: AGENT,
    method: Annotated[str | None, typer.Option(help="A training method. (default: that of the file)")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="Start anew instead of at the present estimates.")] = False,
    seconds: Annotated[float, typer.Option(help="Give up waiting after this long; the fleet goes on.")] = 600.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Have the fleet train again, and wait until it has.

    [bold]Example[/bold]

    [cyan]fleetgp retrain fleet.toml --agent auv3[/cyan]
    """
    from fleetgp.agent.client import AgentClient

    description = _description(file)
    deadline = time.monotonic() + seconds
    with AgentClient(description, agent) as client, listening(not quiet) as listener:
        wish = client.request("train", method=method, cold=cold)["wish"]
        while True:
            state = client.request("status")
            if state["fulfilled"] >= wish:
                break
            if time.monotonic() > deadline:
                raise NetworkError(f"no new model within {seconds:g} s: {agent} is {state['phase']}")
            if listener is not None:
                listener(Progress(agent, state["round"], None, state["phase"]))
            time.sleep(0.2)
    trained = state["trained"]
    if state["outcome"] not in ("converged", "round limit"):
        raise NetworkError(f"the training came to nothing: {state['outcome']}")
    theta = ", ".join(f"{name} {value:.4g}" for name, value in state["theta"].items())
    took = readable_seconds(seconds - (deadline - time.monotonic()))
    text = f"{trained['method']}: {trained['status']} after {trained['rounds']} rounds, {took}. {theta}."
    if trained["status"] != "converged":
        warn(f"the training ended by {trained['status']}, not by agreement")
    emit({"agent": agent, "trained": trained, "theta": state["theta"]}, text, as_json=as_json)


# ---- talking ------------------------------------------------------------------------------------------------


def _description(file: Path) -> Description:
    try:
        from fleetgp.agent.description import read_description
    except ModuleNotFoundError as error:
        raise InputError(f'a fleet of processes needs {error.name}: install the extra "fleet"') from error
    return read_description(file)


def _request(description: Description, agent: str, verb: str, seconds: float, **content: Any) -> Any:
    from fleetgp.agent.client import AgentClient

    with AgentClient(description, agent) as client:
        return client.request(verb, seconds, **content)


def _ask_all(description: Description) -> dict[str, dict[str, Any]]:
    """Every agent's status, or its error; all at once, since some may not answer."""
    from fleetgp.agent.client import AgentClient

    def one(name: str) -> dict[str, Any]:
        try:
            with AgentClient(description, name, reach=2.0) as client:
                state: dict[str, Any] = client.request("status", 5.0)
                return state
        except NetworkError as error:
            return {"error": str(error)}

    with ThreadPoolExecutor(min(32, len(description.names))) as pool:
        return dict(zip(description.names, pool.map(one, description.names), strict=True))


def register(app: typer.Typer) -> None:
    app.command(cls=VariadicCommand)(certs)
    for command in (agent, up, down, status, ask, observe, retrain):
        app.command()(command)
