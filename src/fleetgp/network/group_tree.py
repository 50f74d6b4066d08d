"""The spanning tree as a group of agents sees it: what it merges, wave by wave, and what goes to other groups.

An agent's rows are ready in the wave that is the largest number of cut edges on a way up to it. In each wave a group
merges all that is ready, level by level, and sends each other group once what that one waits for: as soon as it has
what it needs, and as often as the longest way crosses between groups, not once for each level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.graph import Tree


@dataclass(frozen=True)
class Wave:
    """arriving: of each other group, the slots for what it sent in the wave before.  turns: what is merged, (below,
    above) by slots.  leaving: of each other group, the slots of what goes to it.
    """

    arriving: dict[int, IntArray]
    turns: list[tuple[IntArray, IntArray]]
    leaving: dict[int, IntArray]


class GroupTree:
    """The spanning tree as a group sees it: what it can merge by itself, and what must come from other groups.

    Rows of a group have slots: first those of its agents, in their order, then of their children in other groups.
    waves: as many here as in every group; in the last one the root has everything.
    children: the agents behind the slots of others.
    above: of every group but the root's, the one from which it gets the result: where the way down comes first.
    """

    def __init__(self, tree: Tree, hosted: IntArray, group_of: IntArray, own: int) -> None:
        agents, parents = np.arange(len(tree.parents)), tree.parents
        up = group_of[parents]
        cut = group_of != up
        ready, crossings = np.zeros_like(agents), np.zeros_like(agents)
        for below, above in tree.levels:
            np.maximum.at(ready, above, ready[below] + cut[below])
        for below, above in reversed(tree.levels):
            crossings[below] = crossings[above] + cut[below]
        self.tree, self.own, self.root = tree, own, int(group_of[tree.root])
        self.children = agents[cut & (up == own)]
        slot = np.full(len(agents), -1, dtype=np.int64)
        slot[hosted] = np.arange(len(hosted))
        slot[self.children] = len(hosted) + np.arange(len(self.children))
        self.slots = len(hosted) + len(self.children)
        leaving = agents[cut & (group_of == own)]
        last = int(ready[tree.root])
        turns: list[list[tuple[IntArray, IntArray]]] = [[] for _ in range(last + 1)]
        for below, above in tree.turns:
            here = group_of[above] == own
            for wave in np.unique(ready[above[here]]):
                some = here & (ready[above] == wave)
                turns[wave].append((slot[below[some]], slot[above[some]]))
        self.waves = [
            Wave(
                _by_group(self.children[ready[self.children] == wave - 1], group_of, slot),
                turns[wave],
                _by_group(leaving[ready[leaving] == wave], up, slot),
            )
            for wave in range(last + 1)
        ]
        self.above = {}
        for group in range(int(group_of.max()) + 1):
            if group != self.root:
                members = np.flatnonzero((group_of == group) & cut)
                self.above[group] = int(up[members[int(np.argmin(crossings[members]))]])

    @property
    def below(self) -> list[int]:
        """The groups that get the result from this one."""
        return [group for group, above in self.above.items() if above == self.own]

    def way_to(self, group: int) -> set[int]:
        """The groups over which the result comes to one, itself among them."""
        way = {group}
        while group != self.root:
            group = self.above[group]
            way.add(group)
        return way


def _by_group(agents: IntArray, group_of: IntArray, slot: IntArray) -> dict[int, IntArray]:
    """The agents' slots, by group."""
    return {int(group): slot[agents[group_of[agents] == group]] for group in np.unique(group_of[agents])}
