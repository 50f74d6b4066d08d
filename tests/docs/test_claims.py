"""What README.md and the quickstart say of what is sent, against the ledgers of their own fleets."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleetgp as fg

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/privacy.md"])
def test_no_default_sends_a_row(page: str) -> None:
    assert "no default sends a row" in (ROOT / page).read_text(encoding="utf-8").lower().replace("[", "")
    field = fg.synthetic_field(1000, seed=1)
    fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=5), graph="path")
    sent = {*fleet.train().ledger.kinds, *fleet.predict([[0.4, 1.1], [1.7, 0.2]]).ledger.kinds}
    assert sent == {"statistics", "groups", "predictions", "participants"}


def test_the_quickstart_says_how_much_groups_take() -> None:
    """Of five boats with 1,500 rows each, on a path: counted, with as many groups as there may be."""
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert "the groups take up to 79 kB over each link." in text
    cost = fg.recommend([1500] * 5, "path", dimension=2, kernel="matern32", queries=100).candidate("dec-summary")
    links = [cost.usual.edges[a, b] + cost.usual.edges[b, a] for a, b in ((0, 1), (1, 2), (2, 3), (3, 4))]
    assert 79_000 <= max(links) <= 105_000
