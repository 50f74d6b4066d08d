"""python -m reproduction EXPERIMENT: the same as `fleetgp reproduce EXPERIMENT`."""

from __future__ import annotations

import sys

from fleetgp.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "reproduce")
    main()
