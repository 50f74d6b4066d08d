"""NPAE: nested pointwise aggregation, eqs. (mean_npae), (variance_npae): directly, by JOR or by DALE.

mean = k_A' C_A^-1 mu and variance = k** - k_A' C_A^-1 k_A, with C_A the covariance of the agents' own means. What
an agent needs from the others for its row of C_A is flooded, see `cross`. (The paper sends C_j^-1 itself, N_j^2
scalars, and X_j.) Rows are scaled to unit diagonal, which conditions them better. An agent with
nothing to say on a query (k_A below 1e-12 of the prior) has the trivial equation q_i = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import BatchOutcome, average_items, dale, jor, optimal_relaxation
from fleetgp.consensus.reductions import of_fleet
from fleetgp.engines.base import WeightedPosterior
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.cholesky import factorize
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import Network
from fleetgp.network.wire import check_from_peers
from fleetgp.options import PredictionOptions
from fleetgp.prediction.committee import participants_along_tree
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.cross import LONGEST, ByVectors, ByWeights, Carrier, common_basis
from fleetgp.prediction.exact import gradient_of_one, joint_of_one
from fleetgp.prediction.methods import (
    Answer,
    GradientAnswer,
    JointAnswer,
    PredictionMethod,
    PreparedQuery,
    PreviousState,
    SharedState,
)
from fleetgp.prediction.posteriors import SMALLEST, Marginals
from fleetgp.prediction.selection import Selection, agree_on_participants, takes_part

Solver = Literal["direct", "jor", "jor-star", "dale"]
SILENT = 1e-12
#: The smallest pivot of a correlation matrix of means that is taken for more than rounding.
PIVOT = 1e-10


@dataclass(frozen=True)
class Npae(PredictionMethod):
    """solver: of the paper's recursions, with consensus="average"; along the tree and at a server it is direct."""

    solver: Solver = "direct"

    @property
    def rule(self) -> str:
        return "npae"

    @property
    def options(self) -> tuple[str, ...]:
        agrees = ("consensus", "rounds", "tol") if self.decentralized else ()
        selects, draws = ("eta",) if self.nearest else (), ("seed",) if self.solver == "jor-star" else ()
        return ("engine", "n_neighbours", *agrees, *selects, *draws)

    @property
    def notes(self) -> tuple[str, str]:
        sends = "1 vector per point, to all others" if self.decentralized else "1 vector per point"
        uses = {
            "jor-star": "the same: only the paper's recursions differ",
            "dale": "as dec-npae, but the correlated agents only",
        }
        return sends, uses.get(self.solver, "accurate where agents are few; dear")

    def kinds(self, kernel: Kernel | None, engine: str, consensus: str) -> tuple[str, ...]:
        """Inputs but where vectors on the box of all data will do, which needs the squared exponential."""
        vectors = kernel is not None and kernel.has_basis and engine != "dense"
        result = ["statistics", "predictions", *([] if vectors else ["inputs"])]
        result += ["participants"] if self.nearest else []
        return (*result, *(["stopping"] if consensus == "average" and self.decentralized else []))

    @property
    def reveals(self) -> str:
        return "for every query it sends a function of all inputs of an agent, which determines them where they are few"

    def exact(self, agents: int) -> bool:
        return agents == 1

    def doubles(self, agents: int, options: PredictionOptions) -> int:
        return agents * (4 * agents + LONGEST)  # rows of C_A, and what they are computed from

    def check_joint(self, agents: int) -> None:
        if agents > 1:
            raise InputError(
                f"{self.name} has no joint covariance: it would take those of all agents' means at all pairs of "
                "queries: use dec-summary or dec-nearest, or predict for variances"
            )

    def check_gradient(self, agents: int) -> None:
        if agents > 1:
            raise InputError(
                f"{self.name} has no gradients: they would take those of the covariances of all agents' means: use "
                "dec-summary or dec-nearest, or differences of predictions"
            )

    def agree(
        self,
        network: Network,
        conditioned: Conditioned,
        options: PredictionOptions,
        previous: PreviousState | None = None,
    ) -> SharedState:
        """The basis on the box of all data, where vectors in it will do; found again whenever there are more rows."""
        if options.engine == "dense" or not conditioned.kernel.has_basis:
            return SharedState()
        # Where it matters, all agents have the same; of noises that differ one will do, since the basis has none.
        h = Hyperparameters.from_theta(conditioned.thetas[0, : conditioned.shards.dimension + 2])
        inputs = [own.inputs for own in conditioned.shards]
        with network.phase("box"):
            return SharedState(basis=common_basis(inputs, h, of_fleet(network, central=not self.decentralized)))

    def predict(self, query: PreparedQuery) -> Answer:
        network, options, prior = query.network, query.options, query.prior
        known, carrier = _crossing(query)
        nested = NpaeInputs(known.mean, prior - known.variance, prior, carrier)
        if self.decentralized and options.consensus == "tree":
            return self._along_tree(query, nested, known)
        participants = query.everyone
        if self.solver == "direct":
            with network.phase("aggregate"):
                outcome = central(nested, network)
        elif self.solver == "dale":
            with network.phase("select"):
                chosen = takes_part(network, nested.explained, prior, options.eta)
                participants = agree_on_participants(network, chosen, lambda t: nested.explained[:, t])
            selection = Selection(network.topology, participants)
            outcome = over_selection(nested, network, selection, tol=options.tol, rounds=options.rounds)
        else:
            star, tol, rounds = self.solver == "jor-star", options.tol, options.rounds
            outcome = over_everyone(nested, network, star=star, tol=tol, rounds=rounds, seed=options.seed)
        jitter = max(outcome.jitter, known.jitter)
        results = outcome.means, outcome.variances, participants, outcome.averaging, outcome.solving
        return Answer(*results, known.engine, jitter)

    def _along_tree(self, query: PreparedQuery, nested: NpaeInputs, known: Marginals) -> Answer:
        """Who takes part is agreed first, if not all do; then all that they have to say travels, and is solved."""
        network, before, participants = query.network, query.network.round, query.everyone
        if self.nearest:
            chosen = takes_part(network, nested.explained, query.prior, query.options.eta)
            participants = participants_along_tree(network, chosen, lambda t: nested.explained[:, t])
        with network.phase("aggregate"):
            answers, jitter = along_tree(nested, network, participants, query.to)
        rounds, jitter = np.full(len(query.queries), network.round - before), max(jitter, known.jitter)
        return Answer.along_tree(query, answers, participants, rounds, engine=known.engine, jitter=jitter)

    def joint(self, query: PreparedQuery) -> JointAnswer:
        """Of one agent alone."""
        return joint_of_one(self, query, query.conditioned.own(query.network.hosted).items([0])[0])

    def gradient(self, query: PreparedQuery) -> GradientAnswer:
        """Of one agent alone."""
        own = query.conditioned.own(query.network.hosted).items([0])[0]
        return gradient_of_one(self, query, own, query.conditioned.shards)


def _crossing(query: PreparedQuery) -> tuple[Marginals, Carrier]:
    """What the agents' posteriors say, and how they tell each other what their means have in common."""
    conditioned, hosted, basis = query.conditioned, query.network.hosted, query.shared.basis
    if basis is not None:
        own, known = conditioned.own(hosted).all_at(query.queries)
        return known, ByVectors(own, basis, query.queries)
    posteriors, known = conditioned.weighted(hosted).all_at(query.queries)
    weighted = [posterior for posterior in posteriors if isinstance(posterior, WeightedPosterior)]
    return known, ByWeights(weighted, conditioned.kernel, query.queries)


@dataclass(frozen=True)
class NpaeInputs:
    """mean and explained variance k_A and prior (A, T), and what the agents need for cross-covariances."""

    mean: Array
    explained: Array
    prior: Array
    carrier: Carrier


@dataclass(frozen=True)
class NpaeOutcome:
    """means and variances (A, T); outcomes of averaging (or DALE) and of JOR; jitter of a direct solution."""

    means: Array
    variances: Array
    averaging: BatchOutcome | None = None
    solving: BatchOutcome | None = None
    jitter: float = 0.0


def covariance_rows(
    n: NpaeInputs, network: Network, sent: Mapping[str, Sequence[Array]], blocks: Sequence[Array]
) -> Array:
    """Each hosted agent's row of C_A, (A, T, M), from what everyone sent, and their blocks (K_j, T)."""
    agents, queries = n.explained.shape
    rows = np.zeros((agents, queries, network.agents))
    for j, block in enumerate(blocks):
        other = {kind: parts[j] for kind, parts in sent.items()}
        for a, agent in enumerate(network.hosted):
            rows[a, :, j] = n.explained[a] if j == agent else n.carrier.between(a, other, block)
    return rows


def scaled(rows: Array, everyone: Array, ids: Sequence[int], prior: Array) -> tuple[Array, Array]:
    """D^-1/2 C_A D^-1/2 with D = diag(k_A): rows (A, T, M), and D^-1/2 of every agent, (T, M); 0 for the silent."""
    heard = everyone > SILENT * prior[0][:, None]  # all agents have the same theta
    roots = np.where(heard, 1.0 / np.sqrt(np.where(heard, everyone, 1.0)), 0.0)
    unit = rows * roots[None] * np.stack([roots[:, i] for i in ids])[..., None]
    for a, i in enumerate(ids):
        unit[a, :, i] = 1.0
    return unit, roots


def direct(
    n: NpaeInputs, sent: Mapping[str, Sequence[Array]], blocks: Sequence[Array], participants: BoolArray
) -> tuple[Array, float]:
    """Mean and what is explained, (T, 2), from all that everyone sent, and the largest jitter.

    blocks: (K_j + 2, T) of each agent, its mean and explained variance last; those who take part (M, T) count.
    One Cholesky per query, with jitter where C_A is close to singular.
    """
    mean, explained = np.stack([block[-2] for block in blocks]), np.stack([block[-1] for block in blocks])
    covariances = n.carrier.covariances(sent, [block[:-2] for block in blocks])
    jitter, answers = 0.0, np.zeros((mean.shape[1], 2))
    for t, takes in enumerate(participants.T):
        chosen = np.flatnonzero(takes)
        unit, roots = scaled_whole(covariances[t][np.ix_(chosen, chosen)], explained[chosen, t], float(n.prior[0, t]))
        factor = factorize(unit, 0.0, pivot=PIVOT)
        if factor is None:
            raise NumericalError(
                "the covariance of the agents' means at a query cannot be factorized: predict with grbcm or dec-grbcm"
            )
        jitter = max(jitter, factor.jitter)
        known = roots * explained[chosen, t]
        answers[t] = known @ factor.solve(np.column_stack([roots * mean[chosen, t], known]))
    return answers, jitter


def scaled_whole(covariance: Array, explained: Array, prior: float) -> tuple[Array, Array]:
    """D^-1/2 C_A D^-1/2 with D = diag(k_A), and D^-1/2; 0 for the silent, whose equation is q_i = 0."""
    heard = explained > SILENT * prior
    roots = np.where(heard, 1.0 / np.sqrt(np.where(heard, explained, 1.0)), 0.0)
    unit = covariance * roots * roots[:, None]
    np.fill_diagonal(unit, 1.0)
    return unit, roots


def what_is_sent(n: NpaeInputs, takes: BoolArray | None = None) -> dict[str, list[Array]]:
    """For a direct solution: every hosted agent's block with its mean and explained variance; with `takes` (A, T) only
    where it takes part.
    """
    blocks = [np.vstack([b, m, k]) for b, m, k in zip(n.carrier.blocks, n.mean, n.explained, strict=True)]
    if takes is not None:
        blocks = [block[:, own] for block, own in zip(blocks, takes, strict=True)]
    return {**n.carrier.parts(takes), "predictions": blocks}


def central(n: NpaeInputs, network: Network) -> NpaeOutcome:
    """All blocks at a server, which solves every query's system."""
    sent = network.gather(what_is_sent(n))
    everyone = np.ones((network.agents, n.mean.shape[1]), dtype=bool)
    answers, jitter = direct(n, sent, sent["predictions"], everyone)
    told = network.scatter(answers, "predictions")
    return NpaeOutcome(told[..., 0], variance_of(n, told[..., 1]), jitter=jitter)


def along_tree(n: NpaeInputs, network: Network, participants: BoolArray, to: int | None) -> tuple[Array | None, float]:
    """All blocks along the tree to every agent, or to one, which solves every query's system directly.

    Mean and variance (T, 2); None where no hosted agent is told. participants: (M, T), known to all.
    """
    sent = network.collect(what_is_sent(n, participants[list(network.hosted)]), recipient=to)
    if sent is None:
        return None, 0.0
    _check_blocks(n, sent, participants.sum(axis=1).tolist(), extra=2)
    blocks = []
    for takes, block in zip(participants, sent["predictions"], strict=True):
        whole = np.zeros((len(block) if block.size else len(n.carrier.blocks[0]) + 2, participants.shape[1]))
        whole[:, takes] = block if block.size else 0.0  # whoever takes part in nothing sent nothing
        blocks.append(whole)
    answers, jitter = direct(n, sent, blocks, participants)
    return np.stack([answers[:, 0], variance_of(n, answers[None, :, 1])[0]], axis=-1), jitter


def over_everyone(n: NpaeInputs, network: Network, *, star: bool, tol: float, rounds: int, seed: int) -> NpaeOutcome:
    """DEC-NPAE and DEC-NPAE*: JOR (a flood an iteration), then an average of the summands."""
    with network.phase("rows"):
        sent = network.flood_parts(
            {
                **n.carrier.parts(),
                "predictions": [np.vstack([b, k]) for b, k in zip(n.carrier.blocks, n.explained, strict=True)],
            }
        )
    _check_blocks(n, sent, [n.mean.shape[1]] * network.agents)
    everyone = np.stack([block[-1] for block in sent["predictions"]], axis=1)
    rows = covariance_rows(n, network, sent, [block[:-1] for block in sent["predictions"]])
    unit, roots = scaled(rows, everyone, network.hosted, n.prior)
    own = np.stack([roots[:, i] for i in network.hosted])
    known = own * n.explained
    right = np.stack([own * n.mean, known], axis=-1)
    omega = None
    if star:
        with network.phase("relaxation"):
            omega = optimal_relaxation(network, unit, seed=seed, rounds=min(rounds, 2000)).omega
    with network.phase("solve"):
        # The tail bound of JOR is on the entries: a tenth of the tolerance leaves room for their sum.
        solving = jor(network, unit, right, omega=omega, tol=0.1 * tol, rounds=rounds)
    with network.phase("average"):
        averaging = average_items(network, known[..., None] * solving.state, kind="predictions", tol=tol, rounds=rounds)
    sums = network.agents * averaging.state
    settled = averaging.converged & solving.converged
    return NpaeOutcome(sums[..., 0], variance_of(n, sums[..., 1], settled), averaging, solving)


def over_selection(n: NpaeInputs, network: Network, selection: Selection, *, tol: float, rounds: int) -> NpaeOutcome:
    """DEC-NN-NPAE: DALE among the participants of each query, in which the whole solution is agreed on."""
    hosted = np.asarray(network.hosted)
    takes: BoolArray = selection.participants[hosted]
    with network.phase("rows"):
        sent = network.flood_parts(
            {
                **n.carrier.parts(takes),
                "predictions": [
                    np.vstack([b, k])[:, t] for b, k, t in zip(n.carrier.blocks, n.explained, takes, strict=True)
                ],
            }
        )
    queries = takes.shape[1]
    _check_blocks(n, sent, selection.participants.sum(axis=1).tolist())
    everyone, blocks = np.zeros((queries, network.agents)), []
    for j, block in enumerate(sent["predictions"]):
        # Whoever takes part in nothing sent nothing.
        whole = np.zeros((len(block) if block.size else len(n.carrier.blocks[0]) + 1, queries))
        whole[:, selection.participants[j]] = block if block.size else 0.0
        everyone[:, j] = whole[-1]
        blocks.append(whole[:-1])
    rows = covariance_rows(n, network, sent, blocks)
    unit, roots = scaled(rows, everyone, network.hosted, n.prior)
    known = roots * everyone  # (T, M); zero for those who take no part
    # Only the participants' entries travel: slot s of a query is its s-th participant.
    slots = np.argsort(~selection.participants.T, axis=1, kind="stable")[:, : int(selection.count.max(initial=0))]
    used = np.take_along_axis(selection.participants.T, slots, axis=1)
    system = np.where(used, np.take_along_axis(unit, np.tile(slots, (len(hosted), 1, 1)), axis=2), 0.0)
    system = np.where(takes[..., None], system, 0.0)
    own = np.stack([roots[:, i] for i in hosted])
    right = np.where(takes[..., None], np.stack([own * n.mean, own * n.explained], axis=-1), 0.0)
    with network.phase("solve"):
        result = dale(network, system, right, tol=tol, rounds=rounds, scope=selection)
    weight = np.where(used, np.take_along_axis(known, slots, axis=1), 0.0)
    sums = (weight[None, :, None, :] @ result.state)[:, :, 0, :]
    with network.phase("spread"):
        means, variances, told = selection.spread(
            network, sums[..., 0], variance_of(n, sums[..., 1], result.converged), result
        )
    return NpaeOutcome(means, variances, told)


def _check_blocks(n: NpaeInputs, sent: Mapping[str, Sequence[Array]], widths: Sequence[int], extra: int = 1) -> None:
    """Everybody's block: a column for each of its queries, and a row for each of its inputs, or of the common basis;
    and some extra rows.
    """
    lengths = [len(n.carrier.blocks[0])] * len(widths)
    if "inputs" in sent:
        width = n.carrier.parts()["inputs"][0].shape[1]
        check_from_peers(sent["inputs"], lambda _, x: not x.size or x.shape[1:] == (width,), f"(n, {width}) inputs")
        lengths = [len(x) for x in sent["inputs"]]

    def sound(agent: int, block: Array) -> bool:
        if not widths[agent]:
            return not block.size
        return block.shape == (lengths[agent] + extra, widths[agent]) and bool(np.isfinite(block).all())

    check_from_peers(sent["predictions"], sound, "a finite block with a column for each query")


def variance_of(n: NpaeInputs, explained: Array, settled: BoolArray | None = None) -> Array:
    """k** minus what is explained: at least SMALLEST of it, at most all.

    Where an unsettled solution explains more than there is, nothing is known of the variance: the prior.
    """
    prior = n.prior
    variance = np.clip(prior - explained, SMALLEST * prior, prior)
    if settled is None:
        return variance
    return np.where((explained < prior) | settled, variance, prior)
