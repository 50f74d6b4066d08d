"""What a ledger is asked: a typing error must not look as if nothing had been sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetgp.errors import InputError
from fleetgp.graph import Graph
from fleetgp.network import InProcess
from fleetgp.network.ledger import Ledger, Traffic


@pytest.mark.parametrize("kind", ["rows", "observation", 3])
def test_a_ledger_knows_which_kinds_there_are(kind: Any) -> None:
    """A kind that nobody sent is 0; one that does not exist must not look the same."""
    ledger = InProcess(Graph.path(3)).ledger
    assert ledger.total(kind="observations") == ledger.total(kind="framing") == Traffic()
    with pytest.raises(InputError, match=r"unknown kind of content .*choose one of .*inputs, observations.*framing"):
        ledger.total(kind=kind)


@pytest.mark.parametrize("agent", ["v", 3, -2, True, 1.0])
def test_a_ledger_knows_which_agents_there_are(agent: Any) -> None:
    ledger = InProcess(Graph.path(3)).ledger
    questions = (
        lambda: ledger.sent_by(agent),
        lambda: ledger.total(sender=agent),
        lambda: ledger.total(receiver=agent),
    )
    for question in questions:
        with pytest.raises(InputError, match="a whole number of at least -1 and at most 2, got"):
            question()


def test_a_ledger_that_is_read_again_knows_agents_who_were_silent() -> None:
    ledger = InProcess(Graph.path(4)).ledger
    ledger.record("a", "inputs", np.array([0]), scalars=1, bytes=8)
    again = Ledger.from_dict(ledger.as_dict(), agents=4)
    assert again.sent_by(3) == Ledger.merged([again, again]).sent_by(3) == {}
    with pytest.raises(InputError, match="at most 3, got 4"):
        again.sent_by(4)
