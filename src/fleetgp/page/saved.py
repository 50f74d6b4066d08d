"""A page as it is now, or of a finished run, as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetgp.page.source import Source

IMPORT = re.compile(r'^import .*? from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) )", re.MULTILINE)


def _read(name: str) -> str:
    return (files("fleetgp.page") / "static" / name).read_text(encoding="utf-8")


def bundled(name: str = "app.js", done: set[str] | None = None) -> str:
    """A module with all that it imports, each once, as one script."""
    done = set() if done is None else done
    done.add(name)
    text = _read(name)
    before = "".join(bundled(other, done) for other in IMPORT.findall(text) if other not in done)
    return before + EXPORT.sub("", IMPORT.sub("", text))


def saved_page(source: Source) -> str:
    """The page with its present picture, map and rows inside. It asks for nothing, and tells nobody."""
    _, picture = source.picture()
    told: dict[str, Any] = {"picture": picture, "rows": source.rows()}
    data = source.field(picture.get("map", {}).get("version", -1))
    if data is not None:
        told["field"] = base64.b64encode(data).decode()
    script = f'"use strict";(() => {{\n{_read("theme.js")}\n{bundled()}\n}})();'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    # "<" could end the element that the JSON stands in.
    content = json.dumps(told, allow_nan=False).replace("<", "\\u003c")
    page = re.sub(r"\s*<script .*?</script>|\s*<link .*?>", "", _read("index.html"))
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    head = f"{meta}\n<style>\n{_read('style.css')}</style>\n</head>"
    tail = f'<script type="application/json" id="saved">{content}</script>\n<script>{script}</script>\n</body>'
    return page.replace("</head>", head, 1).replace("</body>", tail, 1)
