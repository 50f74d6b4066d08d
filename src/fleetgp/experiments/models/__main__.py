"""python -m fleetgp.experiments.models [FOLDER]: draw the figures of docs/models.md again, into docs/models/."""

from __future__ import annotations

import sys
from pathlib import Path

from fleetgp.experiments.models import draw_all

if __name__ == "__main__":
    draw_all(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/models"), told=print)
