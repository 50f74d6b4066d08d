r"""Committees of whole vectors of queries: what each agent adds, and what the total becomes.

Let B be the covariance of f at the queries that a rule starts from: the prior's, or for grBCM that given the samples, m
its mean, and w = B^-1/2 (f - m), which is white. An agent's own posterior of w has a covariance P = B^-1/2 S_i B^-1/2.
More data never tell less, so P <= I (Loewner), and its eigenvectors are pieces of knowledge that are independent
before the data and after. To each of these, with its variance p, the rule of a single query is applied:

    PoE     1/p             BCM      1/p - 1
    gPoE    1/(M p)         rBCM     beta (1/p - 1)    beta = -log(p)/2, the nats that the data tell of this piece

The sum over the agents, for (r)BCM and grBCM with I more, is the precision of w. No summand is negative, so the total
is positive definite always. For one query, or queries that are independent of each other, the pieces are the queries.

An agent that takes part in some of the queries only speaks of its marginal posterior there. Where gPoE's number of
agents c differs between queries, S_i becomes S_i min(c_t, c_u), which is positive definite as a product, element by
element, of two such matrices. Where an agent is the first (grBCM's beta = 1) in some queries only, with F those and
G = 1/p - 1, it adds G^1/2 F G^1/2 + (beta G)^1/2 (I - F) (beta G)^1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.linalg.cholesky import factorize
from fleetgp.prediction.rules import SMALLEST

#: Where an eigenvalue of a covariance is below the first of these, relative to the prior variance, the second is added
#: to all of them: independent noise in f, of 3e-5 of its deviation. Without it the inverse would hold rounding alone.
CLOSE, NUGGET = 1e-7, 1e-9


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

    takes: whether it does.  count: how many agents do.  first: whether it is the one with beta = 1 (grBCM).
    """

    takes: BoolArray
    count: Array
    first: BoolArray


def evidence(rule: str, frame: Frame, own: Vector, role: Role) -> tuple[Array, Array]:
    """What an agent adds: to the precision of w, (T, T), and to precision times mean, (T,). own: its posterior of f."""
    size, takes = len(frame.base.mean), role.takes
    if not takes.any():
        return np.zeros((size, size)), np.zeros(size)
    here, onto = frame.part(takes)
    believed = own.at(takes)
    if rule == "gpoe":
        count = role.count[takes]
        believed = Vector(believed.mean, believed.covariance * np.minimum(count[:, None], count))
    mean, relative = here.seen(believed)
    values, vectors = np.linalg.eigh(relative)
    pieces = Pieces(np.maximum(values, SMALLEST), vectors, vectors.T @ mean)
    if rule in ("poe", "gpoe"):
        precision, heard = pieces.weighed(1.0 / pieces.variance, 1.0 / pieces.variance)
    else:
        precision, heard = _beyond_base(rule, pieces, role.first[takes])
    return (precision, heard) if onto is None else (onto.T @ precision @ onto, onto.T @ heard)


@dataclass(frozen=True)
class Pieces:
    """Independent pieces of an agent's knowledge: their variances p and means (n,), and what they are, (n, n)."""

    variance: Array
    vectors: Array
    mean: Array

    def weighed(self, precision: Array, pull: Array) -> tuple[Array, Array]:
        """As a precision, and precision times mean, with these for each piece, (n,)."""
        return np.asarray((self.vectors * precision) @ self.vectors.T), np.asarray(self.vectors @ (pull * self.mean))


def _beyond_base(rule: str, pieces: Pieces, first: BoolArray) -> tuple[Array, Array]:
    """What the agent knows beyond what the rule starts from."""
    p = np.minimum(pieces.variance, 1.0)
    beta, known = -0.5 * np.log(p), p < 1.0
    if rule == "bcm" or (rule == "grbcm" and first.all()):
        beta = np.ones_like(p)
    if rule != "grbcm" or first.all() or not first.any():
        return pieces.weighed(beta * (1.0 / p - 1.0), np.where(known, beta / p, 0.0))
    # y = G^1/2 w + noise is what it knows: each query's row of it counts as the agent does there.
    found = []
    for weight, where in ((np.ones_like(p), first), (beta, ~first)):
        scale = np.sqrt(weight * (1.0 / p - 1.0))
        centre = np.sqrt(weight / (p * np.where(known, 1.0 - p, np.inf)))
        rows, _ = pieces.weighed(scale, scale)
        _, told = pieces.weighed(scale, centre)
        found.append((rows[:, where] @ rows[where], rows[:, where] @ told[where]))
    return found[0][0] + found[1][0], found[0][1] + found[1][1]


def settled(rule: str, frame: Frame, precision: Array, heard: Array) -> tuple[Vector, float]:
    """Mean and covariance of f from the totals, and the jitter that they needed."""
    if rule not in ("poe", "gpoe"):
        precision = precision + np.eye(len(heard))
    factor = factorize(precision, 0.0)
    assert factor is not None, "a sum of positive definite matrices, of finite numbers"
    half = factor.half_solve(frame.root)
    mean = frame.base.mean + frame.root @ factor.solve(heard)
    return Vector(mean, np.asarray(half.T @ half)), max(frame.nugget, factor.jitter * frame.scale)
