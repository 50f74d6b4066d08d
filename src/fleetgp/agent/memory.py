"""What an agent must not forget: its model, estimates of a training, moments of the whole fleet; on disk as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fleetgp.agent.agenda import NOTHING, Calibrated, Trained
from fleetgp.agent.checkpoint import Checkpoint
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.totals import Totals, load_totals, save_totals
from fleetgp.arrays import Array
from fleetgp.model.hyperparameters import sound_log_theta


class Memory:
    """The checkpoint of one agent. Whoever reads it gets one that is whole: it is replaced, never changed.

    totals: the moments of the whole fleet, as far as this agent knows; None if it holds none.
    """

    def __init__(self, path: Path, description: Description, log: Log) -> None:
        self._path, self._description, self._log = path, description, log
        self._unsaved = False
        found = Checkpoint.load(path, description)
        if found is None and path.exists():
            aside = path.with_suffix(".old.json")
            path.replace(aside)
            log.warn("checkpoint left aside", why="it is damaged, or of another model", file=str(aside))
        self._kept = found or Checkpoint()
        self._totals_path = path.with_name("totals.bin")
        self.totals, self._totals_saved = self._load_totals(), True
        if self.trained is not None or len(self.estimates):
            log("resumed", model=self.trained is not None, round=self._kept.round)

    @property
    def trained(self) -> Trained | None:
        return self._kept.trained

    @property
    def rows(self) -> int:
        """How many rows this agent had when the model was trained."""
        return self._kept.rows

    @property
    def estimates(self) -> Array:
        """(S, P) log theta of a training that has not ended."""
        return self._kept.estimates

    @property
    def chosen(self) -> bool:
        """Whether the estimates are those of the best start alone."""
        return self._kept.chosen

    @property
    def log_theta(self) -> list[float]:
        """The current estimate; empty if there is none."""
        if len(self.estimates) and self.chosen:
            estimate: list[float] = self.estimates[0].tolist()
            return estimate
        return [] if self.trained is None else list(self.trained.log_theta)

    def adopt(self, model: Trained) -> None:
        """Take over a model that others have trained."""
        self._kept = replace(self._kept, trained=model)
        self.save()

    def note(self, estimates: Array, chosen: bool, round: int) -> None:
        """The estimates after a round. Those that cannot be hyperparameters are left out: none goes on from them."""
        if sound_log_theta(estimates, len(self._description.parameters)):
            self._kept = replace(self._kept, estimates=estimates, chosen=chosen, round=round)

    def forget_estimates(self) -> None:
        """A training that has not ended is of no use any more."""
        self._kept = replace(self._kept, estimates=NOTHING, chosen=False, round=0)

    def finish(self, trained: Trained, rows: int, totals: Totals | None = None) -> None:
        """A training has ended with this model; with dec-full-gp it has brought totals as well."""
        self._kept = Checkpoint(trained, rows)
        self.save()
        if totals is not None:
            self.hold(totals)

    def calibrate(self, calibration: Calibrated) -> None:
        """The model's, after its training."""
        if self.trained is not None:
            self._kept = replace(self._kept, trained=replace(self.trained, calibration=calibration))
            self.save()

    def hold(self, totals: Totals) -> None:
        """In the place of what it held; the log says if they know less of somebody's data."""
        before = self.totals
        if before is not None and before.number == totals.number:
            return
        lost = () if before is None else before.lost(totals)
        if lost:
            names = [self._description.names[agent] for agent in lost]
            self._log.warn("rows of others are not in the totals any more", agents=names)
        self.totals, self._totals_saved = totals, False
        self.save()

    def save(self) -> None:
        """To disk. A full disk stops nobody: it is logged once, and the next save tries again."""
        try:
            self._kept.save(self._path, self._description)
            if self.totals is not None and not self._totals_saved:
                save_totals(self.totals, self._totals_path, self._description)
                self._totals_saved = True
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                self._log.error("no checkpoint", error=str(error))
            self._unsaved = True

    def _load_totals(self) -> Totals | None:
        """Those on disk; a file that is not to be trusted is left aside."""
        path = self._totals_path
        found = load_totals(path, self._description)
        if found is None and path.exists():
            aside = path.with_suffix(".old.bin")
            path.replace(aside)
            self._log.warn("totals left aside", why="they are damaged, or of another fleet", file=str(aside))
        return found
