"""fleetgp watch: a page in the browser that shows a running fleet."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetgp.cli.options import FILE
from fleetgp.cli.output import bold, emit, warn
from fleetgp.cli.running import description_of
from fleetgp.errors import InputError
from fleetgp.files import check_folder, whole

if TYPE_CHECKING:
    from fleetgp.page.source import PageSource

PORT = Annotated[int | None, typer.Option(help="The port. (default: 8765, or any if it is taken)", min=0, max=65535)]
HOST = Annotated[str, typer.Option(help="Where to listen. Beyond this machine viewers must type a token.")]
NO_OPEN = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]
SAVE = Annotated[Path | None, typer.Option(help="When it ends, save the page as one HTML file.")]


def watch(
    file: FILE,
    port: PORT = None,
    host: HOST = "127.0.0.1",
    share: Annotated[
        float, typer.Option(help="The part of the fleet's time and bytes that maps may cost, up to 1.")
    ] = 0.05,
    no_open: NO_OPEN = False,
    save: SAVE = None,
) -> None:
    """Show a running fleet in the browser: its map, who is there, what happens. Ctrl-C ends the page, not the fleet.

    [bold]The five example boats[/bold]

    [cyan]fleetgp up boats/fleet.toml --example --detach[/cyan]

    [cyan]fleetgp watch boats/fleet.toml[/cyan]
    """
    description = description_of(file)
    check_page()
    from fleetgp.page.watch import Watch

    if not 0.0 < share <= 1.0:
        raise InputError(f"expected --share above 0 and up to 1, got {share:g}")
    # Whoever may use the page acts as the operator: with certificates that is not everybody on this machine.
    show(Watch(description, share=share), host, port, guarded=description.secured, no_open=no_open, save=save)


def check_page() -> None:
    """One clear error where the extra is missing."""
    try:
        import starlette
        import uvicorn
    except ModuleNotFoundError as error:
        raise InputError(f'the page needs {error.name}: pip install "fleetgp[page]"') from error
    del starlette, uvicorn


def show(
    source: PageSource,
    host: str,
    port: int | None,
    *,
    guarded: bool = False,
    no_open: bool = False,
    save: Path | None = None,
) -> None:
    """Serve a page until Ctrl-C."""
    from fleetgp.page.server import PageServer, saved_page

    if save is not None:
        check_folder(save.parent)
    with ExitStack() as stack:
        stack.callback(_leave)
        server = PageServer(source, host, port, guarded=guarded)
        stack.callback(server.close)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        source.start()
        stack.callback(source.close)
        server.start()
        token = [f"Viewers type this token: {bold(server.token)}"] if server.token else []
        emit({}, f"The page is at {bold(server.address)} (Ctrl-C ends it).", *token, as_json=False)
        if server.token and not guarded:
            warn("what the page shows crosses the network as it is: use it among people you trust, or over SSH")
        if not no_open and not server.token:
            webbrowser.open(server.address)
        try:
            server.wait()
        except KeyboardInterrupt:
            if save is not None:
                with whole(save) as partial:
                    partial.write_text(saved_page(source), encoding="utf-8")
                emit({}, f"The page is saved in {bold(save)}.", as_json=False)


def _leave() -> None:
    """Where the session with a dead agent does not end, Python would wait for it, or fall over it."""
    if sys.exc_info()[0] is None and any(thread.name.startswith("page") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _end(*_: object) -> None:
    raise KeyboardInterrupt
