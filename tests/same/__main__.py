"""What FleetGP answers now, or whether it still answers the same.

    python -m tests.same record before.json            # every configuration, to the last bit
    python -m tests.same compare before.json           # with what is answered now
    python -m tests.same compare before.json now.json  # of two recordings
    python -m tests.same list
    python -m tests.same store                         # what test_same.py compares with

Compare recordings of one machine, with the same environment: last bits differ between processors, and with the number
of BLAS threads, which is one here. FLEETGP_COMPILE=0 records what is answered without compiled loops.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("record", "compare"):
        sub = commands.add_parser(command)
        sub.add_argument("file", type=Path)
        if command == "compare":
            sub.add_argument("other", type=Path, nargs="?")
        sub.add_argument("--only", nargs="*", default=[], help="texts, one of which is in the configuration's name")
    commands.add_parser("list")
    commands.add_parser("store")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    from tests.same import stored  # NumPy and all others look at the environment when they are loaded
    from tests.same.configurations import CONFIGURATIONS
    from tests.same.recording import compared, recorded

    if given.command == "list":
        print("\n".join(CONFIGURATIONS))
    elif given.command == "store":
        stored.write()
    elif given.command == "record":
        given.file.write_text(json.dumps(recorded(given.only), indent=1), encoding="utf-8")
    else:
        old = json.loads(given.file.read_text(encoding="utf-8"))
        new = recorded(given.only) if given.other is None else json.loads(given.other.read_text(encoding="utf-8"))
        sys.exit(not compared(old, new, all_of_old=not given.only))


if __name__ == "__main__":
    main()
