"""How good a prediction is, against values that it did not see.

A prediction is a mean and a variance at each of T places, taken as Gaussian. The variance must be that of the truth:
`std_observed**2` of a `Prediction` where the truth is observations, `std**2` where it is the field itself. Scores are
averaged over the rows; small is good, except for the coverage, which should equal the level. `score` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fleetgp.arrays import Array
from fleetgp.errors import InputError, shortened
from fleetgp.validation import as_flag, as_names, as_numbers, check_finite, check_number

__all__ = ["LEVEL", "Scores", "Trivial", "coverage", "crps", "framed", "half_width", "interval_score", "log_density",
           "mae", "msll", "nlpd", "rmse", "score"]  # fmt: skip

#: The default level of central intervals: the share of truths that should lie in them.
LEVEL = 0.95


@dataclass(frozen=True)
class Trivial:
    """The model that predicts the mean and variance of the training observations everywhere.

    >>> Trivial.of([1.0, 3.0])
    Trivial(mean=2.0, variance=1.0)
    """

    mean: float
    variance: float

    def __post_init__(self) -> None:
        check_number("mean", self.mean)
        check_number("variance", self.variance)
        if not self.variance > 0.0:
            raise InputError(
                f"MSLL: expected training observations that differ, got a variance of {self.variance:g}: leave them out"
            )

    @classmethod
    def of(cls, trained: Any) -> Trivial:
        """trained: (N,) observations."""
        values = checked_row(trained, "trained")
        return cls(float(values.mean()), float(values.var()))


def rmse(mean: ArrayLike, truth: ArrayLike) -> float:
    """Root mean square error. mean, truth: (T,).

    >>> round(rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])), 6)
    1.414214
    """
    return float(np.sqrt(np.mean(_errors(mean, truth) ** 2)))


def mae(mean: ArrayLike, truth: ArrayLike) -> float:
    """Mean absolute error. mean, truth: (T,).

    >>> mae(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    1.0
    """
    return float(np.mean(np.abs(_errors(mean, truth))))


def log_density(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike) -> Array:
    """The logarithm of the Gaussian predictive density at each truth, (T,). What is NaN stays NaN.

    mean, variance, truth: (T,).

    >>> log_density(np.zeros(1), np.ones(1), np.zeros(1)).round(6).tolist()
    [-0.918939]
    """
    centre, spread, truths = as_numbers(mean, "mean"), as_numbers(variance, "variance"), as_numbers(truth, "truth")
    if not centre.shape == spread.shape == truths.shape:
        raise InputError(
            f"expected mean, variance and truth (T,), got {centre.shape}, {spread.shape} and {truths.shape}"
        )
    return np.asarray(-0.5 * (np.log(2.0 * np.pi * spread) + (truths - centre) ** 2 / spread))


def nlpd(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike) -> float:
    """Average negative log predictive density. mean, variance, truth: (T,).

    >>> round(nlpd(np.zeros(1), np.ones(1), np.zeros(1)), 6)
    0.918939
    """
    error, deviation = _errors(mean, truth), _deviations(variance, truth)
    return -float(np.mean(log_density(np.zeros_like(error), deviation**2, error)))


def msll(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike, trained: ArrayLike | Trivial) -> float:
    """Mean standardized log loss (Rasmussen and Williams, 2006): the NLPD minus the NLPD of a trivial model.

    The trivial model predicts the mean and variance of the training observations everywhere. Below 0 is better.

    mean, variance, truth: (T,).  trained: (N,) the training observations, or the `Trivial` of them.

    >>> round(msll(np.zeros(1), np.ones(1), np.zeros(1), trained=np.array([-1.0, 1.0])), 6)
    0.0
    """
    trivial = trained if isinstance(trained, Trivial) else Trivial.of(trained)
    same = np.ones(len(checked_row(truth, "truth")))
    return nlpd(mean, variance, truth) - nlpd(trivial.mean * same, trivial.variance * same, truth)


def crps(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike) -> float:
    """Average continuous ranked probability score: the integral of (F(t) - 1[t >= y])^2 over t, in units of the data.

    In closed form sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) with z = (y - mean) / sigma.

    mean, variance, truth: (T,).

    >>> round(crps(np.zeros(1), np.ones(1), np.zeros(1)), 6)
    0.233695
    """
    deviation = _deviations(variance, truth)
    z = _errors(mean, truth) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return float(np.mean(deviation * (z * (2.0 * scipy.special.ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))))


def interval_score(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike, level: float = LEVEL) -> float:
    """Average width of the central intervals, plus 2 / (1 - level) times the distance by which a truth misses its own.

    mean, variance, truth: (T,).  level: the share of truths that should lie in the intervals.

    >>> round(interval_score(np.zeros(1), np.ones(1), np.array([3.0])), 3)
    45.521
    """
    half = half_width(level) * _deviations(variance, truth)
    missed = np.maximum(np.abs(_errors(mean, truth)) - half, 0.0)
    return float(np.mean(2.0 * half + 2.0 / (1.0 - level) * missed))


def coverage(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike, level: float = LEVEL) -> float:
    """The share of truths inside their central interval, which should equal `level`.

    mean, variance, truth: (T,).

    >>> coverage(np.zeros(4), np.ones(4), np.array([0.0, 1.0, -1.9, 5.0]))
    0.75
    """
    return float(np.mean(np.abs(_errors(mean, truth)) <= half_width(level) * _deviations(variance, truth)))


def half_width(level: float) -> float:
    """Half the width of a central interval of a Gaussian, in standard deviations.

    >>> round(half_width(0.95), 3)
    1.96
    """
    check_number("level", level, above=0.0)
    if not level < 1.0:
        raise InputError(f"level must lie between 0 and 1, got {level!r}")
    return float(scipy.special.ndtri(0.5 + 0.5 * level))


# ---- checks ----


def checked_row(values: Any, what: str) -> Array:
    """Return finite numbers (N,), at least one; or raise an InputError."""
    row = as_numbers(values, what)
    if row.ndim != 1 or not len(row):
        raise InputError(f"{what}: expected an array (N,) with at least one number, got the shape {row.shape}")
    check_finite(row, what)
    return row


def _errors(mean: Any, truth: Any) -> Array:
    """(T,) by how much truths lie above the mean."""
    predicted, truths = checked_row(mean, "mean"), checked_row(truth, "truth")
    if predicted.shape != truths.shape:
        raise InputError(f"expected a truth for each of {len(predicted)} predictions, got {len(truths)}")
    return truths - predicted


def _deviations(variance: Any, truth: Any) -> Array:
    """(T,) the square roots."""
    values, seen = checked_row(variance, "variance"), checked_row(truth, "truth")
    if values.shape != seen.shape:
        raise InputError(f"expected a variance for each of {len(seen)} truths, got {len(values)}")
    if not (values > 0.0).all():
        bad = int(np.flatnonzero(values <= 0.0)[0])
        raise InputError(
            f"variance: expected positive numbers, got {values[bad]:g} (first: row {bad}): a truth has a variance of "
            "its own, ask with observed=True"
        )
    return np.sqrt(values)


@dataclass(frozen=True)
class Scores:
    """All scores of a prediction; `score` and `Fleet.score` return it.

    rows: how many truths.  rmse, mae, crps, interval_score: in units of the data.  nlpd, msll: in nats per row; msll is
        None without the training observations.
    coverage: the share of rows in their central interval, which should equal `level`.
    answers: of a fleet, the scores of each agent's own answer to all rows; empty if only one agent got the answer.
    rows_of: the scores of each agent's own rows; None for an agent without rows.  agents: their names, if known.

    >>> found = score((np.zeros(2), np.ones(2)), np.array([0.0, 1.0]))
    >>> found.rmse == 0.5**0.5, found.coverage, found.msll is None
    (True, 1.0, True)
    >>> [whose for whose, _ in found.parts()], found.to_frame().columns.tolist()[:3]
    (['all'], ['rows', 'rmse', 'mae'])
    """

    rows: int
    rmse: float
    mae: float
    nlpd: float
    msll: float | None
    crps: float
    interval_score: float
    coverage: float
    level: float = LEVEL
    answers: tuple[Scores, ...] = ()
    rows_of: tuple[Scores | None, ...] = ()
    agents: tuple[str, ...] = ()

    @classmethod
    def pooled(cls, parts: Sequence[Scores], **more: Any) -> Scores:
        """Combine the scores of parts into the scores of all rows. more: other fields of the result.

        >>> one, two = (score(([0.0], [1.0]), [y]) for y in (0.0, 1.0))
        >>> repr(Scores.pooled([one, two])) == repr(score(([0.0, 0.0], [1.0, 1.0]), [0.0, 1.0]))
        True
        """
        if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, Scores) for part in parts):
            raise InputError(f"parts: expected a list of Scores, at least one, got {shortened(parts)}")
        weights = np.array([part.rows for part in parts], dtype=float)

        def mean(values: Sequence[float]) -> float:
            return float(np.average(values, weights=weights))

        plain = ("mae", "nlpd", "crps", "interval_score", "coverage")
        means: dict[str, Any] = {name: mean([getattr(part, name) for part in parts]) for name in plain}
        relative = [p.msll for p in parts if p.msll is not None]
        return cls(
            rows=sum(part.rows for part in parts),
            rmse=mean([part.rmse**2 for part in parts]) ** 0.5,
            msll=mean(relative) if len(relative) == len(parts) else None,
            level=parts[0].level,
            **means,
            **more,
        )

    def parts(self, agents: Sequence[str] | None = None) -> Iterator[tuple[str, Scores]]:
        """Yield a label and the scores of all rows, of each agent's rows, and of each agent's answer.

        agents: their names. (Default: those that are known, or numbers.)
        """
        named = self.agents or None if agents is None else as_names(agents, "agents")
        many = max(len(self.rows_of), len(self.answers))
        if named is not None and many and len(named) != many:
            raise InputError(f"agents: expected the names of {many} agents, got {len(named)}")
        yield "all", self
        for whose, scores in (("rows of", self.rows_of), ("answer of", self.answers)):
            for number, one in enumerate(scores):
                if one is not None:
                    yield f"{whose} {number if named is None else named[number]}", one

    @property
    def numbers(self) -> dict[str, float | None]:
        """The scores by name, without those of parts."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("answers", "rows_of", "agents")
        }

    def to_frame(self, agents: Sequence[str] | None = None) -> Any:
        """Return a data frame with a row for each of `parts`. agents: as there."""
        return framed(dict(self.parts(agents)))

    def __repr__(self) -> str:
        relative = "" if self.msll is None else f"msll={self.msll:.4g}, "
        return (
            f"Scores(rows={self.rows}, rmse={self.rmse:.4g}, mae={self.mae:.4g}, nlpd={self.nlpd:.4g}, {relative}"
            f"crps={self.crps:.4g}, interval_score={self.interval_score:.4g}, "
            f"coverage={self.coverage:.1%} of {self.level:.4g})"
        )


def score(prediction: Any, truth: Any, *, trained: Any = None, observed: bool = True, level: float = LEVEL) -> Scores:
    """Compute all scores of a prediction against values that it did not see. Masked and missing values are refused.

    prediction: a `Prediction`, or a pair (mean, variance) of arrays (T,), the variance that of the truth.
    truth: (T,).  observed: for a `Prediction`, whether the truth is observations or the field itself.
    trained: (N,) the training observations, for the MSLL, or the `Trivial` of them.  level: of the intervals.

    >>> score((np.zeros(2), np.ones(2)), np.array([0.0, 3.0]), trained=np.array([-1.0, 1.0]))
    Scores(rows=2, rmse=2.121, mae=1.5, nlpd=3.169, msll=0, crps=1.335, interval_score=24.72, coverage=50.0% of 0.95)
    """
    as_flag(observed, "observed")
    if isinstance(prediction, tuple | list) and len(prediction) == 2:
        mean, variance = prediction
    elif hasattr(prediction, "std_observed"):
        mean, std = prediction.mean, prediction.std_observed if observed else prediction.std
        variance = std**2
    else:
        raise InputError(f"expected a Prediction or a pair (mean, variance), got {type(prediction).__name__}")
    given = mean, variance, truth
    return Scores(
        rows=len(checked_row(truth, "truth")),
        rmse=rmse(mean, truth),
        mae=mae(mean, truth),
        nlpd=nlpd(*given),
        msll=None if trained is None else msll(*given, trained),
        crps=crps(*given),
        interval_score=interval_score(*given, level),
        coverage=coverage(*given, level),
        level=level,
    )


def framed(parts: Mapping[str, Scores]) -> Any:
    """Return a data frame with a row of scores for each part, indexed by its name.

    >>> framed({"before": score(([0.0], [1.0]), [1.0]), "after": score(([0.5], [1.0]), [1.0])})["rmse"].to_dict()
    {'before': 1.0, 'after': 0.5}
    """
    if not isinstance(parts, Mapping) or not parts or not all(isinstance(one, Scores) for one in parts.values()):
        raise InputError(f'parts: expected Scores by name, {{"before": scores}}, got {shortened(parts)}')
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError('to_frame needs pandas: pip install "fleetgp[data]"') from error
    return pd.DataFrame([one.numbers for one in parts.values()], index=list(parts)).astype({"msll": float})
