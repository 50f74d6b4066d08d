"""The command line: `fleetgp`. Needs the extra "cli"."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point; without the extra, one line that names it."""
    try:
        from fleetgp.cli.app import app

        app(prog_name="fleetgp")
    except ModuleNotFoundError as error:
        sys.exit(f'error: the command line needs {error.name}: install the extra "cli" (pip install "fleetgp[cli]")')
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
