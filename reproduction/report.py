"""What an experiment leaves: findings, CSV and JSON, figures as PNG and PDF, and one self-contained HTML page."""

from __future__ import annotations

import base64
import csv
import html
import importlib.metadata
import io
import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.files import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: The results of replications, by method, graph and number of agents.
Rows = Mapping[tuple[str, str, int], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Check:
    """A number that must lie strictly below its limit, or, if `above`, strictly above it."""

    what: str
    value: float
    limit: float
    above: bool = False

    @property
    def margin(self) -> float:
        """The distance from the limit, relative to it (unless it is 0); positive where the check holds.

        >>> below("error", 0.75, 1.0).margin, above("error", 0.75, 1.0).margin
        (0.25, -0.25)
        """
        distance = self.value - self.limit if self.above else self.limit - self.value
        return distance / (abs(self.limit) or 1.0)

    @property
    def holds(self) -> bool:
        """False for a number that is not one."""
        return self.margin > 0.0

    def as_dict(self) -> dict[str, Any]:
        side = "above" if self.above else "below"
        return {"what": self.what, "value": self.value, side: self.limit, "margin": self.margin}


def below(what: str, value: float, limit: float) -> Check:
    return Check(what, float(value), float(limit))


def above(what: str, value: float, limit: float) -> Check:
    return Check(what, float(value), float(limit), above=True)


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, what we see, and the checks that decide.

    It agrees where all checks hold. Otherwise it agrees in part where all of the `core` hold, or, if the claim has no
    core, where any check holds.
    """

    claim: str
    seen: str
    checks: Sequence[Check]
    core: Sequence[Check] = ()

    @property
    def verdict(self) -> str:
        """One of "agrees", "in part" and "differs"."""
        if all(check.holds for check in (*self.core, *self.checks)):
            return "agrees"
        partly = all(check.holds for check in self.core) if self.core else any(check.holds for check in self.checks)
        return "in part" if partly else "differs"

    @property
    def margin(self) -> float:
        """The distance, relative to its limit, of the number that lies closest to its limit."""
        return min(abs(check.margin) for check in (*self.core, *self.checks))

    def as_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "seen": self.seen,
            "margin": self.margin,
            "core": [check.as_dict() for check in self.core],
            "checks": [check.as_dict() for check in self.checks],
        }


def per_fleet(values: Mapping[int, object], form: str = "") -> str:
    """A value for each number of agents, in words.

    >>> per_fleet({4: 0.51, 10: 1.0}, ".0%")
    '51% (M = 4), 100% (M = 10)'
    """
    return ", ".join(f"{value:{form}} (M = {agents})" for agents, value in values.items())


def grouped(rows: Sequence[dict[str, Any]], *names: str) -> dict[Any, list[dict[str, Any]]]:
    """Group rows by their values under these names.

    >>> grouped([{"m": "poe", "n": 4}, {"m": "bcm", "n": 4}, {"m": "poe", "n": 4}], "m", "n").keys()
    dict_keys([('poe', 4), ('bcm', 4)])
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def mean_of(rows: Sequence[Mapping[str, Any]], what: str) -> float:
    """The average of one quantity over rows."""
    return float(np.mean([row[what] for row in rows]))


def averages(rows: Sequence[Mapping[str, Any]], **forms: str) -> list[str]:
    """The averages of several quantities over rows, each in its form.

    >>> averages([{"rmse": 0.5, "rounds": 900}, {"rmse": 1.0, "rounds": 1100}], rmse=".3f", rounds=",.0f")
    ['0.750', '1,000']
    """
    return [format(mean_of(rows, what), form) for what, form in forms.items()]


def converged(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of the rows are of a method that converged, in words."""
    return f"{sum(row['status'] == 'converged' for row in rows)} of {len(rows)}"


#: How letters that the texts spell out are set. A word that has one inside, or an underscore more, is a name.
_LETTERS = {"sigma": "σ", "eps": "ε", "theta": "θ", "chi": "χ", "xi": "ξ", "rho": "ρ", "kappa": "κ"}
_MATHS = re.compile(r"(?<![\w.-])(sigma|theta|chi|xi|rho|kappa|[lNs])(?:_(eps|JOR|PM|[a-z0-9]))?(?![\w-]|\.\w)")


def typeset(text: str) -> str:
    """As HTML, with letters of the maths set as such.

    >>> typeset("(l_1, sigma_eps): |theta_i - z| < 1e-3")
    '(l<sub>1</sub>, σ<sub>ε</sub>): |θ<sub>i</sub> - z| &lt; 1e-3'
    >>> typeset("3 chi. xi = N_i [0, 2]^2; `rho`, see dec_N_i.csv")
    '3 χ. ξ = N<sub>i</sub> [0, 2]<sup>2</sup>; <em>ρ</em>, see dec_N_i.csv'
    """

    def letter(match: re.Match[str]) -> str:
        base, index = match.groups()
        return _LETTERS.get(base, base) + (f"<sub>{_LETTERS.get(index, index)}</sub>" if index else "")

    set_text = _MATHS.sub(letter, html.escape(text))
    return re.sub(r"`([^`]+)`", r"<em>\1</em>", re.sub(r"(?<=[\w\])])\^(\d)", r"<sup>\1</sup>", set_text))


@dataclass
class Report:
    """A page that grows from top to bottom; figures are saved beside it as they come."""

    title: str
    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    _body: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self._body.append(f"<h2>{typeset(text)}</h2>")

    def text(self, *paragraphs: str) -> None:
        self._body += [f"<p>{typeset(paragraph)}</p>" for paragraph in paragraphs]

    def findings(self, findings: Sequence[Finding]) -> None:
        rows = "".join(
            f'<tr class="{f.verdict.replace(" ", "-")}"><td class="text">{typeset(f.claim)}</td>'
            f'<td class="text"><b>{f.verdict}</b></td><td class="text">{typeset(f.seen)}</td></tr>'
            for f in findings
        )
        head = "<tr><th class='text'>The paper says</th><th></th><th class='text'>We see</th></tr>"
        self._body.append(f"<table class='findings'>{head}{rows}</table>")
        self.facts["findings"] = [f.as_dict() for f in findings]

    def table(self, caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1) -> None:
        """left: how many columns are text."""

        def cells(values: Sequence[object], tag: str) -> str:
            return "".join(
                f"<{tag}{' class=text' if number < left else ''}>{typeset(str(value))}</{tag}>"
                for number, value in enumerate(values)
            )

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
        self._body.append(f"<table><caption>{typeset(caption)}</caption><tr>{cells(columns, 'th')}</tr>{body}</table>")

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Saved as PNG and PDF, and shown."""
        folder = self.folder / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        picture = io.BytesIO()
        figure.savefig(picture, dpi=200, format="png")
        (folder / f"{name}.png").write_bytes(picture.getvalue())
        encoded = base64.b64encode(picture.getvalue()).decode()
        image = f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{encoded}">'
        self._body.append(f"<figure>{image}<figcaption>{typeset(caption)}</figcaption></figure>")

    def write(self, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
        """results.csv, results.json and report.html."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = environment()
        facts = {"title": self.title, "environment": about, "settings": dict(settings), **self.facts}
        facts = _without_infinities({**facts, "results": list(rows)})
        self.heading("How it was made")
        self.table("Environment", ("what", "version"), list(about.items()), left=2)
        self.table("Settings, seeds included", ("setting", "value"), list(settings.items()), left=2)
        self.text("Every number on this page is in results.csv and results.json beside it.")
        texts = {
            "results.json": json.dumps(facts, indent=1, allow_nan=False),
            "results.csv": table_text(rows),
            "report.html": _PAGE.format(title=html.escape(self.title), body="\n".join(self._body)),
        }
        for name, text in texts.items():
            with whole(self.folder / name) as partial:
                partial.write_text(text, encoding="utf-8")


def environment() -> dict[str, str]:
    """Versions that a number may depend on."""
    about = {"fleetgp": "unknown", "python": platform.python_version(), "machine": platform.machine()}
    for name in ("fleetgp", "numpy", "scipy", "numba"):
        try:
            about[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            about[name] = "not installed"
    about["system"] = platform.system()
    about["cores"] = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    return about


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; lists and mappings spread over columns of their own."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _without_infinities(value: Any) -> Any:
    """JSON has none."""
    if isinstance(value, Mapping):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            columns |= _flat(value, f"{prefix}{key}_")
        elif isinstance(value, list):
            columns |= {f"{prefix}{key}_{number}": item for number, item in enumerate(value)}
        else:
            columns[f"{prefix}{key}"] = value
    return columns


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-size: 0.85rem; }}
caption {{ text-align: left; font-weight: 600; padding: 0.3rem 0; }}
th, td {{ padding: 0.15rem 0.5rem; text-align: right; border-bottom: 1px solid #e5e5e5; vertical-align: top; }}
td.text:first-child {{ white-space: nowrap; }} .findings td.text:first-child {{ white-space: normal; }}
th {{ border-bottom: 2px solid #888; }} .text {{ text-align: left; }}
@media (max-width: 50rem) {{ table {{ display: block; overflow-x: auto; }} }}
tr.agrees b {{ color: #00674c; }} tr.differs b {{ color: #a83c00; }} tr.in-part b {{ color: #005a8c; }}
figure {{ margin: 1.2rem 0; }} img {{ width: 100%; }} figcaption {{ font-size: 0.85rem; color: #444; }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""
