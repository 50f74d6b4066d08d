"""Finished pieces of long work, kept on disk: what was interrupted goes on where it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetgp.files import whole


class Kept:
    """Pieces by name, for one set of settings: other settings are other work, and find nothing.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Kept(folder, {"seed": 1}).put("a", {"x": 0.1})
    >>> Kept(folder, {"seed": 1}).get("a"), Kept(folder, {"seed": 2}).get("a")
    ({'x': 0.1}, None)
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, sort_keys=True, default=str)
        self.root = Path(folder)
        self.folder = self.root / hashlib.sha256(text.encode()).hexdigest()[:16]

    def get(self, name: str) -> Any:
        """The piece, or None. One that cannot be read counts as missing."""
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, name: str, piece: Any) -> None:
        """Whole or not at all, whenever the power goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        with whole(path) as partial:
            partial.write_text(json.dumps(piece), encoding="utf-8")

    def clear(self) -> None:
        """Forget all pieces, of other settings too."""
        shutil.rmtree(self.root, ignore_errors=True)
