"""fleetgp certs: what agents in processes of their own need to be believed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetgp.cli.models import Json
from fleetgp.cli.output import bold, emit
from fleetgp.cli.variadic import VariadicCommand


def certs(
    folder: Annotated[Path, typer.Argument(help="Where authority and certificates go, or are.")],
    agents: Annotated[list[str], typer.Option(help="The agents' names, for example: --agents auv1 auv2 auv3")],
    hosts: Annotated[
        list[str] | None, typer.Option(help="Where they can be reached: addresses or names. (default: this machine)")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.", min=1)] = 365,
    as_json: Json = False,
) -> None:
    """Make a fleet's authority, and a certificate for each agent.

    The authority is made once and kept; its key signs further agents and stays where it is. An agent gets three files:
    authority.crt, NAME.crt and NAME.key.

    [bold]Example[/bold]

    [cyan]fleetgp certs keys/ --agents auv1 auv2 auv3 --hosts 10.0.0.1 10.0.0.2 10.0.0.3[/cyan]
    """
    from fleetgp.agent.certificates import make_certificate

    places = tuple(hosts) if hosts else ("127.0.0.1", "localhost")
    made = [make_certificate(folder, agent, hosts=places, days=days) for agent in agents]
    emit(
        {
            "authority": str(made[0].authority),
            "certificates": {a: str(c.certificate) for a, c in zip(agents, made, strict=True)},
        },
        f"{len(made)} certificates, valid for {days} days, are in {bold(folder)}.",
        "Keep [bold]authority.key[/bold] off the agents; each gets authority.crt and its own two files.",
        as_json=as_json,
    )


def register(app: typer.Typer) -> None:
    app.command(cls=VariadicCommand)(certs)
