"""fleetgp methods and plan: which methods there are, and what they would send in a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

import numpy as np
from rich.markup import escape
from rich.table import Table

import fleetgp as fg
from fleetgp.advice import Advice, recommend
from fleetgp.advice.facts import Facts
from fleetgp.advice.recommend import Accuracy, Task
from fleetgp.cli.arguments import default_of, option
from fleetgp.cli.options import FILE
from fleetgp.cli.output import Report, plain_table
from fleetgp.cli.running import description_of
from fleetgp.errors import InputError, listed
from fleetgp.io.tables import read_observations
from fleetgp.prediction import prediction_method
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.registry import load_plugins
from fleetgp.training import training_method
from fleetgp.training.methods import TrainingMethod

if TYPE_CHECKING:
    from fleetgp.agent.description import Description


def plan(
    *,
    file: FILE,
    link: Annotated[
        str | None, option('What links are like: "9600 bit/s, 2 s"; also the loss, "5 %", and "half duplex".')
    ] = None,
    queries: Annotated[int, option("How many points a question has.", min=1)] = default_of(recommend, "queries"),
    private: Annotated[
        str | None, option("What must stay private: rows, sums (rows and moments) or likelihoods (these, too).")
    ] = None,
    accuracy: Annotated[str, option(", ".join(get_args(Accuracy)))] = default_of(recommend, "accuracy"),
    agent: Annotated[str | None, option("The only agent that needs answers. (default: all do)")] = None,
    rows: Annotated[int | None, option("Rows of an agent whose file cannot be read here.", min=1)] = None,
) -> Report:
    """Show what training and answers of a fleet would send, how long it takes on such links, and which methods to use.

    Nothing is started, and nothing is sent. Rows are counted in the agents' files, where these can be read from here.

    [bold]Example[/bold]

    [cyan]fleetgp plan fleet.toml --link "9600 bit/s, 2 s" --queries 500[/cyan]
    """
    description = description_of(file)
    from fleetgp.operator.client import split_by, split_warning

    counts, unread = _counted(description, rows)
    asker = None if agent is None else description.present.index(description.id_of(agent))
    described = (description.dimension, description.members_graph, description.kernels, description.normalize)
    about = Facts(tuple(counts), *described, description.mean, description.coordinates)
    how: dict[str, Any] = {"private": private or description.private, "accuracy": accuracy, "queries": queries}
    advice = recommend(about, link=link, agent=asker, **how)
    cuts = split_by(description)
    facts = {
        "fleet": description.name,
        "rows_of": dict(zip(description.members, counts, strict=True)),
        "not_counted": unread,
        "described": {"training": description.training.method, "prediction": description.prediction.method},
        "splitting_agents": cuts,
    }
    notes = [split_warning(cuts)] if cuts else []
    if unread:
        guess = counts[description.members.index(unread[0])]
        notes.insert(0, f"the files of {listed(unread)} are not here: {guess:,} rows each are assumed (--rows)")
    return Report({**facts, **advice.facts}, _advice_lines(description, advice), notes)


def _counted(description: Description, rows: int | None) -> tuple[list[int], list[str]]:
    """How many rows each agent has, and whose are not known."""
    counts: list[int | None] = []
    for number in description.present:
        own, path = description.agents[number], description.data_of(number)
        if path is None or not path.is_file():
            counts.append(None)
            continue
        columns: dict[str, Any] = {"inputs": description.inputs, "target": description.target}
        read = read_observations(path, **columns, missing=own.missing, fill=own.fill, of_agent=True)
        counts.append(len(read.inputs))
    known = [count for count in counts if count is not None]
    if not known and rows is None:
        raise InputError("none of the agents' files can be read here: give --rows, how many an agent has")
    guess = rows if rows is not None else round(float(np.median(known)))
    unread = [name for name, count in zip(description.members, counts, strict=True) if count is None]
    return [guess if count is None else count for count in counts], unread


def _advice_lines(description: Description, advice: Advice) -> list[Any]:
    """The advice for people."""
    own = description.training.method, description.prediction.method
    best = advice.trainer, advice.predictor
    now = ", as the file has them" if own == best else f"; the file has {own[0]} and {own[1]}"
    lines: list[Any] = [f"[bold]We recommend {best[0]} and {best[1]}{now}.[/bold]"]
    lines += [escape(f"- {sentence}") for sentence in advice.why]
    for task in get_args(Task):
        header, rows = advice.table(task)
        table = plain_table("", *header, left=2)
        for row in rows:
            table.add_row(*row)
        lines += ["", table]
    lines += ["", advice.legend, *(f"Not for you: {escape(line)}." for line in advice.refusals)]
    lines.append("Not counted: two short hellos per second over each link, which show running agents that it is up.")
    return lines


def _method_row(row: TrainingMethod | PredictionMethod) -> dict[str, str]:
    sends, use = row.notes
    graph = "connected" if row.decentralized else "a central node"
    return {"method": row.name, "graph": graph, "sends": sends, "use": use}


def methods() -> Report:
    """List the methods: what each needs of the graph, what it sends, when to use it.

    [bold]Example[/bold]

    [cyan]fleetgp methods --json[/cyan]
    """
    load_plugins()
    training = [_method_row(training_method(name)) for name in fg.TRAINING_METHODS]
    prediction = [_method_row(prediction_method(name)) for name in fg.PREDICTION_METHODS]
    lines: list[str | Table] = []
    for title, rows in (("Training", training), ("Prediction", prediction)):
        table = plain_table(title, "method", "graph", "an agent sends", "use it", left=4)
        for row in rows:
            table.add_row(
                *(f"[bold]{v}[/bold]" if v.startswith("dec-") and k == "method" else v for k, v in row.items())
            )
        lines.append(table)
    lines += [
        "θ: the D + 2 hyperparameters. N_i/M: a sample, of the agent's rows divided by the number of agents.",
        "dec- predictions are exact sums along a spanning tree. --consensus average takes the paper's recursions "
        "instead, to compare with it. The paper's trainers are the better choice where only θ may be sent.",
    ]
    return Report({"training": training, "prediction": prediction}, lines)
