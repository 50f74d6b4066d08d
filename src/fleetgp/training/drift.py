"""Whether theta still fits: new rows are scored before they are used, against other values of theta.

The rows of a batch are scored together, given the agent's earlier rows: with C = L L' the covariance of both, the last
n entries of L^-1 y are the innovations of the batch, independent and standard normal under the model, however close the
rows are. So p(batch | earlier rows) is exact, and so is its ratio for another theta, whose mean under the model is 1:

    R_kj = p(batch j | earlier rows, theta_k) / p(batch j | earlier rows, theta)

    S_kj = (S_k,j-1 + 1 / (j (j + 1))) R_kj        e_j = mean_k S_kj + 1 / (j + 1)

e_j are the odds of a change to one of K alternatives before one of the batches, with the prior 1 / (j (j + 1)) for the
jth. Under the model e is a nonnegative martingale with mean 1, so that it ever exceeds 1 / ALPHA with a probability of
at most ALPHA (Ville, 1939), after however many looks. The fleet's odds are the mean of its agents', whose mean is at
most 1 at every look, however much the agents' rows depend on each other.

The alternatives differ from theta by a factor of 1.5. A theta that is closer than that to the best one is better than
all of them, so that more rows lower the odds: a small error of an estimate is no alarm, however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray, Keys, row_hashes
from fleetgp.data.transforms import VIEW_AS_GIVEN, View
from fleetgp.engines.expert import Expert, reweighed
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.linalg.cholesky import factorize
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.training.constraints import Bounds, ParameterConstraints

#: The largest probability that a theta that fits raises an alarm.
ALPHA = 1e-3
#: The new rows that were scored are at least this share of all rows: a training with fewer would hardly see them.
SHARE = 0.1
#: By how much the alternatives differ from theta.
FACTOR = 1.5
#: What they change, and how; the order is that of `Drift.odds`.
ALTERNATIVES = tuple(
    f"{how} {what}"
    for what, ways in (
        ("length-scales", ("shorter", "longer")),
        ("signal", ("less", "more")),
        ("noise", ("less", "more")),
        ("signal and noise", ("less", "more")),
    )
    for how in ways
)
#: Rows that are scored together, and at most so many of the earlier ones, those with the largest correlation.
BATCH, EARLIER = 100, 400
#: Earlier rows whose correlations are computed at once.
CHUNK = 10_000
#: An agent of a running fleet scores new rows when there are so many.
FEWEST = 20
#: Logarithms of odds beyond this are as good as certain.
CERTAIN = 1e6


@dataclass(frozen=True)
class Drift:
    """What one agent keeps of the new rows that it has scored.

    rows, batches: how many.  squares: the sum of their squared innovations.
    odds: (K,) the logarithms of S; empty before the first batch.
    """

    rows: int = 0
    batches: int = 0
    squares: float = 0.0
    odds: tuple[float, ...] = ()

    def plus(self, rows: int, squares: float, gains: Array) -> Drift:
        """With one more batch. gains: (K,) the logarithms of R."""
        batches = self.batches + 1
        prior = -np.log(batches * (batches + 1.0))
        changed = np.logaddexp(self.odds, prior) if self.odds else np.full(len(gains), prior)
        odds = np.clip(changed + gains, -CERTAIN, CERTAIN)
        return Drift(self.rows + rows, batches, float(self.squares + squares), tuple(odds.tolist()))

    @property
    def log_odds(self) -> float:
        """log e; 0 before the first batch.

        >>> Drift().log_odds, round(Drift(20, 1, 20.0, (np.log(0.5),) * 8).log_odds, 12)
        (0.0, 0.0)
        """
        if not self.odds:
            return 0.0
        unchanged = -np.log(self.batches + 1.0)
        return float(np.logaddexp(np.logaddexp.reduce(self.odds) - np.log(len(self.odds)), unchanged))

    @property
    def alarming(self) -> bool:
        """Whether these rows alone are odds of 1 / ALPHA."""
        return self.log_odds >= -math.log(ALPHA)


@dataclass(frozen=True)
class TrainingNeed:
    """Whether a fleet should train again; true if it should. See `Fleet.needs_training`.

    rows, new_rows: how many the fleet has, and how many of them came after the training and were scored.
    mean_square: of the innovations of the new rows; 1 is expected.
    log_odds: the logarithm of the odds that theta is off.  p_value: of "theta fits".
    change: the alternative that predicts the new rows best; empty if none does better than theta.

    >>> need = TrainingNeed(rows=300, new_rows=70, mean_square=2.2, log_odds=20.0, p_value=2e-9, change="more noise")
    >>> bool(need), need.fits, str(need)[:35]
    (True, False, 'Train again, from the present theta')
    """

    rows: int
    new_rows: int
    mean_square: float
    log_odds: float
    p_value: float
    change: str

    def __bool__(self) -> bool:
        return self.needed

    def __str__(self) -> str:
        return self.advice

    @property
    def fits(self) -> bool:
        """Whether theta has raised no alarm."""
        return self.p_value > ALPHA

    @property
    def needed(self) -> bool:
        """Whether theta does not fit, and the new rows are enough to learn from."""
        return not self.fits and self.new_rows >= SHARE * self.rows

    @property
    def advice(self) -> str:
        """What to do, as a sentence."""
        if not self.new_rows:
            return "No new rows were scored: nothing to do."
        rows = f"the {self.new_rows:,} new rows"
        if self.fits:
            return f"Theta fits {rows}: nothing to do."
        why = f"{rows} are better predicted with {self.change} (p = {self.p_value:.1g})"
        if self.needed:
            return f"Train again, from the present theta: {why}."
        return f"Wait for more rows: {why}, but they are less than {SHARE:.0%} of all rows."


def judge(parts: Sequence[Drift], rows: int) -> TrainingNeed:
    """Decide by the sums of all agents. rows: how many the fleet has.

    >>> need = judge([Drift(50, 1, 60.0, (20.0, *(-30.0,) * 7)), Drift(20, 1, 19.0, (-3.0,) * 8)], 300)
    >>> need.needed, need.p_value < 1e-6, round(need.mean_square, 2), need.change
    (True, True, 1.13, 'shorter length-scales')
    >>> judge([Drift()], 40).advice
    'No new rows were scored: nothing to do.'
    """
    scored = [part for part in parts if part.odds]
    count = sum(part.rows for part in scored)
    if not scored:
        return TrainingNeed(rows, 0, float("nan"), 0.0, 1.0, "")
    log_odds = float(np.logaddexp.reduce([part.log_odds for part in scored]) - np.log(len(scored)))
    best = np.logaddexp.reduce(np.array([part.odds for part in scored]), axis=0)
    return TrainingNeed(
        rows=rows,
        new_rows=count,
        mean_square=sum(part.squares for part in scored) / count,
        log_odds=log_odds,
        p_value=float(np.exp(-max(0.0, log_odds))),
        change=ALTERNATIVES[int(np.argmax(best))] if log_odds > 0.0 else "",
    )


def score(
    drift: Drift,
    earlier: Observations,
    new: Observations,
    kernel: Kernel,
    theta: Array,
    view: View = VIEW_AS_GIVEN,
    bounds: Bounds | None = None,
) -> Drift:
    """Score an agent's new rows in batches, each given all earlier ones. The order within a batch does not matter.

    theta: (P,) in natural units.  view: how the model sees the data.  bounds: where log theta may be; None: anywhere.
    A batch for which theta has no answer is left out.
    """
    if not len(new):
        return drift
    units = view.coordinates.shift(kernel.units(new.dimension))
    earlier, new = view.of(earlier), view.of(new)
    units = units + view.scaling.shift(kernel.units(new.dimension))
    theta, bounds = theta / np.exp(units), (bounds or Bounds()).shifted(-units)
    thetas = np.vstack([theta, alternatives(kernel, theta, new.dimension, bounds)])
    for start in range(0, len(new), BATCH):
        batch = new.rows(slice(start, start + BATCH))
        near = earlier.rows(_nearest(earlier, batch, kernel, theta))
        if kernel.noise_model.robust:
            near, batch = _weighed(near, batch, kernel, theta)
        results = [innovations(near, batch, kernel, one) for one in thetas]
        if results[0] is not None:
            density, squares = results[0]
            gains = [0.0 if result is None else result[0] - density for result in results[1:]]
            drift = drift.plus(len(batch), squares, np.array(gains))
        earlier = Observations.joined([earlier, new.rows(slice(start, start + BATCH))])
    return drift


def new_among(data: Observations, known: Keys) -> BoolArray:
    """Return (N,) which rows are not among those with these keys."""
    return ~np.isin(keys_of(data), known)


def keys_of(data: Observations) -> Keys:
    """Return (N,) one number per row, to find it again wherever it is."""
    return row_hashes(np.column_stack(data.as_given))


def search_box(known: ParameterConstraints, names: Sequence[str], noise_floor: float, noises: int) -> Bounds:
    """Return where a training may go: the bounds that were given, with a floor under the noise."""
    bounds = (known if known.names else ParameterConstraints.of(names)).bounds
    return bounds.floored(float(np.log(noise_floor)), noises) if noise_floor > 0.0 else bounds


def alternatives(kernel: Kernel, theta: Array, dimension: int, bounds: Bounds) -> Array:
    """(K, P) theta changed in the ways of `ALTERNATIVES`, as far as the bounds allow.

    >>> from fleetgp.kernels.stationary import KERNELS
    >>> alternatives(KERNELS["se"], np.array([3.0, 3.0, 1.5]), 1, Bounds())[:3].round(12).tolist()
    [[2.0, 3.0, 1.5], [4.5, 3.0, 1.5], [3.0, 2.0, 1.5]]
    """
    units = np.array(kernel.units(dimension))
    places = kernel.scales(Hyperparameters.from_theta(theta), dimension)[1]
    lengths = units >= 0
    lengths[places[places >= 0]] = True
    noise = np.zeros(len(theta), dtype=bool)
    noise[-kernel.noise_count :] = True
    signal = (units == OBSERVED) & ~noise
    moved = [which * way for which in (lengths, signal, noise, signal | noise) for way in (-1.0, 1.0)]
    log_theta = np.log(theta)
    low, high = np.minimum(bounds.lower, log_theta), np.maximum(bounds.upper, log_theta)
    return np.asarray(np.exp(np.clip(log_theta + np.log(FACTOR) * np.array(moved), low, high)))


def innovations(earlier: Observations, batch: Observations, kernel: Kernel, theta: Array) -> tuple[float, float] | None:
    """Return log p(batch | earlier) and the sum of squared innovations at theta; None where there is no answer."""
    h, data = Hyperparameters.from_theta(theta), Observations.joined([earlier, batch])
    factor = factorize(kernel(data.inputs, None, h), kernel.noise(data, h))
    if factor is None:
        return None
    whitened = factor.half_solve(data.values)[len(earlier) :]
    squares, size = float(whitened @ whitened), np.log(np.diagonal(factor.lower)[len(earlier) :]).sum()
    return float(-0.5 * squares - size - 0.5 * len(batch) * np.log(2.0 * np.pi)), squares


def _nearest(earlier: Observations, batch: Observations, kernel: Kernel, theta: Array) -> IntArray:
    """Return the numbers of the earlier rows that matter most for a batch, in their order."""
    if len(earlier) <= EARLIER:
        return np.arange(len(earlier))
    h = Hyperparameters.from_theta(theta)
    scale = np.sqrt(kernel.variance(earlier.inputs, h))
    parts = np.array_split(earlier.inputs, -(-len(earlier) // CHUNK))
    covariance = np.concatenate([np.abs(kernel(part, batch.inputs, h)).max(axis=1) for part in parts])
    closeness = covariance / np.where(scale > 0.0, scale, 1.0)
    return np.sort(np.argpartition(-closeness, EARLIER - 1)[:EARLIER])


def _weighed(
    earlier: Observations, batch: Observations, kernel: Kernel, theta: Array
) -> tuple[Observations, Observations]:
    """Return both with weights against outliers at theta, by which all values of theta are compared."""
    data = Observations.joined([earlier, batch])
    try:
        data = reweighed(Expert(data, kernel, None, "dense", moments=False), theta).data
    except NumericalError:  # nor is there a density
        return earlier, batch
    return data.rows(slice(len(earlier))), data.rows(slice(len(earlier), None))
