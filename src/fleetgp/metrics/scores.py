"""All scores of a prediction at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fleetgp.errors import InputError, shortened
from fleetgp.given import as_flag, as_names
from fleetgp.metrics.formulas import LEVEL, checked_row, coverage, crps, interval_score, mae, msll, nlpd, rmse


@dataclass(frozen=True)
class Scores:
    """All scores of a prediction at so many rows; `score` and `Fleet.score` make it.

    rmse, mae, crps, interval: in units of the data.  nlpd, msll: in nats a row; msll is None without the observations
    that were trained on.  coverage: the share of rows in their central interval, which shall be `level`.
    answers: for a fleet, those of each agent's own answer to all rows. Empty where one agent asked, who alone is told.
    rows_of: for rows that belong to agents, those of each one's own rows; None for who has none.
    agents: their names, where they are known.

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
    interval: float
    coverage: float
    level: float = LEVEL
    answers: tuple[Scores, ...] = ()
    rows_of: tuple[Scores | None, ...] = ()
    agents: tuple[str, ...] = ()

    @classmethod
    def pooled(cls, parts: Sequence[Scores], **more: Any) -> Scores:
        """Of all rows together, from the scores of parts of them. more: other fields of the result.

        >>> one, two = (score(([0.0], [1.0]), [y]) for y in (0.0, 1.0))
        >>> repr(Scores.pooled([one, two])) == repr(score(([0.0, 0.0], [1.0, 1.0]), [0.0, 1.0]))
        True
        """
        if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, Scores) for part in parts):
            raise InputError(f"parts: expected a list of Scores, at least one, got {shortened(parts)}")
        weights = np.array([part.rows for part in parts], dtype=float)

        def mean(values: Sequence[float]) -> float:
            return float(np.average(values, weights=weights))

        plain = ("mae", "nlpd", "crps", "interval", "coverage")
        found: dict[str, Any] = {name: mean([getattr(part, name) for part in parts]) for name in plain}
        relative = [p.msll for p in parts if p.msll is not None]
        return cls(
            rows=sum(part.rows for part in parts),
            rmse=mean([part.rmse**2 for part in parts]) ** 0.5,
            msll=mean(relative) if len(relative) == len(parts) else None,
            level=parts[0].level,
            **found,
            **more,
        )

    def parts(self, agents: Sequence[str] | None = None) -> Iterator[tuple[str, Scores]]:
        """Whose scores, in words, and these. agents: their names; without them those that are known, or numbers."""
        named = self.agents or None if agents is None else as_names(agents, "agents")
        many = max(len(self.rows_of), len(self.answers))
        if named is not None and many and len(named) != many:
            raise InputError(f"agents: expected the names of {many} agents, got {len(named)}")
        yield "all", self
        for told, found in (("rows of", self.rows_of), ("answer of", self.answers)):
            for number, one in enumerate(found):
                if one is not None:
                    yield f"{told} {number if named is None else named[number]}", one

    @property
    def numbers(self) -> dict[str, float | None]:
        """The scores by name, without those of parts."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("answers", "rows_of", "agents")
        }

    def to_frame(self, agents: Sequence[str] | None = None) -> Any:
        """A data frame: a row for all, and one for each agent's own rows and each agent's answer, if there are such.

        agents: their names; without them those that are known, or numbers.
        """
        return framed(dict(self.parts(agents)))

    def __repr__(self) -> str:
        relative = "" if self.msll is None else f"msll={self.msll:.4g}, "
        return (
            f"Scores(rows={self.rows}, rmse={self.rmse:.4g}, mae={self.mae:.4g}, nlpd={self.nlpd:.4g}, {relative}"
            f"crps={self.crps:.4g}, interval={self.interval:.4g}, coverage={self.coverage:.1%} of {self.level:.4g})"
        )


def score(prediction: Any, truth: Any, *, trained: Any = None, observed: bool = True, level: float = LEVEL) -> Scores:
    """All scores of a prediction against values that it did not see.

    prediction: a `Prediction`, or a pair (mean, variance) of arrays (T,), the variance that of the truth.
    truth: (T,).  observed: of a `Prediction`, whether the truth is observations, or the field itself.
    trained: (N,) the observations that were trained on, for the MSLL, or the `Trivial` of them.
    level: of the intervals.

    Masked and missing values are refused.

    >>> score((np.zeros(2), np.ones(2)), np.array([0.0, 3.0]), trained=np.array([-1.0, 1.0]))
    Scores(rows=2, rmse=2.121, mae=1.5, nlpd=3.169, msll=0, crps=1.335, interval=24.72, coverage=50.0% of 0.95)
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
        interval=interval_score(*given, level),
        coverage=coverage(*given, level),
        level=level,
    )


def framed(parts: Mapping[str, Scores]) -> Any:
    """A data frame with a row of scores for each part, called as that is.

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
