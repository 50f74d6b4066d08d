"""python -m fleetgp.experiments.models [NAME ..]: draw figures of docs/models.md again, or all, into docs/models/."""

from __future__ import annotations

import sys
from pathlib import Path

from fleetgp.experiments.models import SECTIONS, draw_all

if __name__ == "__main__":
    draw_all(Path("docs/models"), names=sys.argv[1:] or SECTIONS, told=print)
