"""What neighbours tell each other of themselves, twice a second and whenever something changes: JSON, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleetgp.agent.membership import Record, decode_records, encode_records
from fleetgp.errors import NetworkError


@dataclass(frozen=True)
class Hello:
    """digest: of the fleet's description.  records, summary: of the membership, as far as the sender knows it.

    epoch, round, waiting: the task it works on, the round it is in, and whom it waits for there; 0 if none.
    theta: its current estimate, in logarithms; empty if it has none.
    """

    digest: str = ""
    summary: int = 0
    records: tuple[Record, ...] = ()
    epoch: int = 0
    round: int = 0
    waiting: frozenset[int] = frozenset()
    theta: tuple[float, ...] = ()

    def encode(self) -> bytes:
        facts = {
            "digest": self.digest,
            "summary": self.summary,
            "records": encode_records(self.records),
            "epoch": self.epoch,
            "round": self.round,
            "waiting": sorted(self.waiting),
            "theta": self.theta,
        }
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """A hello, or a NetworkError; nothing else can come out.

        >>> hello = Hello("abc", 7, (Record(1, 2),), 3, 4, frozenset({1}), (0.5,))
        >>> Hello.decode(hello.encode()) == hello
        True
        """
        try:
            facts: dict[str, Any] = json.loads(data)
            records = tuple(decode_records(facts["records"]))
            found = cls(records=records, **{name: facts[name] for name in ("digest", "summary", "epoch", "round")})
            waiting, theta = facts["waiting"], facts["theta"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise NetworkError(f"no hello: {type(error).__name__}: {error}") from error
        whole = [found.summary, found.epoch, found.round, *(waiting if isinstance(waiting, list) else [None])]
        sound = all(isinstance(value, int) and not isinstance(value, bool) for value in whole)
        numbers = isinstance(theta, list) and all(isinstance(value, int | float) for value in theta)
        if not (isinstance(found.digest, str) and sound and numbers):
            raise NetworkError("no hello: something has the wrong type")
        return cls(
            found.digest, found.summary, records, found.epoch, found.round, frozenset(waiting), tuple(map(float, theta))
        )
