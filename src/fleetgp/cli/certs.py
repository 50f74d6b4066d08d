"""fleetgp certs: a fleet's authority, and certificates of its agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetgp.cli.options import Json
from fleetgp.cli.output import bold, emit
from fleetgp.cli.running import description_of
from fleetgp.errors import InputError, shortened


def certs(
    folder: Annotated[Path, typer.Argument(help="Where authority and certificates go; or a fleet.toml with \\[tls].")],
    agents: Annotated[
        list[str] | None, typer.Option(help="The agents' names, for example: --agents auv1 auv2 auv3")
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option(help="Where they can be reached: addresses or names. (default: this machine)")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.", min=1, max=36_500)] = 365,
    as_json: Json = False,
) -> None:
    """Make a fleet's authority, and a certificate for each agent and for the operator.

    The authority is made once and kept; its key signs further agents and stays where it is. An agent gets three files:
    authority.crt, NAME.crt and NAME.key. Whoever asks the agents gets authority.crt, operator.crt and operator.key.
    From a fleet.toml, names and hosts are read; its \\[tls] must name a folder.

    [bold]Examples[/bold]

    [cyan]fleetgp certs keys/ --agents auv1 auv2 auv3 --hosts 10.0.0.1 10.0.0.2 10.0.0.3[/cyan]

    [cyan]fleetgp certs fleet.toml[/cyan]
    """
    from fleetgp.agent.certificates import check_name, make_certificate
    from fleetgp.network.zenoh.session import OPERATOR

    if folder.suffix == ".toml":
        if agents or hosts:
            raise InputError("names and hosts come from the fleet.toml: leave out --agents and --hosts")
        folder, wanted = _of_file(folder)
    elif agents:
        if len(set(agents)) < len(agents) or OPERATOR in agents:
            raise InputError(f"agents must have different names, none of them {OPERATOR!r}, got {shortened(agents)}")
        for name in agents:
            check_name(name)
        places = tuple(hosts) if hosts else ("127.0.0.1", "localhost")
        wanted = dict.fromkeys(agents, places)
    else:
        raise InputError("give --agents, or a fleet.toml in place of the folder")
    made = {agent: make_certificate(folder, agent, hosts=places, days=days) for agent, places in wanted.items()}
    operator = make_certificate(folder, OPERATOR, hosts=("localhost",), days=days)
    emit(
        {
            "authority": str(operator.authority),
            "certificates": {agent: str(own.certificate) for agent, own in {**made, OPERATOR: operator}.items()},
        },
        f"{len(made)} certificates and the operator's, valid for {days} days, are in {bold(folder)}.",
        "Keep [bold]authority.key[/bold] off the agents; each gets authority.crt and its own two files.",
        as_json=as_json,
    )


def _of_file(file: Path) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """The folder of a description's certificates, and every agent's hosts."""
    description = description_of(file)
    folder = description.tls_folder
    if folder is None:
        raise InputError(f'{file}: it has no [tls] with a folder: add [tls] and folder = "keys"')
    hosts: dict[str, tuple[str, ...]] = {}
    for agent in description.agents:
        host = agent.endpoint.split("/", 1)[1].rsplit(":", 1)[0].strip("[]")
        hosts[agent.name] = (host,)
    return folder, hosts
