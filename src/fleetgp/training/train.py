"""Training from end to end, on the agents hosted here: augment, start, run, choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Interlude, Outcome
from fleetgp.consensus.reductions import Alone, ByConsensus, ByServer, Reduction
from fleetgp.consensus.samples import augmented, communication_data
from fleetgp.consensus.scaling import Scaling, agree_on_scaling
from fleetgp.data.partition import Shard
from fleetgp.gp.expert import Expert
from fleetgp.gp.kernels import Kernel
from fleetgp.network import Network
from fleetgp.training.central import CentralTrainer
from fleetgp.training.edges import EdgeTrainer
from fleetgp.training.fit import Fit, Start
from fleetgp.training.floor import Floor
from fleetgp.training.methods import TrainingMethod, about_unused
from fleetgp.training.objective import Objective
from fleetgp.training.primal import Linearized, Nested, Primal
from fleetgp.training.server import ServerTrainer
from fleetgp.training.starts import agree_on_magnitudes, best_start, default_starts

#: With several starts, each is first followed to this many times the tolerance, then the best one to its end; but
#: never to a looser one than this, at which likelihoods of starts can be compared.
COARSE = 100.0
LOOSEST = 1e-3

Report = Callable[[int, int, Array, bool], None]


@dataclass(frozen=True)
class TrainingOptions:
    """Settings known to every agent. None means automatic.

    starts: (S, P) log theta, or None for the default starts.
    noise_floor: the smallest sigma_eps allowed, in units of the observations' deviation; 0 for none.
    """

    starts: Array | None = None
    rounds: int = 2000
    tol: float = 1e-5
    rho: float | None = None
    kappa: float | None = None
    lipschitz: float | None = None
    nested: Literal["l-bfgs", "gradient-descent"] = "l-bfgs"
    step: float = 1e-5
    nested_iterations: int | None = None
    seed: int = 0
    normalize: bool = False
    engine: str = "auto"
    noise_floor: float = 1e-3


def about_ignored(method: TrainingMethod, options: TrainingOptions) -> str:
    """Which of the options that were given have no effect, and where they would have one; empty if none."""
    default = TrainingOptions()
    particular = ("rho", "kappa", "lipschitz", "nested", "step", "nested_iterations")
    given = [name for name in particular if getattr(options, name) != getattr(default, name)]
    if method.step == "nested" and "step" in given and options.nested != "gradient-descent":
        return 'step is ignored: it is an option of nested="gradient-descent"'
    return about_unused(method, given)


class Trainer(Protocol):
    def start(self, x: Array) -> Any: ...

    def run(self, state: Any, *, rounds: int, tol: float, record: Callable[[int, Any], None]) -> Outcome[Any]: ...


def train(
    method: TrainingMethod,
    shards: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    report: Report | None = None,
    interlude: Interlude | None = None,
) -> Fit:
    """Train the hosted agents, whose data are `shards` in the order of `network.hosted`.

    report(start, round, thetas, chosen) is called after every round, with theta in the units of the data; chosen once
    the fleet has decided for this start.
    interlude: what the agents may do in between, without a central node and where stopping is watched.
    """
    reduction = _reduction(method, network)
    scaling = Scaling()
    if options.normalize:
        # Before any sharing of samples, which would count them M times.
        with network.phase("normalize"):
            scaling = agree_on_scaling(reduction, shards)
    data = scaling.apply(_prepared(method, shards, network, options.seed))
    ids = (0,) if method.meet == "pool" else network.hosted
    experts = [Expert(x, y, kernel, agent, options.engine) for (x, y), agent in zip(data, ids, strict=True)]
    starts, floor = _starts_and_floor(reduction, data, network, options, scaling)
    trainer = _trainer(method, Objective(experts), network, options, floor, interlude)
    units = np.exp(scaling.shift(starts))

    def tell(start: int, done: int, thetas: Array) -> None:
        if report is not None:
            report(start, done, thetas * units, chosen)

    chosen = len(starts) == 1
    runs = [_Run(trainer, np.tile(x, (len(experts), 1)), k, tell) for k, x in enumerate(starts)]
    best = 0
    with network.phase("training"):
        if len(runs) > 1:
            for run in runs:
                run.go(options.rounds, min(options.tol * COARSE, LOOSEST))
            with network.phase("choice"):
                best, _ = best_start(reduction, np.stack([run.nll for run in runs], axis=1))
            chosen = True
        runs[best].go(options.rounds, options.tol)
    return _fit(method, network, runs, best, scaling, floor)


class _Run:
    """One start: it can be followed to a coarse tolerance first and taken up again."""

    def __init__(self, trainer: Trainer, x: Array, number: int, report: Callable[[int, int, Array], None]) -> None:
        self.trainer, self.x0, self.number, self.report = trainer, x, number, report
        self.history = [x]
        self.outcome: Outcome[Any] | None = None
        self.tol = np.inf  # that of the last judgement

    def go(self, rounds: int, tol: float) -> None:
        before = self.outcome
        done = 0 if before is None else before.rounds
        if before is not None and before.status == "converged" and tol < self.tol and done >= rounds:
            before = self.outcome = replace(before, status="round limit")  # what was judged is not what is asked
        if before is not None and (before.status == "diverged" or tol >= self.tol or done >= rounds):
            return
        self.tol = tol

        def record(_: int, state: Any) -> None:
            self.history.append(state.local.x)
            self.report(self.number, len(self.history) - 1, natural(state.local.x))

        state = self.trainer.start(self.x0) if before is None else before.state
        outcome = self.trainer.run(state, rounds=rounds - done, tol=tol, record=record)
        self.outcome = Outcome(outcome.state, done + outcome.rounds, outcome.status, outcome.residual)
        self.history[-1] = outcome.state.local.x  # what the agents stand by, in the round in which they stop

    @property
    def nll(self) -> Array:
        assert self.outcome is not None
        nll: Array = self.outcome.state.local.values.nll
        return np.full_like(nll, np.inf) if self.outcome.status == "diverged" else nll

    def summary(self, scaling: Scaling) -> Start:
        assert self.outcome is not None
        theta0 = np.exp(self.x0[0] + scaling.shift(self.x0))
        return Start(theta0, float(self.nll.sum()), self.outcome.rounds, self.outcome.status)


def natural(x: Array) -> Array:
    """theta from log theta; a diverged one may be infinite, which its status says."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.exp(x))


def _prepared(method: TrainingMethod, shards: Sequence[Shard], network: Network, seed: int) -> list[Shard]:
    """The data each expert will hold."""
    if method.meet == "pool":
        with network.phase("pool"):
            sent = network.gather({"inputs": [x for x, _ in shards], "observations": [y for _, y in shards]})
        return [(np.concatenate(sent["inputs"]), np.concatenate(sent["observations"]))]
    if method.augmented:
        with network.phase("augment"):
            samples = communication_data(network, shards, seed, central=not method.decentralized)
        return [augmented(s, i, samples) for s, i in zip(shards, network.hosted, strict=True)]
    return list(shards)


def _starts_and_floor(
    reduction: Reduction, data: Sequence[Shard], network: Network, options: TrainingOptions, scaling: Scaling
) -> tuple[Array, Floor]:
    """Where to start, (S, P) at or above the floor, and the floor, both for the scaled observations.

    Scaled observations have a deviation of 1. Otherwise it is the largest of the agents' own, rounded up.
    """
    asks = options.noise_floor > 0.0 and not options.normalize
    deviation = 1.0
    if options.starts is None or asks:
        with network.phase("floor" if options.starts is not None else "starts"):
            found = agree_on_magnitudes(reduction, data, widths=options.starts is None, deviation=asks)
        deviation = found.deviation if asks else 1.0
    floor = Floor.of(options.noise_floor * deviation)
    if options.starts is None:
        starts = default_starts(found, network.agents)
    else:
        starts = options.starts - scaling.shift(options.starts)
    return floor.lifted(starts), floor


def _trainer(
    method: TrainingMethod,
    objective: Objective,
    network: Network,
    options: TrainingOptions,
    floor: Floor,
    interlude: Interlude | None,
) -> Trainer:
    if method.meet in ("pool", "minimize"):
        return CentralTrainer(network, objective, floor, share=method.meet == "minimize")
    if method.step == "nested":
        descent = options.nested == "gradient-descent"
        iterations = options.nested_iterations or (10 if descent else 200)
        primal: Primal = Nested(
            objective,
            floor,
            step_size=options.step if descent else None,
            iterations=iterations,
        )
    elif method.meet == "server":
        primal = Linearized(objective, floor, options.lipschitz, at_anchor=True)
    else:
        primal = Linearized(objective, floor, options.kappa)
    if method.decentralized:
        return EdgeTrainer(network, primal, options.rho, interlude)
    return ServerTrainer(network, primal, options.rho)


def _reduction(method: TrainingMethod, network: Network) -> Reduction:
    if method.meet == "pool":
        return Alone()
    return ByConsensus(network) if method.decentralized else ByServer(network)


def _fit(
    method: TrainingMethod, network: Network, runs: Sequence[_Run], best: int, scaling: Scaling, floor: Floor
) -> Fit:
    chosen = runs[best]
    assert chosen.outcome is not None
    state, hosted = chosen.outcome.state, len(network.hosted)
    history = natural(np.stack(chosen.history) + scaling.shift(chosen.x0))
    if method.meet == "pool":
        history = np.broadcast_to(history, (len(history), hosted, history.shape[-1]))
        with network.phase("pool"):
            network.scatter(history[-1, 0], "hyperparameters")
    return Fit(
        method=method.name,
        thetas=history[-1],
        history=history,
        rounds=chosen.outcome.rounds,
        status=chosen.outcome.status,
        residual=float(chosen.outcome.residual),
        nll=float(chosen.nll.sum()),
        jitter=np.broadcast_to(state.local.values.jitter, hosted),
        rho=getattr(state, "rho", np.empty(0)),
        starts=tuple(run.summary(scaling) for run in runs),
        scaling=scaling,
        engine=tuple("moments" if m else "dense" for m in np.broadcast_to(state.local.values.moments, hosted)),
        ledger=network.ledger,
        noise_floor=float(np.exp(floor.log)) * scaling.scale,
    )
