"""CBNN's choice: which agents take part in a query, from what their own data explain of the prior variance there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import maximum
from fleetgp.network import Network
from fleetgp.options import AUTO, Eta
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.posteriors import Marginals
from fleetgp.prediction.rules import SMALLEST
from fleetgp.prediction.task import Task

#: eta="auto": an agent takes part if it tells at least this share of what the best one tells. With half of it 2 to 7
#: of 100 agents in cells are left on smooth and on rough fields, and the RMSE is at most 3 % above that of all; a share
#: of the best one's precision instead keeps everybody on rough fields, or too few on smooth ones.
SHARE = 0.5


@dataclass(frozen=True)
class Choice:
    """chosen: (A, T) who takes part.  asked: (A, T) whose own posterior had to be known for that.  known: these."""

    chosen: BoolArray
    asked: BoolArray
    known: Marginals


def takes_part(network: Network, explained: Array, prior: Array, eta: Eta) -> BoolArray:
    """(A, T) from what each agent's own data explain, (A, T), of the prior variance, likewise: at least the share eta.

    "auto": it tells at least half as much as the best agent does, so that its variance is below the geometric mean of
    the prior's and the best one's.
    """
    if eta != AUTO:
        return np.asarray(explained >= eta * prior)
    told = _information(explained, prior)
    with network.phase("select"):
        best = maximum(network, told)
    return (told > 0.0) & (told >= SHARE * best)


def choose(task: Task, conditioned: Conditioned, *, only_who: bool) -> Choice:
    """The hosted agents' choices. only_who: the own posterior of an agent that certainly takes part is of no use.

    Bounds from the nearest observations spare the agents that cannot take part their posteriors.
    """
    network, prior, eta = task.network, task.prior, task.options.eta
    least, most = conditioned.reach.bounds(task.queries)
    if eta == AUTO:
        with network.phase("select"):
            best = maximum(network, _information(least, prior))
        possible, certain = _information(most, prior) >= SHARE * best, np.zeros_like(least, dtype=bool)
    else:
        possible, certain = most >= eta * prior, least >= eta * prior
    asked = possible & ~certain if only_who else possible
    known = conditioned.own(network.hosted).at(task.queries, asked)
    takes = takes_part(network, prior - known.variance, prior, eta)
    return Choice(np.where(asked, takes, possible), asked, known)


def _information(explained: Array, prior: Array) -> Array:
    """What data tell of f at a query that explain so much of its variance, in nats: rBCM's beta."""
    return np.asarray(-0.5 * np.log(np.maximum(1.0 - explained / prior, SMALLEST)))
