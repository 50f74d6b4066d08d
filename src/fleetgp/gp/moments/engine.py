r"""The moments engine: after one pass over the data, nothing costs anything that grows with N.

On a box the squared exponential is k(x, x') = Phi(x) Phi(x')' with r polynomials (`basis`). The likelihood needs
sums over the data of products of two of them, times at most a square of a coordinate: sums of polynomials of a
known degree. Such sums are the same over the data and over a Chebyshev grid with the right weights, one weight a
node (`grid.py`). So the agent's data become a weighted grid, once, and theta may do what it likes afterwards.

With A = Phi'Phi + sigma^2 I (r x r) and u = A^-1 Phi'y:

    y'C^-1 y = (|y - Phi u|^2 + sigma^2 |u|^2) / sigma^2      log|C| = log|A| + (N - r) log sigma^2
    Phi'C^-1 = A^-1 Phi'        Phi'C^-1 y = u                tr C^-1 = (N - r) / sigma^2 + tr A^-1

and since dK/d log l_d = 2 h^2 (X^2 K + K X^2 - 2 X K X), X the positions along axis d, the gradient needs only
Phi'X Phi, Phi'X^2 Phi and the like. The weighted grid gives them all. `reference.py` has the same formulas over the
data themselves.

What is computed at a theta depends on the data and on that theta alone, to the bit: what is kept between calls saves
time and changes nothing.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import Basis
from fleetgp.gp.engine import Engine
from fleetgp.gp.evaluation import LARGEST_LOG, Evaluation, Posterior
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.moments.certificate import EPS, ULPS, expansion_bound, negligible
from fleetgp.gp.moments.cost import LONGEST, expected_seconds
from fleetgp.gp.moments.grid import Grid, Moments
from fleetgp.gp.moments.likelihood import evaluation
from fleetgp.gp.moments.posterior import MomentsPosterior
from fleetgp.gp.moments.sizes import axis_error, sizes_for, stepped
from fleetgp.gp.moments.solution import Solution
from fleetgp.gp.moments.sums import ChebyshevSums, DataSums
from fleetgp.gp.moments.trend import products
from fleetgp.gp.trend import Trend
from fleetgp.model.observations import Observations

#: A basis may be this much longer than twice the data. Beyond, the dense engine's matrices are smaller by far.
SPARE = 100
#: The search for what may be dropped starts at this part of what is negligible, for data like the model's. They weigh
#: up to three times as much on what is dropped as is expected, and a start too high costs another solution.
START = 0.3
#: The search ends where less than this part of k(x, x) is dropped: that is no product at all.
NOTHING = 1e-20
#: Where rounding alone may exceed so many nats, and so many for each point, no tolerance admits the likelihood, and it
#: is not computed.
UNCERTAIN_LIKELIHOOD, UNCERTAIN_EACH = 1e-3, 1e-9
#: The same of a posterior's mean, in units of sigma_f; and in units of its own deviation, since that shrinks with the
#: data, and nobody needs digits far below it.
UNCERTAIN_MEAN, UNCERTAIN_SHARE = 1e-5, 0.5
#: Rounding of the mean is taken for so many units of N (sigma_f / sigma_eps)^2, on the box of the data. Against
#: extended precision, with up to 10^10 rows spread over the box, it is 0.001 to 0.07. Where they leave most of the box
#: empty it is more, but a hundredth of what the mean is uncertain there by, or less.
MEAN_ULPS = 0.1
#: A posterior drops this part of what a likelihood may drop: the search is spared, and the square is far below 1e-6.
POSTERIOR = 1e-4


class SumsEngine(Engine):
    """The GP of data that are known by their sums: the squared exponential, in few dimensions.

    longest: the longest basis.
    """

    name = "moments"

    def __init__(self, data: DataSums, agent: int | None, longest: int = LONGEST) -> None:
        self.agent, self.data = agent, data
        self._renew(longest)

    def _renew(self, longest: int) -> None:
        """The data have changed."""
        self._longest = longest
        self._mean_square = self.data.squares / self.data.count
        self._latest: Moments | None = None

    @property
    def size(self) -> int:
        return self.data.count

    def grow(self, data: Observations) -> None:
        raise NotImplementedError("sums take no observations: add the sums over them")

    def cost(self, theta: Array) -> float:
        """What `evaluate` is expected to cost, in seconds on one core; inf where it cannot answer."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            exponent = np.log10(negligible(self.size) / self.size) - 2.0 * np.log10(theta[-2] / theta[-1])
            return expected_seconds(self.data.box.half / theta[:-2], float(exponent))

    def evaluate(self, log_theta: Array) -> Evaluation | None:
        """NLL and log-gradient, with the certificate as `error`; None where the grid or the numbers do not allow it."""
        if not (np.abs(log_theta) < LARGEST_LOG).all():
            return None
        h = Hyperparameters.from_log(log_theta)
        ratio = self.size * (h.signal / h.noise) ** 2
        if not ULPS * EPS * ratio < max(UNCERTAIN_LIKELIHOOD, UNCERTAIN_EACH * self.size):
            return None
        allowed = negligible(self.size)
        # Data that are larger than the model says weigh more on what is dropped, by the square of their size.
        drop = START * allowed / (ratio * max(1.0, self._mean_square / (h.signal**2 + h.noise**2)))
        while (s := self.solve(h, drop)) is not None and s.dropped > allowed and drop > NOTHING:
            drop *= min(max(0.1 * allowed / s.dropped, 1e-6), 0.1)  # well below, but never all the way in one step
        return None if s is None else evaluation(s, expansion_bound(s.grid.basis.counts, self._reach(h)))

    def condition(self, theta: Array, before: Posterior | None = None) -> MomentsPosterior | None:
        """The posterior at fixed hyperparameters; None where it cannot be certified. It costs the same for any data."""
        s = self._certified(theta)
        return None if s is None else MomentsPosterior(Hyperparameters.from_theta(theta), s)

    def products(self, theta: Array, trend: Trend) -> Array | None:
        s = self._certified(theta)
        return None if s is None else products(s, trend)

    def _certified(self, theta: Array) -> Solution | None:
        """At fixed hyperparameters; None where its posterior cannot be certified."""
        h = Hyperparameters.from_theta(theta)
        if not (theta > 0.0).all() or not (np.abs(np.log(theta)) < LARGEST_LOG).all():
            return None
        ratio = self.size * (h.signal / h.noise) ** 2
        large = max(1.0, float(np.sqrt(self._mean_square)) / h.signal)
        rounding = MEAN_ULPS * EPS * ratio * large
        if not rounding < UNCERTAIN_LIKELIHOOD:
            return None
        s = self.solve(h, POSTERIOR * negligible(self.size) / ratio)
        if s is None or rounding > max(UNCERTAIN_MEAN, UNCERTAIN_SHARE * np.sqrt(s.grid.basis.rank / ratio)):
            return None
        return s

    def solve(self, h: Hyperparameters, drop: float) -> Solution | None:
        """A and u, where at most `drop` of k(x, x) is dropped; None where the basis is too long to be worth it."""
        moments = self.prepare(h)
        if moments is None:
            return None
        basis = Basis(h, self.data.box, tuple((size - 1) // 2 for size in moments.sizes), drop)
        if basis.rank > self._longest:
            return None
        return Solution.of(Grid(basis, moments), h.noise)

    def prepare(self, h: Hyperparameters) -> Moments | None:
        """The moments on the grid for these hyperparameters; None where it would be too large, or is not there."""
        sizes = self.sizes(h)
        if sizes is None or not self.data.covers(sizes):
            return None
        if self._latest is None or self._latest.sizes != sizes:
            self._latest = Moments.of(self.data, sizes)
        return self._latest

    def sizes(self, h: Hyperparameters) -> tuple[int, ...] | None:
        """Those of the grid for these hyperparameters; None where it would be too large."""
        return sizes_for(self._reach(h), axis_error(len(h.length_scales), self.size, (h.signal / h.noise) ** 2))

    def _reach(self, h: Hyperparameters) -> tuple[float, ...]:
        """(D,) half the box over the length-scale, rounded up to the next step."""
        return stepped(self.data.box.half / np.asarray(h.length_scales))


class MomentsEngine(SumsEngine):
    """The GP of one agent's data by its moments."""

    data: ChebyshevSums

    def __init__(self, data: Observations, agent: int | None) -> None:
        super().__init__(ChebyshevSums(data.inputs, data.values), agent, _longest(len(data)))

    def grow(self, data: Observations) -> None:
        """Inside the box of the old rows, these are not read again."""
        self.data.grow(data.inputs, data.values)
        self._renew(_longest(self.size))


def _longest(size: int) -> int:
    return min(2 * size + SPARE, LONGEST)
