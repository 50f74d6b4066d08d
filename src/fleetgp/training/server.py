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
    """Local state (A, ..), duals psi (A, P), the last z (A, P), penalty rho (P,), and each agent's gap (A,)."""

    local: Local
    dual: Array
    centre: Array
    rho: Array
    gap: Array


class ServerTrainer:
    r"""One round of consensus ADMM on x = log theta:

        z     <- mean_i (x_i + psi_i / rho)                         (central node)
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
        fixed = np.full(x.shape[1], float(self.rho)) if self.rho is not None else self._agreed_rho(local)
        return ServerState(local, np.zeros_like(x), x, fixed, np.full(len(x), np.inf))

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
        z = self.network.scatter(mean, "hyperparameters")
        everyone = np.ones(len(z), dtype=bool)
        anchor = state.local
        if not isinstance(self.primal, Nested):
            anchor = replace(state.local, x=z, values=self.primal.objective(z))
        pull = Pull(state.dual, z, np.broadcast_to(state.rho, z.shape))
        local = self.primal.step(state.local, anchor, pull, everyone)
        away = local.x - z
        dual = state.dual + state.rho * away
        gap = np.sqrt((away**2).sum(axis=1))
        if self.rho is None:
            for gradient in (local.values.gradient + dual, state.rho * (z - state.centre)):
                gap = np.maximum(gap, local.curvature.distance(gradient, pull.weight))
        return ServerState(local, dual, z, state.rho, np.where(np.isfinite(local.values.nll), gap, np.nan))

    def _retuned(self, state: ServerState) -> ServerState:
        wanted = self._agreed_rho(state.local)
        moved = (wanted > 2.0 * state.rho) | (wanted < 0.5 * state.rho)
        return replace(state, rho=np.where(moved, wanted, state.rho))

    def _agreed_rho(self, local: Local) -> Array:
        """The mean curvature of the fleet, or what outweighs its largest concavity, per hyperparameter."""
        stiffness = np.diagonal(local.curvature.matrix, axis1=1, axis2=2)
        sent = self.network.gather({"statistics": np.stack([stiffness, local.curvature.concavity], axis=1)})
        everyone = np.stack(sent["statistics"])
        rho = np.maximum(everyone[:, 0].mean(axis=0), self.primal.convexify * everyone[:, 1].max(axis=0))
        return np.asarray(self.network.scatter(rho, "statistics")[0])


def _judged(left: float, tol: float, done: int, rounds: int) -> Status | None:
    if np.isnan(left):
        return "diverged"
    if left < tol:
        return "converged"
    return "round limit" if done == rounds else None
