"""The tasks of a view: one after the other, with the same numbers at all its members."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleetgp.agent.activity import Activity
from fleetgp.agent.agenda import Agenda, Item, agree_on_agenda
from fleetgp.agent.membership.membership import View
from fleetgp.agent.node import Node
from fleetgp.network.zenoh.network import ZenohNetwork


class Tasks:
    """count: how many have begun."""

    def __init__(self, node: Node, view: View, activity: Activity) -> None:
        self.node, self.view, self._activity = node, view, activity
        self.count = 0

    @contextmanager
    def next(self) -> Iterator[ZenohNetwork]:
        """The network of the next task; its rounds count, however it ends. Tasks may be nested."""
        self.count += 1
        with self.node.epoch(self.view, self.count - 1) as network:
            try:
                yield network
            finally:
                self._activity.rounds += network.ledger.rounds

    def agree(self, item: Item) -> Agenda:
        """Everybody's item, at everybody."""
        fleet = self.node.description
        with self.next() as network:
            return agree_on_agenda(network, item, self.view.members, len(fleet.names), fleet.dimension)

    @property
    def names(self) -> list[str]:
        """Of the members."""
        return [self.node.description.names[member] for member in self.view.members]
