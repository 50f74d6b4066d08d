"""A running fleet, watched: what viewers choose is what the agents are asked."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zenoh")

from fleetgp.agent.description import read_description
from fleetgp.agent.roster import SignedRoster
from fleetgp.errors import InputError, NetworkError
from fleetgp.operator.launch import free_ports
from fleetgp.page.watch import Watch
from tests.agent.fleets import ask, describe, running, serving, until
from tests.agent.test_totals import living


def test_a_fleet_is_watched_asked_and_trained(tmp_path: Path) -> None:
    describe(tmp_path, 2)
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    (tmp_path / "fleet.toml").write_text(
        text.replace('data = "a1.npz"', 'data = "a1.npz"\nshow_rows = true'), encoding="utf-8"
    )
    description = read_description(tmp_path / "fleet.toml")
    watch = Watch(description, pause=0.1)
    try:
        watch.start()
        until(lambda: watch.picture()[1]["sentence"] == "None of the 2 agents answers.")
        with pytest.raises(NetworkError, match="nobody who is there has a model yet"):
            watch.ask({"point": [0.5, 0.5]})
        with running(description, tmp_path) as agents:
            until(lambda: serving(agents))
            until(lambda: bool(watch.picture()[1].get("map")))
            shown = watch.picture()[1]["map"]
            data = watch.field(shown["version"]) or b""
            count = int(np.prod(shown["shape"]))
            axes = [np.linspace(a, b, n) for a, b, n in zip(shown["low"], shown["high"], shown["shape"], strict=True)]
            x, y = np.meshgrid(*axes)
            answer = ask(description, "a0", np.column_stack([x.ravel(), y.ravel()]).tolist())
            np.testing.assert_array_equal(np.frombuffer(data[: 4 * count], "<f4"), np.float32(answer["mean"]))
            assert watch.field(shown["version"] + 1) is None
            assert list(watch.rows()) == ["a1"], "a0 does not show its rows"
            watch.choose({"agent": "a1", "method": "dec-poe"})
            told = watch.ask({"point": [0.5, 0.5]})
            expected = ask(description, "a1", [[0.5, 0.5]], method="dec-poe")
            assert (told["agent"], told["method"], told["mean"]) == ("a1", "dec-poe", expected["mean"][0])
            until(lambda: watch.picture()[1]["maps"]["stale"] == "it is of another choice")
            watch.renew()
            until(lambda: watch.picture()[1]["map"]["method"] == "dec-poe")
            before = watch.picture()[1]["model"]["id"]
            assert watch.train() == {"agent": "a1"}
            until(lambda: watch.picture()[1]["model"]["id"] != before)
            with pytest.raises(InputError, match="unknown prediction method"):
                watch.choose({"method": "full-gp"})
        until(lambda: {one["presence"] for one in watch.picture()[1]["agents"].values()} == {"gone"})
    finally:
        watch.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("page")]


def test_the_page_follows_a_newer_roster(tmp_path: Path) -> None:
    """One has left and one has joined since the page was opened: it shows the members, and asks as one of them."""
    description, _ = describe(tmp_path, 3, edges=[(0, 1), (1, 2), (0, 2)], connect=1)
    (port,) = free_ports(1)
    roster = description.roster.joined("a3", f"tcp/127.0.0.1:{port}", ["a0"]).without("a2")
    newer = description.with_roster(SignedRoster(roster))
    watch = Watch(description, pause=0.1)
    try:
        watch.start()
        with ExitStack() as closing:
            agents = [closing.enter_context(living(newer, name, tmp_path)) for name in ("a0", "a1")]
            until(lambda: list(watch.picture()[1]["agents"]) == ["a0", "a1", "a3"])
            until(lambda: serving(agents))
            until(lambda: watch.picture()[1]["agents"]["a0"].get("phase") == "serving")
            assert watch.ask({"point": [0.5, 0.5]})["took_part"]
            shown = watch.picture()[1]["agents"]
            assert "problem" not in shown["a0"] or not shown["a0"]["problem"]
    finally:
        watch.close()
