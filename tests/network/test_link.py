"""Links as people describe them, and how long tasks take over them, in cases that can be done by hand."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.network.counting import Bill, CountingNetwork, Link


@pytest.mark.parametrize(
    ("text", "rate", "latency", "loss", "half"),
    [
        ("9600 bit/s", 1200.0, 0.0, 0.0, False),
        ("9600 bit/s, 2 s", 1200.0, 2.0, 0.0, False),
        ("2 s,9600bit/s", 1200.0, 2.0, 0.0, False),
        ("1.5 Mbit/s, 30 ms, 5 %", 187_500.0, 0.03, 0.05, False),
        ("2 kB/s, 1e-3 s, half-duplex", 2000.0, 0.001, 0.0, True),
        ("1 GB/s, 1 min, 0.1%, half duplex", 1e9, 60.0, 0.001, True),
    ],
)
def test_descriptions(text: str, rate: float, latency: float, loss: float, half: bool) -> None:
    link = Link(text)
    assert [link.rate, link.latency, link.loss] == pytest.approx([rate, latency, loss])
    assert link.half_duplex == half


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a rate, and if you like"),
        ("fast", "got 'fast' in 'fast'"),
        ("2 s", "without a rate"),
        ("0 bit/s", "got '0 bit/s'"),
        ("-5 bit/s", "got '-5 bit/s'"),
        ("9600 bit/s, 100 %", "expected a loss below 100 %"),
        ("9600 bit/s, 2 s, 3 ms", "expected one latency, got two"),
        ("9600 bit/s, 2 h", "got '2 h'"),
        ("1e999 bit/s", "expected a rate"),
    ],
)
def test_what_is_no_link(text: str, message: str) -> None:
    with pytest.raises(fg.InputError, match=message):
        Link(text)


def test_a_number_is_no_link() -> None:
    with pytest.raises(fg.InputError, match="expected a rate"):
        Link(9600)  # type: ignore[arg-type]


def reduction(graph: fg.Graph, *shape: int) -> Bill:
    """Of everyone's rows of a shape."""
    network = CountingNetwork(graph)
    network.reduce(np.zeros((graph.agents, *shape)), "statistics")
    return network.bill()


def exchange(graph: fg.Graph, width: int) -> Bill:
    """Of so many numbers."""
    network = CountingNetwork(graph)
    network.exchange(np.zeros((graph.agents, width)), "hyperparameters")
    return network.bill()


def test_a_reduction_on_a_path_goes_hop_by_hop() -> None:
    """Five agents: two hops up, two down, each a message of the same size and a latency."""
    bill = reduction(fg.Graph.path(5), 1, 10)
    size = bill.edges[0, 1]
    assert set(bill.edges.values()) == {size}
    assert Link("1 kB/s, 3 s").seconds(bill) == pytest.approx(4 * (3.0 + size / 1000.0))
    assert Link("1 kB/s, 3 s, half duplex").seconds(bill) == pytest.approx(4 * (3.0 + size / 1000.0))


def test_an_exchange_takes_as_long_as_its_slowest_link() -> None:
    bill = exchange(fg.Graph.star(6), 4)
    size = bill.edges[0, 1]
    assert Link("1 kB/s, 1 s").seconds(bill) == pytest.approx(1.0 + size / 1000.0)
    assert Link("1 kB/s, 1 s, half duplex").seconds(bill) == pytest.approx(1.0 + 2 * size / 1000.0)


def test_pieces_of_a_long_value_follow_each_other() -> None:
    """Over h hops p pieces take h + p - 1 times as long as one piece over one hop."""
    bill = reduction(fg.Graph.path(9), 4 * 65536)
    (size,) = set(bill.edges.values())
    pieces = bill.messages / len(bill.edges)
    assert pieces == 4
    assert bill.waiting == pytest.approx(2 * (4 + pieces - 1) * size / pieces)
    assert bill.rounds == 2 * 4 + 2 * (pieces - 1)


def test_a_collection_grows_on_its_way_up() -> None:
    """On a path of three, each end tells its row, and hears the two others."""
    network = CountingNetwork(fg.Graph.path(3))
    network.collect({"inputs": np.zeros((3, 1, 2))})
    bill = network.bill()
    assert bill.waiting == bill.edges[0, 1] + bill.edges[1, 0]
    assert bill.edges[1, 0] > bill.edges[0, 1]


def test_losses_by_simulation() -> None:
    """The unluckiest of n messages, each sent until it comes through."""
    rng = np.random.default_rng(0)
    for messages in (1, 2, 30):
        tries = rng.geometric(0.8, (200_000, messages)).max(axis=1)
        expected = Link("1 B/s, 1 s, 20 %").tries(messages)
        assert abs(tries.mean() - expected) < 5 * tries.std() / np.sqrt(len(tries))


def test_what_is_lost_is_sent_again_after_two_latencies() -> None:
    bill = Bill({1: 4}, 4, {"statistics": 100}, {(0, 1): 100}, 100, 100)
    sent = 1.0 / 0.75
    assert Link("100 B/s, 2 s, 25 %").seconds(bill) == pytest.approx(4 * 2.0 * (1 + 2 * (sent - 1)) + sent)


def test_bills_add_up() -> None:
    one, other = exchange(fg.Graph.cycle(5), 3), reduction(fg.Graph.cycle(5), 2, 3)
    both, link = 2 * one + other, Link("1 kB/s, 1 s")
    assert both.bytes == 2 * one.bytes + other.bytes
    assert both.rounds == 2 * one.rounds + other.rounds
    assert both.busiest <= 2 * one.busiest + other.busiest
    assert link.seconds(both) == pytest.approx(2 * link.seconds(one) + link.seconds(other))
    assert both.sent == ("hyperparameters", "statistics")
