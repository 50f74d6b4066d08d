"""The clock by which a process judges whether the time of its work is up."""

from __future__ import annotations

import time


class Clock:
    """This machine's, which never goes back."""

    @property
    def began(self) -> float:
        """When the work began that begins now."""
        return time.monotonic()

    def passed(self, at: float) -> bool:
        return time.monotonic() >= at
