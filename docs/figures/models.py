"""The figures of docs/models.md: `make figures`, or `python docs/figures/models.py gap` for one of them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from calibrations import calibration
from coordinates import coordinates
from days import space_time
from kernels import gap, shapes
from known import known
from means import means
from noises import robust, sensors
from panels import STYLE
from scenes import Drawn, Size
from targets import targets

from fleetgp.errors import FleetGPWarning, unknown_name

#: What draws the figure of a section of the page.
SECTIONS: dict[str, Callable[[Size], Drawn]] = {
    "gap": gap,
    "shapes": shapes,
    "space-time": space_time,
    "means": means,
    "coordinates": coordinates,
    "known": known,
    "calibration": calibration,
    "sensors": sensors,
    "robust": robust,
    "targets": targets,
}


def draw_all(
    folder: Path,
    size: Size = Size(),  # noqa: B008
    names: Iterable[str] = SECTIONS,
    told: Callable[[str], object] = lambda _: None,
) -> None:
    """Write NAME.png for these sections, and their numbers into numbers.json; what is there of others stays.

    told: hears of every figure that is finished, with its numbers.
    """
    from matplotlib import rc_context

    chosen = tuple(names)
    for name in chosen:
        if name not in SECTIONS:
            raise unknown_name("figure", name, SECTIONS)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "numbers.json"
    facts = json.loads(page.read_text(encoding="utf-8")) if page.exists() else {}
    for name in chosen:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of gaps, floors and bounds: they are what is shown
            drawn = SECTIONS[name](size)
            drawn.figure.savefig(folder / f"{name}.png", dpi=140)
        facts[name] = drawn.facts
        told(f"{name}: {json.dumps(drawn.facts)}")
    ordered = {name: facts[name] for name in SECTIONS if name in facts}
    page.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw_all(Path(__file__).parents[1] / "models", names=sys.argv[1:] or SECTIONS, told=print)
