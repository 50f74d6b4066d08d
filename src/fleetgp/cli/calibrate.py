"""fleetgp calibrate: have the intervals of a model's predictions cover what they promise."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from fleetgp.cli import options
from fleetgp.cli.answers import known_model
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold, emit, plain_table
from fleetgp.cli.sent import sent_facts, told_sent
from fleetgp.prediction import Calibration
from fleetgp.storage.saving import save_model

LEVEL = Annotated[float, typer.Option(help="The coverage that intervals shall have.")]
CELLS = Annotated[
    int | None, typer.Option(help="Cells of the fleet's box, for blocks. (default: 16 for each agent, at least 100)")
]
MOST = Annotated[int, typer.Option(help="Rows that an agent holds out at most, of each kind.")]


CALIBRATE = Annotated[
    str | None, typer.Option(help="Calibrate predictions by the default method, holding out both, rows or blocks.")
]


def calibrate(
    *,
    model: options.MODEL,
    method: options.METHOD = None,
    hold: options.HOLD = "both",
    level: LEVEL = 0.95,
    cells: CELLS = None,
    most: MOST = 300,
    eta: options.ETA = None,
    engine: options.ENGINE = "auto",
    neighbours: options.NEIGHBOURS_ASKED = None,
    as_json: options.Json = False,
) -> None:
    """Find the factor on the standard deviations with which intervals cover what they promise.

    Agents hide rows of theirs, which the fleet predicts from the rest by the method that will be used. The model keeps
    the factor, and predict and map have it in the deviations by this method. The inputs of hidden rows are sent, unless
    the model was fitted with --private rows.

    [bold]Example[/bold]

    [cyan]fleetgp calibrate model/ --method dec-rbcm --hold both[/cyan]
    """
    known = known_model(model, Cluster())
    given: dict[str, Any] = {
        "eta": None if eta is None else options.eta_of(eta),
        "engine": engine,
        "neighbours": neighbours,
    }
    found = known.fleet.calibrate(method, hold=hold, level=level, cells=cells, most=most, **given)
    save_model(known, model, overwrite=True)
    told = f"The factors are in {bold(model)}."
    emit({"model": str(model), **calibration_facts(found)}, *told_of(found), told, as_json=as_json)


def calibration_facts(found: Calibration) -> dict[str, Any]:
    """For programs."""
    names = ("method", "eta", "neighbours", "hold", "level", "cells")
    return {
        **{name: getattr(found, name) for name in names},
        "knots": [asdict(knot) for knot in found.knots],
        "sent": {} if found.ledger is None else sent_facts(found.ledger.by_kind()),
    }


def told_of(found: Calibration) -> list[str | Table]:
    """For people."""
    title = f"[bold]Calibrated for {found.told}, intervals of {100 * found.level:g} %[/bold]"
    table = plain_table("", "held out", "rows", "factor", "covered before", "with it")
    for knot in found.knots:
        cover = [f"{100 * share:.1f} %" for share in (knot.before, knot.after)]
        table.add_row(knot.hold, f"{knot.rows:,}", f"{knot.factor:.3f}", *cover)
    sent = found.ledger  # one that is read from a folder has none
    return [title, table, *([told_sent(sent_facts(sent.by_kind()), sent.bytes)] if sent and sent.messages else [])]
