"""The command line: `fleetgp`. Needs the extra "cli"."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point; without the extra, one line that names it."""
    try:
        from fleetgp.cli.app import app

        app(prog_name="fleetgp")
    except ModuleNotFoundError as error:
        extra = "fleet" if error.name in ("zenoh", "pydantic", "cryptography", "prometheus_client") else "cli"
        sys.exit(f'error: this needs {error.name}: install the extra "{extra}" (pip install "fleetgp[cli,{extra}]")')
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
