"""Options that several commands have, and what they mean together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleetgp.errors import InputError
from fleetgp.io.formats import Reading

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
MODEL = Annotated[Path, typer.Argument(help="The folder that `fleetgp fit` wrote.", readable=False)]
METHOD = Annotated[str, typer.Option(help="How the agents combine their answers; see `fleetgp methods`.")]
ROUNDS = Annotated[int, typer.Option(help="Stop averaging after this many rounds.")]
TOL = Annotated[float, typer.Option(help="Average until the agents differ by less, relatively.")]
ETA = Annotated[float, typer.Option(help="With dec-nn-: the share of the variance an agent must explain to take part.")]
DEFAULT_ETA = 1e-3
NOISY = Annotated[bool, typer.Option("--noisy", help="The deviation of an observation, not of the field.")]
ASKED = Annotated[str | None, typer.Option(help="Whose answer to write: an agent's name. (default: the first)")]
ENGINE = Annotated[str, typer.Option(help="auto, dense or moments.")]
DATE = Annotated[str | None, typer.Option(help="NetCDF: which day of several, YYYY-MM-DD.")]
BOX = Annotated[list[float] | None, typer.Option(help="NetCDF: west, south, east, north, in degrees.")]
STRIDE = Annotated[int | None, typer.Option(help="NetCDF: every so many-th row and column.", min=1)]
SEP = Annotated[str | None, typer.Option(help="CSV: what separates the columns; tab, for example. (default: ,)")]
DECIMAL = Annotated[str | None, typer.Option(help="CSV: the decimal sign. (default: .)")]
ENCODING = Annotated[str | None, typer.Option(help="CSV: for example latin-1. (default: utf-8)")]


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


def as_typed(name: str) -> str:
    """An option as it is typed.

    >>> as_typed("nested_iterations")
    '--nested-iterations'
    """
    return "--" + name.replace("_", "-")
