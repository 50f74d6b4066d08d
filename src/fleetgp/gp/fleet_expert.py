"""The GP of all data of a fleet, which is known by its moments alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import InputError, NumericalError
from fleetgp.gp.engine import Engine
from fleetgp.gp.evaluation import LARGEST_LOG, Evaluation
from fleetgp.gp.expert import Expert, tolerance
from fleetgp.gp.failure import ThetaError
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.moments.engine import SumsEngine
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.model.observations import Observations

#: The largest certified error of a likelihood, in nats, that is taken for exact where there is no other engine to ask:
#: no data can tell likelihoods apart that are as close. For many points more, as for any expert, and beyond so much for
#: each point: rounding of their sums grows with them, as the likelihood does.
EXACT, EXACT_EACH = 1e-4, 1e-9
#: What will do on the way to an optimum, in nats and relative to the likelihood.
ON_THE_WAY, SIX_DIGITS = 0.03, 1e-6
#: What is left to those who cannot have all data in moments.
INSTEAD = "train with dec-fact-gp and predict with dec-nn-grbcm"
#: The same where only a prediction is asked for.
PREDICT_INSTEAD = "predict with dec-nn-grbcm, or give another theta"


def has_moments(kernel: Kernel, engine: str) -> bool:
    """Whether data with this kernel have moments that will do, and no other engine is asked for."""
    return kernel.has_moments and engine in ("auto", "moments")


def refuse_rough(kernel: Kernel, engine: str) -> None:
    """One clear error for a kernel that has no moments, or an engine that needs the data."""
    if kernel.noise_model.differs:
        raise InputError(
            "dec-full-gp needs one noise for all observations, and here it differs (known deviations, noises of "
            f"agents, or weights of outliers): {INSTEAD}"
        )
    if not kernel.has_moments:
        raise InputError(
            f"dec-full-gp needs the squared exponential, whose data have moments, got the kernel {kernel.name!r}: "
            f'use kernel="se", or {INSTEAD}'
        )
    if engine in ("dense", "vecchia"):
        raise InputError(
            f"dec-full-gp knows the data of all agents by their moments alone, and the {engine} engine needs the data: "
            f'use engine="auto", or {INSTEAD}'
        )


def not_certified(why: str, theta: Array, instead: str = PREDICT_INSTEAD) -> ThetaError:
    """The error of a fleet whose data cannot be had in moments that are good enough at theta."""
    return ThetaError(f"dec-full-gp: {why}", theta, instead)


def too_many(theta: Array) -> ThetaError:
    """The error of a theta that needs more moments than there may be."""
    return not_certified("the fleet's data have more moments than can be sent", theta)


class FleetExpert(Expert):
    """As an `Expert` of more points than the dense engine can have: what is not certified fails.

    failing: whether the last theta was not certified.
    beyond: (D,) of all that were not because the grid is too small, the largest that they needed; zeros for none.
    """

    def __init__(self, moments: FleetMoments) -> None:
        self.agent = None
        self.moments = moments
        self.engine = SumsEngine(moments, None)
        self.failing = False
        self.beyond = np.zeros(len(moments.sizes), dtype=np.int64)

    @property
    def size(self) -> int:
        return self.moments.count

    @property
    def dimension(self) -> int:
        return len(self.moments.sizes)

    @property
    def silent(self) -> BoolArray:
        return np.zeros(self.dimension + 2, dtype=bool)

    def settle(self, log_theta: Array) -> None:
        """There is one engine."""

    def grow(self, data: Observations) -> None:
        raise NotImplementedError("new observations are moments to be added")

    def preferred(self, theta: Array) -> Sequence[Engine]:
        return [self.engine]

    @property
    def always(self) -> Engine:
        return self.engine

    def sizes(self, theta: Array) -> tuple[int, ...] | None:
        """Those of the grid that theta needs; None where there is none."""
        with np.errstate(divide="ignore"):
            possible = bool((np.abs(np.log(theta)) < LARGEST_LOG).all())
        return self.engine.sizes(Hyperparameters.from_theta(theta)) if possible else None

    def covers(self, theta: Array) -> bool:
        """Whether the grid is large enough for theta."""
        sizes = self.sizes(theta)
        return sizes is not None and self.moments.covers(sizes)

    def accepts(self, found: Evaluation | NumericalError) -> bool:
        """On the way less will do: a step that fails is worse for a minimizer than one that may be a little off."""
        if isinstance(found, NumericalError):
            return True
        self.failing = not found.error <= max(ON_THE_WAY, SIX_DIGITS * abs(found.nll))
        return not self.failing

    def certain(self, log_theta: Array) -> bool:
        """Whether the likelihood at theta is as good as exact: for where a training ends."""
        found = self.engine.evaluate(log_theta)
        return found is not None and found.error <= max(EXACT, tolerance(self.size), EXACT_EACH * self.size)

    def failure(self, theta: Array) -> ThetaError:
        """Why there is no answer at theta."""
        self.failing = True
        sizes = self.sizes(theta)
        if sizes is None:
            return too_many(theta)
        if not self.moments.covers(sizes):
            self.beyond = np.maximum(self.beyond, sizes)
            there = f"moments on a grid of {self.moments.sizes} are there, and {sizes} are needed"
            return not_certified(there, theta)
        return not_certified("the moments of the fleet's data are not precise enough", theta)
