"""When the time of a training is up: each agent looks at its own clock, and the first one to say so ends it for all."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """at: on this machine's clock that never goes back; None for never."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now.

        >>> Deadline.after(0.0).passed, Deadline.after(3600.0).passed, Deadline.after(None).passed
        (True, False, False)
        """
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def given(self) -> bool:
        """Whether there is one."""
        return self.at is not None

    @property
    def passed(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at


NEVER = Deadline()
