"""What the ADMM trainers share: they go round by round, so that a caller can step them too.

Decentralized ADMM over the edges of the graph: DEC-c-GP and DEC-apx-GP, eqs. (dec_c_admm), (dec_apx_admm).

ADMM with a central node: c-GP, apx-GP and gapx-GP, eqs. (cadmm), (apxadmm). Baselines.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import (
    LATE,
    UNWATCHED,
    Interlude,
    Maximin,
    NeighbourRule,
    OverNeighbours,
    Verdict,
    Watch,
    WithInterludes,
    maximum,
)
from fleetgp.consensus.stopping import NEVER, Deadline
from fleetgp.graph import Graph
from fleetgp.model.hyperparameters import LOG_RANGE
from fleetgp.network import Incoming, Network
from fleetgp.training.newton import FLAT
from fleetgp.training.objective import Local
from fleetgp.training.primal import Primal, Pull
from fleetgp.training.solver import RoundSolver, SolverState, StepwiseSolver

State = TypeVar("State", bound=SolverState)


class Admm(StepwiseSolver[State]):
    """A solver by ADMM on x = log theta."""

    primal: Primal

    @abc.abstractmethod
    def moved(self, state: State, numbers: IntArray, values: Array) -> State:
        """With some hyperparameters of all agents at these values, where every likelihood is flat along them."""

    def pinned(self, numbers: IntArray, values: Array) -> Self:
        """A solver like this one that leaves some hyperparameters at these values."""
        pinned = copy(self)
        pinned.primal = copy(self.primal)
        pinned.primal.bounds = self.primal.bounds.pinned(numbers, values)
        return pinned


#: How far above critical damping an automatic rho goes.
OVERDAMP = 1.15


@dataclass(frozen=True)
class EdgeState:
    """Local state (A, ..), sums of duals p (A, P), edge midpoints (E, P), the penalty rho (P,).

    stiffness: (P,) the fleet's largest curvature per hyperparameter, as last agreed; NaN if not measured.
    """

    local: Local
    dual: Array
    middle: Array
    rho: Array
    stiffness: Array


class EdgeAdmm(Admm[EdgeState], NeighbourRule[EdgeState]):
    r"""One round of edge-based ADMM on x = log theta:

        p_i <- p_i + rho sum_j (x_i - x_j)
        x_i <- argmin l_i(x) + p_i'x + rho sum_j |x - (x_i + x_j)/2|^2

    On a time-varying graph only the edges of the round act: their midpoints and duals are renewed, those of
    the other edges of the union are remembered, and an agent without a link waits (the edge-wise
    asynchronous ADMM). On a fixed graph this is the paper's scheme. The duals always sum to zero over the
    fleet, so agreement together with grad l_i + p_i = 0 everywhere is a stationary point of the sum; at a bound
    its coordinate may push against it.

    Without a rho it is chosen per hyperparameter and follows the measured curvature: see `_wishes`. The
    maximum over the fleet rides along with the stopping messages, and all agents change rho in one round.
    """

    kind = "hyperparameters"

    def __init__(
        self,
        network: Network,
        primal: Primal,
        rho: float | None,
        interlude: Interlude | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self.network = network
        self.primal = primal
        self.rho = rho
        self.interlude = interlude
        self.deadline = deadline
        self._edges = network.union_incoming
        self._degrees = self._edges.degrees[:, None].astype(float)
        self._pace = best_pace(network.topology.union) if rho is None else np.nan

    def begin(self, x: Array) -> EdgeState:
        local = self.primal.start(x)
        rho = np.full(x.shape[1], np.nan if self.rho is None else float(self.rho))
        state = EdgeState(local, np.zeros_like(x), x[self._edges.receivers], rho, np.full(x.shape[1], np.nan))
        if self.rho is not None:
            return state  # the curvature, if anybody wants it, comes with the first verdict
        wishes = self._wishes(local)
        agreed = maximum(self.network, np.concatenate(list(wishes.values()), axis=1))
        return self.learn(state, dict(zip(wishes, np.split(agreed, len(wishes)), strict=True)))

    def rounds(self, tol: float) -> OverNeighbours[EdgeState]:
        watching = tol > 0 or self.rho is None or self.deadline.given
        stopping = Maximin(self.network.diameter, tol, relative=False) if watching else UNWATCHED
        rule = self if self.interlude is None else WithInterludes(self, self.interlude)
        return OverNeighbours(rule, self.network, stopping)

    def moved(self, state: EdgeState, numbers: IntArray, values: Array) -> EdgeState:
        x, dual, middle = state.local.x.copy(), state.dual.copy(), state.middle.copy()
        x[:, numbers], dual[:, numbers], middle[:, numbers] = values, 0.0, values
        return replace(state, local=self.primal.start(x), dual=dual, middle=middle)

    # ---- the rule that the driver runs ----------------------------------------------------------------

    def message(self, state: EdgeState) -> Array:
        return state.local.x

    def update(self, state: EdgeState, received: Array, incoming: Incoming) -> EdgeState:
        own = state.local.x[incoming.receivers]
        dual = state.dual + state.rho * incoming.reduce(np.add, own - received, 0.0)
        middle = state.middle.copy()
        middle[incoming.slots] = 0.5 * (own + received)
        centre = self._edges.reduce(np.add, middle, 0.0) / np.maximum(self._degrees, 1.0)
        pull = Pull(dual, centre, 2.0 * state.rho * self._degrees)
        active = (incoming.degrees > 0) | (self._edges.degrees == 0)
        local = _in_range(self.primal.step(state.local, state.local, pull, active), state.local)
        return replace(state, local=local, dual=dual, middle=middle)

    def watch(self, state: EdgeState) -> Watch:
        """x must agree, and grad l_i + p_i must be small at every agent: as a distance in log theta where the
        fleet's curvature is known, else in nats per unit of log theta.
        """
        slope = state.local.values.gradient + state.dual
        known = np.isfinite(state.stiffness)
        stiffness = np.where(known, np.maximum(state.stiffness, FLAT), 1.0)
        distance = self.primal.bounds.cut(state.local.x, slope / stiffness)
        left = np.abs(distance).max(axis=1)
        left = np.where(np.isfinite(state.local.values.nll), left, np.nan)[:, None]
        largest = self._wishes(state.local)
        if self.deadline.given:
            largest[LATE] = np.full_like(left, self.deadline.passed)
        return Watch(state.local.x, left, largest)

    def learn(self, state: EdgeState, largest: Mapping[str, Array]) -> EdgeState:
        """Take in the fleet's curvature; renew an automatic rho where it has moved by more than a factor of two."""
        if "stiffness" in largest:
            state = replace(state, stiffness=largest["stiffness"])
        if "rho" not in largest:
            return state
        wanted = largest["rho"]
        kept = (wanted <= 2.0 * state.rho) & (wanted >= 0.5 * state.rho)
        kept |= ~np.isfinite(wanted) & np.isfinite(state.rho)  # somebody diverges: that is judged, not followed
        return replace(state, rho=np.where(kept, state.rho, wanted))

    def _wishes(self, local: Local) -> dict[str, Array]:
        """Of which the fleet's maxima are agreed, each (A, P): stiffness, the curvature, where it is measured; and,
        where none is given, the rho an agent would have: at the best pace where its likelihood is convex, and enough
        to outweigh it where it is not.
        """
        stiffness = np.diagonal(local.curvature.matrix, axis1=1, axis2=2)
        wishes = {"stiffness": stiffness} if self.primal.measures else {}
        if self.rho is None:
            outweigh = self.primal.convexify * local.curvature.concavity / np.maximum(2.0 * self._degrees, 1.0)
            wishes["rho"] = np.maximum(self._pace * stiffness, outweigh)
        return wishes


def _in_range(local: Local, before: Local) -> Local:
    """Whoever leaves the range of sound hyperparameters has diverged: it stays where it is, and says so."""
    lost: BoolArray = np.asarray(~(np.abs(local.x) <= LOG_RANGE).all(axis=1))
    if not lost.any():
        return local
    nowhere = replace(
        local.values, nll=np.full_like(local.values.nll, np.inf), gradient=np.full_like(local.values.gradient, np.nan)
    )
    return replace(local, x=np.where(lost[:, None], before.x, local.x), values=local.values.replaced(lost, nowhere))


def best_pace(graph: Graph) -> float:
    """rho over the curvature h for the fastest agreement on a graph, and a little more, since less costs more rounds
    than more does.
    """
    if graph.agents == 1:
        return 1.0
    best, degree, _ = _best_damping(graph)
    return OVERDAMP * best / (1.0 - best) / (2.0 * degree)


def best_radius(graph: Graph) -> float:
    """What at best is left after a round of what was to be agreed on, for likelihoods of one curvature.

    >>> best_radius(Graph.complete(4)) < best_radius(Graph.path(4)) < best_radius(Graph.path(8)) < 1.0
    True
    """
    return 0.5 if graph.agents == 1 else _best_damping(graph)[2]


def _best_damping(graph: Graph) -> tuple[float, float, float]:
    r"""b of the fastest agreement on a graph, the degree that it is for, and by how much a round shrinks what is left.

    For l_i = (h/2)(x - a_i)^2 on a regular graph of degree d, with r = rho/h and b = 2rd/(1 + 2rd), the mode
    with Laplacian eigenvalue lambda = mu d obeys z^2 - z (1 + b(1 - mu)) + b(1 - mu/2) = 0, and the fleet's mean
    shrinks by b. We take the b with the smallest root over the mean, the slowest mode lambda_2 and mu = 2, the
    largest there can be. On other graphs the harmonic mean of the degrees serves for d.
    """
    degree = float(1.0 / (1.0 / graph.degrees).mean())
    b = np.linspace(0.0, 1.0, 10_001)[1:-1]
    radius = np.maximum(b, 1.0 - b)
    mu = min(graph.algebraic_connectivity / degree, 2.0)
    trace, product = 1.0 + b * (1.0 - mu), b * (1.0 - mu / 2.0)
    root = np.sqrt((trace**2 - 4.0 * product).astype(complex))
    radius = np.maximum(radius, np.maximum(np.abs(trace + root), np.abs(trace - root)) / 2.0)
    best = int(np.argmin(radius))
    return float(b[best]), degree, float(radius[best])


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


class ServerAdmm(Admm[ServerState], RoundSolver[ServerState]):
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

    def step(self, state: ServerState, tol: float) -> tuple[ServerState, Verdict]:
        """The central node judges every round: its verdict is about the state itself."""
        state, left = self.gathered(*self.answered(state))
        return state, Verdict(np.full(1, left), tol, late=self.late, highest=state.centre)

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
