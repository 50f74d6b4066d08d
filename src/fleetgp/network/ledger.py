"""The ledger: what was sent, by whom, to whom, in which phase, and of what kind.

It is written inside the network's verbs and nowhere else. It answers "what left agent 3?".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.errors import InputError, check_name, listed, shortened, unknown_name
from fleetgp.validation import check_whole

#: The kinds of content a message part can have.
#: "inputs" and "observations" are an agent's own data, "moments" sums over them, which reveal few points entirely;
#: "queries" are what somebody asks, "agenda" what is to be done, "participants" who has a say in which query.
# Frames name a kind by its position here: new ones come last, in the next version of the format.
KINDS = (
    "hyperparameters",
    "predictions",
    "inputs",
    "observations",
    "statistics",
    "stopping",
    "queries",
    "agenda",
    "moments",
    "groups",
    "participants",
)
#: The frame headers: they carry no scalars, and every message has exactly one.
FRAMING = "framing"
#: The central node of the centralized baselines, as sender or receiver.
SERVER = -1


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise unknown_name("kind of content", kind, KINDS)
    return kind


@dataclass(frozen=True)
class Traffic:
    """Messages, the scalars in them and their bytes on the wire."""

    messages: int = 0
    scalars: int = 0
    bytes: int = 0


class Ledger:
    """Counts per (phase, kind) and directed edge.

    Bytes are the sizes of real wire frames. The bytes of a part count under its kind, those of the frame
    header under "framing"; a message that carries two kinds is counted under both, and once in the totals.

    >>> ledger = Ledger(senders=[0, 1], receivers=[1, 0])
    >>> ledger.record("training", "hyperparameters", edges=slice(None), scalars=4, bytes=40)
    >>> ledger.record("training", FRAMING, edges=slice(None), scalars=0, bytes=36)
    >>> ledger.count_rounds("training", 1)
    >>> ledger.rounds, ledger.messages, ledger.scalars, ledger.bytes
    (1, 2, 8, 152)
    >>> ledger.sent_by(1)
    {'hyperparameters': Traffic(messages=1, scalars=4, bytes=40), 'framing': Traffic(messages=1, scalars=0, bytes=36)}
    >>> ledger.total(sender=0).scalars, ledger.by_kind()["framing"].bytes, ledger.by_phase()["training"].messages
    (4, 72, 2)
    >>> ledger.by_edge()[0, 1]
    Traffic(messages=1, scalars=4, bytes=76)
    >>> Ledger.merged([ledger, ledger]).messages, ledger.as_dict()["rounds"]
    (4, {'training': 1})
    """

    def __init__(self, senders: Iterable[int], receivers: Iterable[int]) -> None:
        self.senders, self.receivers = _as_ids(senders), _as_ids(receivers)
        self.agents = 1 + int(max(self.senders.max(initial=0), self.receivers.max(initial=0)))
        self.labels: tuple[str, ...] = ()  # names of the agents, where they have names
        self._rounds: dict[str, int] = defaultdict(int)
        self._tables: dict[tuple[str, str], IntArray] = {}

    def record(
        self,
        phase: str,
        kind: str,
        edges: slice | IntArray,
        scalars: int | IntArray,
        bytes: int | IntArray,
        messages: int | IntArray = 1,
    ) -> None:
        """Add messages on some edges (positions in the edge list; no edge twice)."""
        table = self._tables.get((phase, kind))
        if table is None:
            table = self._tables[phase, kind] = np.zeros((3, len(self.senders)), dtype=np.int64)
        table[0, edges] += messages
        table[1, edges] += scalars
        table[2, edges] += bytes

    def count_rounds(self, phase: str, rounds: int) -> None:
        """Add rounds to those of a phase."""
        self._rounds[phase] += rounds

    # ---- questions ------------------------------------------------------------------------------------

    def total(
        self,
        *,
        phase: str | None = None,
        kind: str | None = None,
        sender: int | str | None = None,
        receiver: int | str | None = None,
    ) -> Traffic:
        """The traffic that fits all that is given. Without a kind, a message counts once.

        kind: one of `KINDS`, or "framing"; what was not sent is 0.
        sender, receiver: numbers or names of agents; -1 is the server.
        """
        if kind is not None:
            check_name("kind of content", kind, (*KINDS, FRAMING))
        chosen = np.ones(len(self.senders), dtype=bool)
        if sender is not None:
            chosen &= self.senders == self._number(sender, "sender")
        if receiver is not None:
            chosen &= self.receivers == self._number(receiver, "receiver")
        messages = scalars = size = 0
        for (in_phase, of_kind), table in self._tables.items():
            if phase not in (None, in_phase) or kind not in (None, of_kind):
                continue
            sums = table[:, chosen].sum(axis=1)
            messages += int(sums[0]) if kind is not None or of_kind == FRAMING else 0
            scalars += int(sums[1])
            size += int(sums[2])
        return Traffic(messages, scalars, size)

    @property
    def rounds(self) -> int:
        """Of all phases."""
        return sum(self._rounds.values())

    @property
    def messages(self) -> int:
        """Of all agents."""
        return self.total().messages

    @property
    def scalars(self) -> int:
        """Numbers in all messages."""
        return self.total().scalars

    @property
    def bytes(self) -> int:
        """Of all messages, on the wire."""
        return self.total().bytes

    @property
    def rounds_by_phase(self) -> dict[str, int]:
        """The rounds of each phase."""
        return dict(self._rounds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of content that were sent at all, without the framing."""
        present = {kind for (_, kind), table in self._tables.items() if table[0].any()}
        return tuple(kind for kind in KINDS if kind in present)

    def by_phase(self) -> dict[str, Traffic]:
        """The traffic of each phase."""
        return {phase: self.total(phase=phase) for phase in dict.fromkeys(p for p, _ in self._tables)}

    def by_kind(self) -> dict[str, Traffic]:
        """The traffic of each kind of content, and of the framing."""
        return {kind: self.total(kind=kind) for kind in (*self.kinds, FRAMING)}

    def by_edge(self) -> dict[tuple[int, int], Traffic]:
        """(sender, receiver) -> traffic, for the edges that carried something."""
        framing = np.zeros((3, len(self.senders)), dtype=np.int64)
        for (_, kind), table in self._tables.items():
            framing[0] += table[0] * (kind == FRAMING)
            framing[1:] += table[1:]
        used = np.flatnonzero(framing[0])
        return {(int(self.senders[e]), int(self.receivers[e])): Traffic(*(int(v) for v in framing[:, e])) for e in used}

    @property
    def bytes_by_edge(self) -> IntArray:
        """(E,) in the order of `senders` and `receivers`."""
        return np.asarray(
            sum((table[2] for table in self._tables.values()), np.zeros(len(self.senders), dtype=np.int64))
        )

    def sent_by(self, agent: int | str) -> dict[str, Traffic]:
        """What left an agent, by kind of content; relayed content counts too.

        agent: its number, -1 for the server; or its name, where the fleet has names for its agents.
        """
        agent = self._number(agent, "agent")
        kinds = (*self.kinds, FRAMING)
        sent = {kind: self.total(kind=kind, sender=agent) for kind in kinds}
        return {kind: traffic for kind, traffic in sent.items() if traffic.messages}

    def _number(self, agent: int | str, what: str) -> int:
        """The number of an agent that is given by it, or by its name."""
        if not isinstance(agent, str):
            check_whole(f"{what} (the number of an agent)", agent, least=SERVER, most=self.agents - 1)
            return int(agent)
        if agent not in self.labels:
            names = f"one of {listed(self.labels)}, or " if self.labels else ""
            raise InputError(
                f"{what}: expected {names}a whole number of at least -1 and at most {self.agents - 1}, "
                f"got {shortened(agent)}"
            )
        return self.labels.index(agent)

    # ---- joining --------------------------------------------------------------------------------------

    @classmethod
    def merged(cls, ledgers: Iterable[Ledger]) -> Ledger:
        """One ledger for a fleet whose agents were hosted apart: traffic adds, rounds are common."""
        parts = list(ledgers)
        whole = cls(parts[0].senders, parts[0].receivers)
        whole.agents = parts[0].agents
        for part in parts:
            for phase, rounds in part._rounds.items():
                whole._rounds[phase] = max(whole._rounds[phase], rounds)
            for key, table in part._tables.items():
                whole._tables[key] = whole._tables.get(key, 0) + table
        return whole

    def as_dict(self) -> Mapping[str, object]:
        """Plain numbers, for JSON and for comparing two runs."""
        rows = {
            f"{phase}/{kind}": {f"{s}>{r}": c for s, r, *c in self._nonzero(table)}
            for (phase, kind), table in sorted(self._tables.items())
            if table.any()
        }
        return {"rounds": dict(sorted(self._rounds.items())), "traffic": rows}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], agents: int = 1) -> Ledger:
        """The ledger behind an `as_dict`, with the edges that carried something.

        agents: how many there are; the last ones may have sent nothing.

        >>> ledger = Ledger(senders=[0, 1], receivers=[1, 0])
        >>> ledger.record("training", "hyperparameters", edges=slice(0, 1), scalars=4, bytes=40)
        >>> Ledger.from_dict(ledger.as_dict()).as_dict() == ledger.as_dict()
        True
        """
        edges = sorted({tuple(map(int, edge.split(">"))) for rows in facts["traffic"].values() for edge in rows})
        position = {edge: number for number, edge in enumerate(edges)}
        ledger = cls([edge[0] for edge in edges], [edge[1] for edge in edges])
        ledger.agents = max(ledger.agents, agents)
        for key, rows in facts["traffic"].items():
            phase, kind = key.rsplit("/", 1)
            for edge, (messages, scalars, size) in rows.items():
                here = position[tuple(map(int, edge.split(">")))]
                ledger.record(phase, kind, np.array([here]), scalars, size, messages)
        ledger._rounds.update({phase: int(rounds) for phase, rounds in facts["rounds"].items()})
        return ledger

    def _nonzero(self, table: IntArray) -> list[list[int]]:
        used = table.any(axis=0)
        rows: list[list[int]] = np.column_stack([self.senders[used], self.receivers[used], table[:, used].T]).tolist()
        return rows

    def __repr__(self) -> str:
        return (
            f"Ledger(rounds={self.rounds}, messages={self.messages}, scalars={self.scalars}, bytes={self.bytes}, "
            f"kinds={', '.join(self.kinds) or 'none'})"
        )


def _as_ids(agents: Iterable[int]) -> IntArray:
    return np.array(agents if isinstance(agents, np.ndarray) else list(agents), dtype=np.int64)
