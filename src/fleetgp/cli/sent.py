"""What agents have sent each other, by kind of content: for programs, and for people."""

from __future__ import annotations

from collections.abc import Mapping

from fleetgp.network.ledger import FRAMING, Traffic
from fleetgp.units import readable_bytes

#: Messages, scalars and bytes of each kind of content, as they are in JSON.
Sent = Mapping[str, Mapping[str, int]]


def sent_facts(kinds: Mapping[str, Traffic]) -> Sent:
    """kinds: those of a ledger (`Ledger.by_kind`). The headers of frames are no content.

    >>> sent_facts({"queries": Traffic(1, 4, 40), "framing": Traffic(1, 0, 36)})
    {'queries': {'messages': 1, 'scalars': 4, 'bytes': 40}}
    """
    return {kind: vars(traffic) for kind, traffic in kinds.items() if kind != FRAMING}


def told_sent(sent: Sent, size: int | None = None) -> str:
    """size: all bytes, with the headers.

    >>> told_sent({"queries": {"scalars": 4}, "predictions": {"scalars": 1200}}, 12_000)
    'Sent between agents, in numbers: queries 4, predictions 1,200; 12 kB in all.'
    """
    kinds = ", ".join(f"{kind} {one['scalars']:,}" for kind, one in sent.items() if one["scalars"]) or "nothing"
    return f"Sent between agents, in numbers: {kinds}" + ("." if size is None else f"; {readable_bytes(size)} in all.")
