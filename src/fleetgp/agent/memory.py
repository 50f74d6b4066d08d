"""What an agent must not forget when its process ends: its model, estimates of a training, moments of the whole fleet.

On disk: a small JSON file, `Checkpoint`, and the file of the totals; each is whole, or as it was before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetgp.agent.agenda import NOTHING, Calibrated, Scored, Trained, with_change
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Activity, Log
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.records import Codec, Count, Matrix, Strict
from fleetgp.agent.requests import Requests
from fleetgp.agent.summaries import Summary, SummaryFile
from fleetgp.agent.totals import Totals, TotalsFile
from fleetgp.arrays import Array
from fleetgp.files import read_private, write_private
from fleetgp.model.hyperparameters import sound_log_theta

VERSION = 1
#: Bytes; ours have some hundreds, and some thousands for a thousand agents.
LARGEST_FILE = 4 * 2**20


@dataclass(frozen=True)
class Checkpoint(Strict):
    """trained: the model, and how many rows it knew.  estimates, chosen, round: of a training that has not ended.

    drift: of the rows that came since, and were scored with the model.
    """

    trained: Trained | None = None
    rows: Count = 0
    estimates: Matrix = field(default_factory=lambda: NOTHING)
    chosen: bool = False
    round: Count = 0
    drift: Scored = field(default_factory=Scored)

    def save(self, path: Path, description: Description) -> None:
        facts = _CODEC.facts_of(self)
        facts.update(version=VERSION, model=description.model)
        if self.trained is not None:  # by name: the order in the description may change
            facts["trained"]["members"] = [description.names[member] for member in self.trained.members]
        write_private(path, json.dumps(facts).encode())

    @classmethod
    def load(cls, path: Path, description: Description) -> Checkpoint | None:
        """The last one, or None: if there is none, none of this model, or none that makes sense."""
        data = read_private(path, LARGEST_FILE)
        if data is None or len(data) > LARGEST_FILE:
            return None
        try:
            facts = json.loads(data)
            if (facts.pop("version"), facts.pop("model")) != (VERSION, description.model):
                return None
            loaded = _CODEC.of_facts(_with_ids(facts, description))
            if loaded.trained is not None:
                loaded.trained.change.check(description.dimension)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        rows = [*loaded.estimates, *([] if loaded.trained is None else [loaded.trained.log_theta])]
        return loaded if all(sound_log_theta(row, len(description.parameters)) for row in rows) else None


_CODEC = Codec(Checkpoint, LARGEST_FILE)
_NO_DRIFT = _CODEC.facts_of(Checkpoint())["drift"]


def _with_ids(facts: dict[str, Any], description: Description) -> dict[str, Any]:
    """A checkpoint's values with the members' ids; without the model if one of these is no agent any more."""
    facts = {"drift": _NO_DRIFT, **facts}  # an older FleetGP kept none, nor the end of `trained`
    trained = with_change(facts["trained"])
    if trained is None:
        return facts
    trained = {"kernel": "", "calibration": None, "ended": 0.0, **trained}
    facts, names = {**facts, "trained": trained}, trained["members"]
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError("expected the names of agents")
    if not set(names) <= set(description.names):
        _CODEC.of_facts({**facts, "trained": {**trained, "members": list(range(len(names)))}})  # all else must be sound
        return {**facts, "trained": None}
    return {**facts, "trained": {**trained, "members": sorted(description.names.index(name) for name in names)}}


class Memory:
    """The checkpoint and the totals of one agent. Readers get a whole checkpoint: it is replaced, never changed."""

    def __init__(self, path: Path, description: Description, log: Log) -> None:
        self._path, self._description, self._log = path, description, log
        self._unsaved = False
        loaded = Checkpoint.load(path, description)
        if loaded is None and path.exists():
            aside = path.with_suffix(".old.json")
            path.replace(aside)
            log.warn("checkpoint left aside", why="it is damaged, or of another model", file=str(aside))
        self._checkpoint = loaded or Checkpoint()
        self.totals_file = TotalsFile(path.with_name("totals.bin"), description, log, self.save)
        self.summary_file = SummaryFile(path.with_name("summary.bin"), description, log, self.save)
        if self.trained is not None or len(self.estimates):
            log("resumed", model=self.trained is not None, round=self._checkpoint.round)

    @property
    def totals(self) -> Totals | None:
        """The moments of the whole fleet, as far as this agent knows; None if it holds none."""
        return self.totals_file.current

    @property
    def summary(self) -> Summary | None:
        """The groups of the whole fleet, as far as this agent knows; None if it holds none."""
        return self.summary_file.current

    @property
    def trained(self) -> Trained | None:
        return self._checkpoint.trained

    @property
    def rows(self) -> int:
        """How many rows this agent had when the model was trained."""
        return self._checkpoint.rows

    @property
    def estimates(self) -> Array:
        """(S, P) log theta of a training that has not ended."""
        return self._checkpoint.estimates

    @property
    def chosen(self) -> bool:
        """Whether the estimates are those of the best start alone."""
        return self._checkpoint.chosen

    @property
    def log_theta(self) -> list[float]:
        if len(self.estimates) and self.chosen:
            estimate: list[float] = self.estimates[0].tolist()
            return estimate
        return [] if self.trained is None else list(self.trained.log_theta)

    @property
    def drift(self) -> Scored:
        """The sums over the new rows that this agent has scored with its model."""
        return self._checkpoint.drift

    def adopt(self, model: Trained) -> None:
        self._checkpoint = replace(self._checkpoint, trained=model, drift=Scored())
        self.save()

    def keep_drift(self, drift: Scored) -> None:
        self._checkpoint = replace(self._checkpoint, drift=drift)
        self.save()

    def note(self, estimates: Array, chosen: bool, round: int) -> None:
        """The estimates after a round; those that cannot be hyperparameters are left out."""
        if sound_log_theta(estimates, len(self._description.parameters)):
            self._checkpoint = replace(self._checkpoint, estimates=estimates, chosen=chosen, round=round)

    def forget_estimates(self) -> None:
        """A training that has not ended is of no use any more."""
        self._checkpoint = replace(self._checkpoint, estimates=NOTHING, chosen=False, round=0)

    def finish(self, trained: Trained, rows: int, totals: Totals | None = None) -> None:
        """A training has ended with this model, and with dec-full-gp with totals."""
        self._checkpoint = Checkpoint(trained, rows)
        self.save()
        if totals is not None:
            self.totals_file.hold(totals)

    def calibrate(self, calibration: Calibrated) -> None:
        if self.trained is not None:
            self._checkpoint = replace(self._checkpoint, trained=replace(self.trained, calibration=calibration))
            self.save()

    def save(self) -> None:
        """To disk. A full disk stops nobody: it is logged once, and the next save tries again."""
        try:
            self._checkpoint.save(self._path, self._description)
            self.totals_file.save()
            self.summary_file.save()
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                self._log.error("no checkpoint", error=str(error))
            self._unsaved = True


@dataclass(frozen=True)
class AgentState:
    """What the parts of one agent share."""

    description: Description
    id: int
    data: ObservationStore
    memory: Memory
    requests: Requests
    activity: Activity
    log: Log
