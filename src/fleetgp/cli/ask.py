"""fleetgp ask: a question to one agent of a running fleet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fleetgp.arrays import Array
from fleetgp.cli.answers import told_of_factors
from fleetgp.cli.options import AGENT, FILE, LEVEL, Output, check_seconds
from fleetgp.cli.output import bold, emit, plain_table, warn
from fleetgp.cli.points import check_answer_file, check_level, read_points, write_answer
from fleetgp.cli.reading import TableReading
from fleetgp.cli.running import description_of
from fleetgp.data.times import units_of_times
from fleetgp.errors import InputError, NetworkError
from fleetgp.prediction.predict import BLOCK
from fleetgp.prediction.results import worst
from fleetgp.progress import Progress, listening
from fleetgp.units import readable_bytes

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: Seconds that an answer may take to arrive after the agent has had its time.
GRACE = 2.0
#: The column of an answer that names agents who were not there.
MISSING_AGENTS = "missing_agents"


def ask(
    *,
    file: FILE,
    points: Annotated[Path, typer.Argument(help="Points with the columns of the inputs.", readable=False)],
    agent: AGENT,
    out: Annotated[Path, typer.Option(help="Where the answer goes: CSV, Parquet or NPZ.")],
    method: Annotated[
        str | None, typer.Option(help="How the agents combine their answers. (default: that of the file)")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Give up after this long. (default: timeouts.ask of the file)")
    ] = None,
    level: LEVEL = None,
    table: TableReading,
    output: Output,
) -> None:
    """Ask one agent: the fleet computes the answer together.

    The answer has the columns of the points, and mean, std (the standard deviation of the field), std_observed (that of
    an observation of this agent), agents (how many took part), and uninformed (True where the answer is no better than
    the prior); with --level 0.95 also low and high, between which 95 % of observations shall lie. If agents of the
    fleet were not there, a column "missing_agents" names them.

    [bold]Example[/bold]

    [cyan]fleetgp ask fleet.toml --agent auv3 points.csv --out answer.csv[/cyan]
    """
    description = description_of(file)
    check_answer_file(out, points)
    times = dict.fromkeys(description.inputs, units_of_times("days"))  # as agents read dates
    queries, others = read_points(points, description.inputs, out, table.reading, times)
    check_level(level, points, others)
    if MISSING_AGENTS in others:
        raise InputError(f"{points}: the answer may have a column {MISSING_AGENTS!r} too: rename that of the points")
    limit = description.timeouts.ask if seconds is None else seconds
    check_seconds(limit)
    blocks = _ask_in_blocks(description, agent, queries, {"method": method}, limit, output.quiet)
    mean, variance, observed, participants = (
        np.concatenate([np.asarray(block[name], dtype=float) for block in blocks])
        for name in ("mean", "variance", "std_observed", "participants")
    )
    if any(block["missing"] for block in blocks):
        others[MISSING_AGENTS] = np.array([", ".join(block["missing"]) for block in blocks for _ in block["mean"]])
    unknown = np.concatenate([np.asarray(block["uninformed"], dtype=bool) for block in blocks])
    write_answer(out, others, mean, np.sqrt(variance), observed, participants.astype(int), unknown, level)
    facts = _facts(blocks, description, agent, out)
    _warn(blocks, facts)
    _report(facts, out, output.as_json)


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


def _facts(blocks: list[dict[str, Any]], description: Description, agent: str, out: Path) -> dict[str, Any]:
    last, points = blocks[-1], sum(len(block["mean"]) for block in blocks)
    said = {name: sum(block["said"].get(name, 0) for block in blocks) for name in description.names}
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
        "took_part": {name: count / points for name, count in said.items()},
        "jitter": max(block["jitter"] for block in blocks),
        "data_of": last.get("data_of"),
        "left_out": last.get("left_out", []),
        "bytes_sent": sum(block["bytes_sent"] for block in blocks),
        "theta": dict(zip(description.parameters, last["theta"], strict=True)),
        "trained": last["trained"],
        "factors": [min(min(block["factor"]) for block in blocks), max(max(block["factor"]) for block in blocks)],
    }


def _warn(blocks: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    if facts["status"] != "converged":
        warn(f"the answer is not final: {facts['status']}")
    if facts["models"] > 1:
        warn(
            f"the fleet trained in between: the answer is from {facts['models']} models, and what is told is the last's"
        )
    ends = {block["trained"]["status"] for block in blocks} - {"converged"}
    if ends:
        warn(f"the training of the model ended by {', '.join(sorted(ends))}, not by agreement")
    unknown, points = sum(sum(block["uninformed"]) for block in blocks), facts["points"]
    if unknown:
        warn(f"{unknown:,} of {points:,} points are no better known than the prior: are they outside of the data?")
    if facts["missing"]:
        absent = ", ".join(facts["missing"])
        warn(f"{absent} took no part: not running, cut off, or refused; `fleetgp status` tells which")
        known = [name for name in facts["missing"] if name in (facts["data_of"] or ())]
        if known:
            warn(f"what was known of {', '.join(known)} when the fleet last met is in the answer")
    if facts["left_out"]:
        warn(f"{', '.join(facts['left_out'])}: new rows wait until all agents are there, and are not in the answer")


def _report(facts: dict[str, Any], out: Path, as_json: bool) -> None:
    table = plain_table("Who took part", "agent", "of the points")
    for name, share in facts["took_part"].items():
        table.add_row(name, "[red]not there[/red]" if name in facts["missing"] else f"{share:.0%}")
    trained, tree = facts["trained"], facts["consensus"] == "tree"
    # Sums along the tree are exact: there is no tolerance at which they could end or not.
    ended = "exact" if tree and facts["status"] == "converged" else facts["status"]
    emit(
        facts,
        f"{facts['points']:,} points by {facts['method']}, asked of {facts['agent']}: {ended} after {facts['rounds']} "
        f"rounds, in which {facts['agent']} sent {readable_bytes(facts['bytes_sent'])}.",
        table,
        f"The model was trained by {', '.join(trained['by'])} ({trained['method']}, {trained['status']}).",
        *told_of_factors(*facts["factors"]),
        f"The answer is in {bold(out)}.",
        as_json=as_json,
    )
