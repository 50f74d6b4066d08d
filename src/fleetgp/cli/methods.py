"""fleetgp methods: what there is, what it needs and sends, and when to use it."""

from __future__ import annotations

import fleetgp as fg
from fleetgp.cli.options import Json
from fleetgp.cli.output import emit, plain_table
from fleetgp.prediction import prediction_method
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.training import training_method
from fleetgp.training.methods import TrainingMethod

_SERVER = "a central node"
_CONNECTED = "connected"

#: method -> what each agent sends, when to use it.
TRAINING_NOTES = {
    "full-gp": ("all its data, once", "the exact reference, where data may be pooled"),
    "fact-gp": ("a gradient per step", "to compare: the optimum of dec-fact, which needs no server"),
    "g-fact-gp": ("a gradient per step; once, N_i/M of its rows", "to compare: the optimum of dec-g-fact"),
    "c-gp": ("θ per round", "to compare with the paper"),
    "apx-gp": ("θ per round", "to compare; a server, no data sent"),
    "gapx-gp": ("θ per round; once, N_i/M of its rows", "to compare; a server, many agents"),
    "dec-full-gp": (
        "once, the moments of its data, summed",
        "exact as full-gp: smooth fields, two inputs or so",
    ),
    "dec-fact-gp": (
        "sums of l_i, gradient, Hessian per step",
        "the default: no observation leaves an agent; exact, cheap",
    ),
    "dec-g-fact-gp": ("as dec-fact-gp; once, N_i/M of its rows", "to compare: smooth fields in many small agents"),
    "dec-c-gp": ("θ per round and neighbour", "to compare: more computing than dec-apx-gp"),
    "dec-apx-gp": ("θ per round and neighbour", "no observation, and nothing but θ, may leave an agent"),
    "dec-gapx-gp": ("θ per round and neighbour; once, N_i/M of its rows", "the same, accurate with many agents"),
}


def _training_row(row: TrainingMethod) -> dict[str, str]:
    sends, use = TRAINING_NOTES[row.name]
    return {"method": row.name, "graph": _CONNECTED if row.decentralized else _SERVER, "sends": sends, "use": use}


def _prediction_row(row: PredictionMethod) -> dict[str, str]:
    sends, use = row.notes
    return {"method": row.name, "graph": _CONNECTED if row.decentralized else _SERVER, "sends": sends, "use": use}


def methods(as_json: Json = False) -> None:
    """List the methods: what each needs of the graph, what it sends, when to use it.

    [bold]Example[/bold]

    [cyan]fleetgp methods --json[/cyan]
    """
    training = [_training_row(training_method(name)) for name in fg.TRAINING_METHODS]
    prediction = [_prediction_row(prediction_method(name)) for name in fg.PREDICTION_METHODS]
    tables = []
    for title, rows in (("Training", training), ("Prediction", prediction)):
        table = plain_table(title, "method", "graph", "an agent sends", "use it", left=4)
        for row in rows:
            table.add_row(
                *(f"[bold]{v}[/bold]" if v.startswith("dec-") and k == "method" else v for k, v in row.items())
            )
        tables.append(table)
    emit(
        {"training": training, "prediction": prediction},
        *tables,
        "θ: the D + 2 hyperparameters. N_i/M: a sample, of the agent's rows divided by the number of agents.",
        "dec- predictions are exact sums along a spanning tree. --consensus average takes the paper's recursions "
        "instead, to compare with it. Its trainers are the better choice where nothing but θ may be told.",
        as_json=as_json,
    )
