"""What the commands for running agents share: the fleet's description, and requests to its agents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetgp.errors import InputError, NetworkError

if TYPE_CHECKING:
    from fleetgp.agent.description import Description


def description_of(file: Path) -> Description:
    try:
        from fleetgp.agent.description import read_description
    except ModuleNotFoundError as error:
        raise InputError(f'a fleet of processes needs {error.name}: pip install "fleetgp[fleet]"') from error
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
