"""What leaves an agent in a training: never its data, unless the method says so."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.kernels.stationary import KERNELS
from fleetgp.training import TrainingOptions, train, training_method
from tests.shared import observed
from tests.training.problems import (
    THETA0,
    fleet,
    paper_options,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp"])
@pytest.mark.parametrize("theta0", [THETA0, None])
def test_no_data_leave_an_agent(method: str, theta0: object) -> None:
    fit = fleet(90, 3).train(method, theta0=theta0, rounds=12)  # type: ignore[arg-type]
    assert not {"inputs", "observations"} & set(fit.ledger.kinds)
    for agent in range(3):
        assert not {"inputs", "observations"} & set(fit.ledger.sent_by(agent))


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp"])
def test_no_number_of_the_data_is_in_any_message(method: str) -> None:
    """Not by its label: by looking at every scalar that is sent. The hardest case is one point per agent."""
    seen: list[Array] = []

    class Spy(fg.InProcess):
        def exchange_parts(self, parts, carries=None):  # type: ignore[no-untyped-def]
            seen.extend(np.abs(x).ravel() for x in parts.values())
            return super().exchange_parts(parts, carries)

        def flood_parts(self, parts):  # type: ignore[no-untyped-def]
            seen.extend(np.abs(np.concatenate([np.ravel(v) for v in x])) for x in parts.values())
            return super().flood_parts(parts)

    field = fg.synthetic_field(5, seed=7)
    shards = [(field.inputs[i : i + 1], field.observations[i : i + 1]) for i in range(5)]
    options = TrainingOptions(rounds=5)
    train(training_method(method), observed(shards), Spy(fg.Graph.path(5)), KERNELS["se"], options)
    sent = np.concatenate(seen)
    private = np.concatenate([field.inputs.ravel(), field.observations])
    for value in np.concatenate([private, private**2, np.exp(private)]):
        assert not np.isclose(sent, abs(value), rtol=1e-9).any()


@pytest.mark.parametrize("method", ["dec-apx-gp", "dec-c-gp"])
def test_paper_faithful_traffic_is_the_complexity_table(method: str) -> None:
    """O(s_end (D + 2)) per agent and neighbour, and nothing else."""
    fit = fleet(90, 4).train(method, theta0=THETA0, rounds=10, tol=0, noise_floor=0, **paper_options(method))
    directed_edges = 2 * 3
    assert fit.ledger.scalars == 10 * directed_edges * 4
    assert fit.ledger.messages == 10 * directed_edges
    assert fit.ledger.rounds == 10
