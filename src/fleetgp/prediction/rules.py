"""Aggregation rules: what each agent adds to the sums, and how the sums become mean and variance.

A rule is its local summands, (A, T, K), and its finish, which sees their totals over the agents that take
part. Whether the totals come from a server, from an average consensus over all agents or over a few does not
matter to it. No rule depends on the order or the names of the agents, except grBCM with the paper's weights.

Committees of whole vectors of queries: what each agent adds, and what the total becomes.

Let B be the covariance of f at the queries that a rule starts from: the prior's, or for grBCM that given the samples, m
its mean, and w = B^-1/2 (f - m), which is white. An agent's own posterior of w has a covariance P = B^-1/2 S_i B^-1/2.
More data never tell less, so P <= I (Loewner), and its eigenvectors are pieces of knowledge that are independent
before the data and after. To each of these, with its variance p, the rule of a single query is applied:

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

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.linalg.cholesky import factorize

#: No variance is taken for smaller than this fraction of the prior: a precision must stay finite.
SMALLEST = 1e-12


@dataclass(frozen=True)
class Beliefs:
    """What the agents believe at the queries: mean and variance (A, T) of f, given their (augmented) data.

    prior: (A, T) k(x*, x*).  common_mean, common_variance: (A, T) from the communication data alone (grBCM).
    first: (A, T) whether the agent is the one with beta = 1 (grBCM with the paper's weights).
    """

    mean: Array
    variance: Array
    prior: Array
    common_mean: Array
    common_variance: Array
    first: BoolArray

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
        )


@dataclass(frozen=True)
class Rule:
    """summands(beliefs) -> (A, T, K); finish(totals (A, T, K), participants (A, T), beliefs) -> mean, variance.

    augmented: the agents' data are D_+i (with the communication data set) instead of D_i.
    """

    name: str
    summands: Callable[[Beliefs], Array]
    finish: Callable[[Array, Array, Beliefs], tuple[Array, Array]]
    augmented: bool = False


def _weighted(beta: Array, b: Beliefs, *more: Array) -> Array:
    precision = beta / b.variance
    return np.stack([precision * b.mean, precision, *more], axis=-1)


def _poe_summands(b: Beliefs) -> Array:
    return _weighted(np.ones_like(b.mean), b)


def _poe(totals: Array, participants: Array, b: Beliefs) -> tuple[Array, Array]:
    """Eqs. (mean_poe), (variance_poe) with beta = 1."""
    return totals[..., 0] / totals[..., 1], 1.0 / totals[..., 1]


def _gpoe(totals: Array, participants: Array, b: Beliefs) -> tuple[Array, Array]:
    """beta = 1 / (number of agents that take part): the mean of PoE, a variance that does not shrink."""
    return totals[..., 0] / totals[..., 1], participants / totals[..., 1]


def _bcm(totals: Array, participants: Array, b: Beliefs) -> tuple[Array, Array]:
    """Eqs. (mean_bcm), (variance_bcm) with beta = 1; the left side of the second is a precision."""
    precision = totals[..., 1] + (1.0 - participants) / b.prior
    return totals[..., 0] / precision, 1.0 / precision


def _rbcm_summands(b: Beliefs) -> Array:
    """beta = half the difference in differential entropy between prior and posterior."""
    beta = np.maximum(0.5 * (np.log(b.prior) - np.log(b.variance)), 0.0)
    return _weighted(beta, b, beta)


def _rbcm(totals: Array, participants: Array, b: Beliefs) -> tuple[Array, Array]:
    precision = totals[..., 1] + (1.0 - totals[..., 2]) / b.prior
    return totals[..., 0] / precision, 1.0 / precision


def information(common_variance: Array, variance: Array) -> Array:
    """What an agent's data tell beyond the communication data, in nats: half the entropy difference, at least 0."""
    return np.asarray(np.maximum(0.5 * (np.log(common_variance) - np.log(variance)), 0.0))


def _grbcm_summands(b: Beliefs) -> Array:
    """With the information in place of beta, and its square: `_grbcm` divides by the norm."""
    told = information(b.common_variance, b.variance)
    return _weighted(told, b, told, told**2)


def _grbcm(totals: Array, participants: Array, b: Beliefs) -> tuple[Array, Array]:
    """Eqs. (mean_grbcm), (variance_grbcm) with beta_i = d_i / sqrt(sum_j d_j^2), d_i being the information of agent i.

    One agent alone has beta = 1. Where nobody knows more than the communication data, these answer.
    """
    known = totals[..., 3].real > 0.0
    share = np.where(known, 1.0 / np.sqrt(np.where(known, totals[..., 3], 1.0)), 0.0)
    precision = 1.0 / b.common_variance + share * (totals[..., 1] - totals[..., 2] / b.common_variance)
    beyond = share * (totals[..., 0] - totals[..., 2] * b.common_mean / b.common_variance)
    return (b.common_mean / b.common_variance + beyond) / precision, 1.0 / precision


def _paper_grbcm_summands(b: Beliefs) -> Array:
    """beta = 1 for the first agent that takes part, the information for all others."""
    beta = np.where(b.first, 1.0, information(b.common_variance, b.variance))
    return _weighted(beta, b, beta)


def _paper_grbcm(totals: Array, participants: Array, b: Beliefs) -> tuple[Array, Array]:
    """Eqs. (mean_grbcm), (variance_grbcm)."""
    surplus = totals[..., 2] - 1.0
    precision = totals[..., 1] - surplus / b.common_variance
    mean = (totals[..., 0] - surplus * b.common_mean / b.common_variance) / precision
    return mean, 1.0 / precision


RULES = {
    rule.name: rule
    for rule in (
        Rule("poe", _poe_summands, _poe),
        Rule("gpoe", _poe_summands, _gpoe),
        Rule("bcm", _poe_summands, _bcm),
        Rule("rbcm", _rbcm_summands, _rbcm),
        Rule("grbcm", _grbcm_summands, _grbcm, augmented=True),
    )
}
#: grBCM with the paper's weights: the answer depends on which agent comes first.
PAPER_GRBCM = Rule("grbcm", _paper_grbcm_summands, _paper_grbcm, augmented=True)


def finished(rule: Rule, totals: Array, count: Array, beliefs: Beliefs) -> tuple[Array, Array]:
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


#: Where an eigenvalue of a covariance is below the first of these, relative to the prior variance, the second is added
#: to all of them: independent noise in f, of 3e-5 of its deviation. Without it the inverse would hold rounding alone.
CLOSE, NUGGET = 1e-7, 1e-9
#: Eigenvalues of a sum of squares below this share of the largest are rounding.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Vector:
    """f at T queries: mean (T,) and covariance (T, T)."""

    mean: Array
    covariance: Array

    def at(self, some: BoolArray) -> Vector:
        """At some of the queries."""
        return self if some.all() else Vector(self.mean[some], self.covariance[np.ix_(some, some)])


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
        """B^1/2, the symmetric one: it does not hang on the order of the queries."""
        return np.asarray((self._vectors * np.sqrt(self._values)) @ self._vectors.T)

    @cached_property
    def inverse_root(self) -> Array:
        return np.asarray((self._vectors / np.sqrt(self._values)) @ self._vectors.T)

    def seen(self, one: Vector) -> tuple[Array, Array]:
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
class Role:
    """How an agent takes part, in each of the T queries.

    takes: whether it does.  count: how many agents do.
    """

    takes: BoolArray
    count: Array


def evidence(rule: str, frame: Frame, own: Vector, role: Role, norm: Array | None = None) -> tuple[Array, Array]:
    """What an agent adds: to the precision of w, (T, T), and to precision times mean, (T,). own: its posterior of f.

    norm: N^-1/2, for grBCM, from the sum of all agents' `squared_information`.
    """
    size = len(frame.base.mean)
    if not role.takes.any():
        return np.zeros((size, size)), np.zeros(size)
    pieces = _pieces(rule, frame, own, role)
    if rule in ("poe", "gpoe"):
        return pieces.weighed(1.0 / pieces.variance, 1.0 / pieces.variance)
    p = np.minimum(pieces.variance, 1.0)
    known = p < 1.0
    if norm is None:
        d = -0.5 * np.log(p) if rule == "rbcm" else np.ones_like(p)
        return pieces.weighed(d * (1.0 / p - 1.0), np.where(known, d / p, 0.0))
    # y = G^1/2 w + noise is what it knows, with the mean G^-1/2 P^-1 of w's.
    root, centre = pieces.weighed(np.sqrt(1.0 / p - 1.0), np.sqrt(1.0 / (p * np.where(known, 1.0 - p, np.inf))))
    weight = norm @ pieces.weighed(-0.5 * np.log(p), p)[0] @ norm
    return root @ weight @ root, root @ (weight @ centre)


def squared_information(frame: Frame, own: Vector, role: Role) -> Array:
    """(T, T) the square of what an agent's data tell of w beyond the samples, in nats: D_i^2 (grBCM)."""
    size = len(frame.base.mean)
    if not role.takes.any():
        return np.zeros((size, size))
    pieces = _pieces("grbcm", frame, own, role)
    d = 0.5 * np.log(np.minimum(pieces.variance, 1.0))
    return pieces.weighed(d**2, d)[0]


def normalizer(total: Array) -> Array:
    """N^-1/2 from N^2, (T, T); zero where nobody knows more than the samples."""
    values, vectors = np.linalg.eigh(total)
    known = values > ROUNDING * max(1.0, float(values[-1]))
    return np.asarray((vectors * np.where(known, np.where(known, values, 1.0) ** -0.25, 0.0)) @ vectors.T)


def _pieces(rule: str, frame: Frame, own: Vector, role: Role) -> Pieces:
    takes = role.takes
    here, onto = frame.part(takes)
    believed = own.at(takes)
    if rule == "gpoe":
        count = role.count[takes]
        believed = Vector(believed.mean, believed.covariance * np.minimum(count[:, None], count))
    mean, relative = here.seen(believed)
    values, vectors = np.linalg.eigh(relative)
    whole = vectors if onto is None else onto.T @ vectors
    return Pieces(np.maximum(values, SMALLEST), whole, vectors.T @ mean)


@dataclass(frozen=True)
class Pieces:
    """Independent pieces of an agent's knowledge: their variances p and means (n,), and what they are, (T, n)."""

    variance: Array
    vectors: Array
    mean: Array

    def weighed(self, precision: Array, pull: Array) -> tuple[Array, Array]:
        """As a precision, and precision times mean, with these for each piece, (n,)."""
        return np.asarray((self.vectors * precision) @ self.vectors.T), np.asarray(self.vectors @ (pull * self.mean))


def settled(rule: str, frame: Frame, precision: Array, heard: Array) -> tuple[Vector, float]:
    """Mean and covariance of f from the totals, and the jitter that they needed."""
    if rule not in ("poe", "gpoe"):
        precision = precision + np.eye(len(heard))
    factor = factorize(precision, 0.0)
    assert factor is not None, "a sum of positive definite matrices, of finite numbers"
    half = factor.half_solve(frame.root)
    mean = frame.base.mean + frame.root @ factor.solve(heard)
    return Vector(mean, np.asarray(half.T @ half)), max(frame.nugget, factor.jitter * frame.scale)
