"""fleetgp suggest: where to measure next."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from fleetgp.cli import options
from fleetgp.cli.answers import known_model
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold, emit, plain_table
from fleetgp.cli.points import check_answer_file, read_points, refuse_clash
from fleetgp.cli.reading import FileReading
from fleetgp.cli.sent import sent_facts, told_sent
from fleetgp.cli.together import Together, number_of
from fleetgp.errors import InputError
from fleetgp.io.tables import write_columns
from fleetgp.prediction.suggestion import CRITERIA

COUNT = Annotated[int, typer.Option(help="How many places; with --all, for each agent.", min=1)]
BY = Annotated[str, typer.Option(help="variance (where least is known) or mutual-information (what tells most).")]
WHOSE = Annotated[str | None, typer.Option(help="Who shall go there: an agent's name. (default: the first)")]
ALL = Annotated[bool, typer.Option("--all", help="Places for all agents, no place twice.")]
#: What stands beside the columns of the candidates.
ADDED = ("agent", "gain")


def suggest(
    model: options.MODEL,
    candidates: options.POINTS,
    out: options.ANSWER_OUT,
    reading: FileReading,
    together: Together,
    n: COUNT = 1,
    by: BY = "variance",
    agent: WHOSE = None,
    everyone: ALL = False,
    as_json: options.Json = False,
) -> None:
    """Suggest where to measure next, among the candidates in a file.

    Each place is chosen given that those before it are measured, so that they spread. The result has the rows of the
    chosen candidates in their order, whose each is, and what it gains: by variance that of the field there, in squared
    units of the target; by mutual-information nats.

    [bold]Examples[/bold]

    [cyan]fleetgp suggest model/ candidates.csv --n 5 --agent boat1 --out next.csv[/cyan]

    [cyan]fleetgp suggest model/ candidates.csv --n 2 --by mutual-information --all --out next.csv[/cyan]
    """
    if everyone and agent is not None:
        raise InputError("--all is for every agent, and --agent for one: give one of them")
    options.one_of("--by", by, CRITERIA)
    known = known_model(model, Cluster())
    check_answer_file(out, candidates)
    places, columns = read_points(candidates, known.inputs, out, reading.reading, known.fleet.units)
    refuse_clash(candidates, columns, ADDED)
    whose = None if everyone else number_of(known, agent or known.agents[0])
    found = known.fleet.suggest(whose, places, n, by=by, **together.chosen)
    names = np.array(known.agents)[found.agents]
    rows = {name: np.asarray(column)[found.indices] for name, column in columns.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_columns(out, {**rows, **dict(zip(ADDED, (names, found.gains), strict=True))})
    table = plain_table("", "agent", *known.inputs, "gain")
    for name, place, gain in zip(names, found.places, found.gains, strict=True):
        table.add_row(str(name), *(f"{value:.6g}" for value in place), f"{gain:.3g}")
    facts = {
        "out": str(out),
        "method": found.method,
        "by": found.by,
        "agents": names.tolist(),
        "places": found.places.tolist(),
        "candidates": found.indices.tolist(),
        "gains": found.gains.tolist(),
        "bytes": found.ledger.bytes,
        "sent": (sent := sent_facts(found.ledger.by_kind())),
    }
    told = told_sent(sent, found.ledger.bytes)
    emit(facts, table, *[told] * (len(known.agents) > 1), f"The places are in {bold(out)}.", as_json=as_json)
