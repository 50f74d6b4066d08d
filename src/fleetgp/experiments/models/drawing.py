"""All sections, one after the other: a figure and a few numbers each."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from fleetgp.errors import FleetGPWarning
from fleetgp.experiments.models.calibrations import calibration
from fleetgp.experiments.models.coordinates import coordinates
from fleetgp.experiments.models.days import space_time
from fleetgp.experiments.models.kernels import gap, shapes
from fleetgp.experiments.models.known import known
from fleetgp.experiments.models.means import means
from fleetgp.experiments.models.panels import STYLE
from fleetgp.experiments.models.scenes import Drawn, Size

#: What draws the figure of a section of the page.
SECTIONS: dict[str, Callable[[Size], Drawn]] = {
    "gap": gap,
    "shapes": shapes,
    "space-time": space_time,
    "means": means,
    "coordinates": coordinates,
    "known": known,
    "calibration": calibration,
}


def draw_all(
    folder: Path,
    size: Size = Size(),  # noqa: B008
    names: Iterable[str] = SECTIONS,
    told: Callable[[str], object] = lambda _: None,
) -> None:
    """Write NAME.png for every section, and their numbers into numbers.json.

    told: hears of every figure that is finished, with its numbers.
    """
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    facts = {}
    for name in names:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of gaps, floors and bounds: they are what is shown
            drawn = SECTIONS[name](size)
            drawn.figure.savefig(folder / f"{name}.png", dpi=140)
        facts[name] = drawn.facts
        told(f"{name}: {json.dumps(drawn.facts)}")
    (folder / "numbers.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
