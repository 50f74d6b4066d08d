"""Aggregation rules: what each agent adds to the sums, and how the sums become mean and variance.

For one query a rule is its local summands, (A, T, K), and its finish, which sees their totals over the agents that take
part. Whether the totals come from a server, from an average consensus over all agents or over a few does not matter to
it. No rule depends on the order or the names of the agents, except grBCM with the paper's weights.

For a whole vector of queries, let B be the covariance of f at the queries that a rule starts from: the prior's, or for
grBCM that given the samples, m its mean, and w = B^-1/2 (f - m), which is white. An agent's own posterior of w has a
covariance P = B^-1/2 S_i B^-1/2. More data never tell less, so P <= I (Loewner), and its eigenvectors are pieces of
knowledge that are independent before the data and after. To each of these, with its variance p, the rule of a single
query is applied:

    PoE     1/p             BCM      1/p - 1
    gPoE    1/(M p)         rBCM     d (1/p - 1)    d = -log(p)/2, the nats that the data tell of this piece

The sum over the agents, for (r)BCM and grBCM with I more, is the precision of w. No summand is negative, so the total
is positive definite always. For one query, or queries that are independent of each other, the pieces are the queries.

An agent that takes part in some of the queries only speaks of its marginal posterior there. Where gPoE's number of
agents c differs between queries, S_i becomes S_i min(c_t, c_u), which is positive definite as a product, element by
element, of two such matrices.

grBCM's weights d_i / sqrt(sum_j d_j^2) compare agents, whose pieces differ. With the matrices D_i and G_i that have the
pieces of agent i as eigenvectors, and d and 1/p - 1 as eigenvalues, all agents first add up N^2 = sum_j D_j^2; then the
evidence of agent i is G_i^1/2 W_i G_i^1/2 with the weight W_i = N^-1/2 D_i N^-1/2, which is never above I, since N is
never below D_i. Of one agent alone it is I; of independent queries it has the weights of `predict` on the diagonal.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.linalg.cholesky import factorize
from fleetgp.options import PredictionOptions
from fleetgp.prediction.methods import Vector
from fleetgp.prediction.posteriors import SMALLEST

#: Where an eigenvalue of a covariance is below the first of these, relative to the prior variance, the second is added
#: to all of them: independent noise in f, of 3e-5 of its deviation. Without it the inverse would hold rounding alone.
CLOSE, NUGGET = 1e-7, 1e-9
#: Eigenvalues of a sum of squares below this share of the largest are rounding.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Beliefs:
    """What the agents believe at the queries: mean and variance (A, T) of f, given their (augmented) data.

    prior: (A, T) k(x*, x*).  common_mean, common_variance: (A, T) from the communication data alone (grBCM).
    first: (A, T) whether the agent is the one with beta = 1 (grBCM with the paper's weights).
    weight: (A, T) by what the agent's information counts (dec-summary); 1 elsewhere.
    """

    mean: Array
    variance: Array
    prior: Array
    common_mean: Array
    common_variance: Array
    first: BoolArray
    weight: Array

    def of_agent(self, i: int) -> Beliefs:
        """Of one hosted agent alone."""
        here = slice(i, i + 1)
        return Beliefs(
            self.mean[here],
            self.variance[here],
            self.prior[here],
            self.common_mean[here],
            self.common_variance[here],
            self.first[here],
            self.weight[here],
        )


# ---- what a rule provides ----------------------------------------------------------------------------------------


class AggregationRule(abc.ABC):
    """A way to make one prediction of many agents'. `register_rule` makes methods of it.

    name: of the method over a server; dec-, dec-nn- before it for the others.
    sends, use: what an agent sends for a query, and when to use the rule, for `fleetgp methods`.
    augmented: the agents' data are D_+i (with the communication data set of all agents' samples) instead of D_i.
    grouped: they are D_i and the groups of the others, and the communication data are all groups.
    options: names of options that only some rules have: beta, seed.

    Gradients differentiate `summands` and `finish` as they stand, by a complex step: they must be made of functions
    that NumPy has for complex numbers. A rule that is to have joint predictions is a `JointRule`.
    """

    name: str
    sends: str = "its summands"
    use: str = ""
    augmented: bool = False
    grouped: bool = False
    options: tuple[str, ...] = ()
    #: Whether it must be known who comes first before anything is added up.
    needs_first: ClassVar[bool] = False

    @abc.abstractmethod
    def summands(self, beliefs: Beliefs) -> Array:
        """What each hosted agent adds to the sums, (A, T, K)."""

    @abc.abstractmethod
    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        """Mean and variance (A, T) from the totals (A, T, K) and the numbers of agents that take part, (A, T)."""

    def configured(self, options: PredictionOptions) -> AggregationRule:
        """The rule with these options."""
        return self

    def explained(self, prior: Array, participants: BoolArray, variances: Array) -> Array:
        """The share of the prior's variance (.., T) that variances of f explain. participants: (M, T)."""
        return np.asarray(1.0 - variances / prior)


class JointRule(AggregationRule):
    """A rule that also says what a posterior of many queries adds to the total precision.

    with_prior: whether I is added to the sum of all agents' evidence: it is what they know beyond the prior.
    compares_agents: whether all agents' `Pieces.squared_information` is added up before.
    """

    with_prior: ClassVar[bool] = True
    compares_agents: ClassVar[bool] = False

    @abc.abstractmethod
    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        """What an agent adds: to the precision of w, (T, T), and to precision times mean, (T,).

        norm: with `compares_agents`, N^-1/2 from the sum of all agents' squared information.
        """

    def own_covariance(self, covariance: Array, count: Array) -> Array:
        """An agent's covariance (T, T) as the rule takes it, where so many agents (T,) take part."""
        return covariance

    def pieces(self, frame: Frame, own: Vector, takes: BoolArray, count: Array) -> Pieces:
        """The independent pieces of an agent's posterior of f. count: (T,) how many agents take part in each query."""
        here, onto = frame.part(takes)
        known = own.at(takes)
        mean, relative = here.white(Vector(known.mean, self.own_covariance(known.covariance, count[takes])))
        values, vectors = np.linalg.eigh(relative)
        whole = vectors if onto is None else onto.T @ vectors
        return Pieces(np.maximum(values, SMALLEST), whole, vectors.T @ mean)


def _weighted(beta: Array, b: Beliefs, *more: Array) -> Array:
    precision = beta / b.variance
    return np.stack([precision * b.mean, precision, *more], axis=-1)


class EqualWeights(JointRule):
    """Rules with beta = 1 for every agent."""

    def summands(self, beliefs: Beliefs) -> Array:
        return _weighted(np.ones_like(beliefs.mean), beliefs)


class ProductOfExperts(EqualWeights):
    """Eqs. (mean_poe), (variance_poe) with beta = 1."""

    name = "poe"
    sends, use = "2 numbers", "never: overconfident, and gpoe has the same mean"
    with_prior = False

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        return totals[..., 0] / totals[..., 1], 1.0 / totals[..., 1]

    def explained(self, prior: Array, participants: BoolArray, variances: Array) -> Array:
        """Measured by the product of priors alone, which is as sure of itself as there are agents in it."""
        return super().explained(prior / np.maximum(participants.sum(axis=0), 1), participants, variances)

    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        return pieces.weighed(1.0 / pieces.variance, 1.0 / pieces.variance)


class GeneralizedProductOfExperts(EqualWeights):
    """beta = 1 / (number of agents that take part): the mean of PoE, a variance that does not shrink."""

    name = "gpoe"
    sends, use = "2 numbers", "cautious: too wide an uncertainty, a mean pulled to the prior"
    with_prior = False

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        return totals[..., 0] / totals[..., 1], participants / totals[..., 1]

    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        return pieces.weighed(1.0 / pieces.variance, 1.0 / pieces.variance)

    def own_covariance(self, covariance: Array, count: Array) -> Array:
        return np.asarray(covariance * np.minimum(count[:, None], count))


class BayesianCommittee(EqualWeights):
    """Eqs. (mean_bcm), (variance_bcm) with beta = 1; the left side of the second is a precision."""

    name = "bcm"
    sends, use = "2 numbers", "to compare; rbcm is better"

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        precision = totals[..., 1] + (1.0 - participants) / beliefs.prior
        return totals[..., 0] / precision, 1.0 / precision

    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        p = np.minimum(pieces.variance, 1.0)
        return pieces.weighed(1.0 / p - 1.0, np.where(p < 1.0, 1.0 / p, 0.0))


class RobustBayesianCommittee(JointRule):
    """beta = half the difference in differential entropy between prior and posterior."""

    name = "rbcm"
    sends, use = "3 numbers", "no data may be sent; good mean, overconfident"

    def summands(self, beliefs: Beliefs) -> Array:
        beta = information(beliefs.prior, beliefs.variance)
        return _weighted(beta, beliefs, beta)

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        precision = totals[..., 1] + (1.0 - totals[..., 2]) / beliefs.prior
        return totals[..., 0] / precision, 1.0 / precision

    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        p = np.minimum(pieces.variance, 1.0)
        d = -0.5 * np.log(p)
        return pieces.weighed(d * (1.0 / p - 1.0), np.where(p < 1.0, d / p, 0.0))


def information(common_variance: Array, variance: Array) -> Array:
    """What data tell of f where its variance was another, in nats: half the entropy difference, at least 0."""
    return np.asarray(np.maximum(0.5 * (np.log(common_variance) - np.log(variance)), 0.0))


class GeneralizedRobustCommittee(JointRule):
    """Eqs. (mean_grbcm), (variance_grbcm) with beta_i = d_i / sqrt(sum_j d_j^2), d_i being the information of agent i.

    One agent alone has beta = 1. Where nobody knows more than the communication data, these answer.
    """

    name = "grbcm"
    sends, use = "3 numbers; once, N_i/M of its rows", "the best calibrated that is cheap"
    augmented = True
    options: tuple[str, ...] = ("seed", "beta")
    compares_agents = True

    def configured(self, options: PredictionOptions) -> AggregationRule:
        return PAPER_GRBCM if options.beta == "paper" else self

    def summands(self, beliefs: Beliefs) -> Array:
        """With the information in place of beta, and its square: `finish` divides by the norm."""
        told = beliefs.weight * information(beliefs.common_variance, beliefs.variance)
        return _weighted(told, beliefs, told, told**2)

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        b = beliefs
        known = totals[..., 3].real > 0.0
        share = np.where(known, 1.0 / np.sqrt(np.where(known, totals[..., 3], 1.0)), 0.0)
        precision = 1.0 / b.common_variance + share * (totals[..., 1] - totals[..., 2] / b.common_variance)
        beyond = share * (totals[..., 0] - totals[..., 2] * b.common_mean / b.common_variance)
        return (b.common_mean / b.common_variance + beyond) / precision, 1.0 / precision

    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        """y = G^1/2 w + noise is what an agent knows, with the mean G^-1/2 P^-1 of w's."""
        assert norm is not None, "it compares agents"
        p = np.minimum(pieces.variance, 1.0)
        root, centre = pieces.weighed(np.sqrt(1.0 / p - 1.0), np.sqrt(1.0 / (p * np.where(p < 1.0, 1.0 - p, np.inf))))
        weight = norm @ pieces.weighed(-0.5 * pieces.weight * np.log(p), p)[0] @ norm
        return root @ weight @ root, root @ (weight @ centre)


class PaperRobustCommittee(GeneralizedRobustCommittee):
    """Eqs. (mean_grbcm), (variance_grbcm) with the paper's weights: the answer depends on which agent comes first.

    beta = 1 for the first agent that takes part, the information for all others.
    """

    needs_first = True

    def summands(self, beliefs: Beliefs) -> Array:
        beta = np.where(beliefs.first, 1.0, information(beliefs.common_variance, beliefs.variance))
        return _weighted(beta, beliefs, beta)

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        surplus = totals[..., 2] - 1.0
        precision = totals[..., 1] - surplus / beliefs.common_variance
        mean = (totals[..., 0] - surplus * beliefs.common_mean / beliefs.common_variance) / precision
        return mean, 1.0 / precision


class GroupedCommittee(GeneralizedRobustCommittee):
    """grBCM with groups as communication data: an agent has its own rows, and the groups of the others."""

    name = "summary"
    sends, use = (
        "3 numbers; once, groups of its rows",
        "the default: as good as one agent with all data, and no row is sent",
    )
    grouped = True
    options = ("min_rows", "budget", "local")

    def configured(self, options: PredictionOptions) -> AggregationRule:
        return self


PAPER_GRBCM = PaperRobustCommittee()
#: The answer of a fleet of one agent is its posterior, whatever the method.
POE = ProductOfExperts()
RBCM = RobustBayesianCommittee()
#: Those of the paper.
RULES: tuple[AggregationRule, ...] = (
    POE,
    GeneralizedProductOfExperts(),
    BayesianCommittee(),
    RBCM,
    GeneralizedRobustCommittee(),
)
#: Of our own.
SUMMARY = GroupedCommittee()
AGGREGATIONS = tuple(rule.name for rule in RULES)


def finished(rule: AggregationRule, totals: Array, count: Array, beliefs: Beliefs) -> tuple[Array, Array]:
    """The rule's finish. An average that was capped early can give a precision that is no number, or not positive:
    then the answer is the prior.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        means, variances = rule.finish(totals, count, beliefs)
    prior = beliefs.prior
    sound = (variances > 0.0) & np.isfinite(means)
    means = np.where(sound, means, 0.0)
    # gPoE alone may exceed the prior by rounding; nobody may by more.
    return means, np.where(sound, np.minimum(variances, prior), prior)


# ---- whole vectors of queries ------------------------------------------------------------------------------------


class Frame:
    """White coordinates w = B^-1/2 (f - m) of f at the queries.  scale: the prior variance.  nugget: added to B."""

    def __init__(self, base: Vector, scale: float, nugget: float | None = None) -> None:
        self.base, self.scale = base, scale
        values, self._vectors = np.linalg.eigh(base.covariance)
        if nugget is None:
            nugget = NUGGET * scale if len(values) > 1 and values[0] < CLOSE * scale else 0.0
        self.nugget = nugget
        self._values = np.maximum(values + nugget, SMALLEST * scale)

    @cached_property
    def root(self) -> Array:
        """B^1/2, the symmetric one: it does not depend on the order of the queries."""
        return np.asarray((self._vectors * np.sqrt(self._values)) @ self._vectors.T)

    @cached_property
    def inverse_root(self) -> Array:
        """B^-1/2."""
        return np.asarray((self._vectors / np.sqrt(self._values)) @ self._vectors.T)

    def white(self, one: Vector) -> tuple[Array, Array]:
        """The mean of w, and its covariance P, for a posterior of f."""
        covariance = one.covariance + self.nugget * np.eye(len(one.mean))
        relative = self.inverse_root @ covariance @ self.inverse_root
        return self.inverse_root @ (one.mean - self.base.mean), 0.5 * (relative + relative.T)

    def part(self, some: BoolArray) -> tuple[Frame, Array | None]:
        """That of some queries (n of T), and what makes their w from that of all, (n, T), with orthonormal rows."""
        if some.all():
            return self, None
        own = Frame(self.base.at(some), self.scale, self.nugget)
        return own, own.inverse_root @ self.root[some]


@dataclass(frozen=True)
class Pieces:
    """Independent pieces of an agent's knowledge: their variances p and means (n,), and what they are, (T, n).

    weight: (n,) by what the information counts.
    """

    variance: Array
    vectors: Array
    mean: Array
    weight: Array | float = 1.0

    def weighed(self, precision: Array, pull: Array) -> tuple[Array, Array]:
        """As a precision, and precision times mean, with these for each piece, (n,)."""
        return np.asarray((self.vectors * precision) @ self.vectors.T), np.asarray(self.vectors @ (pull * self.mean))

    def counted(self, weight: Array) -> Pieces:
        """With the weights (T,) of the agent's information at the queries, of which each piece has its share."""
        return replace(self, weight=weight @ self.vectors**2)

    @property
    def squared_information(self) -> Array:
        """(T, T) the square of what the data tell of w, in nats: D_i^2."""
        d = 0.5 * self.weight * np.log(np.minimum(self.variance, 1.0))
        return self.weighed(d**2, d)[0]


def normalizer(total: Array) -> Array:
    """N^-1/2 from N^2, (T, T); zero where nobody knows more than the samples."""
    values, vectors = np.linalg.eigh(total)
    known = values > ROUNDING * max(1.0, float(values[-1]))
    return np.asarray((vectors * np.where(known, np.where(known, values, 1.0) ** -0.25, 0.0)) @ vectors.T)


def joint_posterior(rule: JointRule, frame: Frame, precision: Array, pull: Array) -> tuple[Vector, float]:
    """Mean and covariance of f from the totals of precision and precision times mean, and the jitter they needed."""
    if rule.with_prior:
        precision = precision + np.eye(len(pull))
    factor = factorize(precision, 0.0)
    assert factor is not None, "a sum of positive definite matrices, of finite numbers"
    half = factor.half_solve(frame.root)
    mean = frame.base.mean + frame.root @ factor.solve(pull)
    return Vector(mean, np.asarray(half.T @ half)), max(frame.nugget, factor.jitter * frame.scale)
