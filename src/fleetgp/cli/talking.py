"""What the commands for running agents share: the fleet's description, and requests to its agents."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetgp.arrays import Array
from fleetgp.cli.output import warn
from fleetgp.errors import InputError, NetworkError

if TYPE_CHECKING:
    from fleetgp.agent.description import Description

#: Numbers that are told at once; a request may have 8 MiB.
NUMBERS = 200_000
#: Seconds between two attempts.
PAUSE = 0.5

FILE = Annotated[Path, typer.Argument(help="The fleet's description, fleet.toml.", readable=False)]


def description_of(file: Path) -> Description:
    try:
        from fleetgp.agent.description import read_description
    except ModuleNotFoundError as error:
        raise InputError(f'a fleet of processes needs {error.name}: install the extra "fleet"') from error
    return read_description(file)


def request(description: Description, agent: str, verb: str, seconds: float, **content: Any) -> Any:
    from fleetgp.operator.client import AgentClient

    with AgentClient(description, agent) as client:
        return client.request(verb, seconds, **content)


def ask_all(description: Description) -> dict[str, dict[str, Any]]:
    """Every agent's status, or its error; all at once, since some may not answer."""
    from fleetgp.operator.client import AgentClient

    def one(name: str) -> dict[str, Any]:
        try:
            with AgentClient(description, name, reach=2.0) as client:
                state: dict[str, Any] = client.request("status", 5.0)
                return state
        except NetworkError as error:
            return {"error": str(error)}

    with ThreadPoolExecutor(min(32, len(description.names))) as pool:
        return dict(zip(description.names, pool.map(one, description.names), strict=True))


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
