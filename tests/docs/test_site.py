"""The site is built as `make docs` does, warnings being errors, and read as a browser without a network would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer

import fleetgp as fg
from fleetgp.cli.app import app
from fleetgp.declarations import options_in
from fleetgp.options import ModelOptions, PredictionOptions, RowOptions, TrainerOptions
from tests.docs.pages import ROOT
from tests.shared import made_once

pytest.importorskip("sphinx")

#: What a browser fetches by itself, and where its address stands.
FETCHED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}


class Read(HTMLParser):
    """ids: what can be linked to.  links: of readers.  fetched: by the browser.  text: all of it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.text = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.append(given[FETCHED[tag]])

    def handle_data(self, data: str) -> None:
        self.text += data


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    built = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "FLEETGP_COMPILE": "0"}
    )
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "site", build) / "html"


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Read]:
    """All pages; the theme leaves a template of its own among its files."""
    return {page: Read(page) for page in sorted(site.rglob("*.html")) if "_static" not in page.parts}


def test_every_page_is_there(site: Path) -> None:
    sources = {p.relative_to(ROOT / "docs") for kind in ("md", "rst") for p in (ROOT / "docs").rglob(f"*.{kind}")}
    missing = [str(p) for p in sources if "_build" not in p.parts and not (site / p).with_suffix(".html").exists()]
    assert missing == []


def addresses_in_styles(site: Path) -> Iterator[str]:
    for style in site.rglob("*.css"):
        yield from re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", style.read_text(encoding="utf-8"))


def test_nothing_comes_from_the_network(site: Path, read: dict[Path, Read]) -> None:
    fetched = [address for page in read.values() for address in page.fetched]
    fetched += ["".join(found) for found in addresses_in_styles(site)]
    assert len(fetched) > 100
    assert [address for address in fetched if re.match(r"(https?:)?//", address)] == []


def test_links_within_the_site_lead_somewhere(site: Path, read: dict[Path, Read]) -> None:
    broken = []
    for page, found in read.items():
        for link in [*found.links, *found.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or (not parts.path and not parts.fragment):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            whole = target.exists() and target.is_relative_to(site.resolve())
            if not whole or (parts.fragment and target in read and unquote(parts.fragment) not in read[target].ids):
                broken.append(f"{page.relative_to(site)} -> {link}")
    assert broken == []


def test_every_public_name_is_in_the_reference(site: Path, read: dict[Path, Read]) -> None:
    ids = {anchor for page, found in read.items() if page.parent == site / "api" for anchor in found.ids}
    names = [
        *fg.__all__,
        "FleetGPRegressor",
        "Fleet.train",
        "Fleet.predict",
        "Fleet.from_files",
        "io.read_observations",
    ]
    assert [name for name in names if f"fleetgp.{name}" not in ids] == []


def test_arguments_of_docstrings_are_definitions(site: Path) -> None:
    page = (site / "api" / "fleets.html").read_text(encoding="utf-8")
    assert re.search(r"<dt><code[^>]*>.*?shards.*?</code></dt>", page)
    assert re.search(r"<dt><code[^>]*>.*?rounds.*?</code></dt>", page)
    assert re.search(r"<dt><code[^>]*>.*?missing.*?</code>, <code[^>]*>.*?fill.*?</code>, <code", page)


def test_every_command_and_its_options_are_listed(site: Path, read: dict[Path, Read]) -> None:
    page = read[site / "cli.html"]
    group: Any = typer.main.get_command(app)
    context = group.make_context("fleetgp", [], resilient_parsing=True)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    assert len(commands) > 10
    assert [name for name in commands if f"fleetgp-{name}" not in page.ids] == []
    options = {opt for command in commands.values() for each in command.params if not each.hidden for opt in each.opts}
    assert [opt for opt in options if opt.startswith("--") and opt not in page.text] == []


def test_every_option_has_a_row_with_its_default(site: Path) -> None:
    page = (site / "options.html").read_text(encoding="utf-8")
    rows = [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)]
    for family in (ModelOptions, TrainerOptions, PredictionOptions, RowOptions, fg.io.Reading):
        for option in options_in(family).values():
            start = f"{option.name} {option.flag if option.cli else ''} {option.name if option.toml else ''}"
            assert any(row.startswith(" ".join(f"{start} {option.default_in_words}".split())) for row in rows), option


@pytest.mark.parametrize("name", ["methods", "choosing"])
def test_every_method_is_explained(site: Path, read: dict[Path, Read], name: str) -> None:
    """By its name or, with dec- and dec-nn- before it, as one of a family."""
    text = read[site / f"{name}.html"].text
    families = ("poe", "gpoe", "bcm", "rbcm", "grbcm")
    named = [m for m in (*fg.TRAINING_METHODS, *fg.PREDICTION_METHODS) if m not in text]
    assert [m for m in named if m.removeprefix("dec-").removeprefix("nn-") not in families] == []


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    page = (site / "methods.html").read_text(encoding="utf-8")
    assert page.count("<math ") > 50
    assert not any("mathjax" in address.lower() for address in Read(site / "methods.html").fetched)
    assert "$" not in Read(site / "methods.html").text


def test_search_finds_words_without_a_server(site: Path) -> None:
    """The index is a script, which a page from disk may load; one that it has to fetch would be refused."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert all(f'"{word}"' in index for word in ("calibr", "kilometr", "dec"))
