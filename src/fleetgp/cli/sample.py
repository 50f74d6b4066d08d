"""fleetgp sample: fields that the data allow, drawn at the points of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fleetgp.arrays import Array
from fleetgp.cli import options
from fleetgp.cli.answers import known_model
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.output import bold, emit, warn
from fleetgp.cli.points import check_answer_file, read_points, refuse_clash
from fleetgp.cli.reading import FileReading
from fleetgp.cli.sent import sent_facts, told_sent
from fleetgp.cli.together import Together
from fleetgp.errors import InputError
from fleetgp.files import check_writable, whole
from fleetgp.io.sst import xarray
from fleetgp.io.tables import write_columns
from fleetgp.storage.model import Model

DRAWS_OUT = Annotated[Path, typer.Option(help="The draws: .csv, .parquet or .npz, with a column each, or .nc.")]
COUNT = Annotated[int, typer.Option(help="How many draws.", min=1, max=100_000)]
OBSERVED = Annotated[bool, typer.Option("--observed", help="Draws of observations, with noise, not of the field.")]
SEED = Annotated[int, typer.Option(help="Of the draws: the same for the same.", min=0)]


def sample(
    model: options.MODEL,
    points: options.POINTS,
    out: DRAWS_OUT,
    reading: FileReading,
    together: Together,
    n: COUNT = 10,
    seed: SEED = 0,
    observed: OBSERVED = False,
    as_json: options.Json = False,
) -> None:
    """Draw whole fields from the joint posterior, at the points of a file.

    Each draw is a field that the data allow: what hangs on several places together, such as a mean over an area or
    the place of a maximum, has the distribution of its values over the draws.

    [bold]Examples[/bold]

    [cyan]fleetgp sample model/ points.csv --n 20 --seed 0 --out draws.csv[/cyan]

    [cyan]fleetgp sample model/ points.csv --n 1000 --method dec-nearest --out draws.nc[/cyan]
    """
    known = known_model(model, Cluster())
    table = out.suffix.lower() != ".nc"
    if table:
        check_answer_file(out, points)
    else:
        check_writable(out)
        xarray()  # or one error that says what is missing
        if out.exists() and points.exists() and out.samefile(points):
            raise InputError(f"{out}: the draws would replace the points: choose another name")
    queries, columns = read_points(points, known.inputs, out, reading.reading, known.fleet.units)
    names = [f"draw_{k + 1}" for k in range(n)]
    refuse_clash(points, columns, names)
    found = known.fleet.joint(queries, noisy=observed, **together.chosen)
    draws = found.sample(n, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    if table:
        write_columns(out, {**columns, **dict(zip(names, draws, strict=True))})
    else:
        with whole(out) as partial:
            _dataset(known, queries, draws).to_netcdf(partial)
    if found.jitter:
        warn(f"a covariance needed jitter, up to {found.jitter:.1e}")
    sent = sent_facts(found.ledger.by_kind())
    told = [told_sent(sent, found.ledger.bytes)] if len(known.agents) > 1 else []
    said = f"{found.method}: {n:,} draws at {len(queries):,} points."
    facts = {
        "out": str(out),
        "method": found.method,
        "points": len(queries),
        "draws": n,
        "seed": seed,
        "of": "observation" if observed else "field",
        "jitter": found.jitter,
        "rounds": found.rounds,
        "bytes": found.ledger.bytes,
        "sent": sent,
    }
    emit(facts, said, *told, f"The draws are in {bold(out)}.", as_json=as_json)


def _dataset(model: Model, queries: Array, draws: Array) -> Any:
    """Draws and points, with the inputs along the points."""
    inputs = {name: ("point", queries[:, d]) for d, name in enumerate(model.inputs)}
    label = {"long_name": f"draws of {model.target}"}
    return xarray().Dataset(
        {model.target: (("draw", "point"), draws, label)}, coords={"draw": np.arange(1, len(draws) + 1), **inputs}
    )
