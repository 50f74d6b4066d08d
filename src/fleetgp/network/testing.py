"""The conformance suite: what every network must do, whatever carries its messages.

A user's own network passes the same suite. `run(function)` must open another fleet at every call, call
function(network) once per group of hosted agents, all groups at the same time, and return the list of results; for
`InProcess` that is `lambda function: [function(InProcess(topology))]`. An AssertionError names the first difference.

`check_network`: values and ledger of all verbs against a plain reference.

`check_ends`: close, double close, cancellation, wake-up, wrong use, nonsense. Rounds must have a long deadline.
`check_lost_neighbour`: a neighbour that falls silent is named; no round continues without it. Their deadline is short.
Where the groups of a fleet are processes, `semaphore` must make one of value 0 that works between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import Cancelled, FleetGPError, NeighbourLostError, NetworkError, NonsenseError
from fleetgp.graph import Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo
from fleetgp.network.grouped import InProcess
from fleetgp.network.ledger import Ledger
from fleetgp.network.reduction import MAXIMUM, MINIMUM, PIECE, SUM, Merge

#: Rows of a value that goes in three pieces, and in more than one row a piece.
LONG, WIDE = 3, PIECE // 2 + 1
ROWS = 5
#: Seconds that nothing here takes, on any machine: only a hang is longer.
LONG_WAIT = 120.0
Run = Callable[[Callable[[Network], Any]], list[Any]]
#: A semaphore between threads.
OF_THREADS: Callable[[], Any] = partial(threading.Semaphore, 0)


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


def check_ends(run: Run, topology: Topology, semaphore: Callable[[], Any] = OF_THREADS) -> None:
    """Whatever ends a network, it stays ended, and a verb that waits is woken."""
    run(_check_wrong_use_and_close)
    run(_check_cancelled)
    beside = partial(_beside_a_silent_group, run, topology, semaphore)
    _check_wakes(beside, lambda network: network.close(), NetworkError, "closed")
    _check_wakes(beside, lambda network: network.cancel(Cancelled("enough")), Cancelled, "enough")
    _check_names_sender(run, topology, _send_nonsense)
    _check_names_sender(run, topology, _send_in_another_phase)


def check_lost_neighbour(run: Run, topology: Topology, semaphore: Callable[[], Any] = OF_THREADS) -> None:
    """A group falls silent in the middle of a round."""
    outcomes = _beside_a_silent_group(run, topology, semaphore, _lose)
    silent = set(range(topology.agents)) - {agent for hosted, _ in outcomes for agent in hosted}
    for hosted, lost in outcomes:
        near = {j for i in hosted for j in topology.union.neighbours(i)} - set(hosted)
        missing = {j for i in hosted for j in topology.at(0).neighbours(i)} & silent
        assert missing <= set(lost) <= near, f"agents {hosted} blame {lost}, not {sorted(missing)}"


def _transcript(network: Network) -> dict[str, Array]:
    """What the hosted agents see of every verb, several rounds each; axis 0 is the hosted agents."""
    x = _values(network.hosted, 3)
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
        block = _values(network.hosted, 4, 2)
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
        flooded = network.flood([np.arange(float(agent)) for agent in network.hosted], "statistics")
        words = np.concatenate([[len(v), v.sum()] for v in flooded])
        seen["quiet flood"] = np.tile(words, (len(network.hosted), 1))
    seen |= _tree_transcript(network)
    seen["rounds"] = np.full((len(network.hosted), 1), float(network.round))
    return seen


def _unpacked(rows: Array, mask: BoolArray) -> Array:
    """The rows that arrived, at their places, (E, n, ...); zero elsewhere."""
    whole = np.zeros((*mask.shape, *rows.shape[1:]))
    whole[mask] = rows
    return whole


def _tree_transcript(network: Network) -> dict[str, Array]:
    """What the hosted agents see; axis 0 is the hosted agents."""
    x = _values(network.hosted, ROWS, 2)
    present = np.stack([_present(agent) for agent in network.hosted])
    last = network.agents - 1
    seen: dict[str, Array] = {}

    def same(name: str, value: Array | BoolArray | None) -> None:
        """The same at all hosted agents; NaN where no hosted agent is a recipient."""
        row = np.full(1, np.nan) if value is None else np.asarray(value, dtype=float).ravel()
        seen[name] = np.tile(row, (len(network.hosted), 1))

    with network.phase("reduce"):
        for name, merge in (("sum", SUM), ("max", MAXIMUM), ("min", MINIMUM), ("nearest", NEAREST)):
            same(f"tree {name}", network.reduce(x, "statistics", merge))
        same("tree vector", network.reduce(x[:, :, 0], "statistics"))
        same("tree pieces", network.reduce(_values(network.hosted, LONG, WIDE), "moments"))
        finished = network.reduce(x, "statistics", finish=lambda total, _: total[:, :1] ** 2, result_shape=(1,))
        same("tree finish", finished)
    with network.phase("reduce to one"):
        total = network.reduce(x, "statistics", recipient=last)
        assert (total is None) == (last not in network.hosted)
        seen["tree to one"] = _at_recipient(network, last, total, ROWS * 2)
    with network.phase("present"):
        some = network.reduce_present(x, present, "predictions")
        assert some.value is not None
        assert some.who is not None
        same("present sum", np.where(some.absent[:, None], 0.0, some.value))
        same("present who", some.who)
        same("present absent", some.absent)
        ordered = network.reduce_present(
            x, present, "predictions", NEAREST, finish=_counted, result_shape=(1,), recipient=last
        )
        same("present absent to one", ordered.absent)
        value = None if ordered.value is None else np.where(ordered.absent[:, None], 0.0, ordered.value)
        seen["present to one"] = _at_recipient(network, last, value, ROWS)
    with network.phase("collect"):
        rows = [np.full((agent % 3, 2), float(agent)) for agent in network.hosted]
        everyone = network.collect({"inputs": rows, "observations": [row[:, 0] for row in rows]})
        assert everyone is not None
        same("collect", np.concatenate([v.ravel() for kind in everyone for v in everyone[kind]]))
        collected = network.collect({"statistics": rows}, recipient=last)
        assert (collected is None) == (last not in network.hosted)
        value = None if collected is None else np.concatenate([v.ravel() for v in collected["statistics"]])
        length = sum(2 * (agent % 3) for agent in range(network.agents))
        seen["collect to one"] = _at_recipient(network, last, value, length)
    return seen


def _values(agents: Iterable[int], *shape: int) -> Array:
    """Some of each agent."""
    return np.stack([np.random.default_rng([7, agent]).standard_normal(shape) for agent in agents])


def _present(agent: int) -> BoolArray:
    """Nobody in row 4, agent 0 alone in row 3."""
    return np.array([agent % 2 == 0, agent % 3 == 1, True, agent == 0, False])


def _nearest(one: Array, other: Array) -> Array:
    """The two smallest of two lists, row by row: a merger that is none of NumPy's."""
    return np.sort(np.concatenate([one, other], axis=-1), axis=-1)[..., :2]


NEAREST = Merge(_nearest, np.inf)


def _counted(total: Array, who: BoolArray | None) -> Array:
    assert who is not None
    count = who.sum(axis=0)[:, None]
    return np.asarray(np.where(count > 0, total[:, :1], 0.0) * count)


def _at_recipient(network: Network, recipient: int, value: Array | None, size: int) -> Array:
    seen = np.full((len(network.hosted), size), np.nan)
    if value is not None:
        seen[network.hosted.index(recipient)] = value.ravel()
    return np.asarray(np.nan_to_num(seen, nan=-7.0))


def _check_against_definition(seen: dict[str, Array], topology: Topology) -> None:
    """The reference itself, against adjacency matrices."""
    x = _values(range(topology.agents), 3)
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
    _check_tree_against_definition(seen, topology)


def _check_tree_against_definition(seen: dict[str, Array], topology: Topology) -> None:
    """The reference itself, against sums, extremes and lists over all agents."""
    agents = range(topology.agents)
    x = _values(agents, ROWS, 2)
    present = np.stack([_present(agent) for agent in agents])
    wide = _values(agents, LONG, WIDE)
    spoken = [np.full((agent % 3, 2), float(agent)) for agent in agents]
    everyone = np.concatenate([row.ravel() for row in spoken] + [row[:, 0] for row in spoken])
    smallest = np.sort(x.transpose(1, 0, 2).reshape(ROWS, -1), axis=1)[:, :2]
    expected = {
        "tree sum": x.sum(axis=0),
        "tree max": x.max(axis=0),
        "tree min": x.min(axis=0),
        "tree nearest": smallest if topology.agents > 1 else x[0],
        "tree vector": x[:, :, 0].sum(axis=0),
        "tree pieces": wide.sum(axis=0),
        "tree finish": x.sum(axis=0)[:, :1] ** 2,
        "present sum": np.where(present[..., None], x, 0.0).sum(axis=0),
        "present who": present,
        "present absent": ~present.any(axis=0),
        "collect": everyone,
    }
    for name, value in expected.items():
        assert np.allclose(seen[name], np.asarray(value, dtype=float).ravel(), rtol=1e-12, atol=1e-12), name
    last = topology.agents - 1
    assert np.allclose(seen["tree to one"][last], x.sum(axis=0).ravel(), rtol=1e-12, atol=1e-12)
    assert (seen["tree to one"][:last] == -7.0).all()
    if topology.period == 1:
        tree = Tree.of(topology.union)
        assert tree.height <= topology.diameter <= 2 * tree.height, "the root is no centre"


def _raised(verb: Callable[[], Any]) -> BaseException | None:
    try:
        verb()
    except BaseException as error:
        return error
    return None


def _round(network: Network) -> Array:
    return network.neighbour_sum(np.ones(len(network.hosted)), "statistics")


def _flood(network: Network) -> list[Array]:
    return network.flood(np.ones(len(network.hosted)), "statistics")


def _check_over(network: Network, kind: type[BaseException], why: str) -> None:
    """Every verb raises, at once and as often as it is called; what was booked stays."""
    before = network.round, network.ledger.as_dict()
    for error in (_raised(lambda: _round(network)), _raised(lambda: _flood(network)), _raised(lambda: _round(network))):
        assert isinstance(error, kind), f"expected {kind.__name__}, got {error!r}"
        assert why in str(error), f"expected {why!r}, got {str(error)!r}"
    assert (network.round, network.ledger.as_dict()) == before, "a network that is over counts on"


def _check_wrong_use_and_close(network: Network) -> None:
    count, neighbours = len(network.hosted), network.incoming.degrees
    for wrong in (
        lambda: network.exchange(np.zeros(count), "secrets"),
        lambda: network.exchange(np.zeros(count + 1), "statistics"),
        lambda: network.flood([np.zeros(1)] * (count + 1), "statistics"),
    ):
        assert isinstance(_raised(wrong), FleetGPError), "wrong use is not refused"
    assert (network.round, network.ledger.messages) == (0, 0), "wrong use counts as a round"
    assert np.array_equal(_round(network), neighbours), "there is no right round after wrong use"
    with network:
        pass
    network.close()
    _check_over(network, NetworkError, "closed")
    network.cancel(Cancelled("too late"))
    _check_over(network, NetworkError, "closed")


def _check_cancelled(network: Network) -> None:
    _round(network)
    network.cancel(Cancelled("enough"))
    network.close()
    _check_over(network, Cancelled, "enough")


#: Runs work at every group but a silent one: (hosted, result) of each.
Beside = Callable[[Callable[[Network], Any]], list[tuple[Any, Any]]]


def _beside_a_silent_group(
    run: Run, topology: Topology, semaphore: Callable[[], Any], work: Callable[[Network], Any]
) -> list[tuple[Any, Any]]:
    """work(network) at every group but agent 0's, which takes no part and leaves last; (hosted, result) of each."""
    finished, agents = semaphore(), topology.agents

    def one(network: Network) -> Any:
        if 0 in network.hosted:
            for _ in range(agents - len(network.hosted)):
                assert finished.acquire(timeout=LONG_WAIT), "some group neither finished nor failed"
            return None
        try:
            return network.hosted, work(network)
        finally:
            finished.release(len(network.hosted))

    return [outcome for outcome in run(one) if outcome is not None]


def _rounds(network: Network) -> None:
    """As many as it takes until everybody has noticed that somebody is silent."""
    for _ in range(network.agents * network.topology.period):
        _round(network)


def _lose(network: Network) -> tuple[int, ...]:
    error = _raised(lambda: _rounds(network))
    assert isinstance(error, NeighbourLostError), f"expected NeighbourLostError, got {error!r}"
    _check_over(network, NetworkError, "an earlier round failed")
    return error.neighbours


def _check_wakes(beside: Beside, end: Callable[[Network], None], kind: type[BaseException], why: str) -> None:
    """Another thread ends a network whose verb waits."""

    def work(network: Network) -> BaseException | None:
        finished = threading.Event()

        def watch() -> None:
            while not network.waiting_for and not finished.wait(0.001):
                pass
            end(network)

        watcher = threading.Thread(target=watch)
        watcher.start()
        error = _raised(lambda: _rounds(network))
        finished.set()
        watcher.join(LONG_WAIT)
        _check_over(network, kind, why)
        return error

    for hosted, error in beside(work):
        assert isinstance(error, kind), f"agents {hosted}: expected {kind.__name__}, got {error!r}"
        assert why in str(error), f"agents {hosted}: expected {why!r}, got {str(error)!r}"


def _send_nonsense(network: Network) -> None:
    network.exchange(np.full((len(network.hosted), 1), np.nan if 0 in network.hosted else 0.0), "hyperparameters")


def _send_in_another_phase(network: Network) -> None:
    with network.phase("one" if 0 in network.hosted else "another"):
        _round(network)


def _check_names_sender(run: Run, topology: Topology, work: Callable[[Network], None]) -> None:
    """Agent 0's group sends what nobody can work with: those who get it name the sender, and stop."""

    def one(network: Network) -> tuple[tuple[int, ...], BaseException | None]:
        error = _raised(lambda: work(network))
        if error is not None:
            _check_over(network, NetworkError, "an earlier round failed")
        return network.hosted, error

    outcomes = run(one)
    culprits = next(set(hosted) for hosted, _ in outcomes if 0 in hosted)
    for hosted, error in outcomes:
        senders = {j for i in hosted for j in topology.at(0).neighbours(i)} & culprits
        if senders and 0 not in hosted:
            assert isinstance(error, NonsenseError), f"agents {hosted}: expected NonsenseError, got {error!r}"
            assert error.sender in senders, f"agents {hosted} blame {error.sender}, not one of {sorted(senders)}"
