"""What may be a graph: one clear error for whatever may not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.errors import GraphError, listed, shortened

if TYPE_CHECKING:
    from fleetgp.graph.graph import Graph

#: More agents than any machine has room for are a mistake.
MOST_AGENTS = 10_000_000


@runtime_checkable
class NetworkxGraph(Protocol):
    """What is asked of a networkx graph."""

    @property
    def nodes(self) -> Iterable[Any]: ...

    @property
    def edges(self) -> Iterable[tuple[Any, ...]]: ...

    def is_directed(self) -> bool: ...


def require_connected(graph: Graph, what: str = "the graph") -> None:
    """One clear error, with the components, for a graph on which some agents cannot be reached."""
    if len(graph.components) > 1:
        raise GraphError(_disconnected(graph.components, what))


def named(agents: Iterable[int]) -> str:
    return listed(str(int(agent)) for agent in agents)


def _disconnected(components: list[list[int]], what: str) -> str:
    parts = "; ".join("{" + named(c) + "}" for c in components[:8])
    more = f"; ... ({len(components)} components)" if len(components) > 8 else ""
    return f"{what} is not connected: its components are {parts}{more}. Add edges so that every agent can be reached"


def check_agents(agents: object) -> None:
    """A number of agents, or one clear error."""
    whole = isinstance(agents, int | np.integer) and not isinstance(agents, bool)
    if not whole or not 1 <= agents <= MOST_AGENTS:  # type: ignore[operator]
        raise GraphError(
            f"expected a graph of at least one agent, and at most {MOST_AGENTS:,}, got {shortened(agents)}"
        )


def pairs_of(edges: object) -> IntArray:
    """(E, 2) agents, or one clear error."""
    try:
        listed_edges = edges if isinstance(edges, np.ndarray) else [tuple(edge) for edge in edges]  # type: ignore[attr-defined]
        given = np.array(listed_edges)
    except (TypeError, ValueError):
        given = np.array(None)
    if given.size == 0 and given.ndim <= 2:
        return np.zeros((0, 2), dtype=np.int64)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise GraphError(f"expected edges as pairs of agents' numbers, as [(0, 1), (1, 2)], got {shortened(edges)}")
    return given.astype(np.int64)
