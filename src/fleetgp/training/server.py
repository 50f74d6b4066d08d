r"""ADMM with a central node: c-GP, apx-GP and gapx-GP, eqs. (cadmm), (apxadmm). Baselines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import UNWATCHED, Running, Verdict
from fleetgp.network import Network
from fleetgp.training.admm import Admm
from fleetgp.training.deadline import NEVER, Deadline
from fleetgp.training.newton import FLAT
from fleetgp.training.primal import Local, Primal, Pull


@dataclass(frozen=True)
class ServerState:
    """Local state (A, ..), duals psi (A, P), the last z (A, P), rho and the fleet's curvature (P,).

    mean: (P,) of x_i + psi_i / rho over the fleet, at the central node.  rounds: so far.
    """

    local: Local
    dual: Array
    centre: Array
    rho: Array
    stiffness: Array
    mean: Array
    rounds: int = 0


class ServerAdmm(Admm[ServerState]):
    r"""One round of consensus ADMM on x = log theta:

        z     <- mean_i (x_i + psi_i / rho), within the bounds       (central node)
        x_i   <- argmin l_i(x) + psi_i'(x - z) + (rho/2) |x - z|^2   (or its linearization around z)
        psi_i <- psi_i + rho (x_i - z)

    until |x_i - z|_2 < tol at every agent, the paper's rule. With an automatic rho the gradients that are left,
    grad l_i + psi_i and rho (z - z_before), must be within tol of zero too: the paper's rule alone can hold
    long before the optimum.
    """

    def __init__(self, network: Network, primal: Primal, rho: float | None, deadline: Deadline = NEVER) -> None:
        self.network = network
        self.primal = primal
        self.rho = rho
        self.deadline = deadline

    def begin(self, x: Array) -> ServerState:
        local = self.primal.start(x)
        rho = np.full(x.shape[1], np.nan if self.rho is None else float(self.rho))
        state = ServerState(local, np.zeros_like(x), x, rho, np.ones(x.shape[1]), np.full(x.shape[1], np.nan))
        return self.gathered(self._retuned(state), np.full(len(x), np.inf))[0]

    def moved(self, state: ServerState, numbers: IntArray, values: Array) -> ServerState:
        x, dual, centre, mean = (each.copy() for each in (state.local.x, state.dual, state.centre, state.mean))
        x[:, numbers], dual[:, numbers], centre[:, numbers], mean[numbers] = values, 0.0, values, values
        return replace(state, local=self.primal.start(x), dual=dual, centre=centre, mean=mean)

    @property
    def late(self) -> bool:
        """Whether the time is up, on the central node's clock."""
        return self.deadline.passed_at_centre(self.network)

    def rounds(self, tol: float) -> ServerRounds:
        return ServerRounds(self, tol)

    def answered(self, state: ServerState) -> tuple[ServerState, Array]:
        """The central node answers with z and every agent takes its step; the new state, and its gaps (A,)."""
        z = self.network.scatter(self.primal.bounds.clipped(state.mean), "hyperparameters")
        pull = Pull(state.dual, z, np.broadcast_to(state.rho, z.shape))
        local = self.primal.step(state.local, self.primal.anchored(state.local, z), pull, np.ones(len(z), dtype=bool))
        away = local.x - z
        dual = state.dual + state.rho * away
        slope = local.values.gradient + dual
        gap = np.sqrt((away**2).sum(axis=1))
        if self.rho is None:
            stiffness = np.maximum(state.stiffness, FLAT)
            gap = np.maximum(gap, np.abs(self.primal.bounds.cut(local.x, slope / stiffness)).max(axis=1))
            gap = np.maximum(gap, np.abs(state.rho * (z - state.centre) / stiffness).max(axis=1))
        else:
            gap = np.maximum(gap, self.primal.unsolved(local, slope, state.rho))
        gap = np.where(np.isfinite(local.values.nll), gap, np.nan)
        state = replace(state, local=local, dual=dual, centre=z, rounds=state.rounds + 1)
        due = state.rounds & (state.rounds - 1) == 0  # after 1, 2, 4, 8, .. rounds
        return self._retuned(state) if due else state, gap

    def gathered(self, state: ServerState, gap: Array) -> tuple[ServerState, float]:
        """Tell the central node where the agents stand, and how far from agreement; it knows the largest gap."""
        told = self.network.gather({"hyperparameters": state.local.x + state.dual / state.rho, "stopping": gap})
        return replace(state, mean=np.mean(told["hyperparameters"], axis=0)), float(np.max(told["stopping"]))

    def _retuned(self, state: ServerState) -> ServerState:
        """An automatic rho: the fleet's mean curvature, or what outweighs its largest concavity, per hyperparameter."""
        if self.rho is not None:
            return state
        curvature = state.local.curvature
        stiffness = np.diagonal(curvature.matrix, axis1=1, axis2=2)
        sent = self.network.gather({"statistics": np.stack([stiffness, curvature.concavity], axis=1)})
        everyone = np.stack(sent["statistics"])
        wanted = np.maximum(everyone[:, 0].mean(axis=0), self.primal.convexify * everyone[:, 1].max(axis=0))
        told = self.network.scatter(np.stack([everyone[:, 0].max(axis=0), wanted]), "statistics")[0]
        kept = (told[1] <= 2.0 * state.rho) & (told[1] >= 0.5 * state.rho)
        return replace(state, stiffness=told[0], rho=np.where(kept, state.rho, told[1]))


class ServerRounds:
    """Rounds of ADMM with a central node, which judges every one of them: its verdict is about the state itself."""

    def __init__(self, admm: ServerAdmm, tol: float) -> None:
        self.admm, self.tol = admm, tol

    def start(self, state: ServerState) -> Running[ServerState]:
        return Running(state, state, UNWATCHED)

    def step(self, running: Running[ServerState]) -> tuple[Running[ServerState], Verdict | None]:
        state, left = self.admm.gathered(*self.admm.answered(running.state))
        return self.start(state), Verdict(np.full(1, left), self.tol, late=self.admm.late, highest=state.centre)

    def ends(self, running: Running[ServerState], verdict: Verdict) -> bool:
        return verdict.status != "round limit"
