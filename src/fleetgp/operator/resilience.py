"""Whose loss would split a fleet, and who is no member any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleetgp.agent.description import Description
from fleetgp.errors import listed
from fleetgp.graph import Graph


def cut_agents(graph: Graph) -> list[int]:
    """The agents without whom the others are in parts, in linear time: a walk in depth, without recursion.

    order: when the walk came to an agent.  low: the earliest agent that it, or one found after it, has a link to.

    >>> cut_agents(Graph.path(4)), cut_agents(Graph.cycle(4)), cut_agents(Graph.star(4))
    ([1, 2], [], [0])
    """
    neighbours = [graph.neighbours(agent) for agent in range(graph.agents)]
    order, low, cuts = {0: 0}, {0: 0}, set()
    walk = [(0, -1, iter(neighbours[0]))]
    branches = 0  # of the first agent
    while walk:
        agent, before, left = walk[-1]
        for other in left:
            if other not in order:
                order[other] = low[other] = len(order)
                walk.append((other, agent, iter(neighbours[other])))
                break
            if other != before:
                low[agent] = min(low[agent], order[other])
        else:
            walk.pop()
            if before >= 0:
                low[before] = min(low[before], low[agent])
                branches += before == 0
                if before != 0 and low[agent] >= order[before]:
                    cuts.add(before)
    return sorted(cuts | ({0} if branches > 1 else set()))


def split_by(description: Description) -> list[str]:
    return [description.names[agent] for agent in cut_agents(description.graph)]


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
