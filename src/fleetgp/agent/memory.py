"""What an agent must not forget when its process ends: its model, estimates of a training, moments of the whole fleet.

On disk: a small JSON file, `Checkpoint`, and the file of the totals; each is whole, or as it was before.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.agenda import NOTHING, Calibrated, Scored, Trained, with_change
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Activity, Log
from fleetgp.agent.observations import ObservationStore, Sent
from fleetgp.agent.records import Codec, Count, Matrix, Strict
from fleetgp.agent.requests import Requests
from fleetgp.agent.summaries import Own, Summary, SummaryFile
from fleetgp.agent.totals import Totals, TotalsFile
from fleetgp.arrays import Array, IntArray
from fleetgp.files import read_private, write_private
from fleetgp.model.hyperparameters import Hyperparameters, sound_log_theta
from fleetgp.model.observations import Observations
from fleetgp.prediction.groups import groups_within

VERSION = 1
#: Bytes; ours have some hundreds, and some thousands for a thousand agents.
LARGEST_FILE = 4 * 2**20


@dataclass(frozen=True)
class Checkpoint(Strict):
    """trained: the model.  rows, removed: how many rows this agent had ever received by then, and taken back.

    estimates, chosen, round: of a training that has not ended.
    uncalibrated: the model whose calibration has ended, since rows that it was made with were taken back; 0: none.
    drift: of the rows that came since, and were scored with the model.
    """

    trained: Trained | None = None
    rows: Count = 0
    estimates: Matrix = field(default_factory=lambda: NOTHING)
    chosen: bool = False
    round: Count = 0
    removed: Count = 0
    uncalibrated: Count = 0
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
    facts = {"drift": _NO_DRIFT, "removed": 0, "uncalibrated": 0, **facts}  # an older FleetGP kept none
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
        self._unsaved, self._saving = False, threading.Lock()
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
        """How many rows this agent had ever received when the model was trained."""
        return self._checkpoint.rows

    @property
    def removed(self) -> int:
        """How many rows had been taken back when the model was trained."""
        return self._checkpoint.removed

    @property
    def uncalibrated(self) -> bool:
        """Whether the calibration of this model has ended."""
        trained = self._checkpoint.trained
        return trained is not None and self._checkpoint.uncalibrated == trained.id

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

    def sent(self, agent: int, shard: Observations) -> Sent:
        """What this agent has sent of its rows now."""
        description, trained, summary, totals = self._description, self.trained, self.summary, self.totals
        scales = shard.inputs.std(axis=0) if len(shard) else np.ones(shard.dimension)
        scales = np.where(scales > 0.0, scales, 1.0)
        if trained is not None and trained.coordinates.name == "as-given":
            h = Hyperparameters.from_theta(np.array(trained.theta))
            scales = description.kernel_of(trained.kernel).scales(h, shard.dimension)[0]
        agents, budget = len(description.names), description.prediction_options().budget
        ended = {
            "calibration": trained is not None and trained.calibration is not None,
            "moments": totals is not None and totals.contents.part(agent) is not None,
        }
        return Sent(
            groups=() if summary is None else tuple(summary.members(shard)),
            scales=scales,
            most=max(1, groups_within(budget, agents, shard.dimension) // (2 * agents)),
            ended=tuple(name for name, made in ended.items() if made),
        )

    @property
    def drift(self) -> Scored:
        """The sums over the new rows that this agent has scored with its model."""
        return self._checkpoint.drift

    def regroup(self, shard: Observations, members: Sequence[IntArray]) -> None:
        """Rows have left groups that this agent has sent: what remains makes these, whatever comes later."""
        summary = self.summary
        if summary is None or summary.own is None:
            return
        agent, entries = summary.own.agent, dict(summary.entries)
        if agent in entries:  # of which the rows are not known any more
            entries[agent] = replace(entries[agent], groups=replace(entries[agent].groups, members=()))
        own = Own.of(agent, summary.own.theta, shard, members)
        self.summary_file.hold(replace(summary, entries=entries, own=own))

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

    def finish(self, trained: Trained, rows: int, totals: Totals | None = None, removed: int = 0) -> None:
        """A training has ended with this model, and with dec-full-gp with totals."""
        self._checkpoint = Checkpoint(trained, rows, removed=removed)
        self.save()
        if totals is not None:
            self.totals_file.hold(totals)

    def end_calibration(self) -> None:
        """Answers of this model are not calibrated any more."""
        trained = self._checkpoint.trained
        if trained is not None and not self.uncalibrated:
            trained = replace(trained, calibration=None)
            self._checkpoint = replace(self._checkpoint, trained=trained, uncalibrated=trained.id)
            self.save()

    def calibrate(self, calibration: Calibrated) -> None:
        if self.trained is not None:
            self._checkpoint = replace(self._checkpoint, trained=replace(self.trained, calibration=calibration))
            self.save()

    def save(self) -> None:
        """To disk, from any thread. A full disk stops nobody: it is logged once, and the next save tries again."""
        try:
            with self._saving:
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
