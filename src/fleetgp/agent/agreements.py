"""What the members of a view have agreed on for their answers: grBCM's samples, NPAE's box. It travels once.

All members must decide alike whether they hold it. What they agreed on in this view all of them do; what is left of
earlier views counts if every member has said, with its first item, that it holds the same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple

from fleetgp.agent.agenda import Agenda, Trained
from fleetgp.prediction import PredictionMethod, PredictionOptions
from fleetgp.prediction.agreed import Agreed, agreement_key

#: Bytes of the numbers of data and agreements: a float holds them exactly.
SHORT = 6


def number_of(agenda: Agenda, model: Trained, method: PredictionMethod, options: PredictionOptions) -> int:
    """A number that is another one where something else must be agreed on: the same at every member."""
    seen = model.offset, model.scale, *astuple(model.change)  # what travels is what the model sees
    data = [item.data for item in agenda.items], *seen
    facts = [agenda.members, data, agreement_key(method, options)]
    if method.rule == "npae":  # its basis is made for one theta
        facts.append((model.log_theta, model.kernel))
    return int.from_bytes(hashlib.blake2b(json.dumps(facts).encode(), digest_size=SHORT).digest(), "big")


class Agreements:
    """Of one agent: the last of each rule, with its number."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, Agreed]] = {}

    @property
    def held(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(sorted(number for number, _ in self._kept.values()))

    def find(self, rule: str, number: int, agenda: Agenda, here: dict[str, int]) -> Agreed | None:
        """What all members hold; None if they must agree anew. here: numbers of what was agreed on in this view."""
        common = number == here[rule] if rule in here else all(number in item.agreed for item in agenda.items)
        return self._kept[rule][1] if common else None

    def keep(self, rule: str, number: int, agreed: Agreed, here: dict[str, int]) -> None:
        """In the place of an earlier one."""
        self._kept[rule] = number, agreed
        here[rule] = number
