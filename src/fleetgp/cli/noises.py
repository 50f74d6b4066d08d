"""How the noise of observations differs, as it is typed, and what is said of outliers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from fleetgp.cli.options import one_of
from fleetgp.errors import InputError
from fleetgp.fleet.shards import AGENTS
from fleetgp.storage.model import Model

DEVIATION = Annotated[
    str | None, typer.Option(help="The column of known standard deviations of the target's noise, row by row.")
]
NOISE = Annotated[str | None, typer.Option(help="agents: a sigma_eps of its own for each agent. (default: one)")]
ROBUST = Annotated[
    bool, typer.Option("--robust", help="Weigh outliers down: a row counts as 2.5 deviations off at most.")
]


@dataclass(frozen=True)
class Noisy:
    """What is said of the noise."""

    deviation: DEVIATION = None
    noise: NOISE = None
    robust: ROBUST = False

    @property
    def given(self) -> bool:
        return self.deviation is not None or self.noise is not None or self.robust

    def check(self, columns: Sequence[str], *, several: bool) -> None:
        """One clear error before anything is read. columns: all others.  several: targets."""
        if several and self.given:
            raise InputError("--deviation, --noise and --robust are for one target, got several: fit them one by one")
        if self.noise is not None:
            one_of("--noise", self.noise, (AGENTS,))
        if self.deviation in columns:
            raise InputError(f"--deviation: expected a column that is no input, target or agent, got {self.deviation}")

    def refuse_chunks(self) -> None:
        """One clear error for files that are read in chunks."""
        if self.given:
            raise InputError(
                "--deviation, --noise and --robust are for one file that is read as a whole, got files that are read "
                "in chunks: join them, or leave these out"
            )

    def made(self, names: Sequence[str]) -> dict[str, Any]:
        """As a fleet takes it. names: the agents'."""
        if not self.given:
            return {}
        return {"noise": None if self.noise is None else list(names), "robust": self.robust}


def noise_of(model: Model, agent: str) -> str:
    """The name of the noise of an agent's observations."""
    noise = model.fleet.noise_model
    if not noise.groups:
        return noise.names[0]
    return noise.names[int(noise.group(model.fleet.data[model.agents.index(agent)])[0])]


def told_outliers(model: Model) -> list[str]:
    """How many rows are weighed down, and whose; nothing without --robust."""
    fit = model.fleet.fit
    if fit is None or not len(fit.outliers):
        return []
    total, rows = int(fit.outliers.sum()), sum(map(len, model.fleet.data))
    most = int(np.argmax(fit.outliers))
    whose = f", most of {model.agents[most]} ({fit.outliers[most]:,})" if total and len(model.agents) > 1 else ""
    return [f"{total:,} of {rows:,} rows are weighed down as outliers{whose}."]
