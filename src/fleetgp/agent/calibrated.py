"""A calibration as agents keep it and tell it to each other, with the model that it belongs to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fleetgp.agent.questions import Predictor
from fleetgp.agent.records import Count, Strict
from fleetgp.data.holdout import Hold
from fleetgp.network.peer_checks import LARGEST
from fleetgp.prediction import Calibration
from fleetgp.prediction.calibration import Knot

Positive = Annotated[float, Field(ge=1.0 / LARGEST, le=LARGEST)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class KnotRecord(Strict):
    """A `Knot`."""

    hold: Hold
    factor: Positive
    deviation: Positive
    rows: Count
    before: Share
    after: Share


@dataclass(frozen=True)
class Calibrated(Strict):
    """A `Calibration`, but for theta, which is the model's."""

    method: Predictor
    eta: Share | Literal["auto"]
    neighbours: Count
    hold: Literal["rows", "blocks", "both"]
    level: Share
    cells: Count
    knots: Annotated[tuple[KnotRecord, ...], Field(min_length=1, max_length=2)]

    @classmethod
    def of(cls, found: Calibration) -> Calibrated:
        facts = {name: getattr(found, name) for name in ("method", "eta", "neighbours", "hold", "level", "cells")}
        return cls(**facts, knots=tuple(KnotRecord(**asdict(knot)) for knot in found.knots))

    @property
    def calibration(self) -> Calibration:
        knots = tuple(Knot(**asdict(knot)) for knot in self.knots)
        facts = self.method, self.eta, self.neighbours, self.hold, self.level, self.cells
        return Calibration(*facts, knots, np.zeros(0))
