"""What the commands for running agents share: the fleet's description, and requests to its agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def unreachable(file: Path, errors: Iterable[str]) -> NetworkError:
    """The one error where no agent can be reached: why, if more is known than that nobody listens."""
    from fleetgp.operator.client import why_unreachable

    why = [error for error in errors if "cannot be reached" not in error or why_unreachable(error)]
    return NetworkError(why[0] if why else f"no agent of {file} can be reached: are they running?")


def notes_of_unreachable(errors: Mapping[str, str]) -> list[str]:
    """Why agents cannot be reached, where more is known than that nobody listens; each reason once."""
    from fleetgp.operator.client import why_unreachable

    agents: dict[str, list[str]] = {}
    for name, error in errors.items():
        agents.setdefault(why_unreachable(error), []).append(name)
    return [f"{', '.join(names)}: cannot be reached: {why}" for why, names in agents.items() if why]


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
