"""What an experiment leaves: CSV and JSON, figures as PNG and PDF, and one self-contained HTML page."""

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
from typing import Any

from matplotlib.figure import Figure

from fleetgp.files import whole
from reproduction.findings import Finding

#: Okabe and Ito's colours, which everybody can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
}

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

    def letter(found: re.Match[str]) -> str:
        base, below = found.group(1), found.group(2)
        return _LETTERS.get(base, base) + (f"<sub>{_LETTERS.get(below, below)}</sub>" if below else "")

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

    def remark(self, text: str) -> None:
        """How the results came together, if there is something to say; in results.json too."""
        if text:
            self.text(text)
            self.facts["remark"] = text

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

    def write(self, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Path:
        """results.csv, results.json and report.html; the page's path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = environment()
        facts = {"title": self.title, "environment": about, "settings": dict(settings), **self.facts}
        _whole(
            self.folder / "results.json",
            json.dumps(_sound({**facts, "results": list(rows)}), indent=1, allow_nan=False),
        )
        _whole(self.folder / "results.csv", table_text(rows))
        self.heading("How it was made")
        self.table("Environment", ("what", "version"), list(about.items()), left=2)
        self.table("Settings, seeds included", ("setting", "value"), [(k, v) for k, v in settings.items()], left=2)
        self.text("Every number on this page is in results.csv and results.json beside it.")
        page = _PAGE.format(title=html.escape(self.title), body="\n".join(self._body))
        path = self.folder / "report.html"
        _whole(path, page)
        return path


def environment() -> dict[str, str]:
    """Versions that a number may depend on."""
    found = {"fleetgp": "unknown", "python": platform.python_version(), "machine": platform.machine()}
    for name in ("fleetgp", "numpy", "scipy", "numba"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["system"] = platform.system()
    found["cores"] = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    return found


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; lists and mappings spread over columns of their own."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _sound(value: Any) -> Any:
    """As JSON has it: no infinities."""
    if isinstance(value, Mapping):
        return {key: _sound(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}_")
        elif isinstance(value, list):
            found |= {f"{prefix}{key}_{number}": item for number, item in enumerate(value)}
        else:
            found[f"{prefix}{key}"] = value
    return found


def _whole(path: Path, text: str) -> None:
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


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
