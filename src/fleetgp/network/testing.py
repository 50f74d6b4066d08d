"""The conformance suite: what every network must do, whatever carries its messages.

`check_network(run, topology)` compares values and ledger with a plain reference; `testing_shutdown` checks how a
network ends. Both raise AssertionError at the first difference.

`run(function)` must open a fleet, call function(network) once per group of hosted agents, all groups at the same time,
and return the list of results; for `InProcess` that is `lambda function: [function(InProcess(topology))]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.graph import Topology
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo
from fleetgp.network.inprocess import InProcess
from fleetgp.network.ledger import Ledger
from fleetgp.network.testing_tree import check_tree_against_definition, tree_transcript

Run = Callable[[Callable[[Network], Any]], list[Any]]


def check_network(run: Run, topology: Topology) -> None:
    """Every verb, several rounds each, against `InProcess` and against the definitions."""
    transcript = run(lambda network: (network.hosted, _transcript(network), network.ledger))
    hosted = [agent for group, _, _ in transcript for agent in group]
    assert sorted(hosted) == list(range(topology.agents)), "the groups must host every agent once"
    reference = InProcess(topology)
    expected = _transcript(reference)
    for group, observed, _ in transcript:
        for name, value in expected.items():
            wanted = value[list(group)]
            assert np.array_equal(observed[name], wanted), f"{name} at agents {group}: {observed[name]} != {wanted}"
    ledger = Ledger.merged(part for _, _, part in transcript)
    assert ledger.as_dict() == reference.ledger.as_dict(), "the ledger differs from the reference"
    _check_against_definition(expected, topology)


def _values(network: Network, *shape: int) -> Array:
    """Each agent's own numbers, seeded by its id: the same in every hosting."""
    return np.stack([np.random.default_rng([7, agent]).standard_normal(shape) for agent in network.hosted])


def _transcript(network: Network) -> dict[str, Array]:
    """What the hosted agents see of every verb, several rounds each; axis 0 is the hosted agents."""
    x = _values(network, 3)
    seen: dict[str, Array] = {}
    with network.phase("verbs"):
        for step in range(2 * network.topology.period + 1):
            seen[f"sum {step}"] = network.neighbour_sum(x, "hyperparameters")
            seen[f"max {step}"] = network.neighbour_max(x, "predictions")
            seen[f"min {step}"] = network.neighbour_min(x, "statistics")
            x = x + 0.1 * seen[f"sum {step}"]
    with network.phase("parts"):
        incoming = network.incoming
        parts = network.exchange_parts({"hyperparameters": x, "stopping": x[:, :1]})
        for kind, values in parts.items():
            seen[f"part {kind}"] = incoming.reduce(np.add, values, 0.0)
    with network.phase("masked"):
        incoming = network.incoming
        block = _values(network, 4, 2)
        # Both ends know what an edge carries: here, from the ids of the two.
        ends = np.asarray(network.hosted)[incoming.receivers] + incoming.senders
        mask = (ends[:, None] + np.arange(4)) % 3 == 0
        mask &= ends[:, None] % 4 > 0
        cells = block.reshape(-1, 2)
        cargo = Cargo.of_masks(incoming, mask, mask)
        masked = network.exchange_parts({"predictions": cells}, {"predictions": cargo})
        seen["masked"] = incoming.reduce(np.add, _unpacked(masked["predictions"], mask), 0.0)
        # And one way only: down the ids.
        incoming = network.incoming
        own = np.asarray(network.hosted)[incoming.receivers][:, None]
        above, below = (
            np.repeat(side, 4, 1) for side in (own > incoming.senders[:, None], own < incoming.senders[:, None])
        )
        down = Cargo.of_masks(incoming, above, below)
        one_way = network.exchange_parts({"predictions": cells, "stopping": block[:, 0, 0]}, {"predictions": down})
        seen["one way"] = incoming.reduce(np.add, _unpacked(one_way["predictions"], below), 0.0)
    for attempt in range(2):
        with network.phase(f"flood {attempt}"):
            rows = [np.full((1 + agent % 3, 2), float(agent)) for agent in network.hosted]
            ragged = network.flood_parts({"inputs": rows, "observations": [row[:, 0] for row in rows]})
            everyone = np.concatenate([v.ravel() for kind in ragged for v in ragged[kind]])
            seen[f"flood {attempt}"] = np.tile(everyone, (len(network.hosted), 1))
    with network.phase("quiet flood"):
        heard = network.flood([np.arange(float(agent)) for agent in network.hosted], "statistics")
        words = np.concatenate([[len(v), v.sum()] for v in heard])
        seen["quiet flood"] = np.tile(words, (len(network.hosted), 1))
    seen |= tree_transcript(network)
    seen["rounds"] = np.full((len(network.hosted), 1), float(network.round))
    return seen


def _unpacked(rows: Array, mask: BoolArray) -> Array:
    """The rows that arrived, at their places, (E, n, ...); zero elsewhere."""
    whole = np.zeros((*mask.shape, *rows.shape[1:]))
    whole[mask] = rows
    return whole


def _check_against_definition(seen: dict[str, Array], topology: Topology) -> None:
    """The reference itself, against adjacency matrices."""
    x = np.stack([np.random.default_rng([7, agent]).standard_normal(3) for agent in range(topology.agents)])
    round = 0
    for step in range(2 * topology.period + 1):
        adjacency = topology.at(round).adjacency
        assert np.allclose(seen[f"sum {step}"], adjacency @ x, rtol=1e-12, atol=1e-12), f"sum {step}"
        linked = topology.at(round + 1).adjacency > 0
        upper = np.where(linked[..., None], x, -np.inf).max(axis=1)
        assert np.array_equal(seen[f"max {step}"], upper), f"max {step}"
        linked = topology.at(round + 2).adjacency > 0
        lower = np.where(linked[..., None], x, np.inf).min(axis=1)
        assert np.array_equal(seen[f"min {step}"], lower), f"min {step}"
        x, round = x + 0.1 * seen[f"sum {step}"], round + 3
    rows = [np.full((1 + agent % 3, 2), float(agent)) for agent in range(topology.agents)]
    everyone = np.concatenate([row.ravel() for row in rows] + [row[:, 0] for row in rows])
    assert np.array_equal(seen["flood 1"], np.tile(everyone, (topology.agents, 1))), "flood"
    check_tree_against_definition(seen, topology)
