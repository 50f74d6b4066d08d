"""Requests to running agents: one answer or one clear error each, in a stated time; and whom a fleet needs."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fleetgp.agent.certificates import Credentials, days_left
from fleetgp.agent.description import Description
from fleetgp.errors import InputError, NetworkError, listed
from fleetgp.graph import Graph
from fleetgp.network.zenoh.session import OPERATOR, Security, address_of, client_settings, open_session, prefix_of

#: The end of a message about an agent that cannot be reached, where all that is known is that nobody listens.
NOBODY = "is it running?"
#: Seconds to reach an agent that is there.
REACH = 3.0


class AgentClient:
    """A session with one agent of a fleet. It raises NetworkError if the agent cannot be reached."""

    def __init__(self, description: Description, agent: str, *, reach: float = REACH) -> None:
        self.description, self.agent = description, agent
        self._key = f"{prefix_of(description.run)}/{description.id_of(agent)}/{OPERATOR}"
        endpoint = description.agents[description.id_of(agent)].endpoint
        own = description.credentials(OPERATOR)
        security = None if own is None else Security(own.authority, own.certificate, own.key, ())
        unreachable = f"{agent} cannot be reached at {endpoint}"
        try:
            self._session = open_session(client_settings(endpoint, security, reach), unreachable)
        except NetworkError as error:
            raise NetworkError(f"{unreachable}: {_why_not(endpoint, own, reach)}") from error

    def request(self, verb: str, within: float = 10.0, **content: Any) -> Any:
        """The agent's answer, or its error."""
        import zenoh

        began = time.monotonic()
        replies = self._session.get(
            f"{self._key}/{verb}",
            payload=json.dumps({"digest": self.description.digest, "fleet": self.description.name, **content}).encode(),
            timeout=within,
            target=zenoh.QueryTarget.ALL,
        )
        for reply in replies:
            if reply.ok is None:
                break
            document = json.loads(bytes(reply.ok.payload))
            if "error" in document:
                raise (InputError if document.get("wrong") else NetworkError)(document["error"])
            return document["answer"]
        if time.monotonic() - began < 0.9 * within:
            why = "the connection was lost, or it does not know this operator"
            raise NetworkError(f"{self.agent} gave no answer: {why}")
        raise NetworkError(f"{self.agent} did not answer within {within:g} s")

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> AgentClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def why_unreachable(error: object) -> str:
    """Return why an agent cannot be reached, without its name and endpoint; "" if there is only nobody who listens.

    >>> why_unreachable("a cannot be reached at tls/10.0.0.3:7447: it runs, but not here")
    'it runs, but not here'
    >>> why_unreachable("a cannot be reached at tcp/127.0.0.1:1: is it running?")
    ''
    """
    _, unreachable, rest = str(error).partition(" cannot be reached at ")
    return rest.partition(": ")[2] if unreachable and not rest.endswith(NOBODY) else ""


def _why_not(endpoint: str, own: Credentials | None, seconds: float) -> str:
    """Why no session came about, as far as a plain TLS connection to the same place can show."""
    if own is None:
        return NOBODY
    if days_left(own.certificate) <= 0.0:
        remedy = "make another with `fleetgp certs`, or set the clock here"
        return f"the certificate {own.certificate} has expired: {remedy}"
    if not endpoint.startswith("tls/"):  # only QUIC itself can distinguish a refusal from silence
        return f"is it running, with a certificate of the authority in {own.authority}?"
    host, port = address_of(endpoint)
    try:
        plain = socket.create_connection((host, port), seconds)
    except OSError:
        return NOBODY
    context = ssl.create_default_context(cafile=own.authority)
    try:
        with plain:
            context.load_cert_chain(own.certificate, own.key)
            with context.wrap_socket(plain, server_hostname=host) as secure:
                secure.recv(1)  # whether it refuses the operator's certificate comes after the handshake
    except ssl.SSLCertVerificationError as error:
        return (
            f"it runs, but its certificate is not accepted here ({error.verify_message}): start it again with a "
            f"certificate of the authority in {own.authority}, and check the clocks of both machines"
        )
    except ssl.SSLError as error:
        return (
            f"it runs, but does not accept the certificate {own.certificate} ({error.reason}): use one of the agent's "
            "authority, and check the clocks of both machines"
        )
    except OSError:
        pass
    return "something listens there, but gives no session: is it this agent?"


def cut_agents(graph: Graph) -> list[int]:
    """Return the agents without whom the others are in parts.

    >>> cut_agents(Graph.path(4)), cut_agents(Graph.cycle(4)), cut_agents(Graph.star(4))
    ([1, 2], [], [0])
    """
    ends, count = graph.edges.T, graph.agents
    cuts = []
    for agent in range(count):
        kept = ends[:, (ends != agent).all(axis=0)]
        links = coo_array((np.ones(kept.shape[1]), (kept[0], kept[1])), shape=(count, count))
        if connected_components(links, directed=False, return_labels=False) > 2:  # itself, and one part
            cuts.append(agent)
    return cuts


def split_by(description: Description) -> list[str]:
    return [description.members[agent] for agent in cut_agents(description.members_graph)]


def split_warning(names: list[str]) -> str:
    """What to say of agents whose loss splits the fleet."""
    each = "the loss of this agent" if len(names) == 1 else "the loss of any of these agents"
    return f"{each} would split the fleet: {listed(names)}; links between its neighbours would hold it together"


def former_members(states: Mapping[str, Mapping[str, Any]], there: Iterable[str]) -> list[str]:
    """The agents that are not there and that no agent that is there has in its description: nobody misses them.

    states: every agent's last status, {} if there is none.  there: who answers.

    >>> former_members({"a": {"agents": ["a", "b"]}, "b": {}, "c": {}}, ["a"])
    ['c']
    """
    answering = set(there)
    lists = [states[name]["agents"] for name in answering if "agents" in states[name]]
    known = {name for names in lists for name in names}
    return [name for name in states if lists and name not in answering and name not in known]
