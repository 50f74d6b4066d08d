"""The paper's experiments: its tables and figures, made again and compared with what it reports."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetgp.progress import Listener
    from reproduction.cells import Place
    from reproduction.report import Report

#: Each is a module with a `Plan`, which has a `quick` version, and a function `reproduce`.
EXPERIMENTS = ("training", "prediction", "communication")


def reproduce(
    experiment: str, folder: Path, *, quick: bool, sst: str = "", listener: Listener | None, place: Place | None = None
) -> Report:
    """Run the cells that are not there yet, and write the page from all of them. Finished cells stay in `cells/`."""
    module: Any = import_module(f"reproduction.{experiment}")
    data = {"sst": sst} if sst else {}
    plan = module.Plan.quick(**data) if quick else module.Plan(**data)
    report: Report = module.reproduce(plan, folder, listener, place)
    return report
