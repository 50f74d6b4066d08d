"""When the time of a training is up: each agent looks at its own clock, and the first one to say so ends it for all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetgp.network import Clock, Network


@dataclass(frozen=True)
class Deadline:
    """at: on a clock; None for never."""

    at: float | None = None
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def after(cls, seconds: float | None, clock: Clock) -> Deadline:
        """So many seconds from the beginning of this work.

        >>> [Deadline.after(seconds, Clock()).passed for seconds in (0.0, 3600.0, None)]
        [True, False, False]
        """
        return cls(None if seconds is None else clock.began + seconds, clock)

    @property
    def given(self) -> bool:
        """Whether there is one."""
        return self.at is not None

    @property
    def passed(self) -> bool:
        return self.at is not None and self.clock.passed(self.at)

    def passed_at_centre(self, network: Network) -> bool:
        """On the clock of the central node, which alone counts where there is one."""
        return self.given and bool(network.at_centre(np.array([float(self.passed)]))[0])


NEVER = Deadline()
