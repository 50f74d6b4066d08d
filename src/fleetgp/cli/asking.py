"""fleetgp status, ask, observe, retrain: talking to agents that run."""

from __future__ import annotations

import re
import shlex
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fleetgp.cli.options import DECIMAL, ENCODING, NOISY, SEP, Json, Quiet
from fleetgp.cli.output import bold, emit, plain_table, warn
from fleetgp.cli.points import check_answer_file, read_points, write_answer
from fleetgp.cli.standing import names_of, standing
from fleetgp.cli.talking import FILE, Telling, ask_all, description_of
from fleetgp.errors import InputError, NetworkError, shortened, unknown_name
from fleetgp.io import Reading, read_observations
from fleetgp.progress import Progress, listening
from fleetgp.units import readable_seconds

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: Points that are asked for at once.
BLOCK = 2000
#: The column of an answer that names agents who were not there.
MISSING = "missing_agents"
#: The name of an `observe`; its parts have a number after it.
REQUEST = re.compile(r"[\w-]{1,48}", re.ASCII)

AGENT = Annotated[str, typer.Option("--agent", help="Whom to talk to: an agent's name.")]
SECONDS = Annotated[float | None, typer.Option(help="Give up after this long. (default: timeouts.ask of the file)")]


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
        errors = [state["error"] for state in told.values() if "cannot be reached" not in state["error"]]
        raise NetworkError(errors[0] if errors else f"no agent of {file} can be reached: are they running?")


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
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one agent: the fleet computes the answer together.

    The answer has the columns of the points, the mean, the standard deviation, and how many agents took part. If agents
    of the fleet were not there, a column "missing_agents" names them.

    [bold]Example[/bold]

    [cyan]fleetgp ask fleet.toml --agent auv3 points.csv --out answer.csv[/cyan]
    """
    from fleetgp.operator.client import AgentClient

    description = description_of(file)
    check_answer_file(out, points)
    how = Reading(sep=sep, decimal=decimal, encoding=encoding)
    queries, others = read_points(points, description.inputs, out, how)
    if MISSING in others:
        raise InputError(f"{points}: the answer may have a column {MISSING!r} too: rename that of the points")
    limit = description.timeouts.ask if seconds is None else seconds
    if not 0.0 < limit <= 86_400.0:
        raise InputError(f"--seconds must lie above 0 and up to 86400, got {limit}")
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
    if any(block["missing"] for block in blocks):
        others[MISSING] = np.array([", ".join(block["missing"]) for block in blocks for _ in block["mean"]])
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
        "theta": dict(zip(names_of(description), last["theta"], strict=True)),
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
    unknown = sum(sum(block["uninformed"]) for block in blocks)
    if unknown:
        warn(f"{unknown:,} of {points:,} points are no better known than the prior: are they outside of the data?")
    if missing:
        warn(f"{', '.join(missing)} took no part: not running, cut off, or refused; `fleetgp status` tells which")
    asked = f"{points:,} points by {last['method']}, asked of {agent}: {worst} after {facts['rounds']} rounds"
    by = ", ".join(last["trained"]["by"])
    model = f"The model was trained by {by} ({last['trained']['method']}, {last['trained']['status']})."
    emit(facts, f"{asked}.", table, model, f"The answer is in {bold(out)}.", as_json=as_json)


def observe(
    file: FILE,
    rows: Annotated[Path, typer.Argument(help="New rows, with the inputs' and the target's columns.", readable=False)],
    agent: AGENT,
    missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")] = "refuse",
    name: Annotated[
        str | None,
        typer.Option("--request", help="Of an observe that failed: what the agent has already is not added again."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Try again for this long if no answer comes.")] = 30.0,
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    as_json: Json = False,
) -> None:
    """Give an agent new observations. They count at once in predictions, and in the next training.

    Rows are acknowledged when they are on the agent's disk. A lost answer does no harm: the request is sent again under
    the same name, and counts once.

    [bold]Example[/bold]

    [cyan]fleetgp observe fleet.toml --agent auv3 new.csv[/cyan]
    """
    description = description_of(file)
    own = description.agents[description.id_of(agent)]
    if missing not in ("refuse", "drop"):
        raise unknown_name("way with missing values", missing, ("refuse", "drop"))
    if not 0.0 < seconds <= 86_400.0:
        raise InputError(f"--seconds must lie above 0 and up to 86400, got {seconds}")
    if name is not None and REQUEST.fullmatch(name) is None:
        raise InputError(f"--request must be 1 to 48 letters, digits, dashes and underscores, got {shortened(name)}")
    name = name or uuid.uuid4().hex
    found = read_observations(
        rows,
        inputs=description.inputs,
        target=description.target,
        missing=missing,  # type: ignore[arg-type]
        fill=own.fill,
        reading=Reading(sep=sep, decimal=decimal, encoding=encoding),
        of_agent=True,
    )
    values = np.column_stack([found.inputs, found.observations])
    if found.dropped:
        warn(f"{rows}: {found.dropped} rows with missing values were dropped")
    telling = Telling(description, agent, name, time.monotonic() + seconds)
    again = f"fleetgp observe {file} {rows} --agent {shlex.quote(agent)} --request {name}"
    said = {"--missing": missing, "--sep": sep, "--decimal": decimal, "--encoding": encoding}
    again += "".join(
        f" {option} {shlex.quote(value)}" for option, value in said.items() if value not in (None, "refuse")
    )
    try:
        told = telling.tell(values)
    except (NetworkError, InputError) as error:
        if not telling.kept and isinstance(error, InputError):
            raise
        raise type(error)(
            f"{error}; {telling.kept} of {len(values)} rows are acknowledged. To repeat it, with no row twice: {again}"
        ) from error
    except KeyboardInterrupt:
        warn(f"{telling.kept} of {len(values)} rows are acknowledged. To repeat it, with no row twice: {again}")
        raise
    text = f"{agent} has {told['rows']} new {'row' if told['rows'] == 1 else 'rows'}, {told['in_all']} in all."
    if told["repeated"]:
        text = (
            f"{agent} has {told['in_all']} rows in all; {told['repeated']} of these {told['rows']} were there already."
        )
    emit({"agent": agent, **told, "request": name}, text, as_json=as_json)


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
    from fleetgp.operator.client import AgentClient

    description = description_of(file)
    if not 0.0 < seconds <= 86_400.0:
        raise InputError(f"--seconds must lie above 0 and up to 86400, got {seconds}")
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


def register(app: typer.Typer) -> None:
    for command in (status, ask, observe, retrain):
        app.command()(command)
