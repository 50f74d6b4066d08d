"""Changes of a fleet's members: the operator makes the next roster, signs it, and hands it to agents.

The operator keeps the newest roster in the folder `state`, beside the folders of agents that run on this machine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fleetgp.agent.certificates import AUTHORITY, check_name, make_certificate
from fleetgp.agent.description import ROSTER, Description, read_description
from fleetgp.agent.roster import Roster, SignedRoster, document_of, now
from fleetgp.errors import GraphError, InputError, NetworkError, listed
from fleetgp.files import check_folder, private_folder, whole, write_private
from fleetgp.network.zenoh.session import OPERATOR, address_of
from fleetgp.operator.client import AgentClient

T = TypeVar("T")

#: Seconds to reach an agent, and for its answer.
REACH, WITHIN = 2.0, 10.0


def newest_of(description: Description, names: Sequence[str]) -> Description:
    """With the newest roster that these agents hold, if it is newer; it is stored then."""
    best = description
    for document in _at_all(description, names, lambda client: client.request("roster", WITHIN)).values():
        if document is not None and not isinstance(document, NetworkError):
            signed = SignedRoster.decode(json.dumps(document).encode())
            if signed.roster.rank > best.roster.rank:
                signed.check(description.name, description.authority)
                best = best.with_roster(signed)
    if best is not description:
        store(best)
    return best


def store(description: Description) -> None:
    """Keep the roster where `read_description` finds it."""
    assert description.signed is not None, "only a list in fleet.toml has none"
    write_private(description.state / ROSTER, description.signed.encode())


def changed(description: Description, change: Callable[[Roster], Roster]) -> Description:
    """The fleet with another roster, signed by the operator and stored; one error where it cannot be."""
    roster = change(description.roster)
    if not roster.version:
        raise InputError("expected a change, got the members as they are in fleet.toml")
    signed = SignedRoster.of(roster, description.credentials(OPERATOR))
    signed.check(description.name, description.authority, at=now())
    result = description.with_roster(signed)
    store(result)
    return result


def hand_over(description: Description, names: Sequence[str]) -> dict[str, str]:
    """Give agents the roster: of each "" or why it did not take it."""
    assert description.signed is not None, "only a list in fleet.toml has none"
    document = document_of(description.signed)
    answers = _at_all(description, names, lambda client: client.request("admit", WITHIN, roster=document))
    return {name: str(answer) if isinstance(answer, NetworkError) else "" for name, answer in answers.items()}


def _at_all(
    description: Description, names: Sequence[str], ask: Callable[[AgentClient], T]
) -> Mapping[str, T | NetworkError]:
    """What agents answer, or why they do not; all at once, since some may not be there."""

    def one(name: str) -> T | NetworkError:
        try:
            with AgentClient(description, name, reach=REACH) as client:
                return ask(client)
        except NetworkError as error:
            return error

    with ThreadPoolExecutor(max(1, min(32, len(names)))) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def with_member(description: Description, name: str, endpoint: str | None, neighbours: Sequence[str]) -> Description:
    """The fleet with one more agent; with more links, or at another endpoint, where it is there already."""
    check_name(name)
    known = name in description.names
    if endpoint is None:
        if not known:
            raise InputError(f"{name} is new in this fleet: give --endpoint, for example tls/10.0.0.6:7447")
        endpoint = description.agents[description.id_of(name)].endpoint
    if not neighbours and name not in description.members:
        raise InputError(f"{name} needs --neighbours, one at least: choose of {listed(description.members)}")
    for other in neighbours:
        if other not in description.members:
            raise InputError(
                f"{other!r} is no member of this fleet: choose neighbours of {listed(description.members)}"
            )
    place: str = endpoint
    return changed(description, lambda roster: roster.joined(name, place, neighbours))


def without_member(description: Description, name: str, *, keep_rows: bool) -> Description:
    """The fleet after an agent has left."""
    description.id_of(name)
    if description.members == [name]:
        raise InputError(f"{name} is the last member of this fleet: `fleetgp down` stops it")
    try:
        return changed(description, lambda roster: roster.without(name, keep_rows=keep_rows))
    except GraphError as error:
        raise InputError(
            f"without {name} the fleet would be in parts ({error}): first link its neighbours, for example with "
            "`fleetgp join FILE --name A --neighbours B` for two members A and B"
        ) from error


def write_folder(file: Path, description: Description, name: str, data: str | None, folder: Path) -> list[str]:
    """Write what a new agent needs into a folder to copy; what is there already stays, apart from the roster.

    Returns what is still to be done, in sentences.
    """
    state = read_state(description)
    check_folder(folder)
    private_folder(folder)
    notes = []
    copy = folder / "fleet.toml"
    if not copy.exists():
        text = file.read_text(encoding="utf-8")
        if name not in description.described:
            text = text.rstrip("\n") + "\n\n" + _table(description, name, data)
        with whole(copy) as partial:
            partial.write_text(text, encoding="utf-8")
    assert description.signed is not None, "it was made for this agent"
    write_private(folder / state / ROSTER, description.signed.encode())
    keys = description.tls_folder
    if keys is not None:
        notes += _certificate(description, name, keys, folder)
    elif description.secured:
        notes.append(f"Put the certificate and the key of {name}, and authority.crt, where \\[tls] expects them.")
    read_description(copy)  # what cannot be started should not be copied
    return notes


def read_state(description: Description) -> Path:
    """The folder `state`, relative to a fleet.toml."""
    if not description.state.is_relative_to(description.folder):
        raise InputError(
            f"{description.state}: expected `state` within the folder of fleet.toml, to write a copy of it"
        )
    return description.state.relative_to(description.folder)


def _table(description: Description, name: str, data: str | None) -> str:
    own = description.agents[description.id_of(name)]
    facts: dict[str, Any] = {"name": name, "endpoint": own.endpoint}
    if data is not None:
        facts |= {"data": data, "watch": True}
    facts["neighbours"] = list(own.neighbours)
    return "[[agent]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())


def _certificate(description: Description, name: str, keys: Path, folder: Path) -> list[str]:
    """The agent's certificate, made if the authority's key is here."""
    host = address_of(description.agents[description.id_of(name)].endpoint)[0]
    own = [keys / f"{AUTHORITY}.crt", keys / f"{name}.crt", keys / f"{name}.key"]
    if not all(path.is_file() for path in own[1:]) and (keys / f"{AUTHORITY}.key").is_file():
        make_certificate(keys, name, hosts=(host,))
    if keys.is_relative_to(description.folder):
        there = folder / keys.relative_to(description.folder)
        private_folder(there)
        for path in own:
            if path.is_file() and not (there / path.name).exists():
                shutil.copy2(path, there / path.name)
        if all(path.is_file() for path in own):
            return []
    return [
        f"Its certificate is missing: run `fleetgp certs KEYS --agents {name} --hosts {host}` where authority.key is, "
        f"and put authority.crt, {name}.crt and {name}.key where \\[tls] expects them."
    ]
