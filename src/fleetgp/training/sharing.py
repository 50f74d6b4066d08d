"""Several outputs that share length-scales: where theta of each lies in theta of all, and their likelihoods as one.

Given theta the outputs are independent GPs, so that the likelihood of all is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NumericalError
from fleetgp.gp.evaluation import Evaluation
from fleetgp.gp.expert import Expert, evaluate
from fleetgp.gp.kernels import OBSERVED, Kernel
from fleetgp.training.known import Known
from fleetgp.training.objective import Objective, Values
from fleetgp.training.prior import Prior


@dataclass(frozen=True)
class Sharing:
    """theta of all: what the outputs share, as many as `shared`, then what each has of its own, one after the other.

    Its own are those in units of the observations: sigma_f of every term, and the noise. Kernels have them last.
    """

    outputs: int
    shared: int
    own: int

    @classmethod
    def of(cls, kernel: Kernel, dimension: int, outputs: int) -> Sharing:
        units = kernel.units(dimension)
        own = int((units == OBSERVED).sum())
        assert (units[len(units) - own :] == OBSERVED).all(), "those of each output come last"
        return cls(outputs, len(units) - own, own)

    @property
    def width(self) -> int:
        return self.shared + self.outputs * self.own

    def places(self, output: int) -> IntArray:
        """Where theta of one output lies, (P,).

        >>> Sharing(2, 1, 2).places(1).tolist()
        [0, 3, 4]
        """
        begin = self.shared + output * self.own
        return np.array([*range(self.shared), *range(begin, begin + self.own)])

    def joined(self, parts: Sequence[Array]) -> Array:
        """One vector from one of each output, (.., P) -> (.., W): what is shared as the first has it.

        >>> Sharing(2, 1, 2).joined([np.array([1.0, 2.0, 3.0]), np.array([9.0, 4.0, 5.0])]).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0]
        """
        return np.concatenate([parts[0][..., : self.shared], *(part[..., self.shared :] for part in parts)], axis=-1)

    def names(self, names: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
        """Of theta of all. names: of one output's.

        >>> Sharing(2, 1, 2).names(("l_lon", "sigma_f", "sigma_eps"), ("t", "s"))
        ('l_lon', 't.sigma_f', 't.sigma_eps', 's.sigma_f', 's.sigma_eps')
        """
        return (*names[: self.shared], *(f"{target}.{name}" for target in targets for name in names[self.shared :]))

    def known(self, parts: Sequence[Known]) -> Known:
        """What is known of all; its names are of no use."""
        rows = ([getattr(part, row) for part in parts] for row in ("lower", "upper", "median", "factor"))
        joined = [tuple(self.joined([np.array(one) for one in row]).tolist()) for row in rows]
        return Known(tuple(map(str, range(self.width))), *joined)


class SharedObjective(Objective):
    """For every hosted agent the sum of its likelihoods of all outputs, each with its part of log theta.

    outputs: those of each; their own priors do not count.
    """

    def __init__(self, outputs: Sequence[Objective], sharing: Sharing, prior: Prior, share: float) -> None:
        super().__init__(outputs[0].experts, prior, share)
        self.outputs, self.sharing = tuple(outputs), sharing

    def _with(self, outputs: Sequence[Objective]) -> SharedObjective:
        return SharedObjective(outputs, self.sharing, self.prior, self.share)

    def changed(self, change: Callable[[Expert], Expert]) -> SharedObjective:
        return self._with([one.changed(change) for one in self.outputs])

    def only(self, i: int) -> SharedObjective:
        return self._with([one.only(i) for one in self.outputs])

    def answers(self, rows: IntArray, log_thetas: Array) -> list[Evaluation | NumericalError]:
        """All outputs of all agents side by side."""
        experts = [one.experts[i] for one in self.outputs for i in rows]
        every = range(len(self.outputs))
        found = evaluate(experts, np.concatenate([log_thetas[:, self.sharing.places(k)] for k in every]))
        return [self._sum(found[i :: len(rows)]) for i in range(len(rows))]

    def _sum(self, found: Sequence[Evaluation | NumericalError]) -> Evaluation | NumericalError:
        """One agent's. The largest jitter; an engine's name is the first output's."""
        gradient, nll, jitter, engine = np.zeros(self.sharing.width), 0.0, 0.0, ""
        for k, one in enumerate(found):
            if isinstance(one, NumericalError):
                return one
            nll += one.nll
            gradient[self.sharing.places(k)] += one.gradient
            jitter, engine = max(jitter, one.jitter), engine or one.engine
        return Evaluation(nll, gradient, jitter, engine)

    def settle(self, log_thetas: Array) -> None:
        for k, one in enumerate(self.outputs):
            one.settle(log_thetas[:, self.sharing.places(k)])

    @property
    def silent(self) -> BoolArray:
        """(A, W) what says nothing about an agent's data of any output."""
        found = np.ones((len(self.experts), self.sharing.width), dtype=bool)
        for k, one in enumerate(self.outputs):
            found[:, self.sharing.places(k)] &= one.silent
        return found

    @property
    def sizes(self) -> IntArray:
        """(A,) of all outputs."""
        return np.asarray(np.sum([one.sizes for one in self.outputs], axis=0))

    def error_estimates(self, log_thetas: Array, values: Values) -> Array:
        """(A,) summed over the outputs, which are evaluated for it."""
        found = [self.likelihoods(k, log_thetas) for k in range(len(self.outputs))]
        pairs = zip(self.outputs, found, strict=True)
        return np.asarray(np.sum([one.error_estimates(*each) for one, each in pairs], axis=0))

    def likelihoods(self, k: int, log_thetas: Array) -> tuple[Array, Values]:
        """Of one output alone, without priors: its log theta, (A, P), and the likelihoods there."""
        own = log_thetas[:, self.sharing.places(k)]
        return own, Objective(self.outputs[k].experts)(own)
