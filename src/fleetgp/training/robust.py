"""A training that one stuck sensor does not spoil: theta and the weights of outliers, in turns.

Theta is trained with all observations alike, then every expert weighs its own by the rule of `gp.outliers`, and theta
is trained on from where it is. A few turns do, since the rule judges observations by their own spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.scaling import MeanName, Scaling
from fleetgp.errors import NumericalError
from fleetgp.gp.expert import Expert
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.outliers import outliers, reweighed
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.observations import Observations
from fleetgp.training.mean import Settled, Training, settle

#: So many times theta is trained with weights.
TURNS = 5


class Reweighing(Training, Protocol):
    """A training that can be taken up again with other weights."""

    def reweigh(self) -> None:
        """Go on from where it is, with the weights for its theta."""


def settle_robustly(training: Reweighing, mean: MeanName) -> Settled | None:
    """With weights, and with the mean function, if there is one; a training that did not converge is left as it is."""
    found = settle(training, mean)
    for _ in range(TURNS):
        if training.status != "converged":  # as all agents know
            break
        training.reweigh()
        turns = 0 if found is None else found.turns
        found = settle(training, mean)
        found = None if found is None else replace(found, turns=found.turns + turns)
    return found


def reweighed_experts(experts: Sequence[Expert], log_thetas: Array) -> list[Expert]:
    """Each with weights at its own log theta, (A, P)."""

    def one(pair: tuple[Expert, Array]) -> Expert:
        try:
            return reweighed(*pair)
        except NumericalError:  # nor is there a likelihood, which says so
            return pair[0]

    return side_by_side(one, list(zip(experts, np.exp(log_thetas), strict=True)))


def outliers_of(
    shards: Sequence[Observations],
    agents: Sequence[int],
    kernel: Kernel,
    scaling: Scaling,
    thetas: Array,
    engine: str,
    neighbours: int,
) -> IntArray:
    """(A,) how many of its own observations each hosted agent weighs down, at its own theta (A, P)."""
    units = scaling.shift(kernel.units(shards[0].dimension))
    with np.errstate(all="ignore"):
        log_thetas = np.log(thetas) - units
    if not np.isfinite(log_thetas).all():  # it has diverged
        return np.zeros(len(shards), dtype=np.int64)
    pairs = zip(scaling.apply(shards), agents, strict=True)
    experts = [Expert(own, kernel, agent, engine, neighbours) for own, agent in pairs]
    return np.array([outliers(expert) for expert in reweighed_experts(experts, log_thetas)])
