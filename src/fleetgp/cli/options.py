"""Arguments and options that several commands have, their checks, and what they mean together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer

from fleetgp.errors import InputError, unknown_name
from fleetgp.io.formats import Reading
from fleetgp.io.tables import Missing

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
MODEL = Annotated[Path, typer.Argument(help="The folder that `fleetgp fit` wrote.", readable=False)]
METHOD = Annotated[str, typer.Option(help="How the agents combine their answers; see `fleetgp methods`.")]
ROUNDS = Annotated[int | None, typer.Option(help="With dec-: stop averaging after this many rounds. (default: 20000)")]
TOL = Annotated[
    float | None, typer.Option(help="With dec-: average until the agents differ by less, relatively. (default: 1e-6)")
]
ETA = Annotated[
    float | None,
    typer.Option(help="With dec-nn-: the share of the variance an agent must explain to take part. (default: 0.001)"),
]
NOISY = Annotated[bool, typer.Option("--noisy", help="The deviation of an observation, not of the field.")]
ASKED = Annotated[str | None, typer.Option(help="Whose answer to write: an agent's name. (default: the first)")]
ENGINE = Annotated[str, typer.Option(help="auto, dense or moments.")]
DATE = Annotated[str | None, typer.Option(help="NetCDF: which day of several, YYYY-MM-DD.")]
BOX = Annotated[list[float] | None, typer.Option(help="NetCDF: west, south, east, north, in degrees.")]
STRIDE = Annotated[int | None, typer.Option(help="NetCDF: every so many-th row and column.", min=1)]
SEP = Annotated[str | None, typer.Option(help="CSV: what separates the columns; tab, for example. (default: ,)")]
DECIMAL = Annotated[str | None, typer.Option(help="CSV: the decimal sign. (default: .)")]
ENCODING = Annotated[str | None, typer.Option(help="CSV: for example latin-1. (default: utf-8)")]
MISSING = Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")]
FILE = Annotated[Path, typer.Argument(help="The fleet's description, fleet.toml.", readable=False)]
AGENT = Annotated[str, typer.Option("--agent", help="Whom to talk to: an agent's name.")]

#: The longest that a command waits: a day.
LONGEST = 86_400.0


def reading_of(
    date: str | None,
    box: Sequence[float] | None,
    stride: int | None,
    sep: str | None,
    decimal: str | None,
    encoding: str | None,
) -> Reading:
    return Reading(date, four_sides(box), stride, sep, decimal, encoding)


def four_sides(box: Sequence[float] | None) -> tuple[float, float, float, float] | None:
    """--box as four numbers, or one clear error."""
    if not box:
        return None
    if len(box) != 4:
        told = " ".join(f"{side:g}" for side in box)
        raise InputError(f"--box: expected four numbers (west south east north), got {len(box)}: {told}")
    west, south, east, north = box
    return west, south, east, north


def fills_of(fill: Sequence[str] | None) -> list[float] | None:
    """--fill as numbers; "none" says that there are none."""
    if not fill:
        return None
    if list(fill) == ["none"]:
        return []
    try:
        return [float(value) for value in fill]
    except ValueError as error:
        raise InputError(f"--fill: expected numbers, or none, got {' '.join(fill)}") from error


def missing_of(given: str) -> Missing:
    """--missing as one of its values, or one clear error."""
    choices: tuple[Missing, ...] = get_args(Missing)
    for choice in choices:
        if choice == given:
            return choice
    raise unknown_name("--missing", given, choices)


def check_seconds(seconds: float) -> None:
    if not 0.0 < seconds <= LONGEST:
        raise InputError(f"--seconds must lie above 0 and up to {LONGEST:g}, got {seconds}")
