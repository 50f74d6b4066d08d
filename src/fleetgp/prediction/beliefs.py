"""What the hosted agents believe at the queries, as an aggregation rule takes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleetgp.arrays import BoolArray
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.posteriors import Marginals
from fleetgp.prediction.rules import SMALLEST, Beliefs, Rule
from fleetgp.prediction.task import Task


def beliefs_of(
    task: Task, rule: Rule, conditioned: Conditioned, takes: BoolArray, own: Marginals, first: BoolArray
) -> tuple[Beliefs, Marginals]:
    """What enters the rule: the agents' own posteriors; for grBCM those of augmented data and of the samples alone.

    takes: (A, T) which hosted agents take part.  first: (A, T) of these, the one with beta = 1.
    """
    hosted, floor = list(task.network.hosted), SMALLEST * task.prior
    believed = common = own
    if rule.augmented:
        found, common = conditioned.with_samples(hosted, task.agreed.samples, task.queries, takes)
        believed = replace(found, jitter=max(found.jitter, common.jitter, own.jitter))
    variance, common_variance = (np.maximum(b.variance, floor) for b in (believed, common))
    return Beliefs(believed.mean, variance, task.prior, common.mean, common_variance, first), believed


def first_of(task: Task, participants: BoolArray) -> BoolArray:
    """(A, T) whether a hosted agent is the first that takes part."""
    return np.asarray(participants.argmax(axis=0)[None, :] == np.asarray(task.network.hosted)[:, None])
