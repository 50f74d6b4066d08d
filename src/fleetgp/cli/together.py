"""What `sample` and `suggest` share: how a model is asked about several points together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetgp.cli import options
from fleetgp.errors import unknown_name
from fleetgp.fleet.privacy import predictor_of
from fleetgp.prediction.options import refuse_foreign
from fleetgp.storage.model import Model


@dataclass(frozen=True)
class Together:
    """Of the joint posterior."""

    method: options.METHOD = None
    eta: options.ETA = None
    engine: options.ENGINE = "auto"
    neighbours: options.NEIGHBOURS_ASKED = None

    @property
    def chosen(self) -> dict[str, Any]:
        """As `Fleet.joint` takes them; one clear error, with their names as typed, for those of other methods."""
        given = {"eta": None if self.eta is None else options.eta_of(self.eta), "neighbours": self.neighbours}
        engine = None if self.engine == "auto" else self.engine
        refuse_foreign(predictor_of(None, self.method), {**given, "engine": engine}, prefix="--")
        return {"method": self.method, "engine": self.engine, **given}


def number_of(model: Model, agent: str) -> int:
    """Of an agent, by its name."""
    if agent not in model.agents:
        raise unknown_name("agent", agent, model.agents)
    return model.agents.index(agent)
