"""The tasks of a view: one after the other, with the same numbers at all its members."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fleetgp.agent.agenda import Agenda, Item, Widths, agree_on_agenda
from fleetgp.agent.logs import Activity
from fleetgp.agent.membership import View
from fleetgp.agent.node import Node
from fleetgp.network import Ledger
from fleetgp.network.zenoh.network import ZenohNetwork


@dataclass(frozen=True)
class Cost:
    """rounds: of the fleet.  sent: bytes that this agent sent in them."""

    rounds: int = 0
    sent: int = 0

    @classmethod
    def of(cls, ledger: Ledger) -> Cost:
        """From the ledger of this agent, which holds what it sent alone."""
        return cls(ledger.rounds, ledger.bytes)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.rounds + other.rounds, self.sent + other.sent)


class Tasks:
    """count: how many have begun.  agreed: numbers of what all members have agreed on, see `agreements`.

    telling: what the last agenda cost this agent.
    """

    def __init__(self, node: Node, view: View, activity: Activity) -> None:
        self.node, self.view, self._activity = node, view, activity
        self.count = 0
        self.agreed: dict[str, int] = {}
        self.telling = Cost()
        self._agenda: Agenda | None = None

    @contextmanager
    def next(self, *, waking: bool = False) -> Iterator[ZenohNetwork]:
        """The network of the next task; its rounds count, however it ends. Tasks may be nested.

        waking: other members may idle, and are told at once that it begins.
        """
        self.count += 1
        with self.node.epoch(self.view, self.count - 1, waking=waking) as network:
            try:
                yield network
            finally:
                self._activity.rounds += network.ledger.rounds
                sent = network.ledger.by_kind()
                self._activity.kinds.update({kind: traffic.bytes for kind, traffic in sent.items()})

    def agree(self, item: Item) -> Agenda:
        """Everybody's item, at everybody."""
        fleet = self.node.description
        with self.next(waking=True) as network:
            widths = Widths(len(fleet.names), fleet.dimension, len(fleet.parameters))
            self._agenda = agree_on_agenda(network, item, self.view.members, widths, self._agenda)
            self.telling = Cost.of(network.ledger)
        return self._agenda

    @property
    def names(self) -> list[str]:
        """Of the members."""
        return [self.node.description.names[member] for member in self.view.members]


def with_names(message: str, names: Sequence[str]) -> str:
    """A message in which agents go by number, with their names instead.

    >>> with_names("agent 1: no covariance at theta", ["boat3", "boat7"])
    'boat7: no covariance at theta'
    """
    return re.sub(r"\bagent (\d+)\b", lambda at: dict(enumerate(names)).get(int(at[1]), at[0]), message)
