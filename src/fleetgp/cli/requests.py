"""fleetgp ask, observe and retrain: requests to an agent of a running fleet."""

from __future__ import annotations

import re
import shlex
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from fleetgp.arrays import Array
from fleetgp.cli.answers import When, check_answer_file, check_level, factor_lines, read_points, write_answer
from fleetgp.cli.arguments import Family, option
from fleetgp.cli.options import AGENT, FILE, LEVEL, TABLE_READING, WHEN, Quiet, check_seconds
from fleetgp.cli.output import Report, bold, plain_table, warn
from fleetgp.cli.running import description_of, request
from fleetgp.data.times import Moment, moment, units_of_times
from fleetgp.declarations import flag_of
from fleetgp.errors import InputError, NetworkError, shortened
from fleetgp.io import read_observations
from fleetgp.io.formats import Reading
from fleetgp.options import RowOptions
from fleetgp.prediction.methods import BLOCK
from fleetgp.prediction.results import worst
from fleetgp.progress import Progress, listening
from fleetgp.units import counted, readable_bytes, readable_seconds

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: Seconds that an answer may take to arrive after the agent has had its time.
GRACE = 2.0
#: The column of an answer that names agents who were not there.
MISSING_AGENTS = "missing_agents"
#: The name of an `observe`; its parts have a number after it.
REQUEST_NAME = re.compile(r"[\w-]{1,48}", re.ASCII)
#: Numbers that are sent at once; a request may have 8 MiB.
MAX_NUMBERS = 200_000
#: Seconds between two attempts.
RETRY_PAUSE = 0.5
#: Seconds in which an agent says what time it is.
REACH = 10.0
#: Seconds between two requests for the progress of a training.
POLL_PAUSE = 0.2


def ask(
    *,
    file: FILE,
    points: Annotated[Path, typer.Argument(help="Points with the columns of the inputs.", readable=False)],
    agent: AGENT,
    out: Annotated[Path, option("Where the answer goes: CSV, Parquet or NPZ.")],
    method: Annotated[str | None, option("How the agents combine their answers. (default: that of the file)")] = None,
    seconds: Annotated[float | None, option("Give up after this long. (default: timeouts.ask of the file)")] = None,
    when: WHEN,
    level: LEVEL = None,
    table: TABLE_READING,
    quiet: Quiet = False,
) -> Report:
    """Ask one agent: the fleet computes the answer together.

    The answer has the columns of the points, and mean, std (the standard deviation of the field), std_observed (the
    standard deviation of an observation of this agent), n_agents (how many took part), and prior_only (True where the
    answer is no better than the prior). With --level 0.95 it also has low and high, between which 95% of observations
    should lie. If agents of the fleet were absent, a column "missing_agents" names them. Points may lack the column
    that is the `time` of the file: they are then about now, which is this agent's clock or its newest row (`now`).

    [bold]Examples[/bold]

    [cyan]fleetgp ask fleet.toml --agent auv3 points.csv --out answer.csv[/cyan]

    [cyan]fleetgp ask fleet.toml --agent auv3 places.csv --at-time 2021-01-05T12:00 --out answer.csv[/cyan]
    """
    description = description_of(file)
    check_answer_file(out, points)
    times = dict.fromkeys(description.inputs, units_of_times("days"))  # as agents read dates
    about = When(description.time, when.get("at_time"), partial(_moment_at, description, agent))
    queries, others = read_points(points, description.inputs, out, Reading(**table), times, about)
    check_level(level, points, others)
    if MISSING_AGENTS in others:
        raise InputError(f"{points}: the answer may have a column {MISSING_AGENTS!r} too: rename that of the points")
    limit = description.timeouts.ask if seconds is None else seconds
    check_seconds(limit)
    blocks = _ask_in_blocks(description, agent, queries, {"method": method}, limit, quiet)
    mean, variance, observed, participants = (
        np.concatenate([np.asarray(block[name], dtype=float) for block in blocks])
        for name in ("mean", "variance", "std_observed", "participants")
    )
    if any(block["missing"] for block in blocks):
        others[MISSING_AGENTS] = np.array([", ".join(block["missing"]) for block in blocks for _ in block["mean"]])
    unknown = np.concatenate([np.asarray(block["prior_only"], dtype=bool) for block in blocks])
    write_answer(out, others, mean, np.sqrt(variance), observed, participants.astype(int), unknown, level)
    facts = _answer_facts(blocks, description, agent, out)
    _warn_of_answer(blocks, facts, clock=description.time is not None and description.now == "clock")
    return _answer_report(facts, out)


def _moment_at(description: Description, agent: str, at_time: Moment | None) -> tuple[float, str]:
    """Return a point in time, of None now, as the number that the agent's rows have, and the units of these."""
    if description.time is None:
        raise InputError('--at-time: expected a fleet.toml with a time (time = "day", say), got one without')
    facts = request(description, agent, "status", REACH)["time"]
    if at_time is None and facts["now"] is None:
        raise InputError(f"{agent} has no rows, so it does not know what is now: ask another agent, or give --at-time")
    return facts["now"] if at_time is None else moment(at_time, facts["units"], "--at-time"), facts["units"]


def _ask_in_blocks(
    description: Description, agent: str, queries: Array, content: dict[str, Any], limit: float, quiet: bool
) -> list[dict[str, Any]]:
    """What the agent answers to each block of points, all of them within `limit` seconds."""
    from fleetgp.operator.client import AgentClient

    deadline = time.monotonic() + limit
    blocks: list[dict[str, Any]] = []
    with AgentClient(description, agent) as client, listening(not quiet) as listener:
        for start in range(0, len(queries), BLOCK):
            if listener is not None:
                listener(Progress(agent, start, len(queries), "", unit="point"))
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise NetworkError(f"no answer within {limit:g} s: got {start} of {len(queries)} points")
            block = queries[start : start + BLOCK].tolist()
            blocks.append(client.request("ask", left + GRACE, queries=block, seconds=left, **content))
        if listener is not None:
            listener(Progress(agent, len(queries), len(queries), "", unit="point"))
    return blocks


def _answer_facts(blocks: list[dict[str, Any]], description: Description, agent: str, out: Path) -> dict[str, Any]:
    last, points = blocks[-1], sum(len(block["mean"]) for block in blocks)
    points_of = {name: sum(block["said"].get(name, 0) for block in blocks) for name in description.members}
    return {
        "out": str(out),
        "agent": agent,
        "points": points,
        "method": last["method"],
        "consensus": description.prediction.consensus,
        "status": worst(block["status"] for block in blocks),
        "rounds": sum(block["rounds"] for block in blocks),
        "members": last["members"],
        "missing": sorted({name for block in blocks for name in block["missing"]}, key=description.names.index),
        "models": len({tuple(block["theta"]) for block in blocks}),
        "took_part": {name: count / points for name, count in points_of.items()},
        "jitter": max(block["jitter"] for block in blocks),
        "data_of": last.get("data_of"),
        "left_out": last.get("left_out", []),
        "bytes_sent": sum(block["bytes_sent"] for block in blocks),
        "theta": dict(zip(description.parameters, last["theta"], strict=True)),
        "trained": last["trained"],
        "factors": [min(min(block["factor"]) for block in blocks), max(max(block["factor"]) for block in blocks)],
    }


def _warn_of_answer(blocks: list[dict[str, Any]], facts: dict[str, Any], *, clock: bool) -> None:
    """clock: whether questions without a time are about the clock's."""
    if facts["status"] != "converged":
        warn(f"the answer is not final: {facts['status']}")
    if facts["models"] > 1:
        warn(f"the fleet trained in between: the answer is from {facts['models']} models; the last one is reported")
    ends = {block["trained"]["status"] for block in blocks} - {"converged"}
    if ends:
        warn(f"the training of the model ended by {', '.join(sorted(ends))}, not by agreement")
    unknown, points = sum(sum(block["prior_only"]) for block in blocks), facts["points"]
    if unknown:
        hint = '. If they are about now, and the rows are old: set now = "data" in fleet.toml' if clock else ""
        warn(
            f"{unknown:,} of {points:,} points are no better known than the prior: are they outside of the data?{hint}"
        )
    if facts["missing"]:
        absent = ", ".join(facts["missing"])
        warn(f"{absent} took no part: not running, cut off, or refused; `fleetgp status` shows which")
        known = [name for name in facts["missing"] if name in (facts["data_of"] or ())]
        if known:
            warn(f"what was known of {', '.join(known)} when the fleet last met is in the answer")
    if facts["left_out"]:
        warn(f"{', '.join(facts['left_out'])}: new rows wait until all agents are there, and are not in the answer")


def _answer_report(facts: dict[str, Any], out: Path) -> Report:
    table = plain_table("Who took part", "agent", "of the points")
    for name, share in facts["took_part"].items():
        table.add_row(name, "[red]not there[/red]" if name in facts["missing"] else f"{share:.0%}")
    trained, tree = facts["trained"], facts["consensus"] == "tree"
    # Sums along the tree are exact: there is no tolerance at which they could end or not.
    ended = "exact" if tree and facts["status"] == "converged" else facts["status"]
    lines: list[str | Table] = [
        f"{facts['points']:,} points by {facts['method']}, asked of {facts['agent']}: {ended} after {facts['rounds']} "
        f"rounds, in which {facts['agent']} sent {readable_bytes(facts['bytes_sent'])}.",
        table,
        f"The model was trained by {', '.join(trained['by'])} ({trained['method']}, {trained['status']}).",
        *factor_lines(*facts["factors"]),
        f"The answer is in {bold(out)}.",
    ]
    return Report(facts, lines)


def observe(
    *,
    file: FILE,
    rows: Annotated[Path, typer.Argument(help="New rows, with the columns of the agents' files.", readable=False)],
    agent: AGENT,
    missing: Annotated[dict[str, Any], Family(RowOptions, ("missing",))],
    name: Annotated[
        str | None,
        option("A name for these rows. Repeat a failed request under its name. (default: a random one)", "--request"),
    ] = None,
    seconds: Annotated[float, option("Try again for this long if no answer comes.")] = 30.0,
    table: TABLE_READING,
) -> Report:
    """Send new observations to an agent. The next prediction uses them, and so does the next training.

    The agent acknowledges rows when they are on its disk. A lost answer does no harm: the request is sent again under
    the same name, and no row is added twice. `fleetgp remove --request NAME` takes the rows back.

    [bold]Example[/bold]

    [cyan]fleetgp observe fleet.toml --agent auv3 new.csv[/cyan]
    """
    description = description_of(file)
    check_seconds(seconds)
    if name is not None and REQUEST_NAME.fullmatch(name) is None:
        raise InputError(f"--request must be 1 to 48 letters, digits, dashes and underscores, got {shortened(name)}")
    name = name or uuid.uuid4().hex
    new_rows = read_observations(
        rows,
        inputs=description.inputs,
        target=description.target,
        deviation=description.deviation,
        **missing,
        fill=description.agents[description.id_of(agent)].fill,
        reading=Reading(**table),
        of_agent=True,
    )
    if new_rows.dropped:
        warn(f"{rows}: {new_rows.dropped} rows with missing values were dropped")
    again = f"fleetgp observe {file} {rows} --agent {shlex.quote(agent)} --request {name}" + "".join(
        f" {flag_of(option)} {shlex.quote(value)}" for option, value in {**missing, **table}.items()
    )
    counts = send_rows(description, agent, new_rows.rows, name, time.monotonic() + seconds, again)
    new, total = counts["rows"], counts["in_all"]
    text = f"{agent} has {counted(new, 'new row')}, {total} in all. Request {name}."
    if counts["repeated"]:
        text = f"{agent} has {total} rows in all; it already had {counts['repeated']} of these {new}. Request {name}."
    return Report({"agent": agent, **counts, "request": name}, [text])


def send_rows(
    description: Description, agent: str, values: Array, name: str, deadline: float, again: str
) -> dict[str, int]:
    """Send rows to an agent, in parts NAME-0, NAME-1, ..., each repeated until it is acknowledged or time is up.

    deadline: on the monotonic clock.  again: the command that repeats this request, for errors.
    Returns how many rows were sent, how many of them the agent had already, and how many it has now.
    """
    size = max(1, MAX_NUMBERS // values.shape[1])
    counts = {"rows": 0, "repeated": 0, "in_all": 0}
    try:
        for number, start in enumerate(range(0, len(values), size)):
            rows = values[start : start + size].tolist()
            reply = _send_part(description, agent, {"rows": rows, "request": f"{name}-{number}"}, deadline)
            counts["rows"] += reply["rows"]
            counts["repeated"] += reply["rows"] if reply["repeated"] else 0
            counts["in_all"] = reply["in_all"]
    except (NetworkError, InputError, KeyboardInterrupt) as error:
        if isinstance(error, InputError) and not counts["rows"]:
            raise
        safe = f"{counts['rows']} of {len(values)} rows are acknowledged. To repeat it, with no row twice: {again}"
        if isinstance(error, KeyboardInterrupt):
            warn(safe)
            raise
        raise type(error)(f"{error}; {safe}") from error
    return counts


def _send_part(description: Description, agent: str, part: dict[str, Any], deadline: float) -> dict[str, Any]:
    warned = False
    while True:
        left = deadline - time.monotonic()
        try:
            reply: dict[str, Any] = request(description, agent, "observe", max(1.0, left), **part)
            return reply
        except NetworkError as error:
            if time.monotonic() + RETRY_PAUSE >= deadline:
                raise
            if not warned:
                warn(f"{error}; trying again for up to {left:.0f} s")
                warned = True
            time.sleep(RETRY_PAUSE)


def retrain(
    file: FILE,
    agent: AGENT,
    method: Annotated[str | None, option("A training method. (default: that of the file)")] = None,
    cold: Annotated[bool, option("Start from scratch, not at the present estimates.", "--cold")] = False,
    seconds: Annotated[float, option("Give up waiting after this long; the fleet continues.")] = 600.0,
    quiet: Quiet = False,
) -> Report:
    """Have the fleet train again, and wait until it has.

    [bold]Example[/bold]

    [cyan]fleetgp retrain fleet.toml --agent auv3[/cyan]
    """
    from fleetgp.operator.client import AgentClient

    description = description_of(file)
    check_seconds(seconds)
    deadline = time.monotonic() + seconds
    with AgentClient(description, agent) as client, listening(not quiet) as listener:
        number = client.request("train", method=method, cold=cold)["training"]
        while True:
            state = client.request("status")
            if state["fulfilled"] >= number:
                break
            if time.monotonic() > deadline:
                raise NetworkError(f"no new model within {seconds:g} s: {agent} is {state['phase']}")
            if listener is not None:
                listener(Progress(agent, state["round"], None, state["phase"]))
            time.sleep(POLL_PAUSE)
    trained = state["trained"]
    if state["outcome"] not in ("converged", "round limit", "time limit"):
        raise NetworkError(f"the training failed: {state['outcome']}")
    theta = ", ".join(f"{name} {value:.4g}" for name, value in state["theta"].items())
    took = readable_seconds(seconds - (deadline - time.monotonic()))
    text = f"{trained['method']}: {trained['status']} after {trained['rounds']} rounds, {took}. {theta}."
    if trained["status"] != "converged":
        warn(f"the training ended by {trained['status']}, not by agreement")
    return Report({"agent": agent, "trained": trained, "theta": state["theta"]}, [text])
