"""What neighbours tell each other of themselves, twice a second and whenever something changes: JSON, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleetgp.agent.membership.membership import Record, decode_records, encode_records, is_whole
from fleetgp.errors import NetworkError
from fleetgp.gp.hyperparameters import LOG_RANGE

#: Length-scales are as many as the inputs: no fleet has more hyperparameters than this.
MOST_PARAMETERS = 1000


@dataclass(frozen=True)
class Hello:
    """digest: of the fleet's description.  started, number: of the sender's process, and of the hello in it.

    summary: of the membership as the sender knows it.  records: those of it that the receiver seems to lack.
    epoch, round, waiting: the task it works on, the round it is in, and whom it waits for there; 0 if none.
    theta: its current estimate, in logarithms; empty if it has none.
    """

    digest: str = ""
    started: int = 0
    number: int = 0
    summary: int = 0
    records: tuple[Record, ...] = ()
    epoch: int = 0
    round: int = 0
    waiting: frozenset[int] = frozenset()
    theta: tuple[float, ...] = ()

    @property
    def age(self) -> tuple[int, int]:
        return self.started, self.number

    def encode(self) -> bytes:
        facts = {
            "digest": self.digest,
            "started": self.started,
            "number": self.number,
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

        >>> hello = Hello("abc", 5, 6, 7, (Record(1, 2),), 3, 4, frozenset({1}), (0.5,))
        >>> Hello.decode(hello.encode()) == hello
        True
        """
        try:
            facts: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NetworkError(f"expected a hello in JSON, got {type(error).__name__}: {error}") from error
        if not isinstance(facts, dict) or set(facts) != set(cls.__dataclass_fields__):
            raise NetworkError("expected a hello with all its fields")
        waiting, theta = facts["waiting"], facts["theta"]
        if not (isinstance(facts["digest"], str) and isinstance(waiting, list) and isinstance(theta, list)):
            raise NetworkError("expected a hello whose fields have their types")
        if not all(map(is_whole, (*(facts[name] for name in _WHOLE), *waiting))):
            raise NetworkError("expected a hello with whole numbers")
        if len(theta) > MOST_PARAMETERS or not all(map(_is_log_theta, theta)):
            raise NetworkError(f"expected hyperparameters with logarithms within {LOG_RANGE:g} of 0")
        return cls(
            records=tuple(decode_records(facts["records"])),
            digest=facts["digest"],
            waiting=frozenset(waiting),
            theta=tuple(map(float, theta)),
            **{name: facts[name] for name in _WHOLE},
        )


def longest(agents: int, links: int, dimension: int) -> int:
    """Bytes of the longest hello that a fleet with so many agents, links and inputs can send; more is junk."""
    return 2**12 + 160 * agents + 48 * links + 25 * (dimension + 2)


_WHOLE = ("started", "number", "summary", "epoch", "round")


def _is_log_theta(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -LOG_RANGE <= value <= LOG_RANGE  # type: ignore[operator]
