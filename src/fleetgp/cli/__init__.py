"""The command line: `fleetgp`. Needs the extra "cli"."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper

INTERRUPTED = 130


class Interruption:
    """The handler of Ctrl-C, from the first moment on.

    While modules are imported there is nothing to tidy up, and a KeyboardInterrupt inside an import may come out as
    another error: the process ends at once. Later it is raised as usual, and remembered: whatever a library that is
    imported during a command makes of it, it is still an interruption.
    """

    def __init__(self) -> None:
        self.starting, self.came, self.printed = True, False, False

    def install(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where somebody ignores it
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: object) -> None:
        self.came = True
        if self.starting:
            os.write(2, b"error: interrupted\n")
            os._exit(INTERRUPTED)
        raise KeyboardInterrupt

    def finish(self) -> None:
        """Ignore Ctrl-C while the interpreter shuts down: the work is done."""
        if signal.getsignal(signal.SIGINT) is self:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


#: Of this process.
INTERRUPTION = Interruption()


def main() -> None:
    """The entry point; without the extra, one line that names it."""
    INTERRUPTION.install()
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character gets a question mark
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        from fleetgp.cli.app import app

        app(prog_name="fleetgp")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or (INTERRUPTION.came and not _ended_well(error)):
            sys.stderr.write("error: interrupted\n")
            sys.exit(INTERRUPTED)
        if _closed_by_reader(error):
            discard_output()
            sys.exit(0)
        if not isinstance(error, ModuleNotFoundError):
            raise
        running = error.name in ("zenoh", "pydantic", "cryptography", "prometheus_client")
        sys.exit(f'error: this needs {error.name}: pip install "fleetgp[{"cli,fleet" if running else "cli"}]"')
    finally:
        INTERRUPTION.finish()


def discard_output() -> None:
    """Discard further output; else the interpreter complains about the broken pipe when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _closed_by_reader(error: BaseException | None) -> bool:
    """Whether a reader such as `head` closed the pipe, which is no error: rich and click exit with code 1 for it."""
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__context__
    return error is not None


def _ended_well(error: BaseException) -> bool:
    """Whether an interrupted command has ended as intended, with its own message.

    Typer ends in silence with the same code if the signal comes while it reads the arguments.
    """
    return isinstance(error, SystemExit) and (error.code in (None, 0) or INTERRUPTION.printed)
