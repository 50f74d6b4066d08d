"""fleetgp retrain: have a running fleet train again."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fleetgp.cli.options import AGENT, FILE, Json, Quiet, check_seconds
from fleetgp.cli.output import emit, warn
from fleetgp.cli.running import description_of
from fleetgp.errors import NetworkError
from fleetgp.progress import Progress, listening
from fleetgp.units import readable_seconds

#: Seconds between two looks at how far the training is.
PAUSE = 0.2


def retrain(
    file: FILE,
    agent: AGENT,
    method: Annotated[str | None, typer.Option(help="A training method. (default: that of the file)")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="Start anew instead of at the present estimates.")] = False,
    seconds: Annotated[float, typer.Option(help="Give up waiting after this long; the fleet goes on.")] = 600.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Have the fleet train again, and wait until it has.

    [bold]Example[/bold]

    [cyan]fleetgp retrain fleet.toml --agent auv3[/cyan]
    """
    from fleetgp.operator.client import AgentClient

    description = description_of(file)
    check_seconds(seconds)
    deadline = time.monotonic() + seconds
    with AgentClient(description, agent) as client, listening(not quiet) as listener:
        wish = client.request("train", method=method, cold=cold)["wish"]
        while True:
            state = client.request("status")
            if state["fulfilled"] >= wish:
                break
            if time.monotonic() > deadline:
                raise NetworkError(f"no new model within {seconds:g} s: {agent} is {state['phase']}")
            if listener is not None:
                listener(Progress(agent, state["round"], None, state["phase"]))
            time.sleep(PAUSE)
    trained = state["trained"]
    if state["outcome"] not in ("converged", "round limit", "time limit"):
        raise NetworkError(f"the training failed: {state['outcome']}")
    theta = ", ".join(f"{name} {value:.4g}" for name, value in state["theta"].items())
    took = readable_seconds(seconds - (deadline - time.monotonic()))
    text = f"{trained['method']}: {trained['status']} after {trained['rounds']} rounds, {took}. {theta}."
    if trained["status"] != "converged":
        warn(f"the training ended by {trained['status']}, not by agreement")
    emit({"agent": agent, "trained": trained, "theta": state["theta"]}, text, as_json=as_json)
