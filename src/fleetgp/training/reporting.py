"""What a listener hears of a training, and what is left of one that is interrupted."""

from __future__ import annotations

from fleetgp.arrays import Array
from fleetgp.progress import Listener, Progress, Remembering
from fleetgp.training.fit import Fit, disagreement
from fleetgp.training.options import TrainingOptions


class TrainingProgress:
    """A `Report` that tells a listener of every round, and remembers the estimates that are worth most."""

    def __init__(self, method: str, options: TrainingOptions, listener: Listener | None) -> None:
        self._method = method
        self._several = options.starts is None or len(options.starts) > 1
        self._rounds = options.rounds if options.tol == 0 else None
        self._heard = Remembering(listener)
        self._last: tuple[int, int] | None = None  # the start that was heard of last, and its round
        self._chosen = 0

    def begun(self) -> None:
        self._heard(Progress(self._label(0), 0, self._rounds, ""))

    def __call__(self, start: int, done: int, thetas: Array, chosen: bool) -> None:
        if self._last is not None and self._last[0] != start:
            number, rounds = self._last
            self._heard(Progress(self._label(number), rounds, rounds, "compared"))  # its bar stands still
        self._last = start, done
        self._chosen = start if chosen else self._chosen
        detail = f"disagreement {disagreement(thetas):.1e}" if len(thetas) > 1 else ""
        self._heard(Progress(self._label(start), done, self._rounds, detail, thetas=thetas, chosen=chosen))

    def ended(self, fit: Fit) -> None:
        """Of the start that was chosen, how the training ended: others, and it on a sample, only were compared."""
        for number, start in enumerate(fit.starts):
            rounds, status = (fit.rounds, fit.status) if number == self._chosen else (start.rounds, start.status)
            self._heard(Progress(self._label(number), rounds, rounds, status))

    @property
    def furthest(self) -> Progress | None:
        return self._heard.furthest

    def _label(self, start: int) -> str:
        return f"{self._method} #{start + 1}" if self._several else self._method
