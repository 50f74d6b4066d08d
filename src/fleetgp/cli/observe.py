"""fleetgp observe: new rows for one agent of a running fleet."""

from __future__ import annotations

import re
import shlex
import time
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetgp.arrays import Array
from fleetgp.cli.options import AGENT, FILE, Json, as_typed, check_seconds
from fleetgp.cli.output import emit, warn
from fleetgp.cli.reading import MISSING, TableReading, missing_of
from fleetgp.cli.running import description_of, request
from fleetgp.errors import InputError, NetworkError, shortened
from fleetgp.io import read_observations

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: The name of an `observe`; its parts have a number after it.
REQUEST = re.compile(r"[\w-]{1,48}", re.ASCII)
#: Numbers that are told at once; a request may have 8 MiB.
NUMBERS = 200_000
#: Seconds between two attempts.
PAUSE = 0.5


def observe(
    *,
    file: FILE,
    rows: Annotated[Path, typer.Argument(help="New rows, with the columns of the agents' files.", readable=False)],
    agent: AGENT,
    missing: MISSING = "refuse",
    name: Annotated[
        str | None,
        typer.Option("--request", help="Of an observe that failed: what the agent has already is not added again."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Try again for this long if no answer comes.")] = 30.0,
    table: TableReading,
    as_json: Json = False,
) -> None:
    """Give an agent new observations. They count at once in predictions, and in the next training.

    Rows are acknowledged when they are on the agent's disk. A lost answer does no harm: the request is sent again under
    the same name, and counts once.

    [bold]Example[/bold]

    [cyan]fleetgp observe fleet.toml --agent auv3 new.csv[/cyan]
    """
    description = description_of(file)
    check_seconds(seconds)
    if name is not None and REQUEST.fullmatch(name) is None:
        raise InputError(f"--request must be 1 to 48 letters, digits, dashes and underscores, got {shortened(name)}")
    name = name or uuid.uuid4().hex
    found = read_observations(
        rows,
        inputs=description.inputs,
        target=description.target,
        deviation=description.deviation,
        missing=missing_of(missing),
        fill=description.agents[description.id_of(agent)].fill,
        reading=table.reading,
        of_agent=True,
    )
    if found.dropped:
        warn(f"{rows}: {found.dropped} rows with missing values were dropped")
    values = found.rows
    said = {"--missing": missing, **{as_typed(name): value for name, value in asdict(table).items()}}
    again = f"fleetgp observe {file} {rows} --agent {shlex.quote(agent)} --request {name}" + "".join(
        f" {option} {shlex.quote(value)}" for option, value in said.items() if value not in (None, "refuse")
    )
    told = _tell(Telling(description, agent, name, time.monotonic() + seconds), values, again)
    text = f"{agent} has {told['rows']} new {'row' if told['rows'] == 1 else 'rows'}, {told['in_all']} in all."
    if told["repeated"]:
        text = (
            f"{agent} has {told['in_all']} rows in all; {told['repeated']} of these {told['rows']} were there already."
        )
    emit({"agent": agent, **told, "request": name}, text, as_json=as_json)


def _tell(telling: Telling, values: Array, again: str) -> dict[str, int]:
    """Tell the rows; whatever ends it, say how many are safe and how to repeat it."""
    try:
        return telling.tell(values)
    except (NetworkError, InputError, KeyboardInterrupt) as error:
        if isinstance(error, InputError) and not telling.kept:
            raise
        safe = f"{telling.kept} of {len(values)} rows are acknowledged. To repeat it, with no row twice: {again}"
        if isinstance(error, KeyboardInterrupt):
            warn(safe)
            raise
        raise type(error)(f"{error}; {safe}") from error


class Telling:
    """Tells an agent rows, in parts NAME-0, NAME-1, ...; each again until it is acknowledged or the time is up.

    deadline: on the monotonic clock.  kept: how many rows are acknowledged.
    """

    def __init__(self, description: Description, agent: str, name: str, deadline: float) -> None:
        self._description, self._agent, self._name, self._deadline = description, agent, name, deadline
        self._warned = False
        self.kept = 0

    def tell(self, values: Array) -> dict[str, int]:
        """How many rows were told, how many of them were there already, and how many the agent has now."""
        size = max(1, NUMBERS // values.shape[1])
        repeated = in_all = 0
        for number, start in enumerate(range(0, len(values), size)):
            part = values[start : start + size].tolist()
            told = self._tell(part, f"{self._name}-{number}")
            self.kept += told["rows"]
            repeated += told["rows"] if told["repeated"] else 0
            in_all = told["in_all"]
        return {"rows": self.kept, "repeated": repeated, "in_all": in_all}

    def _tell(self, rows: list[list[float]], name: str) -> dict[str, Any]:
        while True:
            left = self._deadline - time.monotonic()
            try:
                told: dict[str, Any] = request(
                    self._description, self._agent, "observe", max(1.0, left), rows=rows, request=name
                )
                return told
            except NetworkError as error:
                if time.monotonic() + PAUSE >= self._deadline:
                    raise
                if not self._warned:
                    warn(f"{error}; trying again for up to {left:.0f} s")
                    self._warned = True
                time.sleep(PAUSE)
