r"""ADMM with a central node: c-GP, apx-GP and gapx-GP, eqs. (cadmm), (apxadmm). Baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Outcome, Status
from fleetgp.network import Network
from fleetgp.training.primal import Local, Nested, Primal, Pull


@dataclass(frozen=True)
class ServerState:
    """Local state (A, ..), duals psi (A, P), the last z (A, P), rho and the fleet's curvature (P,), gaps (A,)."""

    local: Local
    dual: Array
    centre: Array
    rho: Array
    stiffness: Array
    gap: Array


class ServerTrainer:
    r"""One round of consensus ADMM on x = log theta:

        z     <- mean_i (x_i + psi_i / rho), at or above the floor   (central node)
        x_i   <- argmin l_i(x) + psi_i'(x - z) + (rho/2) |x - z|^2   (or its linearization around z)
        psi_i <- psi_i + rho (x_i - z)

    until |x_i - z|_2 < tol at every agent, the paper's rule. With an automatic rho the gradients that are left,
    grad l_i + psi_i and rho (z - z_before), must be within tol of zero too: the paper's rule alone can hold
    long before the optimum.
    """

    def __init__(self, network: Network, primal: Primal, rho: float | None) -> None:
        self.network = network
        self.primal = primal
        self.rho = rho

    def start(self, x: Array) -> ServerState:
        local = self.primal.start(x)
        rho = np.full(x.shape[1], np.nan if self.rho is None else float(self.rho))
        state = ServerState(local, np.zeros_like(x), x, rho, np.ones(x.shape[1]), np.full(len(x), np.inf))
        return self._retuned(state) if self.rho is None else state

    def run(
        self, state: ServerState, *, rounds: int, tol: float, record: Callable[[int, ServerState], None]
    ) -> Outcome[ServerState]:
        for done in range(rounds + 1):
            sent = self.network.gather(
                {"hyperparameters": state.local.x + state.dual / state.rho, "stopping": state.gap}
            )
            left = np.max(sent["stopping"])
            status = _judged(float(left), tol, done, rounds)
            if status is not None:
                return Outcome(state, done, status, np.asarray(left))
            state = self._answered(state, np.mean(sent["hyperparameters"], axis=0))
            record(done + 1, state)
            if self.rho is None and done & (done + 1) == 0:  # after 1, 2, 4, 8, .. rounds
                state = self._retuned(state)
        raise AssertionError("the last gather always ends the run")

    def _answered(self, state: ServerState, mean: Array) -> ServerState:
        z = self.network.scatter(self.primal.floor.lifted(mean), "hyperparameters")
        everyone = np.ones(len(z), dtype=bool)
        anchor = state.local
        if not isinstance(self.primal, Nested):
            anchor = replace(state.local, x=z, values=self.primal.objective(z))
        pull = Pull(state.dual, z, np.broadcast_to(state.rho, z.shape))
        local = self.primal.step(state.local, anchor, pull, everyone)
        away = local.x - z
        dual = state.dual + state.rho * away
        gap = np.sqrt((away**2).sum(axis=1))
        slope = local.values.gradient + dual
        if self.rho is None:
            gap = np.maximum(gap, np.abs(self.primal.floor.cut(local.x, slope / state.stiffness)).max(axis=1))
            gap = np.maximum(gap, np.abs(state.rho * (z - state.centre) / state.stiffness).max(axis=1))
        elif isinstance(self.primal, Nested):
            # The paper's gradient descent may not have solved its problem: then nothing has converged.
            gap = np.maximum(gap, np.abs(self.primal.floor.cut(local.x, slope / state.rho)).max(axis=1))
        gap = np.where(np.isfinite(local.values.nll), gap, np.nan)
        return replace(state, local=local, dual=dual, centre=z, gap=gap)

    def _retuned(self, state: ServerState) -> ServerState:
        """rho: the mean curvature of the fleet, or what outweighs its largest concavity, per hyperparameter."""
        curvature = state.local.curvature
        stiffness = np.diagonal(curvature.matrix, axis1=1, axis2=2)
        sent = self.network.gather({"statistics": np.stack([stiffness, curvature.concavity], axis=1)})
        everyone = np.stack(sent["statistics"])
        wanted = np.maximum(everyone[:, 0].mean(axis=0), self.primal.convexify * everyone[:, 1].max(axis=0))
        told = self.network.scatter(np.stack([everyone[:, 0].max(axis=0), wanted]), "statistics")[0]
        kept = (told[1] <= 2.0 * state.rho) & (told[1] >= 0.5 * state.rho)
        return replace(state, stiffness=told[0], rho=np.where(kept, state.rho, told[1]))


def _judged(left: float, tol: float, done: int, rounds: int) -> Status | None:
    if np.isnan(left):
        return "diverged"
    if left < tol and done > 0:
        return "converged"
    return "round limit" if done == rounds else None
