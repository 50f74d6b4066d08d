"""A real browser for tests, from the system's packages; without one they say what they skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
#: Milliseconds after which only a hang has not ended.
LONG = 120_000
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def chromium() -> str | None:
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), None)


@contextmanager
def started_browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the page is not tried in a browser: no playwright here")
    program = chromium()
    if program is None:
        pytest.skip("the page is not tried in a browser: no Chromium here (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page, and everything that its console complains of."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": LAPTOP, "color_scheme": "light", **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG)
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def open(self, address: str) -> Any:
        self.page.goto(address)
        return self.page

    def wait_for_map(self) -> None:
        from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

        try:
            self.page.locator("#no-map").wait_for(state="hidden", timeout=40_000)
        except PlaywrightTimeoutError:  # seen once, and the cause is not known: do as a viewer would
            self.page.reload(wait_until="commit")
            self.page.locator("#no-map").wait_for(state="hidden")

    def colours(self) -> int:
        """How many different colours the map has: 1 if nothing is drawn."""
        script = """() => {
            const canvas = document.getElementById("field"), seen = new Set();
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            for (let i = 0; i < data.length; i += 400) seen.add(data[i] * 65536 + data[i + 1] * 256 + data[i + 2]);
            return seen.size;
        }"""
        return int(self.page.evaluate(script))

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def picture(self, name: str, folder: Path, **options: Any) -> Path:
        """Into a folder that is kept, if FLEETGP_SCREENSHOTS names one."""
        target = Path(os.environ.get("FLEETGP_SCREENSHOTS") or folder) / f"{name}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=target, **options)
        return target

    def close(self) -> None:
        self.context.close()


@contextmanager
def tab(browser: Any, **options: Any) -> Iterator[Tab]:
    """A tab whose console must stay silent."""
    opened = Tab(browser, **options)
    try:
        yield opened
        assert opened.complaints == []
    finally:
        opened.close()
