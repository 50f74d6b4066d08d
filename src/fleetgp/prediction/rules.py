"""Aggregation rules: what each agent adds to the sums, and how the sums become mean and variance.

A rule is its local summands, (A, T, K), and its finish, which sees their totals over the agents that take
part. Whether the totals come from a server, from an average consensus over all agents or over a few does not
matter to it. No rule depends on the order or the names of the agents, except grBCM with the paper's weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray

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
