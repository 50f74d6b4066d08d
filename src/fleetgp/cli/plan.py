"""fleetgp plan: what a described fleet would send, over which links, and what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

import numpy as np
import typer
from rich.markup import escape

from fleetgp.advice import Advice, recommend
from fleetgp.advice.facts import Facts
from fleetgp.advice.recommend import Task
from fleetgp.cli.options import FILE, Json
from fleetgp.cli.output import emit, plain_table, warn
from fleetgp.cli.running import description_of
from fleetgp.errors import InputError, listed
from fleetgp.io.tables import read_observations

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

LINK = Annotated[
    str | None,
    typer.Option(help='What links are like: "9600 bit/s, 2 s"; also the loss, "5 %", and "half duplex".'),
]
QUERIES = Annotated[int, typer.Option(help="How many points a question has.", min=1)]
PRIVATE = Annotated[
    str | None, typer.Option(help="What must not be told: rows, sums (rows and moments) or likelihoods (these too).")
]
ACCURACY = Annotated[str, typer.Option(help="cheap, balanced or best.")]
ASKER = Annotated[str | None, typer.Option("--agent", help="The only agent that needs answers. (default: all do)")]
ROWS = Annotated[int | None, typer.Option(help="Rows of an agent whose file cannot be read here.", min=1)]


def plan(
    *,
    file: FILE,
    link: LINK = None,
    queries: QUERIES = 100,
    private: PRIVATE = None,
    accuracy: ACCURACY = "balanced",
    agent: ASKER = None,
    rows: ROWS = None,
    as_json: Json = False,
) -> None:
    """Say what trainings and answers of a fleet would send, how long it takes on such links, and which methods to use.

    Nothing is started, and nothing is sent. Rows are counted in the agents' files, where these can be read from here.

    [bold]Example[/bold]

    [cyan]fleetgp plan fleet.toml --link "9600 bit/s, 2 s" --queries 500[/cyan]
    """
    description = description_of(file)
    from fleetgp.operator.client import split_by, split_warning

    counts, unread = _counted(description, rows)
    asker = None if agent is None else description.id_of(agent)
    given: dict[str, Any] = {
        "link": link,
        "private": private or description.private,
        "accuracy": accuracy,
        "queries": queries,
    }
    found = recommend(_facts(description, counts), agent=asker, **given)
    cuts = split_by(description)
    facts = {
        "fleet": description.name,
        "rows_of": dict(zip(description.names, counts, strict=True)),
        "not_counted": unread,
        "described": {"training": description.training.method, "prediction": description.prediction.method},
        "splitting_agents": cuts,
    }
    emit({**facts, **found.facts}, *_told(description, found), as_json=as_json)
    if as_json:
        return
    if unread:
        guess = counts[description.names.index(unread[0])]
        warn(f"the files of {listed(unread)} are not here: they are taken to have {guess:,} rows each (--rows)")
    if cuts:
        warn(split_warning(cuts))


def _counted(description: Description, rows: int | None) -> tuple[list[int], list[str]]:
    """How many rows each agent has, and whose are not known."""
    found: list[int | None] = []
    for number, own in enumerate(description.agents):
        path = description.data_of(number)
        if not path.is_file():
            found.append(None)
            continue
        columns: dict[str, Any] = {"inputs": description.inputs, "target": description.target}
        read = read_observations(path, **columns, missing=own.missing, fill=own.fill, of_agent=True)
        found.append(len(read.inputs))
    known = [count for count in found if count is not None]
    if not known and rows is None:
        raise InputError("none of the agents' files can be read here: give --rows, how many an agent has")
    guess = rows if rows is not None else round(float(np.median(known)))
    unread = [name for name, count in zip(description.names, found, strict=True) if count is None]
    return [guess if count is None else count for count in found], unread


def _facts(description: Description, counts: list[int]) -> Facts:
    return Facts(
        tuple(counts),
        description.dimension,
        description.graph,
        description.kernels,
        description.normalize,
        description.mean,
        description.coordinates,
    )


def _told(description: Description, found: Advice) -> list[Any]:
    """For people."""
    own = description.training.method, description.prediction.method
    best = found.trainer, found.predictor
    lines: list[Any] = []
    if own == best:
        lines.append(f"[bold]We recommend {best[0]} and {best[1]}, as the file has them.[/bold]")
    else:
        lines.append(f"[bold]We recommend {best[0]} and {best[1]}; the file has {own[0]} and {own[1]}.[/bold]")
    lines += [escape(f"- {sentence}") for sentence in found.why]
    for task in get_args(Task):
        header, rows = found.table(task)
        table = plain_table("", *header, left=2)
        for row in rows:
            table.add_row(*row)
        lines += ["", table]
    lines += ["", found.legend, *(f"Not for you: {escape(line)}." for line in found.refusals)]
    lines.append("Not counted: two short hellos a second over each link, by which running agents know that it is up.")
    return lines
