"""A training that its caller steps: State is what the recursion needs, Info what a round tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Running, Status, Verdict
from fleetgp.errors import InputError, shortened
from fleetgp.network import Ledger
from fleetgp.training.options import TrainingOptions
from fleetgp.training.problem import TrainingProblem
from fleetgp.training.solver import Rounds
from fleetgp.validation import check_whole

#: A training between two rounds. It is never changed in place: a state can be stepped again. On a graph that varies
#: with time the network goes on in any case.
TrainingState = Running[Any]


@dataclass(frozen=True)
class TrainingInfo:
    """What one round tells, of the agents hosted here.

    thetas: (A, P) each agent's hyperparameters, in the units of the data.
    nll: (A,) each agent's likelihood there, of the scaled observations with normalize.
    jitter: (A,) what its covariance needed; 0 where none was needed.
    engine: (A,) what evaluated its likelihood, "dense", "moments" or "vecchia".
    rho: (P,) the penalty of the next round; empty for the methods that have none.
    residual: what the stopping rule said in this round; None if it was not due, which it is every diam(G) rounds over
        the edges of the graph, and every round over its tree and with a central node.
    status: "converged" and "diverged" as the stopping rule says it in this round; else "round limit".

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(60, seed=1)
    >>> fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3))
    >>> trainer = fleet.trainer("dec-apx-gp", theta0=[2, 0.5, 1, 1])
    >>> state, info = trainer.step(trainer.start())
    >>> info.thetas.shape, info.nll.shape, info.status
    ((3, 4), (3,), 'round limit')
    """

    thetas: Array
    nll: Array
    jitter: Array
    engine: tuple[str, ...]
    rho: Array
    residual: float | None
    status: Status


class Trainer:
    """One of the methods that go round by round; `Fleet.trainer` makes it.

    What the fleet has to agree on first (scaling, samples, starts, the floor) is agreed when it is made. From then on
    one step is one round, and R steps are `train(rounds=R, tol=0)` to the last bit. A round is one on the network; of
    dec-fact-gp and dec-g-fact-gp it is a reduction, which takes as many as twice the graph's radius.

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(120, seed=1)
    >>> fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3))
    >>> trainer = fleet.trainer("dec-apx-gp", theta0=[2, 0.5, 1, 1])
    >>> state = trainer.start()
    >>> for _ in range(3):
    ...     state, info = trainer.step(state)
    >>> info.thetas.shape, trainer.ledger.total(kind="hyperparameters").messages
    ((3, 4), 12)
    """

    def __init__(self, problem: TrainingProblem, options: TrainingOptions) -> None:
        self._setting = problem
        self._method = problem.method.stepwise_solver(problem, options)
        self._rounds: Rounds[Any] = self._method.rounds(options.tol)

    @property
    def theta0(self) -> Array:
        """(S, P) the starts, in the units of the data."""
        return self._setting.thetas(self._setting.starts)

    @property
    def ledger(self) -> Ledger:
        """What was sent so far."""
        return self._setting.network.ledger

    def start(self, number: int = 0) -> TrainingState:
        """The state before the first round, at one of the starts."""
        check_whole("start", number, least=0)
        if number >= len(self._setting.starts):
            raise InputError(
                f"start: expected a number from 0 to {len(self._setting.starts) - 1}, got {shortened(number)}"
            )
        with self._setting.network.phase("training"):
            return self._rounds.start(self._method.begin(self._setting.start(number)))

    def step(self, state: TrainingState) -> tuple[TrainingState, TrainingInfo]:
        """One round. Where the agents find that they have converged, the state is the one that they judged."""
        with self._setting.network.phase("training"):
            state, verdict = self._rounds.step(state)
        return state, self._info(state, verdict)

    def _info(self, state: TrainingState, verdict: Verdict | None) -> TrainingInfo:
        inner = state.state
        return TrainingInfo(
            thetas=self._setting.thetas(inner.local.x),
            nll=inner.local.values.likelihood,
            jitter=inner.local.values.jitter,
            engine=tuple(inner.local.values.engine),
            rho=getattr(inner, "rho", np.empty(0)),
            residual=None if verdict is None else float(verdict.residual[0]),
            status="round limit" if verdict is None else verdict.status,
        )
