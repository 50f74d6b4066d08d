"""The simulator on the page: the same picture, with the numbers that `Fleet` gives."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")

import fleetgp as fg
from fleetgp.errors import InputError, NetworkError
from fleetgp.page.server import PageServer, saved_page
from fleetgp.page.simulated import demo_fleet
from fleetgp.progress import Listener, Progress
from tests.page.browsers import tab


def test_the_demo_learns_is_mapped_and_answers(browser: Any) -> None:
    fleet = demo_fleet(180, seed=1, agents=4)
    with pytest.raises(NetworkError, match="no model yet"):
        fleet.ask({"point": [0.5, 0.5]})
    try:
        with PageServer(fleet, port=0) as server, tab(browser) as one:
            fleet.start()
            page = one.open(server.address)
            one.wait_for_map()
            page.locator("#sentence", has_text="All 4 agents are there.").wait_for()
            page.locator("#model", has_text="Learned by agent1, agent2, agent3 and agent4").wait_for()
            page.locator("#overlay .row-dot").first.wait_for()
            assert one.colours() > 50
            assert page.locator("#overlay .row-dot").count() == 180
            page.locator("#plot").click(position={"x": 300, "y": 200})
            page.locator(".value").wait_for()
            page.locator("#questions", has_text="agent1 was asked for 1 point here").wait_for()
    finally:
        fleet.close()
    same = fg.Fleet(fleet.shards, fleet.fleet.graph, kernel="se", normalize=False)
    fit = same.train("dec-apx-gp", theta0=fg.PAPER_THETA0)
    told = fleet.picture()[1]
    np.testing.assert_allclose(list(told["model"]["theta"].values()), fit.thetas[0], rtol=1e-9)
    expected = same.predict([[0.5, 0.5]], agent=0)
    answer = fleet.ask({"point": [0.5, 0.5]})
    assert answer["mean"] == pytest.approx(float(expected.mean[0]), rel=1e-9)
    assert answer["deviation"] == pytest.approx(float(np.sqrt(expected.variance[0])), rel=1e-6)
    assert sum(told["kinds"].values()) == told["totals"]["bytes"] >= fit.ledger.bytes
    assert len(saved_page(fleet)) > 50_000
    with pytest.raises(InputError, match="expected 2 finite numbers"):
        fleet.ask({"point": [0.5]})


def test_the_demo_ends_in_the_midst_of_its_training(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, begun = demo_fleet(400, seed=1, agents=4), threading.Event()

    def endless(method: str, *, progress: Listener, **options: Any) -> None:
        for number in itertools.count():
            progress(Progress(method, number, None, ""))
            begun.set()

    monkeypatch.setattr(fleet.fleet, "train", endless)
    fleet.start()
    assert begun.wait(120.0)
    fleet.close()
    assert not any(thread.is_alive() for thread in fleet._threads)
